"""Place a graph on devices, and cut it between them into Send and Recv."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.options import Devices, Graph, Json, PlaceRules, Quiet, RulesFile, Soft, To


def main(
    graph: Graph,
    devices: Devices = [],
    place: PlaceRules = [],
    rules: RulesFile = None,
    dump_placement: Annotated[
        str | None,
        typer.Option(
            "--dump-placement",
            metavar="FILE",
            help="Write each node's device, and what decided, as rules.",
        ),
    ] = None,
    soft: Soft = False,
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
    to: To = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Place a graph on devices, and cut it between them into Send and Recv."""
    from cfgraph.console.partition import PlaceOptions, WriteOptions, partition_file

    placing = PlaceOptions(devices, rules, place, soft, seed)
    partition_file(graph, placing, WriteOptions(output, to, dump_placement, json, quiet))
