"""Explain a node of a graph, or a code."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.options import Color, ColorChoice, Full, Json


def main(
    graph: Annotated[
        str,
        typer.Argument(
            metavar="GRAPH|CODE",
            help="A graph file, a SavedModel folder or -; or a code such as CFG201.",
            show_default=False,
        ),
    ],
    subject: Annotated[
        str | None, typer.Argument(metavar="[NODE]", help="The node, or a tensor of it.")
    ] = None,
    full: Full = False,
    json: Json = False,
    color: ColorChoice = Color.auto,
) -> None:
    """Explain a node of a graph, or a code."""
    if subject is None:
        from cfgraph.console.explain_code import explain_code

        explain_code(graph, json, color)
    else:
        from cfgraph.console.explain import explain_subject

        explain_subject(graph, subject, full, json, color)
