"""The `partition` command: a graph on devices, and the messages between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from cfgraph.analysis.partitions import DevicePartition, MessageRoute, Partitions, device_partitions
from cfgraph.cli.output import Page
from cfgraph.cli.pass_options import PartitionOptions
from cfgraph.cli.transform_options import OutputOptions
from cfgraph.console.documents import RunsReport, Warnings
from cfgraph.console.signatures import SignatureNames
from cfgraph.console.transforms.transform import PassResult
from cfgraph.console.views.show_tables import partitions_table, routes_table
from cfgraph.errors import UsageError
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Graph
from cfgraph.passes.partition.partition import Partitioning, partition
from cfgraph.passes.place.place import Placement, place, placement_toml
from cfgraph.passes.place.rules import combined_rules
from cfgraph.reports import Count, DocumentResult, Record

_MAX_MOVES_SHOWN = 3
_MAX_ROUTES_SHOWN = 40


class PartitionSummary(Record):
    """The numbers of devices, nodes, and messages."""

    devices: Count
    nodes: Count
    messages: Count
    control_loops: Count


class NodeMove(Record):
    """The devices of a node before and after it was moved."""

    from_: str
    to: str


class PartitionResult(DocumentResult, command="partition", summary=PartitionSummary):
    """The partitions, the number of nodes per placement reason, and the moved nodes."""

    devices: Sequence[DevicePartition]
    routes: Sequence[MessageRoute]
    decided: Mapping[str, Count]  #: What decided the device of how many nodes.
    moved: Mapping[str, NodeMove]  #: Nodes that were moved beside their loops.
    warnings: Warnings
    verify: RunsReport | None


@dataclass(slots=True)
class PartitionedGraph(PassResult[PartitionOptions, Partitioning]):
    """A partitioned graph, its partitions, and with devices its placement, also as rules."""

    companion = "placement"
    placement: Placement | None
    rules: str
    parts: Partitions

    @classmethod
    def apply(cls, graph: Graph, options: PartitionOptions, names: SignatureNames) -> Self:
        """Place and partition a graph; without devices it must be placed."""
        _require_devices(options)
        placement = _place_graph(graph, options)
        rules = placement_toml(graph, placement) if placement and options.dump_placement else ""
        report = partition(graph, fan_out=options.fan_out)
        warnings = (*(placement.warnings if placement else ()), *report.warnings)
        report = replace(report, warnings=warnings)
        return cls(graph, options, report, placement, rules, device_partitions(graph))

    @classmethod
    def require_valid(cls, options: PartitionOptions, outputs: OutputOptions) -> None:
        """Check the options before the graph is read. Raises UsageError."""
        outputs.require_separate_json()
        _require_devices(options)

    @classmethod
    def companion_path(cls, options: PartitionOptions, outputs: OutputOptions) -> str | None:
        """The path of the placement."""
        return options.dump_placement

    def summary(self) -> PartitionSummary:
        """The numbers of devices, nodes, and messages."""
        parts = self.parts
        loops = sum(len(item.control_loops) for item in parts.parts)
        return PartitionSummary(len(parts.parts), len(self.graph), _messages(parts), loops)

    def result(self, verify: RunsReport | None) -> PartitionResult:
        """The partitions, the number of nodes per placement reason, and the moved nodes."""
        moved = {name: NodeMove(*devices) for name, devices in self.report.moved.items()}
        decided = Counter(self.placement.decided.values()) if self.placement else Counter[str]()
        members = {"devices": self.parts.parts, "decided": dict(decided.most_common())}
        warnings = self.report.warnings
        return PartitionResult.from_attributes(
            self.parts, **members, moved=moved, warnings=warnings, verify=verify
        )

    def companion_data(self) -> bytes:
        """The placement as rules."""
        return self.rules.encode()

    def show(self, out: Page) -> None:
        """Print the devices, the messages, and the nodes that were moved."""
        parts = self.parts
        devices = f"{len(parts.parts)} device{'s' * (len(parts.parts) != 1)}"
        messages = _messages(parts)
        out.heading("partitioned", f"{devices}, {messages} message{'s' * (messages != 1)}")
        out.table(partitions_table(parts))
        if parts.routes:
            out.line()
            out.heading("messages")
            out.table(routes_table(parts.routes[:_MAX_ROUTES_SHOWN]))
            if (hidden := len(parts.routes) - _MAX_ROUTES_SHOWN) > 0:
                out.line(f"and {hidden} more; --json lists them", "dim")
        placed = self.placement.devices if self.placement else ()
        used = {item.device for item in parts.parts}
        if idle := [short_device_name(name) for name in placed if name not in used]:
            out.line(f"no nodes on {', '.join(idle)}", "dim")
        if moved := self.report.moved:
            names = list(moved)[:_MAX_MOVES_SHOWN]
            shown = [f"{name} to {short_device_name(moved[name][1])}" for name in names]
            rest = len(moved) - len(names)
            more = f" and {rest} more" if rest else ""
            out.line(f"moved to the devices of their loops: {', '.join(shown)}{more}", "dim")


def _require_devices(options: PartitionOptions) -> None:
    """Raise UsageError for rules without devices."""
    texts = (options.rules, options.place, options.soft, options.dump_placement)
    restricts_placement = any(texts) or options.seed is not None
    if not options.devices and restricts_placement:
        message = "placement options require --devices"
        raise UsageError(message, hint="add --devices cpu:0,gpu:0")


def _place_graph(graph: Graph, options: PartitionOptions) -> Placement | None:
    if not options.devices:
        if not any(node.device for node in graph):
            message = "no devices are named, and the graph is not placed"
            raise UsageError(message, hint="add --devices, such as --devices cpu:0,gpu:0")
        return None
    return place(
        graph,
        devices=options.devices,
        rules=combined_rules(options.rules, options.place),
        seed=options.seed,
        soft_placement=options.soft,
    )


def _messages(parts: Partitions) -> int:
    return sum(route.messages for route in parts.routes)
