"""Turn Switch, Merge, Enter, and Exit into If, Case, and While: the inverse of lower."""

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
    split_names,
)
from cfgraph.cli.run_options import AllowIo

Fetch = Annotated[
    list[str],
    repeatable(
        "--fetch",
        "NAME[:PORT]",
        "Keep this tensor or ^NODE, and remove nodes that no fetch needs. Default: keep all "
        "outputs of the graph that are live in every run.",
    ),
]
TensorArrays = Annotated[
    str,
    typer.Option(
        "--tensor-arrays",
        metavar="MODE",
        help="Stacks and TensorArrays: lists (TensorLists where that is exact) or keep.",
    ),
]
DeadAs = Annotated[
    str | None,
    typer.Option(
        "--dead-as",
        metavar="VALUE",
        help="Value of a fetch that is dead: zeros. Default: such a region keeps its form.",
    ),
]
Explain = Annotated[
    bool, typer.Option("--explain", help="List each region that keeps its form, with the reason.")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Exit with status 1 if a region keeps its form.")
]


def main(
    graph: Graph,
    output: Output = None,
    to: To = None,
    fetch: Fetch = [],
    tensor_arrays: TensorArrays = "lists",
    dead_as: DeadAs = None,
    explain: Explain = False,
    strict: Strict = False,
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
    """Turn Switch, Merge, Enter, and Exit into If, Case, and While: the inverse of lower."""
    from cfgraph.console.comparison_inputs import RunInputs
    from cfgraph.console.functionalize import FunctionalizedGraph, FunctionalizeOptions
    from cfgraph.console.graph_files import OutputOptions
    from cfgraph.console.transform import transform_file
    from cfgraph.console.verify import Verification

    fetched = split_names(fetch)
    inputs = RunInputs(
        fetches=[name for name in fetched if name[:1] != "^"],
        targets=[name[1:] for name in fetched if name[:1] == "^"],
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
    request = FunctionalizeOptions(fetched, tensor_arrays, dead_as, explain, strict)
    raise Exit(transform_file(graph, FunctionalizedGraph, request, outputs, verification))
