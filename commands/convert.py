"""Write a graph in another format: pb, pbtxt, or graph (readable text)."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.options import Exit, Graph, Json, Output, Quiet, To


def main(
    graph: Graph,
    output: Output = None,
    to: To = None,
    from_format: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FORMAT",
            help="Input format: pb, pbtxt or graph. Default: from the content.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Read the result back; exit with status 1 and write nothing if it differs.",
        ),
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a graph in another format: pb, pbtxt, or graph (readable text)."""
    from cfgraph.console.convert import convert

    raise Exit(convert(graph, output, to, from_format, json, quiet, verify))
