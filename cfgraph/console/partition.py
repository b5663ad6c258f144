"""The `partition` command: place a graph, partition it, write it, and report the result."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cfgraph.analysis.partitions import Partitions, device_partitions
from cfgraph.console.graph_files import (
    OutputOptions,
    output_artifacts,
    read_graph,
    require_distinct_paths,
    write_graph,
)
from cfgraph.console.json_output import print_document
from cfgraph.console.output import note, page
from cfgraph.console.show_tables import partitions_json, partitions_table, routes_table
from cfgraph.console.signatures import SignatureNames
from cfgraph.console.verify import Verification
from cfgraph.errors import UsageError
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.graph import Graph
from cfgraph.passes.partition.partition import Partitioning, partition
from cfgraph.passes.place.place import Placement, place, placement_toml
from cfgraph.passes.place.rules import PlacementRules, combined_rules

_MAX_MOVES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class PlacementOptions:
    """Devices, placement rules from a file and from the command line, dump file, and fan-out.

    The fields are named as the options of the command.
    """

    devices: Sequence[str] = ()
    rules: str | None = None
    place: Sequence[str] = ()
    soft: bool = False
    seed: int | None = None
    dump: str | None = None
    fan_out: int | None = None

    @property
    def has_rules(self) -> bool:
        """True if any option restricts the placement."""
        return bool(self.rules or self.place or self.soft or self.seed is not None)

    @property
    def all_rules(self) -> PlacementRules:
        """Rules of the file, then those of the command line."""
        return combined_rules(self.rules, self.place)

    def apply(self, graph: Graph, names: SignatureNames) -> Partitioning:
        """Place and partition a graph; rules and devices name no tensors of a signature."""
        self.require_devices()
        placement = _place_graph(graph, self, self.all_rules)
        partitioning = partition(graph, fan_out=self.fan_out)
        warnings = (*(placement.warnings if placement else ()), *partitioning.warnings)
        return replace(partitioning, warnings=warnings)

    def require_devices(self) -> None:
        """Raise UsageError for rules without devices."""
        if not self.devices and (self.has_rules or self.dump):
            message = "placement options require --devices"
            raise UsageError(message, hint="add --devices cpu:0,gpu:0")


def partition_file(
    path: str, placing: PlacementOptions, outputs: OutputOptions, verification: Verification
) -> int:
    """Read, place, partition and write a graph; devices and messages are printed on stderr.

    Without devices the graph must be placed. Returns the exit code: 1, and nothing is written, if
    the verification finds a difference. Raises UsageError if two results would be written to one
    place, or for rules without devices.
    """
    _require_distinct_outputs(placing, outputs)
    rules = placing.all_rules
    source = read_graph(path, quiet=outputs.quiet)
    graph, inputs = source.graph, [source.to_json()]
    verification.before(source, outputs.quiet)
    written = None
    with StagedFiles() as files:
        placement = _place_graph(graph, placing, rules)
        if placing.dump is not None and placement is not None:
            files.write(placing.dump, placement_toml(graph, placement).encode())
        partitioning = partition(graph, fan_out=placing.fan_out)
        parts = device_partitions(graph)
        verdict = verification.after(graph, outputs.quiet)
        passed = verdict is None or bool(verdict)
        if passed:
            written = write_graph(graph, outputs.output, outputs.to, files, outputs.quiet)
        else:
            files.discard()
    warnings = [*(placement.warnings if placement else ()), *partitioning.warnings]
    for warning in warnings:
        note(f"warning: {warning}", outputs.quiet)
    if not outputs.quiet:
        _print_partitions(parts, partitioning, placement)
    if outputs.json:
        print_document(
            "partition",
            inputs=inputs,
            summary=_summary_json(parts, len(graph)),
            result={
                **partitions_json(parts),
                **_decision_counts(partitioning, placement),
                "warnings": warnings,
                "verify": verdict,
            },
            artifacts=output_artifacts(written, "placement", placing.dump if passed else None),
            exit_code=int(not passed),
        )
    return int(not passed)


def _require_distinct_outputs(placing: PlacementOptions, outputs: OutputOptions) -> None:
    outputs.require_separate_json()
    placing.require_devices()
    require_distinct_paths(outputs.output, placing.dump, "placement")


def _place_graph(
    graph: Graph, placing: PlacementOptions, rules: PlacementRules
) -> Placement | None:
    if not placing.devices:
        if not any(node.device for node in graph):
            message = "no devices are named, and the graph is not placed"
            raise UsageError(message, hint="add --devices, such as --devices cpu:0,gpu:0")
        return None
    return place(
        graph,
        devices=placing.devices,
        rules=rules,
        seed=placing.seed,
        soft_placement=placing.soft,
    )


def _print_partitions(
    parts: Partitions, partitioning: Partitioning, placement: Placement | None
) -> None:
    out = page(stream=sys.stderr)
    devices = f"{len(parts.parts)} device{'s' * (len(parts.parts) != 1)}"
    messages = sum(route.messages for route in parts.routes)
    out.heading("partitioned", f"{devices}, {messages} message{'s' * (messages != 1)}")
    out.table(partitions_table(parts))
    if parts.routes:
        out.line()
        out.heading("messages")
        out.table(routes_table(parts))
    idle = [name for name in placement.devices if not _has_nodes(parts, name)] if placement else []
    if idle:
        out.line(f"no nodes on {', '.join(map(short_device_name, idle))}", "dim")
    if partitioning.moved:
        names = list(partitioning.moved)[:_MAX_MOVES_SHOWN]
        shown = [f"{name} to {short_device_name(partitioning.moved[name][1])}" for name in names]
        more = (
            f" and {len(partitioning.moved) - _MAX_MOVES_SHOWN} more"
            if len(partitioning.moved) > _MAX_MOVES_SHOWN
            else ""
        )
        out.line(f"moved to the devices of their loops: {', '.join(shown)}{more}", "dim")


def _has_nodes(parts: Partitions, device: str) -> bool:
    return any(item.device == device for item in parts.parts)


def _summary_json(parts: Partitions, nodes: int) -> dict[str, Any]:
    return {
        "devices": len(parts.parts),
        "nodes": nodes,
        "messages": sum(route.messages for route in parts.routes),
        "control_loops": sum(len(item.control_loops) for item in parts.parts),
    }


def _decision_counts(partitioning: Partitioning, placement: Placement | None) -> dict[str, Any]:
    """Return the number of nodes per placement reason, and the nodes moved afterwards."""
    moved = {name: {"from": old, "to": new} for name, (old, new) in partitioning.moved.items()}
    decided = Counter(placement.decided.values()) if placement else Counter[str]()
    return {"decided": dict(decided.most_common()), "moved": moved}
