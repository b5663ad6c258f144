"""Place a graph on devices, and connect the partitions with Send and Recv."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli import options, run_options

DumpPlacement = Annotated[
    str | None,
    typer.Option(
        "--dump-placement",
        metavar="FILE.toml",
        help="Write the placement as rules, with the reason for each device.",
        rich_help_panel=options.ADVANCED,
    ),
]
RandomSeed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        help="Place at random and ignore device requests; for tests.",
        rich_help_panel=options.ADVANCED,
    ),
]
FanOut = Annotated[
    int | None,
    typer.Option(
        "--fan-out",
        metavar="N",
        min=1,
        help="Send the predicate of a loop to at most N devices from each device that has it; "
        "for loops over many devices. Default: to all from one.",
        rich_help_panel=options.ADVANCED,
    ),
]


def main(
    graph: options.Graph,
    devices: run_options.Devices = [],
    place: run_options.PlaceRules = [],
    rules: run_options.RulesFile = None,
    dump_placement: DumpPlacement = None,
    soft: run_options.Soft = False,
    seed: RandomSeed = None,
    fan_out: FanOut = None,
    output: options.OutputOrFolder = None,
    to: options.To = None,
    verify: options.Verify = False,
    feed: options.Feed = [],
    init: options.Init = [],
    signature: options.Signature = None,
    variables: options.Variables = None,
    allow_io: run_options.AllowIo = False,
    size: options.Size = [],
    cases: options.Cases = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Place a graph on devices, and connect the partitions with Send and Recv."""
    from cfgraph.console.comparison_inputs import RunInputs
    from cfgraph.console.graph_files import OutputOptions
    from cfgraph.console.partition import PartitionedGraph, PlacementOptions
    from cfgraph.console.transform import transform_file
    from cfgraph.console.verify import Verification

    placing = PlacementOptions(devices, rules, place, soft, seed, dump_placement, fan_out)
    inputs = RunInputs(
        feeds=feed,
        inits=init,
        sizes=size,
        cases=cases,
        variables=variables,
        allow_io=allow_io,
        signature=signature,
    )
    outputs = OutputOptions(output, to, dump_placement, "json" if json else "text", quiet)
    verification = Verification(inputs, verify)
    raise options.Exit(transform_file(graph, PartitionedGraph, placing, outputs, verification))
