"""Cut a placed graph at device boundaries into parts that run by themselves.

First the primitives of loops are put beside each other (`relocate`). Then every device that takes
part in a loop gets its own driver of it (`machines`), and every edge that crosses becomes a pair of
Send and Recv (`cut`), but for those that can hang on the local driver (`ties`). The nodes end up
device by device.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cfgraph.analysis.loops.frames import Frame, frames
from cfgraph.analysis.transfers import is_partitioned
from cfgraph.analysis.verify.verify import require_valid
from cfgraph.ir.collector import without_collector
from cfgraph.ir.copy import copy_of
from cfgraph.ir.graph import Graph, Node
from cfgraph.ops.functional import is_functional
from cfgraph.passes.lower.lower import lower
from cfgraph.passes.partition.crossings import Crossings
from cfgraph.passes.partition.cut import Cutter
from cfgraph.passes.partition.devices import Places, in_order, places
from cfgraph.passes.partition.relocate import relocated
from cfgraph.passes.partition.spread import Loops
from cfgraph.passes.report import Report, op_counts


@dataclass(frozen=True, slots=True)
class Partitioned(Report):
    """A report with the devices, what was moved, the messages and the control loops.

    `moved` maps a node to the device it was on and the one it is on; `messages` counts the pairs of
    Send and Recv by the path of their frame (`/` is sent once, `/while` once an iteration);
    `control_loops` lists path and device of each.
    """

    devices: tuple[str, ...] = ()
    moved: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    messages: Mapping[str, int] = field(default_factory=dict)
    control_loops: tuple[tuple[str, str], ...] = ()


def partition(graph: Graph) -> Partitioned:
    """Cut every edge between devices, in place; what is functional is lowered first.

    Every node must be on a device by its full name. Nodes that are there keep their names and
    values. A graph that is partitioned already stays as it is.

    Raises InvalidInput for a graph that is not valid or not placed, and for a partitioned one that
    was changed so that an edge crosses; Unsupported where a reference, or a tensor of unknown type,
    would cross. The graph is unchanged then.
    """
    with without_collector():
        require_valid(graph)
        if is_partitioned(graph):
            return _already(graph)
        lowered = Report()
        places(graph)
        if is_functional(graph, graph):
            trial = copy_of(graph)
            lower(trial)
            _Work(trial)
            lowered = lower(graph)
        report = _Work(graph).run(lowered)
        if report:
            require_valid(graph)
    return report


def _already(graph: Graph) -> Partitioned:
    where = places(graph)
    counts = op_counts(graph)
    devices = tuple(in_order(where.values()))
    return Partitioned(before=counts, after=counts, devices=devices)


class _Work:
    """One partitioning; making it looks at all that can go wrong, and changes nothing."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.before = op_counts(graph)
        self.asked = places(graph)
        self.loops = Loops(frames(graph))
        self.where, self.gathered = relocated(self.asked, self.loops)
        self.crossings = Crossings(self.where)

    def run(self, lowered: Report) -> Partitioned:
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
        cutter = Cutter(graph, self.where, self.loops, self.crossings)
        if self.crossings.readers:
            cutter.cut()
        devices = tuple(in_order(self.where.values()))
        reordered = len(devices) > 1 and _put_in_order(graph, self.where, cutter)
        loops = tuple((str(frame), device) for frame, device in cutter.machines.made)
        return Partitioned(
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
        return [f"the loop {frame} stays on one device: {_why(frame)}" for frame in self.gathered]


def _why(frame: Frame) -> str:
    if frame.loop_conds:
        return "its variables do not all go on exactly where its LoopCond is true"
    return "it has no LoopCond"


def _put_in_order(graph: Graph, where: Places, cutter: Cutter) -> bool:
    """Device by device. A Send comes behind what it hands over, a Recv before who reads it.

    Returns whether a node changed its place.
    """
    made, beside = cutter.maker.nodes, cutter.maker.beside
    parts: dict[str, list[Node]] = {device: [] for device in in_order(where.values())}
    waiting, readers = dict.fromkeys(made), set(cutter.crossings.readers)
    for node, device in where.items():
        part = parts[device]
        if node in readers:
            _place(node, waiting, part)
        else:
            part.append(node)
        for send in beside.get(node, ()):
            _place(send, waiting, part)
    for node in made:
        if node in waiting:
            _place(node, waiting, parts[node.device])
    nodes = [node for part in parts.values() for node in part]
    if all(map(operator.is_, nodes, graph)):
        return False
    graph.reorder(nodes)
    return True


def _place(node: Node, waiting: dict[Node, None], part: list[Node]) -> None:
    """Put a node behind all that it reads and that still waits for its place."""
    waiting.pop(node, None)
    trail = [(node, _sources(node))]
    while trail:
        here, sources = trail[-1]
        for source in sources:
            if source in waiting:
                del waiting[source]
                trail.append((source, _sources(source)))
                break
        else:
            trail.pop()
            part.append(here)


def _sources(node: Node) -> Iterator[Node]:
    for item in node.inputs:
        yield item[0]
    yield from node.controls
