"""Place a graph on devices, and cut it between them into Send and Recv."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph import options as given


def main(
    graph: given.Graph,
    devices: given.Devices = [],
    place: given.PlaceRules = [],
    rules: given.RulesFile = None,
    dump_placement: Annotated[
        str | None,
        typer.Option(
            "--dump-placement",
            metavar="FILE",
            help="Write each node's device, and what decided, as rules.",
        ),
    ] = None,
    soft: given.Soft = False,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", metavar="N", help="Place by chance, whatever the nodes ask for; for tests."
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write to FILE, or with FOLDER/ a file a device; - is standard output.",
        ),
    ] = None,
    to: given.To = None,
    verify: given.Verify = False,
    feed: given.Feed = [],
    init: given.Init = [],
    variables: given.Variables = None,
    size: given.Size = [],
    cases: given.Cases = None,
    json: given.Json = False,
    quiet: given.Quiet = False,
) -> None:
    """Place a graph on devices, and cut it between them into Send and Recv."""
    from cfgraph.console.partition import PartitionOutputOptions, PlacementOptions, partition_file
    from cfgraph.console.verify_options import NullVerification, RunInputs, Verification

    placing = PlacementOptions(devices, rules, place, soft, seed)
    runs = RunInputs(feeds=feed, inits=init, sizes=size, cases=cases, variables=variables)
    verification: Verification = NullVerification(runs)
    if verify:
        from cfgraph.console.verify import RunVerification

        verification = RunVerification(runs)
    writing = PartitionOutputOptions(output, to, dump_placement, json, quiet, verification)
    raise given.Exit(partition_file(graph, placing, writing))
