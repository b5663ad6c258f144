"""Replace variables by their values, inputs by constants, and remove what they decide."""

from __future__ import annotations

from typing import Annotated

from cfgraph.cli import options, run_options

Names = list[str]

Fetch = Annotated[
    Names,
    options.repeatable(
        "--fetch",
        "NAME[:PORT]",
        "Keep this tensor or ^NODE, and remove what no fetch needs. Default: the outputs of the "
        "signature.",
    ),
]
Set = Annotated[
    Names,
    options.repeatable(
        "--set",
        "NAME=VALUE",
        "Replace an input by a constant (same syntax as --feed), such as is_training=false.",
    ),
]
KeepVariables = Annotated[
    Names,
    options.repeatable("--keep-variables", "LIST", "Variables that stay variables."),
]


def main(
    graph: options.Graph,
    fetch: Fetch = [],
    set: Set = [],
    keep_variables: KeepVariables = [],
    variables: options.Variables = None,
    signature: options.Signature = None,
    output: options.Output = None,
    to: options.To = None,
    map_out: options.MapOut = None,
    verify: options.Verify = False,
    feed: options.Feed = [],
    size: options.Size = [],
    cases: options.Cases = None,
    allow_io: run_options.AllowIo = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Replace variables by their values, inputs by constants, and remove what they decide."""
    from cfgraph.console.comparison_inputs import RunInputs
    from cfgraph.console.freeze import FreezeOptions, FrozenGraph
    from cfgraph.console.graph_files import OutputOptions
    from cfgraph.console.transform import transform_file
    from cfgraph.console.verify import Verification

    request = FreezeOptions(fetch, set, keep_variables, variables or graph, allow_io)
    fetched = options.split_names(fetch) if verify else []
    inputs = RunInputs(
        fetches=[name for name in fetched if name[:1] != "^"],
        targets=[name[1:] for name in fetched if name[:1] == "^"],
        feeds=[*feed, *(set if verify else [])],
        sizes=size,
        cases=cases,
        variables=variables,
        allow_io=allow_io,
        signature=signature,
        signature_outputs=True,
    )
    outputs = OutputOptions(output, to, map_out, "json" if json else "text", quiet)
    verification = Verification(inputs, verify, shares_names=True)
    raise options.Exit(transform_file(graph, FrozenGraph, request, outputs, verification))
