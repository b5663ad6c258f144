"""Lower functional conditionals, loops and calls to the five control-flow primitives."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli.options import (
    Cases,
    Exit,
    Feed,
    Graph,
    Init,
    Json,
    MapOut,
    Output,
    Quiet,
    Signature,
    Size,
    To,
    Variables,
    Verify,
    repeatable,
)
from cfgraph.cli.run_options import AllowIo

Function = Annotated[
    list[str],
    repeatable("--function", "NAME", "Lower only nodes that run this function."),
]
KeepCalls = Annotated[bool, typer.Option("--keep-calls", help="Do not inline function calls.")]

Unfuse = Annotated[
    bool,
    typer.Option(
        "--unfuse", help="Replace fused ops, such as _FusedMatMul, by what they stand for."
    ),
]


def main(
    graph: Graph,
    output: Output = None,
    to: To = None,
    function: Function = [],
    keep_calls: KeepCalls = False,
    unfuse: Unfuse = False,
    map_out: MapOut = None,
    verify: Verify = False,
    feed: Feed = [],
    init: Init = [],
    signature: Signature = None,
    variables: Variables = None,
    allow_io: AllowIo = False,
    size: Size = [],
    cases: Cases = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Lower functional conditionals, loops and calls to the five control-flow primitives."""
    from cfgraph.console.comparison_inputs import RunInputs
    from cfgraph.console.graph_files import OutputOptions
    from cfgraph.console.lower import Lowering, LowerOptions
    from cfgraph.console.transform import transform_file
    from cfgraph.console.verify import Verification

    inputs = RunInputs(
        feeds=feed,
        inits=init,
        sizes=size,
        cases=cases,
        variables=variables,
        allow_io=allow_io,
        signature=signature,
    )
    outputs = OutputOptions(output, to, map_out, "json" if json else "text", quiet)
    verification = Verification(inputs, verify)
    request = LowerOptions(function, keep_calls, unfuse)
    raise Exit(transform_file(graph, Lowering, request, outputs, verification))
