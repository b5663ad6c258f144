"""Replace a stack by a tensor list carried through the pushing loop and then the popping loop.

    f: Push(handle, x)           EmptyTensorList ──▶ f: Enter ▸ Merge ▸ Switch ▸ PushBack(x) ▸ Next
    g: Pop(handle)      becomes    Exit of f     ──▶ g: Enter ▸ Merge ▸ Switch ▸ PopBack ▸ Next

In nested loops the list is carried through each of them. The stack must be pushed once in every
iteration of one loop and popped once in every iteration of another. The maximum number of elements
follows from the trip counts of the loops, which are known once shapes are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from cfgraph.analysis.loops.frames import Frame, Frames
from cfgraph.analysis.loops.trip_count import AffineBound, affine_bound, static_trip_count
from cfgraph.ir.dtypes import variant
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.families.stacks import StackPopV2, StackPushV2, StackV2
from cfgraph.ops.opdef.op import Op, is_a, lookup
from cfgraph.ops.shape_inference import StaticShapes
from cfgraph.passes.cluster.formation.grow import is_cheap_constant
from cfgraph.passes.cluster.formation.liveness_rules import LivenessRule
from cfgraph.passes.cluster.formation.rejection_reasons import not_functionalizable
from cfgraph.passes.cluster.functionalize.handle_uses import (
    anchored_constant,
    detach_handle,
    element_shape_constant,
    handle_uses,
)

# nodes that are new, and the nodes that were, by name with their ops, which each stands for
ReplacedNodes = dict[Node, dict[str, str]]


def stack_to_list(graph: Graph, form: StackUse, shapes: StaticShapes) -> ReplacedNodes:
    """Replace a stack by a list; the nodes that handle it now, and what they stand for.

    Raises Refused, with nothing changed, where no bound on its length is known.
    """
    return _StackReplacement(graph, form, shapes).run()


class _StackReplacement:
    """Replaces one stack."""

    def __init__(self, graph: Graph, form: StackUse, shapes: StaticShapes) -> None:
        self.graph = graph
        self.form = form
        self.made = form.made
        self.beside = form.made.inputs[0].node
        self.dtype = form.made.attr("elem_type")
        self.shape = shapes[form.push.inputs[1]]
        self.counts = [self._count(frame, shapes) for frame in form.push_loops]
        self.new: ReplacedNodes = {}

    def run(self) -> ReplacedNodes:
        """Do it."""
        form, made = self.form, self.made
        inputs = element_shape_constant(self.graph, made, self.beside, self.shape), self._most()
        empty = self._add("EmptyTensorList", inputs, made)
        full = self._through(form.push_loops, empty.output(), self._add_push)
        assert full is not None
        self._through(form.pop_loops, full, self._add_pop, leaves=False)
        gone = detach_handle(self.graph, made, form.handles, (form.push, form.pop))
        ops = {node.name: node.op for node in gone}
        self.graph.remove(*gone)
        if not self.beside.uses and is_cheap_constant(self.beside):
            ops[self.beside.name] = self.beside.op
            self.graph.remove(self.beside)
        self.new[empty] = ops
        return self.new

    # -- how many --------------------------------------------------------------------------------

    def _count(self, frame: Frame, shapes: StaticShapes) -> int | AffineBound:
        """How often a loop goes round, as the frame in which the stack is made can say it."""
        cond = frame.loop_conds[0]
        known = static_trip_count(cond, shapes)
        if known is not None:
            return known
        found = affine_bound(cond, shapes)
        limit = None if found is None else self._outside(found.limit)
        if found is None or limit is None or found.step != 1:
            text = f"how often the loop {frame.path} goes round is not known from outside"
            raise not_functionalizable("list", text, node=self.made.name)
        return found._replace(limit=limit)

    def _outside(self, limit: Output) -> Output | None:
        """What a limit is in the frame of the stack."""
        depth = 0
        while True:
            op = lookup(limit.node.op)
            if op is not None and op.aliasing.is_identity:
                limit = limit.node.inputs[limit.port]
            elif op is not None and op.role is Role.ENTER and limit.node.attr("is_constant"):
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
        return anchored_constant(self.graph, self.made, self.beside, name, value).output()

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

    def _add_push(self, rows: Output) -> Output:
        push = self.form.push
        new = self._add("TensorListPushBack", (rows, push.inputs[1]), push)
        self.graph.replace_uses(push.output(), push.inputs[1])
        self._move_control_readers(push, new)
        return new.output()

    def _add_pop(self, rows: Output) -> Output:
        pop = self.form.pop
        shape = element_shape_constant(self.graph, pop, rows.node, self.shape)
        new = self._add("TensorListPopBack", (rows, shape), pop)
        self.graph.replace_uses(pop.output(), new.output(1))
        self._move_control_readers(pop, new)
        return new.output()

    def _move_control_readers(self, old: Node, new: Node) -> None:
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


@dataclass(frozen=True, slots=True)
class StackUse:
    """A stack, its one push and its one pop, with the loops around each, outer ones first."""

    made: Node
    push: Node
    pop: Node
    push_loops: tuple[Frame, ...]
    pop_loops: tuple[Frame, ...]
    handles: tuple[Node, ...]


def is_stack(node: Node) -> bool:
    """True for a stack whose handle is a value."""
    return is_a(node, StackV2)


def stack_use(made: Node, liveness: LivenessRule, kept: Collection[Node]) -> StackUse:
    """Read a stack. Raises Refused where it is not pushed in one loop and popped in another."""
    uses, handles = handle_uses(made.output())
    found: dict[type[Op], list[Node]] = {StackPushV2: [], StackPopV2: []}
    for reader, slot in uses:
        kind = next((kind for kind in found if slot == 0 and is_a(reader, kind)), None)
        if kind is None:
            raise not_functionalizable(
                "list", f"{reader.name} ({reader.op}) uses it", node=reader.name
            )
        found[kind].append(reader)
    pushes, pops = found[StackPushV2], found[StackPopV2]
    if len(pushes) != 1 or len(pops) != 1:
        text = f"{len(pushes)} nodes push to it and {len(pops)} pop from it"
        raise not_functionalizable("list", text, node=made.name)
    (push,), (pop,) = pushes, pops
    asked = [node for node in (made, *handles, push, pop) if node in kept]
    if asked:
        raise not_functionalizable("list", f"{asked[0].name} is fetched", node=asked[0].name)
    home = liveness.frames.of_outputs[made]
    loops = [_enclosing_loops(node, home, liveness.frames) for node in (push, pop)]
    if loops[0][0] is loops[1][0]:
        text = f"{push.name} and {pop.name} are in one loop, {loops[0][0].path}"
        raise not_functionalizable("list", text, node=made.name)
    _require_order(push, pop, loops[0][0], loops[1][0], liveness.frames)
    for node, around in zip((push, pop), loops, strict=True):
        _require_each_iteration(node, around, liveness)
    return StackUse(made, push, pop, loops[0], loops[1], tuple(handles))


def _enclosing_loops(node: Node, home: Frame, found: Frames) -> tuple[Frame, ...]:
    """The loops around a node, from the frame in which the stack is made."""
    chain, here = list[Frame](), found.of[node]
    while here is not home:
        chain.append(here)
        if here.parent is None:
            raise not_functionalizable(
                "list", f"{node.name} is not in a loop around", node=node.name
            )
        here = here.parent
    if not chain:
        raise not_functionalizable("list", f"{node.name} is in no loop", node=node.name)
    return tuple(reversed(chain))


def _require_order(push: Node, pop: Node, first: Frame, then: Frame, found: Frames) -> None:
    """Raise Refused where the loop that pushes waits for the one that pops."""
    todo = dict.fromkeys((*first.enters, *first.nodes))
    for node in (queue := list(todo)):
        # the nodes of lists that were made before are in no frame; their loops are behind them
        here = found.of.get(node)
        if here is not None and here.is_within(then):
            text = f"{push.name} waits for the loop in which {pop.name} is"
            raise not_functionalizable("list", text, node=push.name)
        for near in (*(item.node for item in node.inputs), *node.controls):
            if near not in todo:
                todo[near] = None
                queue.append(near)


def _require_each_iteration(node: Node, loops: tuple[Frame, ...], liveness: LivenessRule) -> None:
    """Raise Refused unless the body of each loop comes to a node exactly once."""
    for frame in loops:
        if len(frame.loop_conds) != 1 or not frame.next_iterations:
            raise not_functionalizable("list", f"the loop {frame.path} has no one condition")
    last = loops[-1].next_iterations[0]
    if not liveness.same_liveness(node, last):
        text = f"{node.name} does not run in each iteration"
        raise not_functionalizable("list", text, node=node.name)
