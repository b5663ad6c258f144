"""Explain a node or a loop of a graph, how a node gets to another, or a code."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.options import (
    Color,
    ColorChoice,
    Devices,
    Feed,
    Full,
    Init,
    Json,
    MaxIterations,
    Variables,
)


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
        str | None,
        typer.Argument(
            metavar="[SUBJECT]", help="A node or a tensor, or the frame of a loop: /while_context."
        ),
    ] = None,
    other: Annotated[
        str | None,
        typer.Argument(metavar="[NODE]", help="How SUBJECT gets there, and a gradient back."),
    ] = None,
    feed: Feed = [],
    init: Init = [],
    variables: Variables = None,
    run: Annotated[
        bool, typer.Option("--run", help="Run the graph too, and tell what became of SUBJECT.")
    ] = False,
    devices: Devices = [],
    max_iterations: MaxIterations = None,
    full: Full = False,
    json: Json = False,
    color: ColorChoice = Color.auto,
) -> None:
    """Explain a node or a loop of a graph, how a node gets to another, or a code."""
    if subject is None:
        from cfgraph.console.explain_code import explain_code

        explain_code(graph, json, color)
        return
    if other is not None:
        from cfgraph.console.explain_pair import explain_pair

        explain_pair(
            graph,
            subject,
            other,
            ran=run or bool(feed or init or variables),
            json=json,
            color=color,
        )
        return
    from cfgraph.console.explain import explain_subject

    given = None
    if run or feed or init or variables:
        from cfgraph.console.explain_run import ExplainRunOptions

        given = ExplainRunOptions(feed, init, devices, max_iterations, variables)
    explain_subject(graph, subject, given, full=full, json=json, color=color)
