"""Cut a placed graph at device boundaries into partitions that run by themselves.

First the primitives of a loop move next to each other, so that its control flow crosses no device:
a loop that cannot be distributed goes to the device of its LoopCond (or of its first Merge), a
Switch on the loop predicate to its Merge, an Exit to its Switch, an Enter and a NextIteration to a
consumer. Merges stay. A Switch of a conditional moves to its data if that saves a message.

Then every device that runs part of a loop gets a control loop (`control_loops`), and every edge
that crosses becomes a _Send/_Recv pair (`cut`) unless a local control edge can replace it
(`local_control_edges`). Finally the nodes are ordered by device.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.verify.verify import require_valid, require_valid_result
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import ENTER, EXIT, NEXT_ITERATION, SWITCH, Role
from cfgraph.ir.traversal import is_partitioned
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.op import is_functional
from cfgraph.passes.outcome import Report, op_counts, unchanged_on_error
from cfgraph.passes.partition.control_loops import DistributedLoops
from cfgraph.passes.partition.cut import EdgeCutter
from cfgraph.passes.partition.device_crossings import (
    COPIED_ROLES,
    DeviceCrossings,
    NodeDevices,
    node_devices,
    sorted_devices,
)
from cfgraph.stack_position import LOCATORS, pass_position

# late imports: few graphs on several devices need lowering


@dataclass(frozen=True, slots=True)
class Partitioning(Report):
    """Report of `partition`: devices, moved nodes, messages, and control loops.

    `moved` maps the name of a node to its old and new device. `messages` counts the _Send/_Recv
    pairs by the path of their frame (`/` sends once, `/while` once per iteration). `control_loops`
    has the path and the device of each control loop.
    """

    devices: tuple[str, ...] = ()
    moved: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    messages: Mapping[str, int] = field(default_factory=dict)
    control_loops: tuple[tuple[str, str], ...] = ()


def partition(graph: Graph, *, fan_out: int | None = None) -> Partitioning:
    """Cut every edge between devices, in place; functional nodes are lowered first.

    Every node must have a full device name. Existing nodes keep their names and values. A graph
    that is already partitioned stays unchanged.

    The device of a LoopCond sends the predicate to every other device of the loop. With `fan_out`,
    a number from 1, it sends it to at most that many, each of them to as many more, and so on.

    Raises ValueError for a smaller `fan_out`; InvalidInput for a graph that is invalid or not
    placed, and for a partitioned graph in which an edge crosses devices after a change; Unsupported
    if a reference, or a tensor of unknown type, would have to cross. The graph is then unchanged.
    """
    if fan_out is not None and fan_out < 1:
        raise ValueError(f"fan_out must be at least 1, not {fan_out}")
    with paused_gc(), unchanged_on_error(graph):
        require_valid(graph)
        if is_partitioned(graph):
            return _unchanged_report(graph)
        lowered, devices = Report(), node_devices(graph)
        if is_functional(graph, graph):
            from cfgraph.passes.lowering import lower

            lowered = lower(graph)
            devices = node_devices(graph)
        report = _PartitionRun(graph, devices).run(lowered, fan_out)
        if report:
            require_valid_result(graph, "partition")
    return report


LOCATORS[partition.__code__] = pass_position


def partition_devices(graph: Graph, requested: NodeDevices) -> NodeDevices:
    """The device of each node once a lowered graph is partitioned that is placed as `requested`.

    Raises the errors of `partition`. The graph stays unchanged; its own devices do not matter.
    """
    with paused_gc():
        require_valid(graph)
        return _PartitionRun(graph, requested).device_of


def _unchanged_report(graph: Graph) -> Partitioning:
    device_of = node_devices(graph)
    counts = op_counts(graph)
    devices = tuple(sorted_devices(device_of.values()))
    return Partitioning(before=counts, after=counts, devices=devices)


class _PartitionRun:
    """One partitioning. The constructor raises all errors and leaves the graph unchanged."""

    def __init__(self, graph: Graph, requested: NodeDevices) -> None:
        self.graph = graph
        self.requested = requested
        self.loops = DistributedLoops(frames(graph))
        self.device_of, self.gathered = relocate_loop_nodes(self.requested, self.loops)
        self.crossings = DeviceCrossings(self.device_of)

    def run(self, lowered: Report, fan_out: int | None) -> Partitioning:
        """Move loop nodes, cut edges, and order the nodes by device."""
        graph = self.graph
        before = op_counts(graph)
        changed = [node for node, device in self.device_of.items() if node.device != device]
        for node in changed:
            check_deadline()
            graph.set_device(node, self.device_of[node])
        moved = {
            node.name: (self.requested[node], device)
            for node, device in self.device_of.items()
            if self.requested[node] != device
        }
        cutter = EdgeCutter(graph, self.device_of, self.loops, self.crossings, fan_out)
        if self.crossings.readers:
            cutter.cut()
        devices = tuple(sorted_devices(self.device_of.values()))
        reordered = len(devices) > 1 and _order_by_device(graph, self.device_of, cutter)
        loops = tuple((str(frame), device) for frame, device in cutter.control_loops.control_merges)
        return Partitioning(
            lowered.rewrites + len(changed) + len(cutter.added.nodes) + reordered,
            lowered.names,
            (*lowered.warnings, *self._warnings()),
            lowered.before or before,
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
        return "not all of its variables continue exactly when its LoopCond is true"
    return "it has no LoopCond"


def _order_by_device(graph: Graph, device_of: NodeDevices, cutter: EdgeCutter) -> bool:
    """Order nodes device by device, a _Send after its producer, a _Recv before its consumer.

    Returns true if the order changed.
    """
    added, send_nodes = cutter.added.nodes, cutter.added.send_nodes
    parts: dict[str, list[Node]] = {device: [] for device in sorted_devices(device_of.values())}
    pending, readers = dict.fromkeys(added), set(cutter.crossings.readers)
    for node, device in device_of.items():
        part = parts[device]
        if node in readers:
            _append_with_sources(node, pending, part)
        else:
            part.append(node)
        for send in send_nodes.get(node, ()):
            _append_with_sources(send, pending, part)
    for node in added:
        if node in pending:
            _append_with_sources(node, pending, parts[node.device])
    nodes = [node for part in parts.values() for node in part]
    if all(map(operator.is_, nodes, graph)):
        return False
    graph.reorder(nodes)
    return True


def _append_with_sources(node: Node, pending: dict[Node, None], part: list[Node]) -> None:
    """Append a node after all of its transitive inputs that are pending."""
    pending.pop(node, None)
    if pending.keys().isdisjoint(node.predecessors):
        part.append(node)
        return
    trail = [(node, _node_sources(node))]
    while trail:
        check_deadline()
        current, sources = trail[-1]
        for source in sources:
            if source in pending:
                del pending[source]
                trail.append((source, _node_sources(source)))
                break
        else:
            trail.pop()
            part.append(current)


def _node_sources(node: Node) -> Iterator[Node]:
    for tensor in node.inputs:
        yield tensor[0]
    yield from node.controls


def relocate_loop_nodes(
    requested: NodeDevices, loops: DistributedLoops
) -> tuple[NodeDevices, list[Frame]]:
    """Return the final device of each node, and the loops that were gathered on one device."""
    device_of = dict(requested)
    if len(set(requested.values())) < 2:
        return device_of, []
    gathered = _gather_loops(device_of, loops)
    _move_to_sources(device_of, loops)
    _move_to_consumers(device_of, loops)
    return device_of, gathered


def _gather_loops(device_of: NodeDevices, loops: DistributedLoops) -> list[Frame]:
    """Move each loop that cannot be distributed, with its inner loops, to one device."""
    frames = loops.frames.all[1:]
    devices = _devices_within(frames, device_of)
    targets: dict[Frame, str] = {}
    gathered: list[Frame] = []
    if all(len(names) == 1 for names in devices.values()):
        return gathered
    undistributable = loops.undistributable_loops()
    for frame in frames:
        check_deadline()
        if frame.parent in targets:
            targets[frame] = targets[frame.parent]
        elif len(devices[frame]) > 1 and frame in undistributable:
            targets[frame] = device_of[_anchor_node(frame)]
            gathered.append(frame)
    for frame, device in targets.items():
        device_of.update(dict.fromkeys(frame.nodes, device))
    return gathered


def _devices_within(frames: Iterable[Frame], device_of: NodeDevices) -> dict[Frame, set[str]]:
    devices = {frame: {device_of[node] for node in frame.nodes} for frame in frames}
    for frame in reversed(list(devices)):
        check_deadline()
        if frame.parent in devices:
            devices[frame.parent] |= devices[frame]
    return devices


def _anchor_node(frame: Frame) -> Node:
    """Return the node whose device a gathered loop moves to."""
    for nodes in (frame.loop_conds, frame.merges, frame.nodes, frame.enters):
        if nodes:
            return nodes[0]
    raise AssertionError(frame)


def _move_to_sources(device_of: NodeDevices, loops: DistributedLoops) -> None:
    """Move each loop Switch to the Merge that it reads, and each Exit to its input.

    A Switch of a conditional moves too if it has no consumer on its device, which saves a message.
    """
    for node in _nodes_of_roles(loops, SWITCH, EXIT):
        check_deadline()
        role = ROLES[node.op]
        source = node.inputs[0].node
        of_variable = role is SWITCH and loops.is_variable(source) and loops.is_loop_switch(node)
        follows = of_variable or role is EXIT or _has_no_local_consumer(node, device_of)
        if follows and ROLES[source.op] not in COPIED_ROLES:
            device_of[node] = device_of[source]


def _nodes_of_roles(loops: DistributedLoops, *roles: Role) -> list[Node]:
    """The nodes whose ops have one of these roles, in topological order."""
    order = loops.frames.order
    ops = {op for op in {node.op for node in order} if ROLES[op] in roles}
    return [node for node in order if node.op in ops] if ops else []


def _has_no_local_consumer(node: Node, device_of: NodeDevices) -> bool:
    return bool(node.uses) and all(device_of[use.node] != device_of[node] for use in node.uses)


def _move_to_consumers(device_of: NodeDevices, loops: DistributedLoops) -> None:
    """Move each Enter and NextIteration to its first consumer unless one is on its device."""
    for node in reversed(_nodes_of_roles(loops, ENTER, NEXT_ITERATION)):
        check_deadline()
        if node.uses:
            devices = [device_of[use.node] for use in node.uses]
            if device_of[node] not in devices:
                device_of[node] = devices[0]
