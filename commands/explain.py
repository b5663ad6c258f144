"""Explain a node, a loop, a pair of nodes, or an error code."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.options import (
    Color,
    ColorChoice,
    Feed,
    Full,
    Init,
    Json,
    Variables,
)
from cfgraph.run_options import AllowIo, Devices, MaxIterations


def main(
    graph: Annotated[
        str,
        typer.Argument(
            metavar="GRAPH|CODE",
            help="Graph file, SavedModel folder or -; or an error code such as CFG201.",
            show_default=False,
        ),
    ],
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="[SUBJECT]",
            help="Node, tensor, or frame path of a loop, such as /while_context.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[NODE]",
            help="Explain how SUBJECT reaches NODE: frames, gradient and cluster.",
        ),
    ] = None,
    feed: Feed = [],
    init: Init = [],
    variables: Variables = None,
    allow_io: AllowIo = False,
    run: Annotated[
        bool, typer.Option("--run", help="Also run the graph and report what SUBJECT did.")
    ] = False,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="FILE.py",
            help="Name the line for SUBJECT in a file written by `convert --to py`.",
        ),
    ] = None,
    devices: Devices = [],
    max_iterations: MaxIterations = None,
    full: Full = False,
    json: Json = False,
    color: ColorChoice = Color.auto,
) -> None:
    """Explain a node, a loop, a pair of nodes, or an error code."""
    if subject is None:
        from cfgraph.console.explain_code import explain_code

        explain_code(graph, json, color)
        return
    if target is not None:
        from cfgraph.console.explain_pair import explain_pair

        explain_pair(
            graph,
            subject,
            target,
            ran=run or bool(feed or init or variables),
            json=json,
            color=color,
        )
        return
    from cfgraph.console.explain import explain_subject

    run_options = None
    if run or feed or init or variables:
        from cfgraph.console.explain_run import ExplainRunOptions

        run_options = ExplainRunOptions(feed, init, devices, max_iterations, variables, allow_io)
    explain_subject(graph, subject, run_options, python=source, full=full, json=json, color=color)
