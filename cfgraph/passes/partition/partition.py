"""Cut a placed graph at device boundaries into partitions that run by themselves.

First the primitives of a loop move next to each other, so that its control flow crosses no device:
a loop that cannot be distributed goes to the device of its LoopCond (or of its first Merge), a
Switch on the loop predicate to its Merge, an Exit to its Switch, an Enter and a NextIteration to a
consumer. Merges stay. A Switch of a conditional moves to its data if that saves a message.

Then every device that runs part of a loop gets a control loop (`control_loops`), and every edge
that crosses becomes a _Send/_Recv pair (`cut`) unless a local control edge can replace it
(`local_control_edges`). Finally the nodes are ordered by device."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from cfgraph.analysis.loops.frames import Frame, frames
from cfgraph.analysis.transfers import is_partitioned
from cfgraph.analysis.verify.verify import require_valid
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import copy_graph
from cfgraph.ir.role import Role
from cfgraph.ops.families.functional import is_functional
from cfgraph.passes.lower.lower import lower
from cfgraph.passes.partition.cut import EdgeCutter
from cfgraph.passes.partition.device_crossings import (
    COPIED_ROLES,
    DeviceCrossings,
    NodeDevices,
    node_devices,
    sorted_devices,
)
from cfgraph.passes.partition.distributed_loops import DistributedLoops
from cfgraph.passes.report import Report, op_counts


@dataclass(frozen=True, slots=True)
class Partitioning(Report):
    """A report with the devices, what was moved, the messages and the control loops.

    `moved` maps a node to the device it was on and the one it is on; `messages` counts the pairs of
    Send and Recv by the path of their frame (`/` is sent once, `/while` once an iteration);
    `control_loops` lists path and device of each.
    """

    devices: tuple[str, ...] = ()
    moved: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    messages: Mapping[str, int] = field(default_factory=dict)
    control_loops: tuple[tuple[str, str], ...] = ()


def partition(graph: Graph) -> Partitioning:
    """Cut every edge between devices, in place; what is functional is lowered first.

    Every node must be on a device by its full name. Nodes that are there keep their names and
    values. A graph that is partitioned already stays as it is.

    Raises InvalidInput for a graph that is not valid or not placed, and for a partitioned one that
    was changed so that an edge crosses; Unsupported where a reference, or a tensor of unknown type,
    would cross. The graph is unchanged then.
    """
    with paused_gc():
        require_valid(graph)
        if is_partitioned(graph):
            return _unchanged_report(graph)
        lowered = Report()
        node_devices(graph)
        if is_functional(graph, graph):
            trial = copy_graph(graph)
            lower(trial)
            _PartitionRun(trial)
            lowered = lower(graph)
        report = _PartitionRun(graph).run(lowered)
        if report:
            require_valid(graph)
    return report


def _unchanged_report(graph: Graph) -> Partitioning:
    where = node_devices(graph)
    counts = op_counts(graph)
    devices = tuple(sorted_devices(where.values()))
    return Partitioning(before=counts, after=counts, devices=devices)


class _PartitionRun:
    """One partitioning; making it looks at all that can go wrong, and changes nothing."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.before = op_counts(graph)
        self.asked = node_devices(graph)
        self.loops = DistributedLoops(frames(graph))
        self.where, self.gathered = relocate_loop_nodes(self.asked, self.loops)
        self.crossings = DeviceCrossings(self.where)

    def run(self, lowered: Report) -> Partitioning:
        """Move, cut and put in order."""
        graph = self.graph
        written = [node for node, device in self.where.items() if node.device != device]
        for node in written:
            graph.set_device(node, self.where[node])
        moved = {
            node.name: (self.asked[node], device)
            for node, device in self.where.items()
            if self.asked[node] != device
        }
        cutter = EdgeCutter(graph, self.where, self.loops, self.crossings)
        if self.crossings.readers:
            cutter.cut()
        devices = tuple(sorted_devices(self.where.values()))
        reordered = len(devices) > 1 and _order_by_device(graph, self.where, cutter)
        loops = tuple((str(frame), device) for frame, device in cutter.control_loops.made)
        return Partitioning(
            lowered.rewrites + len(written) + len(cutter.maker.nodes) + reordered,
            lowered.names,
            (*lowered.warnings, *self._warnings()),
            lowered.before or self.before,
            op_counts(graph),
            devices,
            moved,
            dict(Counter(str(frame) for _, frame in cutter.pairs)),
            loops,
        )

    def _warnings(self) -> list[str]:
        return [
            f"the loop {frame} stays on one device: {_undistributable_reason(frame)}"
            for frame in self.gathered
        ]


def _undistributable_reason(frame: Frame) -> str:
    if frame.loop_conds:
        return "its variables do not all go on exactly where its LoopCond is true"
    return "it has no LoopCond"


def _order_by_device(graph: Graph, where: NodeDevices, cutter: EdgeCutter) -> bool:
    """Device by device. A Send comes behind what it hands over, a Recv before who reads it.

    Returns whether a node changed its place.
    """
    made, beside = cutter.maker.nodes, cutter.maker.beside
    parts: dict[str, list[Node]] = {device: [] for device in sorted_devices(where.values())}
    waiting, readers = dict.fromkeys(made), set(cutter.crossings.readers)
    for node, device in where.items():
        part = parts[device]
        if node in readers:
            _append_with_sources(node, waiting, part)
        else:
            part.append(node)
        for send in beside.get(node, ()):
            _append_with_sources(send, waiting, part)
    for node in made:
        if node in waiting:
            _append_with_sources(node, waiting, parts[node.device])
    nodes = [node for part in parts.values() for node in part]
    if all(map(operator.is_, nodes, graph)):
        return False
    graph.reorder(nodes)
    return True


def _append_with_sources(node: Node, waiting: dict[Node, None], part: list[Node]) -> None:
    """Put a node behind all that it reads and that still waits for its place."""
    waiting.pop(node, None)
    trail = [(node, _node_sources(node))]
    while trail:
        here, sources = trail[-1]
        for source in sources:
            if source in waiting:
                del waiting[source]
                trail.append((source, _node_sources(source)))
                break
        else:
            trail.pop()
            part.append(here)


def _node_sources(node: Node) -> Iterator[Node]:
    for item in node.inputs:
        yield item[0]
    yield from node.controls


def relocate_loop_nodes(
    where: NodeDevices, loops: DistributedLoops
) -> tuple[NodeDevices, list[Frame]]:
    """Where every node goes, and the loops that were gathered on one device."""
    new = dict(where)
    if len(set(where.values())) < 2:
        return new, []
    gathered = _gather_loops(new, loops)
    _move_to_sources(new, loops)
    _move_to_consumers(new, loops)
    return new, gathered


def _gather_loops(where: NodeDevices, loops: DistributedLoops) -> list[Frame]:
    """Keep the loops together that must be, with all that is inside."""
    frames = loops.found.all[1:]
    devices = _devices_within(frames, where)
    homes: dict[Frame, str] = {}
    gathered: list[Frame] = []
    if all(len(here) == 1 for here in devices.values()):
        return gathered
    together = loops.undistributable_loops()
    for frame in frames:
        if frame.parent in homes:
            homes[frame] = homes[frame.parent]
        elif len(devices[frame]) > 1 and frame in together:
            homes[frame] = where[_anchor_node(frame)]
            gathered.append(frame)
    for frame, device in homes.items():
        where.update(dict.fromkeys(frame.nodes, device))
    return gathered


def _devices_within(frames: Iterable[Frame], where: NodeDevices) -> dict[Frame, set[str]]:
    found = {frame: {where[node] for node in frame.nodes} for frame in frames}
    for frame in reversed(list(found)):
        if frame.parent in found:
            found[frame.parent] |= found[frame]
    return found


def _anchor_node(frame: Frame) -> Node:
    for nodes in (frame.loop_conds, frame.merges, frame.nodes, frame.enters):
        if nodes:
            return nodes[0]
    raise AssertionError(frame)


def _move_to_sources(where: NodeDevices, loops: DistributedLoops) -> None:
    """A Switch goes beside the Merge that it reads, an Exit beside what it reads.

    So does any other Switch that nobody reads on its own device: its data need not go there.
    """
    roles = loops.roles
    for node in loops.found.order:
        role = roles[node.op]
        if role not in (Role.SWITCH, Role.EXIT):
            continue
        source = node.inputs[0].node
        of_variable = (
            role is Role.SWITCH and loops.is_variable(source) and loops.is_loop_switch(node)
        )
        follows = of_variable or role is Role.EXIT or _has_no_local_consumer(node, where)
        if follows and roles[source.op] not in COPIED_ROLES:
            where[node] = where[source]


def _has_no_local_consumer(node: Node, where: NodeDevices) -> bool:
    return bool(node.uses) and all(where[use.node] != where[node] for use in node.uses)


def _move_to_consumers(where: NodeDevices, loops: DistributedLoops) -> None:
    """An Enter or a NextIteration goes beside its first reader, unless one is beside it."""
    roles = loops.roles
    for node in reversed(loops.found.order):
        if roles[node.op] in (Role.ENTER, Role.NEXT_ITERATION) and node.uses:
            devices = [where[use.node] for use in node.uses]
            if where[node] not in devices:
                where[node] = devices[0]
