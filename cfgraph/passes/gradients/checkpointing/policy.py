"""Gradient checkpointing: the loops to recompute, and the length of their segments.

forward:    save the loop state every K iterations
backward:   recompute the K iterations of a segment, then differentiate them
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt
from typing import Final

from cfgraph.analysis.gradient_paths import ActivityAnalysis
from cfgraph.analysis.loops.regions import Region, Regions, regions
from cfgraph.analysis.loops.while_loop import static_trip_count
from cfgraph.errors import Unsupported
from cfgraph.ir.graph import Graph, Output
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.passes.gradients.checkpointing.recomputed_loop import (
    CLEAR_AFTER_READ,
    Purity,
    RecomputingLoopRule,
)
from cfgraph.passes.gradients.checkpointing.segment_loop import SegmentedLoop
from cfgraph.passes.gradients.reverse import GradientRequest, differentiate
from cfgraph.passes.gradients.stack_gradients import StackGradients

AUTO: Final = "auto"


def differentiate_with_checkpoints(
    graph: Graph, request: GradientRequest, every: int | str
) -> list[Output | None]:
    """Add gradients to a lowered graph, in place, saving loop state every `every` iterations.

    Raises Unsupported for a node that cannot be differentiated and for a loop that cannot be
    recomputed, with the graph unchanged.
    """
    policy = CheckpointPolicy(graph, request, every)
    loop_rule = RecomputingLoopRule(policy.segments, policy.skipped)
    try:
        gradients = differentiate(graph, request, loop_rule)
    except Exception:
        policy.undo()
        raise
    loop_rule.cleanup(graph)
    policy.finish()
    return gradients


class CheckpointPolicy:
    """The active loops, split into segments.

    `every` is the number of iterations per segment, or AUTO: the square root of their number,
    rounded up. `segments` are the LoopConds of the segments, `skipped` pushes that are not
    repeated. Raises Unsupported, with the graph unchanged, for a loop that cannot be recomputed or
    split.
    """

    def __init__(self, graph: Graph, request: GradientRequest, every: int | str) -> None:
        self.graph = graph
        stack_gradients = StackGradients(graph)
        links = stack_gradients.pushes_by_pop()
        activity = ActivityAnalysis(request.ys, request.xs, request.stops, links)
        graph_regions = regions(graph, links)
        loops = [
            region
            for region in _outermost_loops(graph_regions)
            if _is_active_loop(region, activity)
        ]
        active_pops = [pop for pop in links if activity.is_active(pop.output())]
        pushes = {push for use in stack_gradients.accesses.values() for push in use.pushes}
        self.skipped = pushes.difference(*(links[pop] for pop in active_pops))
        purity = Purity(self.skipped)
        self._arrays = [node for region in loops for node in purity.require(region)]
        lengths = _segment_lengths(graph, loops, every)
        self._loops: list[SegmentedLoop] = []
        try:
            for region, length in zip(loops, lengths, strict=True):
                loop = SegmentedLoop(graph, region, graph_regions.guards, length, activity.stops)
                self._loops.append(loop)
        except Exception:
            self.undo()
            raise
        self.segments = frozenset(loop.cond for loop in self._loops)

    def undo(self) -> None:
        """Restore all loops."""
        for loop in reversed(self._loops):
            loop.undo()

    def finish(self) -> None:
        """Make TensorArrays retain elements that are read again."""
        for node in self._arrays:
            self.graph.set_attr(node, CLEAR_AFTER_READ, False)


def _outermost_loops(graph_regions: Regions) -> Iterator[Region]:
    for item in graph_regions.root.order:
        if isinstance(item, Region) and not item.frame.is_single_trip:
            yield item


def _is_active_loop(region: Region, activity: ActivityAnalysis) -> bool:
    return any(activity.is_active(node.output()) for node in region.frame.exits)


def _segment_lengths(graph: Graph, loops: list[Region], every: int | str) -> list[int]:
    if isinstance(every, int):
        return [every] * len(loops)
    shapes = infer_shapes(graph)
    return [_square_root_length(region, shapes) for region in loops]


def _square_root_length(region: Region, shapes: StaticShapes) -> int:
    """The square root of the trip count, rounded up. Raises Unsupported if it is not static."""
    frame = region.frame
    count = None if frame.loop_cond is None else static_trip_count(frame.loop_cond, shapes)
    if count is None:
        path = frame.path
        message = f"trip count of loop {path} is not statically known"
        hint = "set the number of iterations between checkpoints: --recompute K"
        node = frame.loop_cond or frame.enters[0]
        raise Unsupported(message, node=node, frame=path, hint=hint, code="CFG510")
    return max(1, isqrt(max(0, count - 1)) + 1)
