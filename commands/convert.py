"""Write a graph in another format: pb, pbtxt, graph (readable text), or py (Python)."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli.options import (
    Exit,
    Fetch,
    Graph,
    Json,
    Output,
    Signature,
    Target,
    repeatable,
)


def main(
    graph: Graph,
    output: Output = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="Output format: pb, pbtxt, graph, or py, a Python program that computes the same "
            "values. Default: from the suffix of FILE, else pb.",
        ),
    ] = None,
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
    fetch: Fetch = [],
    feed: Annotated[
        list[str],
        repeatable(
            "--feed",
            "NAME",
            "With py: make a tensor a parameter. Default: the inputs that the fetches need.",
        ),
    ] = [],
    target: Target = [],
    init: Annotated[
        list[str],
        repeatable(
            "--init",
            "NODE",
            "With py: add an initializer. Default: those of the variables that the fetches need.",
        ),
    ] = [],
    signature: Signature = None,
    json: Json = False,
) -> None:
    """Write a graph in another format: pb, pbtxt, graph (readable text), or py (Python)."""
    from cfgraph.console.transforms.convert import PythonOptions, convert

    python = PythonOptions(fetch, feed, target, init, signature)
    raise Exit(convert(graph, output, to, from_format, json, verify, python))
