"""Let a stack be a value: a tensor list that goes round in both loops, the one that pushes first.

    f: Push(handle, x)           EmptyTensorList ──▶ f: Enter ▸ Merge ▸ Switch ▸ PushBack(x) ▸ Next
    g: Pop(handle)      becomes    Exit of f     ──▶ g: Enter ▸ Merge ▸ Switch ▸ PopBack ▸ Next

Where loops nest, it goes round in each of them. How many elements there may be is what the
conditions of the loops say: a number that is known once the shapes are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cfgraph.analysis.loops.frames import Frame
from cfgraph.analysis.loops.trip_count import AffineBound, affine_bound, static_trip_count
from cfgraph.ir.dtypes import variant
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ops.op import lookup
from cfgraph.ops.shape_inference import Shapes
from cfgraph.passes.cluster.formation import is_cheap
from cfgraph.passes.lift.constants import constant_beside, shape_constant
from cfgraph.passes.lift.handles import without_handle
from cfgraph.passes.lift.refused import refused
from cfgraph.passes.lift.stack_form import StackForm

# nodes that are new, and the nodes that were, by name with their ops, which each stands for
Replaced = dict[Node, dict[str, str]]


def stack_as_list(graph: Graph, form: StackForm, shapes: Shapes) -> Replaced:
    """Replace a stack by a list; the nodes that handle it now, and what they stand for.

    Raises Refused, with nothing changed, where no bound on its length is known.
    """
    return _Worker(graph, form, shapes).run()


class _Worker:
    """Replaces one stack."""

    def __init__(self, graph: Graph, form: StackForm, shapes: Shapes) -> None:
        self.graph = graph
        self.form = form
        self.made = form.made
        self.beside = form.made.inputs[0].node
        self.dtype = form.made.attr("elem_type")
        self.shape = shapes[form.push.inputs[1]]
        self.counts = [self._count(frame, shapes) for frame in form.push_loops]
        self.new: Replaced = {}

    def run(self) -> Replaced:
        """Do it."""
        form, made = self.form, self.made
        inputs = shape_constant(self.graph, made, self.beside, self.shape), self._most()
        empty = self._add("EmptyTensorList", inputs, made)
        full = self._through(form.push_loops, empty.output(), self._pushed)
        assert full is not None
        self._through(form.pop_loops, full, self._popped, leaves=False)
        gone = without_handle(self.graph, made, form.handles, (form.push, form.pop))
        ops = {node.name: node.op for node in gone}
        self.graph.remove(*gone)
        if not self.beside.uses and is_cheap(self.beside):
            ops[self.beside.name] = self.beside.op
            self.graph.remove(self.beside)
        self.new[empty] = ops
        return self.new

    # -- how many --------------------------------------------------------------------------------

    def _count(self, frame: Frame, shapes: Shapes) -> int | AffineBound:
        """How often a loop goes round, as the frame in which the stack is made can say it."""
        cond = frame.loop_conds[0]
        known = static_trip_count(cond, shapes)
        if known is not None:
            return known
        found = affine_bound(cond, shapes)
        limit = None if found is None else self._outside(found.limit)
        if found is None or limit is None or found.step != 1:
            text = f"how often the loop {frame.path} goes round is not known from outside"
            raise refused("list", text, node=self.made.name)
        return found._replace(limit=limit)

    def _outside(self, limit: Output) -> Output | None:
        """What a limit is in the frame of the stack."""
        depth = 0
        while True:
            op = lookup(limit.node.op)
            if op is not None and op.forwards:
                limit = limit.node.inputs[limit.port]
            elif op is not None and op.role == "enter" and limit.node.attr("is_constant"):
                limit, depth = limit.node.inputs[0], depth + 1
            else:
                break
            if depth == len(self.form.push_loops):
                return limit
        return None

    def _most(self) -> Output:
        """The number of elements there may be."""
        graph, whole = self.graph, 1
        result: Output | None = None
        for count in self.counts:
            if isinstance(count, int):
                whole *= count
                continue
            item = self._of(count)
            result = item if result is None else graph.add("Mul", result, item).output()
        if result is None:
            return self._number("most", max(whole, 1))
        if whole != 1:
            result = graph.add("Mul", result, self._number("times", whole)).output()
        # a loop that never goes round is compiled too, and no row is among none
        at_least = self._number("one", 1)
        return graph.add("Maximum", result, at_least, name=f"{self.made.name}/most").output()

    def _number(self, name: str, value: int) -> Output:
        return constant_beside(self.graph, self.made, self.beside, name, value).output()

    def _of(self, count: AffineBound) -> Output:
        graph, item = self.graph, count.limit
        if item.dtype is not None and item.dtype.name != "int32":
            item = graph.add("Cast", item, DstT=self.made.inputs[0].dtype).output()
        if count.sign < 0:
            item = graph.add("Neg", item).output()
        if count.offset:
            item = graph.add("AddV2", item, self._number("more", count.offset)).output()
        return item

    # -- the list --------------------------------------------------------------------------------

    def _add(self, op: str, inputs: Sequence[Output | Node], place: Node) -> Node:
        """A node on the list, where another one stood."""
        new = self.graph.add(
            op,
            *inputs,
            name=f"{place.name}/list",
            controls=place.controls,
            device=place.device,
            element_dtype=self.dtype,
        )
        self.new[new] = {}
        return new

    def _pushed(self, rows: Output) -> Output:
        push = self.form.push
        new = self._add("TensorListPushBack", (rows, push.inputs[1]), push)
        self.graph.replace_uses(push.output(), push.inputs[1])
        self._hand_over(push, new)
        return new.output()

    def _popped(self, rows: Output) -> Output:
        pop = self.form.pop
        shape = shape_constant(self.graph, pop, rows.node, self.shape)
        new = self._add("TensorListPopBack", (rows, shape), pop)
        self.graph.replace_uses(pop.output(), new.output(1))
        self._hand_over(pop, new)
        return new.output()

    def _hand_over(self, old: Node, new: Node) -> None:
        for reader in list(old.control_readers):
            self.graph.remove_control(reader, old)
            self.graph.add_control(reader, new)

    def _through(
        self,
        loops: Sequence[Frame],
        start: Output,
        inner: Callable[[Output], Output],
        *,
        leaves: bool = True,
    ) -> Output | None:
        """Let the list go round in these loops, outer ones first; as it leaves the first."""
        if not loops:
            return inner(start)
        frame, *others = loops
        like, cond = frame.next_iterations[0], frame.loop_conds[0]
        first = frame.enters[0]
        attrs: dict[str, Any] = {
            "T": variant,
            "frame_name": first.attr("frame_name"),
            "is_constant": False,
            "parallel_iterations": frame.parallel_iterations,
        }
        base = f"{self.made.name}/list"
        enter = self._step("Enter", f"{base}/Enter", [start], like, attrs)
        merge = self._step("Merge", f"{base}/Merge", [enter, enter], like, {"T": variant, "N": 2})
        both = [merge.output(), cond.output()]
        switch = self._step("Switch", f"{base}/Switch", both, like, {"T": variant})
        after = self._through(others, switch.output(1), inner)
        assert after is not None
        back = self._step("NextIteration", f"{base}/Next", [after], like, {"T": variant})
        self.graph.set_input(merge, 1, back.output())
        if not leaves:
            return None
        return self._step("Exit", f"{base}/Exit", [switch], like, {"T": variant}).output()

    def _step(
        self, op: str, name: str, inputs: Sequence[Output | Node], like: Node, attrs: dict[str, Any]
    ) -> Node:
        new = self.graph.add(op, *inputs, name=name, device=like.device, attrs=attrs)
        self.new[new] = {}
        return new
