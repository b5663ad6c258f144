"""Gradient checkpointing: the loops to recompute, and their split into segments.

forward:    save the loop state every K iterations
backward:   recompute the K iterations of a segment, then differentiate them

A loop becomes an outer loop over segments of at most `length` iterations each:

    before:   while cond: body
    after:    more = true
              while more:
                  j = 0
                  while cond and j < length: body; j += 1
                  more = cond, evaluated last

The inner loop is the original one and computes the same values. Its Enters and Exits keep their
names and belong to the outer loop; the inner loop gets new ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from math import isqrt
from typing import Any, Final

import numpy as np

from cfgraph.analysis.gradient_paths import ActivityAnalysis
from cfgraph.analysis.loops.path_conditions import PathConditions
from cfgraph.analysis.loops.regions import Region, Regions, regions
from cfgraph.analysis.loops.while_loop import LoopVariable, WhileLoop, static_trip_count
from cfgraph.errors import Unsupported
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.passes.gradients.loop_gradient import differentiable_loop
from cfgraph.passes.gradients.recomputed_loop import CLEAR_AFTER_READ, Purity, RecomputingLoopRule
from cfgraph.passes.gradients.reverse import GradientRequest, differentiate
from cfgraph.passes.gradients.stack_gradients import StackGradients


class SegmentedLoop:
    """A loop at the top of a graph, split into segments; `cond` is the LoopCond of a segment.

    No gradient passes the nodes in `stops`. Raises Unsupported for a loop of an irregular form,
    with the graph unchanged.
    """

    def __init__(
        self,
        graph: Graph,
        region: Region,
        guards: PathConditions,
        length: int,
        stops: Collection[Node],
    ) -> None:
        loop = differentiable_loop(region.frame, lambda x: True)
        _require_separable(loop)
        frame = region.frame
        self.graph = graph
        self.cond = loop.cond
        self._added: list[Node] = []
        nodes = dict.fromkeys((*frame.enters, *frame.nodes, *frame.exits))
        self._saved = [(node, node.inputs, node.controls, dict(node.attrs)) for node in nodes]
        self._prefix = f"{frame.name}/segments"
        self._outer: dict[str, Any] = {
            "frame_name": _unique_frame_name(graph, self._prefix).encode(),
            "parallel_iterations": frame.parallel_iterations,
        }
        self._inner: dict[str, Any] = {
            "frame_name": frame.enters[0].attr("frame_name"),
            "parallel_iterations": frame.parallel_iterations,
        }
        merge, outer_cond, pivot = self._add_segment_loop(self._entry_controls(loop, guards))
        for variable in loop.variables:
            self._add_outer_variable(variable, outer_cond, stops)
        for enter in loop.invariants:
            self._reroute_invariant(enter)
        pred, device = loop.cond.inputs[0], loop.cond.device
        self._limit_iterations(pivot, length)
        last = self._add("Switch", [pred, loop.cond.output()], "last", device)
        more = self._add("Exit", [last.output(0)], "more", device)
        back_edge = self._add("NextIteration", [more.output()], "next", device)
        graph.set_input(merge, 1, back_edge.output())

    def undo(self) -> None:
        """Undo the split: remove the added nodes, and restore the others."""
        for node, inputs, controls, attrs in self._saved:
            self.graph.connect(node, inputs, controls)
            node.attrs = attrs
        self.graph.remove(*self._added)

    def _entry_controls(self, loop: WhileLoop, guards: PathConditions) -> list[Node]:
        """Nodes that are all live exactly when the loop is entered."""
        condition, chosen = guards.none, list[Node]()
        for enter in loop.frame.enters:
            for x in enter.inputs:
                union = condition.union(guards.of_output(x))
                if union is not condition:
                    # a control edge from a Switch is live whatever side it takes
                    chosen.append(self._add("Identity", [x], "entered", loop.cond.device))
                    condition = union
            for node in enter.controls:
                union = condition.union(guards.of_node(node))
                if union is not condition:
                    chosen.append(node)
                    condition = union
        return chosen

    def _add_segment_loop(self, controls: list[Node]) -> tuple[Node, Node, Node]:
        """Add the predicate of the outer loop: its Merge, its LoopCond, and a pivot of its body."""
        device = self.cond.device
        start = self._const(True, dtypes.bool_, "start", controls)
        enter = self._add("Enter", [start], "Enter", device, **self._outer)
        merge = self._add("Merge", [enter.output(), enter.output()], "Merge", device)
        cond = self._add("LoopCond", [merge.output()], "LoopCond", device)
        switch = self._add("Switch", [merge.output(), cond.output()], "Switch", device)
        return merge, cond, self._add("Identity", [switch.output(1)], "Identity", device)

    def _add_outer_variable(
        self, variable: LoopVariable, outer_cond: Node, stops: Collection[Node]
    ) -> None:
        """Also carry a variable through the outer loop."""
        enter, graph, device = variable.enter, self.graph, variable.merge.device
        merge = self._add("Merge", [enter.output(), enter.output()], "Merge", device)
        switch = self._add("Switch", [merge.output(), outer_cond.output()], "Switch", device)
        attrs = self._move_outward(enter)
        inner_enter = self._add("Enter", [switch.output(1)], "Enter", device, **attrs)
        graph.set_input(variable.merge, 0, inner_enter.output())
        is_invariant = variable.is_invariant(stops)
        updated = switch.output(1) if is_invariant else self._add_exit(variable)
        back_edge = self._add("NextIteration", [updated], "NextIteration", device)
        graph.set_input(merge, 1, back_edge.output())
        for node in variable.exits:
            graph.connect(node, [switch.output(0)], ())

    def _add_exit(self, variable: LoopVariable) -> Output:
        """The value of a variable at the end of a segment."""
        device = variable.merge.device
        if variable.exits:
            value = variable.exits[0].inputs[0]
        else:
            inputs = [variable.merge.output(), self.cond.output()]
            value = self._add("Switch", inputs, "Switch", device).output(0)
        controls = [control for node in variable.exits for control in node.controls]
        return self._add("Exit", [value], "Exit", device, controls).output()

    def _reroute_invariant(self, enter: Node) -> None:
        """Route an invariant through the outer loop."""
        uses = list(enter.uses)
        attrs = self._move_outward(enter)
        inner_enter = self._add(enter.op, [enter.output()], "Enter", enter.device, **attrs)
        for use in uses:
            if use.slot < 0:
                controls = [inner_enter if node is enter else node for node in use.node.controls]
                self.graph.set_controls(use.node, controls)
            else:
                self.graph.set_input(use.node, use.slot, inner_enter.output())

    def _move_outward(self, enter: Node) -> dict[str, Any]:
        """Move an Enter to the outer loop; return attributes for a new Enter into the inner
        loop.
        """
        attrs = {key: enter.attr(key) for key in ("is_constant", "parallel_iterations")}
        self.graph.set_attr(enter, "frame_name", self._outer["frame_name"])
        return {**attrs, "frame_name": self._inner["frame_name"]}

    def _limit_iterations(self, pivot: Node, length: int) -> None:
        """End the inner loop after `length` iterations."""
        cond, device = self.cond, self.cond.device
        zero = self._const(0, dtypes.int32, "zero", [pivot])
        enter = self._add("Enter", [zero], "count/Enter", device, **self._inner)
        merge = self._add("Merge", [enter.output(), enter.output()], "count/Merge", device)
        limit = self._const(length, dtypes.int32, "count/length", [merge])
        less = self._add("Less", [merge.output(), limit], "count/Less", device)
        inputs = [cond.inputs[0], less.output()]
        both = self._add("LogicalAnd", inputs, "count/LogicalAnd", device)
        self.graph.set_input(cond, 0, both.output())
        switch = self._add("Switch", [merge.output(), cond.output()], "count/Switch", device)
        count = self._add("Identity", [switch.output(1)], "count/Identity", device)
        one = self._const(1, dtypes.int32, "count/one", [count])
        step = self._add("AddV2", [count.output(), one], "count/add", device)
        back_edge = self._add("NextIteration", [step.output()], "count/NextIteration", device)
        self.graph.set_input(merge, 1, back_edge.output())

    def _const(self, value: Any, dtype: DType, name: str, controls: Iterable[Node]) -> Output:
        tensor, device = TensorValue(np.asarray(value, dtype.numpy)), self.cond.device
        return self._add("Const", [], name, device, controls, dtype=dtype, value=tensor).output()

    def _add(
        self,
        op: str,
        inputs: Iterable[Output],
        name: str,
        device: str,
        controls: Iterable[Node] = (),
        **attrs: Any,
    ) -> Node:
        name = f"{self._prefix}/{name}"
        node = self.graph.add(op, *inputs, name=name, controls=controls, device=device, attrs=attrs)
        self._added.append(node)
        return node


def _require_separable(loop: WhileLoop) -> None:
    """Raise Unsupported if a node distinguishes the first iteration from the others."""
    for variable in loop.variables:
        for node in (variable.enter, variable.next_iteration):
            if len(node.uses) > 1:
                problem = "has other readers than the Merge of its variable"
                raise _unsupported_form(loop, node, problem)
        if variable.merge.readers(1):
            raise _unsupported_form(loop, variable.merge, "has a value_index that is read")
        dtype = variable.merge.output().dtype
        if dtype is None or dtype.is_ref:
            raise _unsupported_form(loop, variable.merge, "merges references")


def _unsupported_form(loop: WhileLoop, node: Node, problem: str) -> Unsupported:
    path = loop.frame.path
    message = f"{node.op} in the loop {path} {problem}"
    hint = "omit recompute: the loop cannot be split into segments"
    return Unsupported(message, node=node, frame=path, hint=hint, code="CFG504")


def _unique_frame_name(graph: Graph, base: str) -> str:
    taken = {node.attrs.get("frame_name") for node in graph if role_of(node) is Role.ENTER}
    name, number = base, 0
    while name.encode() in taken:
        number += 1
        name = f"{base}_{number}"
    return name


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
        """Undo the split of all loops, the last one first."""
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
        hint = "set recompute to the number of iterations between checkpoints"
        node = frame.loop_cond or frame.enters[0]
        raise Unsupported(message, node=node, frame=path, hint=hint, code="CFG510")
    return max(1, isqrt(max(0, count - 1)) + 1)
