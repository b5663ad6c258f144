"""Put nodes that XLA compiles together into clusters, without changing what is live."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph import options as given

Names = list[str]

Deadness = Annotated[
    str,
    typer.Option(
        "--deadness",
        metavar="RULE",
        help="How to judge that nodes are live together: exact, inputs, tf or off.",
    ),
]
MinSize = Annotated[
    int,
    typer.Option(
        "--min-size",
        metavar="N",
        min=1,
        help="A cluster has at least N nodes that do something.",
    ),
]
MaxSize = Annotated[
    int | None,
    typer.Option("--max-size", metavar="N", min=1, help="A cluster has at most N nodes."),
]
OnlyOps = Annotated[
    Names, typer.Option("--only-ops", metavar="LIST", help="Cluster no other ops; repeats.")
]
ExcludeOps = Annotated[
    Names, typer.Option("--exclude-ops", metavar="LIST", help="Leave these ops out; repeats.")
]
Fetch = Annotated[
    Names,
    typer.Option(
        "--fetch",
        metavar="NAME[:PORT]",
        help="Cluster what this needs, keeping its name; else what nothing reads; repeats.",
    ),
]
Feed = Annotated[
    Names,
    typer.Option(
        "--feed",
        metavar="NAME[=VALUE]",
        help="Leave out what is fed, with VALUE where the result is verified; repeats.",
    ),
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Tell why each node and edge is in no cluster.")
]
WhatIf = Annotated[
    Names,
    typer.Option(
        "--what-if", metavar="LIST", help="Tell what is gained if these ops compiled; repeats."
    ),
]
Format = Annotated[
    str, typer.Option("--format", metavar="FORMAT", help="Of --explain: text, json or dot.")
]


def main(
    graph: given.Graph,
    deadness: Deadness = "exact",
    min_size: MinSize = 2,
    max_size: MaxSize = None,
    only_ops: OnlyOps = [],
    exclude_ops: ExcludeOps = [],
    fetch: Fetch = [],
    feed: Feed = [],
    regions: given.Regions = False,
    explain: Explain = False,
    what_if: WhatIf = [],
    format: Format = "text",
    output: given.Output = None,
    to: given.To = None,
    map_out: given.MapOut = None,
    verify: given.Verify = False,
    init: given.Init = [],
    variables: given.Variables = None,
    size: given.Size = [],
    cases: given.Cases = None,
    json: given.Json = False,
    quiet: given.Quiet = False,
) -> None:
    """Put nodes that XLA compiles together into clusters, without changing what is live."""
    from cfgraph.console.cluster import ClusterOptions, ClusterOutputOptions, cluster_file
    from cfgraph.console.verify_options import NullVerification, RunInputs, Verification

    fed = [text.partition("=")[0] for text in feed]
    asked = ClusterOptions(
        deadness, min_size, max_size, only_ops, exclude_ops, fetch, fed, explain, what_if, regions
    )
    runs = RunInputs(
        fetches=[name for text in fetch for name in given.split_list(text)] if verify else (),
        feeds=[text for text in feed if "=" in text],
        inits=init,
        sizes=size,
        cases=cases,
        variables=variables,
    )
    format = "json" if json else format
    verification: Verification = NullVerification(runs)
    if verify:
        from cfgraph.console.verify import RunVerification

        verification = RunVerification(runs)
    writing = ClusterOutputOptions(format, output, to, map_out, quiet, verification)
    raise given.Exit(cluster_file(graph, asked, writing))
