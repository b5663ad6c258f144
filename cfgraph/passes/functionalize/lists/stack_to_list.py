"""Replace a stack by a tensor list carried through the pushing loop and then the popping loop.

    f: Push(handle, x)           EmptyTensorList ──▶ f: Enter ▸ Merge ▸ Switch ▸ PushBack(x) ▸ Next
    g: Pop(handle)      becomes    Exit of f     ──▶ g: Enter ▸ Merge ▸ Switch ▸ PopBack ▸ Next

In nested loops the list is carried through each of them. The stack must be pushed once in every
iteration of one loop and popped once in every iteration of another. The maximum number of elements
follows from the trip counts of the loops, which are known once shapes are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from cfgraph.analysis.liveness_rules import LivenessRule
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.path_conditions import forwarded_input
from cfgraph.analysis.loops.while_loop import AffineBound, affine_bound, static_trip_count
from cfgraph.ir.dtypes import variant
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import upstream
from cfgraph.ops.families.stacks import StackPopV2, StackPushV2, StackV2
from cfgraph.ops.opdef.op import Op, is_a, role_of
from cfgraph.ops.shape_inference import StaticShapes
from cfgraph.passes.functionalize.function_body import is_cheap_constant
from cfgraph.passes.functionalize.lists.detached_handles import (
    anchored_constant,
    detach_handle,
    element_shape_constant,
    unchanged_handle_uses,
)
from cfgraph.passes.functionalize.report import region_rejected

# new nodes, each with the original nodes that it replaces, by name with their ops
ReplacedNodes = dict[Node, dict[str, str]]


def stack_to_list(graph: Graph, use: StackUse, shapes: StaticShapes) -> ReplacedNodes:
    """Replace a stack by a list, and return the nodes that handle the list.

    Raises RegionRejected, with the graph unchanged, if the list has no known size limit.
    """
    return StackReplacement(graph, use, shapes).run()


class StackReplacement:
    """Replacement of one stack by a list."""

    def __init__(self, graph: Graph, use: StackUse, shapes: StaticShapes) -> None:
        self.graph = graph
        self.use = use
        self.stack = use.stack
        self.anchor = use.stack.inputs[0].node
        self.dtype = use.stack.attr("elem_type")
        self.shapes = shapes
        self.shape = shapes[use.push.inputs[1]]
        self.new: ReplacedNodes = {}

    def run(self) -> ReplacedNodes:
        """Carry the list through the loops, and remove the stack."""
        use, stack = self.use, self.stack
        most = self.max_elements()
        shape = element_shape_constant(self.graph, stack, self.anchor, self.shape)
        empty = self._add("EmptyTensorList", (shape, most), stack)
        full = self._carry((*use.push_loops, use.push), empty.output(), self._add_push)
        assert full is not None
        self._carry((*use.pop_loops, use.pop), full, self._add_pop, exits=False)
        removed = detach_handle(self.graph, stack, use.handles, (use.push, use.pop))
        ops = {node.name: node.op for node in removed}
        self.graph.remove(*removed)
        if not self.anchor.uses and is_cheap_constant(self.anchor):
            ops[self.anchor.name] = self.anchor.op
            self.graph.remove(self.anchor)
        self.new[empty] = ops
        return self.new

    # -- maximum number of elements --------------------------------------------------------------

    def _trip_count(self, frame: Frame) -> int | AffineBound:
        """Return the trip count of a loop in terms of tensors in the frame of the stack."""
        cond, shapes = frame.loop_conds[0], self.shapes
        known = static_trip_count(cond, shapes)
        if known is not None:
            return known
        bound = affine_bound(cond, shapes)
        limit = None if bound is None else self._outer_value(bound.limit)
        if bound is None or limit is None or bound.step != 1:
            text = f"the trip count of loop {frame.path} is unknown outside the loop"
            raise region_rejected("list", text, node=self.stack.name)
        return bound._replace(limit=limit)

    def _outer_value(self, limit: Output) -> Output | None:
        """Return the tensor in the frame of the stack that a loop limit equals."""
        depth = 0
        while (source := forwarded_input(limit)) is not None:
            depth += role_of(limit.node) is Role.ENTER
            limit = source
            if depth == len(self.use.push_loops):
                return limit
        return None

    def max_elements(self) -> Output:
        """Add nodes for the product of the trip counts. Raises RegionRejected, without nodes."""
        graph, static = self.graph, 1
        result: Output | None = None
        for count in [self._trip_count(frame) for frame in self.use.push_loops]:
            if isinstance(count, int):
                static *= count
                continue
            value = self._bound_value(count)
            result = value if result is None else graph.add("Mul", result, value).output()
        if result is None:
            return self.constant("most", max(static, 1))
        if static != 1:
            result = graph.add("Mul", result, self.constant("times", static)).output()
        # XLA also compiles a loop that never runs, and cannot read an element of an empty list
        minimum = self.constant("one", 1)
        return graph.add("Maximum", result, minimum, name=f"{self.stack.name}/most").output()

    def constant(self, name: str, value: int) -> Output:
        """Add a constant that is live when the stack is."""
        return anchored_constant(self.graph, self.stack, self.anchor, name, value).output()

    def _bound_value(self, bound: AffineBound) -> Output:
        graph, value = self.graph, bound.limit
        if value.dtype is not None and value.dtype.name != "int32":
            value = graph.add("Cast", value, DstT=self.stack.inputs[0].dtype).output()
        if bound.sign < 0:
            value = graph.add("Neg", value).output()
        if bound.offset:
            value = graph.add("AddV2", value, self.constant("more", bound.offset)).output()
        return value

    # -- list nodes ------------------------------------------------------------------------------

    def _add(self, op: str, inputs: Sequence[Output | Node], replaced: Node) -> Node:
        """Add a list op with the device and control inputs of the stack op that it replaces."""
        new = self.graph.add(
            op,
            *inputs,
            name=f"{replaced.name}/list",
            controls=replaced.controls,
            device=replaced.device,
            element_dtype=self.dtype,
        )
        self.new[new] = {}
        return new

    def _add_push(self, tensor_list: Output) -> Output:
        push = self.use.push
        new = self._add("TensorListPushBack", (tensor_list, push.inputs[1]), push)
        self.graph.replace_uses(push.output(), push.inputs[1])
        self._move_control_readers(push, new)
        return new.output()

    def _add_pop(self, tensor_list: Output) -> Output:
        pop = self.use.pop
        shape = element_shape_constant(self.graph, pop, tensor_list.node, self.shape)
        new = self._add("TensorListPopBack", (tensor_list, shape), pop)
        self.graph.replace_uses(pop.output(), new.output(1))
        self._move_control_readers(pop, new)
        return new.output()

    def _move_control_readers(self, old: Node, new: Node) -> None:
        for reader in list(old.control_readers):
            self.graph.remove_control(reader, old)
            self.graph.add_control(reader, new)

    def _carry(
        self,
        path: Sequence[Frame | Node],
        initial: Output,
        inner: Callable[[Output], Output],
        *,
        exits: bool = True,
    ) -> Output | None:
        """Pass the list through nested loops to a node, the last of the path; its final value.

        `inner` adds the list op of the node. Without `exits` there is no final value.
        """
        target, *rest = path
        if not isinstance(target, Frame):
            return self.within(target, initial, inner)
        return self.within(target, initial, lambda x: self._loop(target, rest, x, inner, exits))

    def within(
        self, target: Frame | Node, tensor_list: Output, inner: Callable[[Output], Output | None]
    ) -> Output | None:
        """Add what `inner` adds where a loop or a node runs; the final value of the list."""
        return inner(tensor_list)

    def _loop(
        self,
        frame: Frame,
        path: Sequence[Frame | Node],
        initial: Output,
        inner: Callable[[Output], Output],
        exits: bool,
    ) -> Output | None:
        """Make the list a variable of a loop; return its final value."""
        like, cond = frame.next_iterations[0], frame.loop_conds[0]
        first = frame.enters[0]
        attrs: dict[str, Any] = {
            "T": variant,
            "frame_name": first.attr("frame_name"),
            "is_constant": False,
            "parallel_iterations": frame.parallel_iterations,
        }
        base = f"{self.stack.name}/list"
        enter = self.add_primitive("Enter", f"{base}/Enter", [initial], like, attrs)
        merge_attrs = {"T": variant, "N": 2}
        merge = self.add_primitive("Merge", f"{base}/Merge", [enter, enter], like, merge_attrs)
        inputs, attrs = [merge.output(), cond.output()], {"T": variant}
        switch = self.add_primitive("Switch", f"{base}/Switch", inputs, like, attrs)
        updated = self._carry(path, switch.output(1), inner)
        assert updated is not None
        back = self.add_primitive("NextIteration", f"{base}/Next", [updated], like, attrs)
        self.graph.set_input(merge, 1, back.output())
        if not exits:
            return None
        return self.add_primitive("Exit", f"{base}/Exit", [switch], like, attrs).output()

    def add_primitive(
        self, op: str, name: str, inputs: Sequence[Output | Node], like: Node, attrs: dict[str, Any]
    ) -> Node:
        """Add a control-flow primitive on the device of a node."""
        new = self.graph.add(op, *inputs, name=name, device=like.device, attrs=attrs)
        self.new[new] = {}
        return new


@dataclass(frozen=True, slots=True)
class StackUse:
    """A stack with its only push, its only pop, and the loops of each, outermost first."""

    stack: Node
    push: Node
    pop: Node
    push_loops: tuple[Frame, ...]
    pop_loops: tuple[Frame, ...]
    handles: tuple[Node, ...]


def is_stack(node: Node) -> bool:
    """Return true for a stack whose handle is a resource rather than a reference."""
    return is_a(node, StackV2)


def stack_use(stack: Node, liveness: LivenessRule, fetched: Collection[Node]) -> StackUse:
    """Recognize a stack that one loop pushes and another pops; else raise RegionRejected."""
    if stack.attr("elem_type").kind == "resource":
        text = f"{stack.name} holds handles, which no list of TensorFlow does"
        raise region_rejected("list", text, node=stack.name)
    uses, handles = unchanged_handle_uses(stack.output())
    users: dict[type[Op], list[Node]] = {StackPushV2: [], StackPopV2: []}
    for reader, slot in uses:
        kind = next((kind for kind in users if slot == 0 and is_a(reader, kind)), None)
        if kind is None:
            text = f"{reader.name} ({reader.op}) uses it"
            raise region_rejected("list", text, node=reader.name)
        users[kind].append(reader)
    pushes, pops = users[StackPushV2], users[StackPopV2]
    if len(pushes) != 1 or len(pops) != 1:
        text = f"{len(pushes)} nodes push to it and {len(pops)} pop from it"
        raise region_rejected("list", text, node=stack.name)
    (push,), (pop,) = pushes, pops
    for node in (stack, *handles, push, pop):
        if node in fetched:
            raise region_rejected("list", f"{node.name} is fetched", node=node.name)
    stack_frame = liveness.frames.of_outputs[stack]
    push_loops = _enclosing_loops(push, stack_frame, liveness.frames)
    pop_loops = _enclosing_loops(pop, stack_frame, liveness.frames)
    if push_loops[0] is pop_loops[0]:
        text = f"{push.name} and {pop.name} are in the same loop, {push_loops[0].path}"
        raise region_rejected("list", text, node=stack.name)
    _require_order(push, pop, push_loops[0], pop_loops[0], liveness.frames)
    _require_each_iteration(push, push_loops, liveness)
    _require_each_iteration(pop, pop_loops, liveness)
    return StackUse(stack, push, pop, push_loops, pop_loops, tuple(handles))


def _enclosing_loops(node: Node, stack_frame: Frame, frames: Frames) -> tuple[Frame, ...]:
    """Return the loops that contain a node but not the stack, outermost first."""
    chain, current = list[Frame](), frames.of[node]
    while current is not stack_frame:
        chain.append(current)
        if current.parent is None:
            text = f"{node.name} is outside the frame of the stack"
            raise region_rejected("list", text, node=node.name)
        current = current.parent
    if not chain:
        raise region_rejected("list", f"{node.name} is in no loop", node=node.name)
    return tuple(reversed(chain))


def _require_order(
    push: Node, pop: Node, push_loop: Frame, pop_loop: Frame, frames: Frames
) -> None:
    """Raise RegionRejected if the pushing loop depends on the popping loop."""
    for node in upstream((*push_loop.enters, *push_loop.nodes)):
        # nodes of other lists were added after `frames`; they depend on loops that it knows
        frame = frames.of.get(node)
        if frame is not None and frame.is_within(pop_loop):
            text = f"{push.name} depends on the loop of {pop.name}"
            raise region_rejected("list", text, node=push.name)


def _require_each_iteration(node: Node, loops: tuple[Frame, ...], liveness: LivenessRule) -> None:
    """Raise RegionRejected unless each iteration of a loop runs the next loop, and the node.

    A list is dead where a loop that carries it does not run, and so is every loop around that.
    """
    for frame in loops:
        if len(frame.loop_conds) != 1 or not frame.next_iterations:
            raise region_rejected("list", f"the loop {frame.path} has no single condition")
    for outer, inner in pairwise(loops):
        last = outer.next_iterations[0]
        if not any(liveness.same_liveness(leaving, last) for leaving in inner.exits):
            text = f"the loop {inner.path} does not run in every iteration of {outer.path}"
            raise region_rejected("list", text, node=node.name)
    if not liveness.same_liveness(node, loops[-1].next_iterations[0]):
        text = f"{node.name} does not run in every iteration"
        raise region_rejected("list", text, node=node.name)
