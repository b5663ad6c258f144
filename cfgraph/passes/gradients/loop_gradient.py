"""Gradient of a loop: a backward loop that runs its iterations in reverse order.

    forward:   Enter ─▶ Merge ─▶ Switch ─▶ body ─▶ NextIteration;  Exit
    backward:  gradient of the Exit ─▶ Enter ─▶ Merge ─▶ Switch ─▶ body's gradient ─▶ NextIteration;
               its Exit is the gradient of the forward loop's input

The gradient of an invariant is accumulated in a separate variable, which starts with zeros.

A frame without a back edge is no loop: each of its nodes runs at most once. Their gradients are
added outside the frame, where a value of the frame is read through a separate Exit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from cfgraph.analysis.loops.branch_decisions import PathCondition
from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.path_conditions import PathConditions
from cfgraph.analysis.loops.regions import Region
from cfgraph.analysis.loops.while_loop import LoopVariable, WhileLoop, while_loop
from cfgraph.errors import Unsupported
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.families.constants import PreventGradient, prevented_gradient_error
from cfgraph.ops.opdef.op import back_edge_of, is_a, role_of
from cfgraph.passes.gradients.backward_loop import BackwardLoop
from cfgraph.passes.gradients.reverse import ReverseMode, require_own_gradient
from cfgraph.passes.gradients.scope import GradientScope

IsActive = Callable[[Output], bool]


def reverse_loop(outer: ReverseMode, region: Region) -> Iterator[ReverseMode]:
    """Pass the gradients of a loop's Exits to the inputs of its Enters; yield what must run."""
    if not has_gradient(outer, region):
        return
    guard = outer.regions.entry_condition(region)
    _require_own_gradients(outer, region.frame)
    if region.frame.is_single_trip:
        yield from _reverse_single_trip_frame(outer, region, guard)
        return
    loop = differentiable_loop(region.frame, outer.is_active)
    scope = BackwardLoop(outer.scope, loop, outer.guards, guard)
    inner = outer.nested(scope, region)
    merges = [_start_variable(outer, inner, scope, variable, guard) for variable in loop.variables]
    yield inner
    for variable, merge in zip(loop.variables, merges, strict=True):
        _close_back_edge(inner, scope, variable, merge)
    for enter in loop.invariants:
        _accumulate_invariant(outer, inner, scope, enter, guard)
    outer.scope.wait_for(scope.finished, guard)
    if outer.stacks is not None:
        outer.stacks.finish_loop(outer.scope, scope)
    scope.finish()


def _require_own_gradients(outer: ReverseMode, frame: Frame) -> None:
    """Raise Unsupported for an active node of the loop's form with a custom gradient."""
    for node in (*frame.enters, *frame.merges, *frame.next_iterations, *frame.exits):
        if outer.is_active(node.output()):
            require_own_gradient(node, ignore_custom=outer.ctx.ignore_custom)


def has_gradient(outer: ReverseMode, region: Region) -> bool:
    """True if gradients reach an Exit of a loop, or were pushed for a pop in it."""
    if outer.stacks is not None and outer.stacks.reaches(region.frame):
        return True
    return any(outer.partials(node.output()) for node in region.frame.exits)


def _start_variable(
    outer: ReverseMode,
    inner: ReverseMode,
    scope: BackwardLoop,
    variable: LoopVariable,
    guard: PathCondition,
) -> Node:
    """Add the backward loop's variable for a variable's gradient; return its Merge."""
    ctx, counter = outer.ctx, scope.backward_counter
    with ctx.scope(variable.merge):
        enter = scope.enter_variable(_exit_gradient(outer, scope.loop, variable, guard), "b_exit")
        merge = ctx.add("Merge", (enter.output(), enter.output()), "b_switch")
        for port in range(2):
            ctx.static.set_shape(merge.output(port), scope.known_shape(variable.merge.output(port)))
        switch = ctx.add("Switch", (merge.output(), counter.cond), "b_merge")
        result = ctx.add("Exit", (switch.output(0),), "b_enter").output()
        initial = variable.initial
        ctx.static.set_shape(result, outer.scope.known_shape(initial))
        outer.accumulate(initial, result, guard)
        carried = variable.updated
        inner.accumulate(carried, switch.output(1), inner.guards.of_output(carried))
    return merge


def _exit_gradient(
    outer: ReverseMode, loop: WhileLoop, variable: LoopVariable, guard: PathCondition
) -> Output:
    """The gradient of a variable's final value, or zeros if there is none."""
    partials = [dx for node in variable.exits for dx in outer.partials(node.output())]
    if len(partials) > 1:
        return outer.scope.ctx.add("AddN", partials, "AddN").output()
    if partials:
        return partials[0]
    exits = variable.exits or (_add_exit(outer, loop, variable, guard),)
    return outer.scope.zeros_like(exits[0].output())


def _add_exit(
    outer: ReverseMode, loop: WhileLoop, variable: LoopVariable, guard: PathCondition
) -> Node:
    """Add an Exit to a variable that has none."""
    ctx = outer.ctx
    switch = ctx.add_forward("Switch", (variable.merge.output(), loop.cond.output()), "f_switch")
    node = ctx.add_forward("Exit", (switch.output(0),), "f_exit")
    ctx.static.set_shape(node.output(), ctx.static.shape(variable.merge.output()))
    outer.guards.put(guard, node)
    return node


def _close_back_edge(
    inner: ReverseMode, scope: BackwardLoop, variable: LoopVariable, merge: Node
) -> None:
    """Pass the gradient of a variable to the preceding iteration."""
    ctx = inner.ctx
    with ctx.scope(variable.merge):
        total = inner.gradient_of(variable.merge.output())
        if total is None:
            zeros = scope.zeros_like(variable.merge.output())
            # the control edge keeps the zeros dead in the last iteration
            step = scope.backward_counter.step
            total = ctx.add("Identity", (zeros,), "b_zeros", [step]).output()
        back_edge = ctx.add("NextIteration", (total,), "b_next")
    ctx.graph.set_input(merge, 1, back_edge.output())


def _accumulate_invariant(
    outer: ReverseMode, inner: ReverseMode, scope: BackwardLoop, enter: Node, guard: PathCondition
) -> None:
    """Sum the gradient of an invariant over the iterations."""
    partials = inner.partials(enter.output())
    if not partials:
        return
    ctx, source = inner.ctx, enter.inputs[0]
    # a sum on another device than its terms would receive one in each iteration
    device = enter.device or partials[-1].node.device
    with ctx.scope(enter), ctx.on_device(device):
        shape = outer.scope.known_shape(source)
        initial = scope.enter_variable(outer.scope.zeros_like(source), "b_acc").output()
        merge = ctx.add("Merge", (initial, initial), "b_acc_merge")
        ctx.static.set_shape(merge.output(), shape)
        switch = ctx.add("Switch", (merge.output(), scope.backward_counter.cond), "b_acc_switch")
        total = ctx.add("AddN", (switch.output(1), *partials), "b_acc_add")
        back_edge = ctx.add("NextIteration", (total.output(),), "b_acc_next")
        ctx.graph.set_input(merge, 1, back_edge.output())
        result = ctx.add("Exit", (switch.output(0),), "b_acc_exit").output()
        ctx.static.set_shape(result, shape)
        outer.accumulate(source, result, guard)


# -- supported loops --------------------------------------------------------------------------


def differentiable_loop(frame: Frame, is_active: IsActive) -> WhileLoop:
    """The loop of a frame with its active variables and invariants.

    Raises Unsupported, naming the node, for a loop of another form.
    """
    loop = while_loop(frame)
    if loop is None:
        message = f"the loop {frame.path} has {len(frame.loop_conds)} LoopConds, expected one"
        raise Unsupported(message, node=frame.enters[0], frame=frame.path, code="CFG504")
    active = replace(
        loop,
        variables=tuple(item for item in loop.variables if is_active(item.merge.output())),
        invariants=tuple(node for node in loop.invariants if is_active(node.output())),
    )
    _require_regular(active, is_active)
    return active


def _require_regular(loop: WhileLoop, is_active: IsActive) -> None:
    try:
        _require_regular_form(loop, is_active)
    except Unsupported:
        for node in loop.frame.nodes:
            if is_a(node, PreventGradient) and is_active(node.output()):
                # the author's reason says more than the form of the loop
                raise prevented_gradient_error(node) from None
        raise


def _require_regular_form(loop: WhileLoop, is_active: IsActive) -> None:
    for merge in loop.irregular_merges:
        if back_edge_of(merge) is not None and is_active(merge.output()):
            raise _unsupported_form(loop, merge, "merges more than an Enter and a NextIteration")
    exits = {node for variable in loop.variables for node in variable.exits}
    for node in loop.frame.exits:
        if node not in exits and is_active(node.output()):
            raise _unsupported_form(loop, node, "does not forward the final value of a variable")
    enters = {*loop.invariants, *(variable.enter for variable in loop.variables)}
    for enter in loop.frame.enters:
        if enter not in enters and is_active(enter.output()):
            raise _unsupported_form(loop, enter, "enters the first iteration alone")


def _unsupported_form(loop: WhileLoop, node: Node, problem: str) -> Unsupported:
    message = f"{node.op} in the loop {loop.frame.path} {problem}"
    hint = "the loop cannot be run backwards"
    return Unsupported(message, node=node, frame=loop.frame.path, hint=hint, code="CFG504")


# -- frames without a back edge ----------------------------------------------------------------


def _reverse_single_trip_frame(
    outer: ReverseMode, region: Region, guard: PathCondition
) -> Iterator[ReverseMode]:
    """Pass the gradients of the Exits of a frame without a back edge to its Enters."""
    scope = SingleTripFrame(outer.scope, region, outer.guards, guard)
    inner = outer.nested(scope, region)
    with outer.ctx.last_scope():
        for node in region.frame.exits:
            for dx in outer.partials(node.output()):
                x = node.inputs[0]
                inner.accumulate(x, dx, inner.guards.of_output(x))
    yield inner
    with outer.ctx.last_scope():
        for node in region.frame.enters:
            for dx in inner.partials(node.output()):
                outer.accumulate(node.inputs[0], dx, guard)


class SingleTripFrame(GradientScope):
    """The scope outside a frame without a back edge, for the gradients of its nodes."""

    outer: GradientScope

    def __init__(
        self, outer: GradientScope, region: Region, guards: PathConditions, guard: PathCondition
    ) -> None:
        super().__init__(outer.ctx)
        self.outer = outer
        self.region = region
        self.guards = guards
        self.guard = guard
        self._values: dict[Output, Output] = {}

    def constant(self, array: Any, dtype: DType) -> Output:
        """Add a constant that is available in this scope."""
        return self.outer.const(array, dtype)

    def forward_value(self, x: Output) -> Output:
        """A value of the frame, available outside it."""
        if x.node in self.ctx.gradient_nodes:
            return x
        value = self._values.get(x)
        if value is None:
            value = self._values[x] = self.outer.forward_value(self._exit_value(x))
        return value

    def _exit_value(self, x: Output) -> Output:
        if role_of(x.node) is Role.ENTER:
            return x.node.inputs[0]
        if self.guards.of_output(x) is not self.guards.none:
            message = "a conditional value of a frame without a back edge is needed outside it"
            path = self.region.frame.path
            raise Unsupported(message, node=x.node, frame=path, code="CFG504")
        node = self.ctx.add_forward("Exit", (x,), "f_exit")
        self.guards.put(self.guard, node)
        return node.output()
