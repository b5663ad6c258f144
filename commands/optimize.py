"""Rewrite a graph to run faster, without changing any value or which tensors are live."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli import options, run_options

Names = list[str]

Only = Annotated[
    Names,
    options.repeatable(
        "--only",
        "RULES",
        "Apply only these rules: prune, fold, arithmetic, branches, cse, licm. Default: all.",
    ),
]
Skip = Annotated[Names, options.repeatable("--skip", "RULES", "Do not apply these rules.")]
Fetch = Annotated[
    Names,
    options.repeatable(
        "--fetch",
        "NAME[:PORT]",
        "Keep this tensor or ^NODE, and remove nodes that no fetch needs. Default: keep all "
        "outputs of the graph.",
    ),
]
Feed = Annotated[
    Names,
    options.repeatable(
        "--feed",
        "NAME[=VALUE]",
        "Assume nothing about the value of a fed tensor, and keep it; VALUE is for --verify. "
        "Placeholders need not be named.",
    ),
]
Keep = Annotated[
    Names,
    options.repeatable("--keep", "LIST", "Keep these nodes and what they need."),
]
Unroll = Annotated[
    int | None,
    typer.Option(
        "--unroll",
        metavar="N",
        min=0,
        help="Replace loops by straight lines whose number of iterations is known and at most N. "
        "Default: no loop.",
    ),
]


def main(
    graph: options.Graph,
    only: Only = [],
    skip: Skip = [],
    fetch: Fetch = [],
    feed: Feed = [],
    keep: Keep = [],
    unroll: Unroll = None,
    output: options.Output = None,
    to: options.To = None,
    map_out: options.MapOut = None,
    verify: options.Verify = False,
    init: options.Init = [],
    signature: options.Signature = None,
    variables: options.Variables = None,
    allow_io: run_options.AllowIo = False,
    size: options.Size = [],
    cases: options.Cases = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Rewrite a graph to run faster, without changing any value or which tensors are live."""
    from cfgraph.console.comparison_inputs import RunInputs
    from cfgraph.console.graph_files import OutputOptions
    from cfgraph.console.optimize import OptimizedGraph, OptimizeOptions
    from cfgraph.console.transform import transform_file
    from cfgraph.console.verify import Verification

    fed = [text.partition("=")[0] for text in feed]
    request = OptimizeOptions(only, skip, fetch, fed, keep, unroll)
    fetched = options.split_names(fetch) if verify else []
    inputs = RunInputs(
        fetches=[name for name in fetched if name[:1] != "^"],
        targets=[name[1:] for name in fetched if name[:1] == "^"],
        feeds=[text for text in feed if "=" in text],
        inits=init,
        sizes=size,
        cases=cases,
        variables=variables,
        allow_io=allow_io,
        signature=signature,
    )
    outputs = OutputOptions(output, to, map_out, "json" if json else "text", quiet)
    verification = Verification(inputs, verify)
    raise options.Exit(transform_file(graph, OptimizedGraph, request, outputs, verification))
