"""Lower functional conditionals, loops and calls to the five control-flow primitives."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.options import (
    Cases,
    Exit,
    Feed,
    Graph,
    Init,
    Json,
    MapOut,
    Output,
    Quiet,
    Size,
    To,
    Variables,
    Verify,
)

Function = Annotated[
    list[str],
    typer.Option(
        "--function",
        metavar="NAME",
        help="Lower only nodes that run this function. Repeatable.",
    ),
]
KeepCalls = Annotated[bool, typer.Option("--keep-calls", help="Do not inline function calls.")]


def main(
    graph: Graph,
    output: Output = None,
    to: To = None,
    function: Function = [],
    keep_calls: KeepCalls = False,
    map_out: MapOut = None,
    verify: Verify = False,
    feed: Feed = [],
    init: Init = [],
    variables: Variables = None,
    size: Size = [],
    cases: Cases = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Lower functional conditionals, loops and calls to the five control-flow primitives."""
    from cfgraph.console.lower import lower_file
    from cfgraph.console.verify_options import NullVerification, RunInputs, Verification

    runs = RunInputs(feeds=feed, inits=init, sizes=size, cases=cases, variables=variables)
    verification: Verification = NullVerification(runs)
    if verify:
        from cfgraph.console.verify import RunVerification

        verification = RunVerification(runs)
    written = (output, to, function, keep_calls, map_out, json, quiet)
    raise Exit(lower_file(graph, *written, verification))
