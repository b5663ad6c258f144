"""Checkpointing policy: the loops to recompute, and the length of their segments."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt
from typing import Final

from cfgraph.analysis.loops.regions import Region, Regions, regions
from cfgraph.analysis.loops.trip_count import static_trip_count
from cfgraph.errors import Unsupported
from cfgraph.ir.graph import Graph
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.passes.gradients.activity import ActivityAnalysis
from cfgraph.passes.gradients.checkpointing.purity import CLEAR_AFTER_READ, Purity
from cfgraph.passes.gradients.checkpointing.segment_loop import SegmentedLoop
from cfgraph.passes.gradients.gradient_stacks import GradientStacks
from cfgraph.passes.gradients.single_trip_frame import is_single_trip

AUTO: Final = "auto"


class CheckpointPolicy:
    """The loops that gradients flow through, cut into segments.

    `every` is how many iterations a segment has, or AUTO: the root of their number, rounded up.
    `segments` are their LoopConds, `left_out` pushes that need not be done again.
    Raises Unsupported, with nothing changed, for a loop that cannot run again or be cut.
    """

    def __init__(
        self, graph: Graph, every: int | str, active: ActivityAnalysis, saved: GradientStacks
    ) -> None:
        self.graph = graph
        links = saved.links()
        found = regions(graph, links)
        loops = [region for region in _outermost_loops(found) if _is_active_loop(region, active)]
        wanted = [pop for pop in links if active.wants(pop.output())]
        pushed = {push for use in saved.of.values() for push in use.pushes}
        self.left_out = pushed.difference(*(links[pop] for pop in wanted))
        repeatable = Purity(self.left_out)
        self._read = [node for region in loops for node in repeatable.require(region)]
        lengths = _segment_lengths(graph, loops, every)
        self._cut: list[SegmentedLoop] = []
        try:
            for region, length in zip(loops, lengths, strict=True):
                self._cut.append(SegmentedLoop(graph, region, found.guards, length))
        except Exception:
            self.undo()
            raise
        self.segments = frozenset(item.cond for item in self._cut)

    def undo(self) -> None:
        """Put all loops back as they were."""
        for item in reversed(self._cut):
            item.undo()

    def finish(self) -> None:
        """Let arrays keep the elements that are read again."""
        for node in self._read:
            self.graph.set_attr(node, CLEAR_AFTER_READ, False)


def _outermost_loops(found: Regions) -> Iterator[Region]:
    """The outermost loops."""
    for item in found.root.order:
        if isinstance(item, Region) and not is_single_trip(item):
            yield item


def _is_active_loop(region: Region, active: ActivityAnalysis) -> bool:
    return any(active.wants(node.output()) for node in region.frame.exits)


def _segment_lengths(graph: Graph, loops: list[Region], every: int | str) -> list[int]:
    if isinstance(every, int):
        return [every] * len(loops)
    shapes = infer_shapes(graph)
    return [_square_root_length(region, shapes) for region in loops]


def _square_root_length(region: Region, shapes: StaticShapes) -> int:
    """The root of the number of iterations, rounded up. Raises Unsupported where it is unknown."""
    frame = region.frame
    count = None if frame.loop_cond is None else static_trip_count(frame.loop_cond, shapes)
    if count is None:
        path = frame.path
        message = f"how often the loop {path} goes around is not known before it runs"
        hint = "say every how many iterations it saves its state: --recompute K"
        node = frame.loop_cond or frame.enters[0]
        raise Unsupported(message, node=node, frame=path, hint=hint, code="CFG510")
    return max(1, isqrt(max(0, count - 1)) + 1)
