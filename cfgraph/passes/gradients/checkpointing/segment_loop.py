"""Split a loop into segments: an outer loop over segments of at most `length` iterations each.

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

from collections.abc import Iterable
from typing import Any

import numpy as np

from cfgraph.analysis.loops.path_conditions import PathConditions
from cfgraph.analysis.loops.regions import Region
from cfgraph.analysis.loops.while_loop import LoopVariable, WhileLoop
from cfgraph.errors import Unsupported
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of
from cfgraph.passes.gradients.differentiable_loop import differentiable_loop


class SegmentedLoop:
    """A loop at the top of a graph that is cut; `cond` is the LoopCond of a segment.

    Raises Unsupported for a loop that has not the usual form, with nothing changed.
    """

    def __init__(self, graph: Graph, region: Region, guards: PathConditions, length: int) -> None:
        form = differentiable_loop(region.frame, lambda x: True)
        _require_closed(form)
        frame = region.frame
        self.graph = graph
        self.cond = form.cond
        self._added: list[Node] = []
        kept = dict.fromkeys((*frame.enters, *frame.nodes, *frame.exits))
        self._before = [(node, node.inputs, node.controls, dict(node.attrs)) for node in kept]
        self._prefix = f"{frame.name}/segments"
        self._device = form.cond.device
        self._outer: dict[str, Any] = {
            "frame_name": _unique_frame_name(graph, self._prefix).encode(),
            "parallel_iterations": frame.parallel_iterations,
        }
        self._inner: dict[str, Any] = {
            "frame_name": frame.enters[0].attr("frame_name"),
            "parallel_iterations": frame.parallel_iterations,
        }
        merge, decides, pivot = self._add_control_loop(self._entry_controls(form, guards))
        for variable in form.variables:
            self._add_outer_variable(variable, decides)
        for enter in form.invariants:
            self._reroute_invariant(enter)
        self._device = form.cond.device
        pred = form.cond.inputs[0]
        self._count(form.cond, pivot, length)
        last = self._add("Switch", [pred, form.cond.output()], "last")
        more = self._add("Exit", [last.output(0)], "more")
        back = self._add("NextIteration", [more.output()], "next")
        graph.set_input(merge, 1, back.output())

    def undo(self) -> None:
        """Put the loop back as it was."""
        for node, inputs, controls, attrs in self._before:
            self.graph.connect(node, inputs, controls)
            node.attrs = attrs
        self.graph.remove(*self._added)

    def _entry_controls(self, form: WhileLoop, guards: PathConditions) -> list[Node]:
        """Nodes that are live together just where the loop is entered."""
        found, chosen = guards.none, list[Node]()
        for enter in form.frame.enters:
            for item in enter.inputs:
                both = found.union(guards.of(item))
                if both is not found:
                    # a control edge tells nothing of the side of a Switch
                    chosen.append(self._add("Identity", [item], "entered"))
                    found = both
            for node in enter.controls:
                both = found.union(guards.of_node(node))
                if both is not found:
                    chosen.append(node)
                    found = both
        return chosen

    def _add_control_loop(self, anchors: list[Node]) -> tuple[Node, Node, Node]:
        """What drives the outer loop: its Merge, its LoopCond, and a node of each iteration."""
        start = self._const(True, dtypes.bool_, "start", anchors)
        enter = self._add("Enter", [start], "Enter", **self._outer)
        merge = self._add("Merge", [enter.output(), enter.output()], "Merge")
        cond = self._add("LoopCond", [merge.output()], "LoopCond")
        switch = self._add("Switch", [merge.output(), cond.output()], "Switch")
        return merge, cond, self._add("Identity", [switch.output(1)], "Identity")

    def _add_outer_variable(self, variable: LoopVariable, decides: Node) -> None:
        """Let a variable go around in the outer loop too."""
        enter, merge, graph = variable.enter, variable.merge, self.graph
        self._device = merge.device
        outer = self._add("Merge", [enter.output(), enter.output()], "Merge")
        switch = self._add("Switch", [outer.output(), decides.output()], "Switch")
        into = self._add("Enter", [switch.output(1)], "Enter", **self._attrs(enter))
        graph.set_input(merge, 0, into.output())
        after = switch.output(1) if variable.is_invariant else self._add_exit(variable)
        back = self._add("NextIteration", [after], "NextIteration")
        graph.set_input(outer, 1, back.output())
        for leaving in variable.exits:
            graph.connect(leaving, [switch.output(0)], ())

    def _add_exit(self, variable: LoopVariable) -> Output:
        """What a variable is at the end of a segment."""
        if variable.exits:
            value = variable.exits[0].inputs[0]
        else:
            inputs = [variable.merge.output(), self.cond.output()]
            value = self._add("Switch", inputs, "Switch").output(0)
        waits = [item for leaving in variable.exits for item in leaving.controls]
        return self._add("Exit", [value], "Exit", waits).output()

    def _reroute_invariant(self, enter: Node) -> None:
        """Bring an invariant through the outer loop."""
        self._device = enter.device
        uses = list(enter.uses)
        into = self._add(enter.op, [enter.output()], "Enter", **self._attrs(enter))
        for use in uses:
            if use.slot < 0:
                waits = [into if item is enter else item for item in use.node.controls]
                self.graph.set_controls(use.node, waits)
            else:
                self.graph.set_input(use.node, use.slot, into.output())

    def _attrs(self, enter: Node) -> dict[str, Any]:
        """Let an Enter lead into the outer loop; the attributes of one that leads on."""
        attrs = {key: enter.attr(key) for key in ("is_constant", "parallel_iterations")}
        self.graph.set_attr(enter, "frame_name", self._outer["frame_name"])
        return {**attrs, "frame_name": self._inner["frame_name"]}

    def _count(self, cond: Node, pivot: Node, length: int) -> None:
        """End the inner loop after so many iterations."""
        zero = self._const(0, dtypes.int32, "zero", [pivot])
        enter = self._add("Enter", [zero], "count/Enter", **self._inner)
        merge = self._add("Merge", [enter.output(), enter.output()], "count/Merge")
        limit = self._const(length, dtypes.int32, "count/length", [merge])
        less = self._add("Less", [merge.output(), limit], "count/Less")
        both = self._add("LogicalAnd", [cond.inputs[0], less.output()], "count/LogicalAnd")
        self.graph.set_input(cond, 0, both.output())
        switch = self._add("Switch", [merge.output(), cond.output()], "count/Switch")
        here = self._add("Identity", [switch.output(1)], "count/Identity")
        one = self._const(1, dtypes.int32, "count/one", [here])
        step = self._add("AddV2", [here.output(), one], "count/add")
        back = self._add("NextIteration", [step.output()], "count/NextIteration")
        self.graph.set_input(merge, 1, back.output())

    def _const(self, value: Any, dtype: DType, name: str, controls: Iterable[Node]) -> Output:
        tensor = TensorValue(np.asarray(value, dtype.numpy))
        return self._add("Const", [], name, controls, dtype=dtype, value=tensor).output()

    def _add(
        self,
        op: str,
        inputs: Iterable[Output],
        name: str,
        controls: Iterable[Node] = (),
        **attrs: Any,
    ) -> Node:
        name, device = f"{self._prefix}/{name}", self._device
        node = self.graph.add(op, *inputs, name=name, controls=controls, device=device, attrs=attrs)
        self._added.append(node)
        return node


def _require_closed(form: WhileLoop) -> None:
    """Nothing may tell the first iteration from others, or a variable's Enter from what follows."""
    for variable in form.variables:
        for node in (variable.enter, variable.next_iteration):
            if len(node.uses) > 1:
                raise _unsupported_form(
                    form, node, "is read by more than the Merge of its variable"
                )
        if variable.merge.readers(1):
            raise _unsupported_form(form, variable.merge, "tells where its value came from")
        dtype = variable.merge.output().dtype
        if dtype is None or dtype.is_ref:
            raise _unsupported_form(form, variable.merge, "joins references")


def _unsupported_form(form: WhileLoop, node: Node, what: str) -> Unsupported:
    path = form.frame.path
    message = f"{node.op} in the loop {path} {what}"
    hint = "the loop cannot be cut into segments: leave --recompute out"
    return Unsupported(message, node=node, frame=path, hint=hint, code="CFG504")


def _unique_frame_name(graph: Graph, base: str) -> str:
    taken = {node.attrs.get("frame_name") for node in graph if role_of(node) is Role.ENTER}
    name, number = base, 0
    while name.encode() in taken:
        number += 1
        name = f"{base}_{number}"
    return name
