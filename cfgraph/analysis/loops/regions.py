"""Regions: the nodes of each loop in topological order, with an inner loop as a single item.

A region is the root of the graph or the inside of a loop. Its items are its nodes and the loops
directly inside it, sources before readers; a loop stands for all its nodes and for its Enters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from graphlib import CycleError, TopologicalSorter
from typing import Any

from cfgraph.analysis.loops.branch_decisions import PathCondition
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.frames import valid_frames
from cfgraph.analysis.loops.path_conditions import DECIDING_ROLES, PathConditions
from cfgraph.errors import Unsupported
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import ENTER, MERGE, NEXT_ITERATION


@dataclass(slots=True, eq=False)
class Region:
    """The root of the graph or a loop: its frame, its items in order, and the enclosing region."""

    frame: Frame
    outer: Region | None
    order: list[Node | Region] = field(default_factory=list, repr=False)


class Regions:
    """The regions of a frame, outer ones first, and the path conditions of their tensors.

    A loop does not wait for its Enters that are `late`.
    """

    def __init__(
        self,
        graph_frames: Frames,
        outermost: Frame,
        links: Mapping[Node, Iterable[Node]],
        late: Collection[Node] = (),
    ) -> None:
        self.frames, self._late = graph_frames, late
        self.of: dict[Frame, Region] = {}
        for frame in graph_frames.all:
            if frame.is_within(outermost):
                outer = None if frame is outermost or not frame.parent else self.of[frame.parent]
                self.of[frame] = Region(frame, outer)
        self.root = self.of[outermost]
        self.guards = PathConditions()
        self._order(links)
        self.guards.put(self.guards.none, *outermost.enters)
        for region in self.of.values():
            self._guard(region)

    def add(self, region: Region) -> None:
        """Compute the path conditions in a new region and in its loops."""
        self._guard(region)
        for item in region.order:
            if isinstance(item, Region):
                self.add(item)

    def _order(self, links: Mapping[Node, Iterable[Node]]) -> None:
        if len(self.frames.all) == 1 and not links:  # without loops the nodes are the items
            self.root.order = list(self.frames.order)
            return
        sorters = {frame: TopologicalSorter[Any]() for frame in self.of}
        for node in self.frames.order:
            if self.frames.of[node] in sorters:
                self._sort_in(sorters, node, links.get(node, ()))
        for frame, sorter in sorters.items():
            try:
                self.of[frame].order = list(sorter.static_order())
            except CycleError as error:
                raise _raise_cycle(frame, error.args[1]) from None

    def _sort_in(
        self, sorters: Mapping[Frame, TopologicalSorter[Any]], node: Node, links: Iterable[Node]
    ) -> None:
        """Add a node, or the loop that contains it, to the sorters behind its sources."""
        if node in self._late:
            return
        runs, role = self.frames.of[node], ROLES[node.op]
        sources = [item[0] for item in node.inputs]
        if role is MERGE:
            sources = [item for item in sources if ROLES[item.op] is not NEXT_ITERATION]
        sources += [*node.controls, *links]
        if role is not ENTER and all(self._is_item(source, runs) for source in sources):
            sorters[runs].add(node, *sources)
            return
        sorters[runs].add(self._item(node, runs))
        for source in sources:
            self._after(sorters, node, source)

    def _is_item(self, node: Node, frame: Frame) -> bool:
        """True if a node is an item in the order of a frame, not an Enter or in an inner loop."""
        return self.frames.of[node] is frame and ROLES[node.op] is not ENTER

    def _after(
        self, sorters: Mapping[Frame, TopologicalSorter[Any]], node: Node, source: Node
    ) -> None:
        """Order a node behind a source, in the innermost region that contains both."""
        frame, source_frame = self.frames.of[node], self.frames.of_outputs[source]
        if frame is source_frame and ROLES[source.op] is ENTER:
            return
        while frame is not source_frame:
            if frame.depth >= source_frame.depth:
                frame = frame.parent or frame
            if source_frame.depth > frame.depth:
                source_frame = source_frame.parent or source_frame
        mine, its = self._item(node, frame), self._item(source, frame)
        if mine is not its and frame in sorters:
            sorters[frame].add(mine, its)

    def _item(self, node: Node, frame: Frame) -> Node | Region:
        """The item of a node in the order of a frame: the node, or the loop that contains it."""
        at = self.frames.of[node]
        if ROLES[node.op] is ENTER and at is frame:
            at = self.frames.of_outputs[node]
        if at is frame:
            return node
        while at.parent is not frame and at.parent is not None:
            at = at.parent
        return self.of[at]

    def _guard(self, region: Region) -> None:
        """Compute path conditions of a region's nodes; Exits of a loop share the one of its
        Enters.
        """
        guards = self.guards
        nodes = [item for item in region.order if isinstance(item, Node)]
        decide = any(ROLES[op] in DECIDING_ROLES for op in {node.op for node in nodes})
        if not decide and len(nodes) == len(region.order):
            guards.put(guards.none, *nodes)
            return
        for item in region.order:
            if isinstance(item, Node):
                guards.of_node(item)
                continue
            guard = self.entry_condition(item)
            guards.put(guard, *item.frame.exits)
            guards.put(guards.none, *item.frame.enters)

    def entry_condition(self, region: Region) -> PathCondition:
        """The path condition, in the outer region, under which a loop is entered."""
        guards, enters = self.guards, region.frame.enters
        inputs = [guards.of_output(source) for node in enters for source in node.inputs]
        inputs += [guards.of_node(source) for node in enters for source in node.controls]
        return reduce(PathCondition.union, inputs, guards.none)


def regions(graph: Graph, links: Mapping[Node, Iterable[Node]] | None = None) -> Regions:
    """Find the regions of a lowered graph.

    `links` maps a node to additional nodes that precede it. Raises InvalidInput for frames that are
    not nested and for cycles without a NextIteration, Unsupported for a loop that waits for itself.
    """
    graph_frames = valid_frames(graph)
    return Regions(graph_frames, graph_frames.root, links or {})


def _raise_cycle(frame: Frame, cycle: list[Any]) -> Unsupported:
    names = [item.name if isinstance(item, Node) else item.frame.path for item in cycle]
    node = next((item for item in cycle if isinstance(item, Node)), None)
    message = f"an output of a loop leads back into it: {' -> '.join(names)}"
    return Unsupported(message, node=node, frame=frame.path, code="CFG503")
