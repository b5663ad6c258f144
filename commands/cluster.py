"""Group nodes into clusters that XLA compiles, without changing which tensors are live."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli import options, run_options

Names = list[str]

Deadness = Annotated[
    str,
    typer.Option(
        "--deadness",
        metavar="MODE",
        help="Test of equal liveness: exact, inputs, tf, or off.",
    ),
]
MinSize = Annotated[
    int,
    typer.Option(
        "--min-size",
        metavar="N",
        min=1,
        help="Minimum number of nodes per cluster, not counting trivial ones.",
    ),
]
MaxSize = Annotated[
    int | None,
    typer.Option("--max-size", metavar="N", min=1, help="Maximum number of nodes per cluster."),
]
OnlyOps = Annotated[Names, options.repeatable("--only-ops", "LIST", "Cluster only these ops.")]
ExcludeOps = Annotated[
    Names,
    options.repeatable("--exclude-ops", "LIST", "Do not cluster these ops."),
]
Fetch = Annotated[
    Names,
    options.repeatable(
        "--fetch",
        "NAME[:PORT]",
        "Cluster only what this tensor needs, and keep its name. Default: the outputs of the "
        "graph.",
    ),
]
Feed = Annotated[
    Names,
    options.repeatable(
        "--feed", "NAME[=VALUE]", "Keep a fed tensor out of clusters; VALUE is for --verify."
    ),
]
Regions = Annotated[
    bool,
    typer.Option("--regions", help="Also cluster whole loops and conditionals."),
]
Explain = Annotated[
    bool,
    typer.Option(
        "--explain", help="Report, for each node and edge outside of clusters, why it is."
    ),
]
WhatIf = Annotated[
    Names,
    options.repeatable(
        "--what-if", "LIST", "Report what would be clustered if these ops compiled.", advanced=True
    ),
]
Format = Annotated[
    str,
    typer.Option("--format", metavar="FORMAT", help="Format of the report: text, json or dot."),
]


def main(
    graph: options.Graph,
    deadness: Deadness = "exact",
    min_size: MinSize = 2,
    max_size: MaxSize = None,
    only_ops: OnlyOps = [],
    exclude_ops: ExcludeOps = [],
    fetch: Fetch = [],
    feed: Feed = [],
    regions: Regions = False,
    explain: Explain = False,
    what_if: WhatIf = [],
    format: Format = "text",
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
    """Group nodes into clusters that XLA compiles, without changing which tensors are live."""
    from cfgraph.console.cluster import ClusteredGraph, ClusterOptions
    from cfgraph.console.comparison_inputs import RunInputs
    from cfgraph.console.graph_files import OutputOptions
    from cfgraph.console.transform import transform_file
    from cfgraph.console.verify import Verification

    fed = [text.partition("=")[0] for text in feed]
    shape = "json" if json else format
    request = ClusterOptions(
        deadness,
        min_size,
        max_size,
        only_ops,
        exclude_ops,
        fetch,
        fed,
        regions,
        explain,
        what_if,
        draws=shape == "dot",
    )
    inputs = RunInputs(
        fetches=options.split_names(fetch) if verify else (),
        feeds=[text for text in feed if "=" in text],
        inits=init,
        sizes=size,
        cases=cases,
        variables=variables,
        allow_io=allow_io,
        signature=signature,
    )
    outputs = OutputOptions(output, to, map_out, shape, quiet)
    verification = Verification(inputs, verify)
    raise options.Exit(transform_file(graph, ClusteredGraph, request, outputs, verification))
