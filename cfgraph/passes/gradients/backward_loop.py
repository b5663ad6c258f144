"""Backward loop: the scope in which the gradients of a loop body are added, and its trip counters.

    forward:   0 ──▶ Enter ─▶ Merge ─▶ Switch on the loop's LoopCond ─▶ +1 ─▶ NextIteration; Exit: N
    backward:  N ──▶ Enter ─▶ Merge ─▶ >= 1, LoopCond ─▶ Switch ─▶ -1 ─▶ NextIteration

A forward value reaches the backward loop in one of three ways: an invariant enters as a constant, a
Const is cloned, and any other value is pushed on a stack (its accumulator) by the forward loop and
popped by the backward loop in the same iterations and under the same guard.

Pushes and pops of an iteration wait for the counter of that iteration and finish before the counter
advances, so that stacks stay in order however many iterations run in parallel. A push or pop that a
conditional may skip is awaited by a ControlTrigger, which runs for dead inputs too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from cfgraph.analysis.loops.path_conditions import BranchDecision, PathCondition, PathConditions
from cfgraph.analysis.loops.while_loop import (
    WhileLoop,
    is_loop_switch,
    loop_variable,
    value_in_iteration,
)
from cfgraph.errors import Unsupported
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of, strip_identities
from cfgraph.passes.gradients.context import GradientContext
from cfgraph.passes.gradients.scope import GradientScope


class IterationBarrier:
    """What every iteration of a counter must wait for before it goes on."""

    def __init__(self, work: GradientContext, back: Node) -> None:
        self.work = work
        self.back = back
        self._always: list[Node] = []
        self._sometimes: list[Node] = []

    def wait_for(self, node: Node, *, may_be_dead: bool) -> None:
        """Let the next iteration begin behind this node."""
        (self._sometimes if may_be_dead else self._always).append(node)

    def finish(self, name: str) -> None:
        """Add the edges."""
        controls = list(self._always)
        if self._sometimes:
            sync = self.work.add_forward("ControlTrigger", (), name, self._sometimes)
            controls.append(sync)
        self.work.graph.set_controls(self.back, [*self.back.controls, *controls])


class ForwardTripCounter:
    """Counts the iterations of a loop; belongs to the loop itself.

    `total` is how many there were, `step` a node that runs once in each before anything is pushed.
    """

    def __init__(
        self,
        work: GradientContext,
        cond: Node,
        enter: dict[str, Any],
        one: Output,
        behind: Sequence[Node],
    ) -> None:
        add = work.add_forward
        zero = TensorValue(np.zeros((), np.int32))
        start = add("Const", (), "f_count", behind, dtype=dtypes.int32, value=zero)
        first = add("Enter", (start.output(),), "f_count_enter", **enter)
        merge = add("Merge", (first.output(), first.output()), "f_count_merge")
        switch = add("Switch", (merge.output(), cond.output()), "f_count_switch")
        self.step = add("AddV2", (switch.output(1), one), "f_count_add")
        back = add("NextIteration", (self.step.output(),), "f_count_next")
        work.graph.set_input(merge, 1, back.output())
        self.total = add("Exit", (switch.output(0),), "f_count_exit").output()
        self.steps = IterationBarrier(work, back)


class BackwardTripCounter:
    """Lets the backward loop run as often as the forward one did."""

    def __init__(
        self, work: GradientContext, enter: dict[str, Any], total: Output, one: Output
    ) -> None:
        self._work = work
        add = work.add
        first = add("Enter", (total,), "b_count_enter", **enter)
        merge = add("Merge", (first.output(), first.output()), "b_count_merge")
        more = add("GreaterEqual", (merge.output(), one), "b_count_more")
        self.cond = add("LoopCond", (more.output(),), "b_count_cond").output()
        self._switch = add("Switch", (merge.output(), self.cond), "b_count_switch")
        self.step = add("Sub", (self._switch.output(1), one), "b_count_sub")
        back = add("NextIteration", (self.step.output(),), "b_count_next")
        work.graph.set_input(merge, 1, back.output())
        self.steps = IterationBarrier(work, back)

    def done(self) -> Node:
        """A node outside the loop that runs when the loop has ended."""
        return self._work.add("Exit", (self._switch.output(0),), "b_count_exit")


class BackwardLoop(GradientScope):
    """The backward loop of one loop. `outer` is where the gradients around it are added."""

    def __init__(
        self, outer: GradientScope, form: WhileLoop, guards: PathConditions, guard: PathCondition
    ) -> None:
        super().__init__(outer.work)
        self.outer = outer
        self.form = form
        self.guards = guards
        self._entered: dict[Output, Output] = {}
        self._entered_forward: dict[Output, Output] = {}
        self._values: dict[Output, Output] = {}
        self._done: Node | None = None
        work, frame = self.work, form.frame
        work.within(frame)
        self.parallel = frame.parallel_iterations
        self._forward: dict[str, Any] = {
            "frame_name": frame.enters[0].attr("frame_name"),
            "parallel_iterations": self.parallel,
        }
        name = work.frame_name(frame.name)
        self._backward: dict[str, Any] = {
            "frame_name": name.encode(),
            "parallel_iterations": self.parallel,
        }
        one = self.top.const(1, dtypes.int32)
        self.counter = ForwardTripCounter(
            work, form.cond, self._forward, self.enter_forward(one), outer.behind()
        )
        guards.put(guard, self.counter.total.node)
        total = outer.read(self.counter.total)
        work.within(frame)
        self.back = BackwardTripCounter(work, self._backward, total, self.const(1, dtypes.int32))

    def behind(self) -> list[Node]:
        """What the counter of an inner loop begins behind: the step of this one."""
        return [self.counter.step]

    def wait_for(self, inner: BackwardLoop, guard: PathCondition) -> None:
        """Let the next iteration begin when an inner loop, entered under a guard, has ended."""
        self.back.steps.wait_for(inner.done(), may_be_dead=bool(self.decisions(guard)))

    @property
    def top(self) -> GradientScope:
        """The top of the graph."""
        return self.outer.top

    # -- into the loops --------------------------------------------------------------------------

    def capture_outer(self, x: Output) -> Output:
        """A tensor from the top of the graph, as it can be read here."""
        return self.enter(self.outer.capture_outer(x))

    def enter(self, x: Output) -> Output:
        """A tensor of the site around, the same in all iterations of the backward loop."""
        found = self._entered.get(x)
        if found is None:
            node = self.work.add("Enter", (x,), "Enter", is_constant=True, **self._backward)
            found = self._entered[x] = node.output()
        return found

    def enter_forward(self, x: Output) -> Output:
        """A tensor from the top of the graph in the forward loop."""
        found = self._entered_forward.get(x)
        if found is None:
            around = self.outer.enter_forward(x)
            add = self.work.add_forward
            node = add("Enter", (around,), "f_enter", is_constant=True, **self._forward)
            found = self._entered_forward[x] = node.output()
        return found

    def enter_variable(self, x: Output, name: str) -> Node:
        """A tensor of the site around as the first value of a variable of the backward loop."""
        return self.work.add("Enter", (x,), name, is_constant=False, **self._backward)

    # -- values ----------------------------------------------------------------------------------

    def read(self, x: Output) -> Output:
        """A value of the forward loop as it was in the iteration that is run back over."""
        if x.node in self.work.made:
            return x
        plain = strip_identities(x)
        found = self._values.get(plain)
        if found is None:
            found = self._values[plain] = self._invariant(plain) or self._accumulated_value(plain)
        return found

    def forward_values(self, tensors: tuple[Output, ...]) -> tuple[Output, ...]:
        """Values of the forward loop as they were in that iteration."""
        return tuple([self.read(item) for item in tensors])

    def _invariant(self, x: Output) -> Output | None:
        """The value from outside the loop, where it is the same in all iterations."""
        here = value_in_iteration(x)
        if here.node.op == "Const":
            return self.capture_outer(self.top.again(here.node))
        source = self._source(here)
        return None if source is None else self.enter(self.outer.read(source))

    def _source(self, origin: Output) -> Output | None:
        """What comes into the loop and stays the same, or None."""
        node = origin.node
        if role_of(node) is Role.ENTER:
            return node.inputs[0]
        variable = loop_variable(node)
        if variable is None or origin.port or not variable.is_invariant:
            return None
        return variable.initial

    def _accumulated_value(self, x: Output) -> Output:
        """A value that the forward loop pushes and this one pops."""
        dtype = x.dtype
        assert dtype is not None
        dtype = dtype.base
        work, before = self.work, self.work.device
        work.device = x.node.device
        size = self.top.const(-1, dtypes.int32)
        stack = self.top.new(
            "StackV2", [size], "f_acc", elem_type=dtype, stack_name=b"f_acc"
        ).output()
        push = work.add_forward(
            "StackPushV2",
            (self.enter_forward(stack), self._in_body(x)),
            "f_acc_push",
            [self.counter.step],
            swap_memory=work.swap_memory,
        )
        conditional = bool(self.decisions(self.guards.of(x)))
        self.counter.steps.wait_for(push, may_be_dead=conditional)
        found = self.pop(self.capture_outer(stack), push)
        work.known.tell(found, work.known.shape(x))
        work.device = before
        return found

    def push(self, stack: Output, x: Output) -> Node:
        """Push a gradient in this loop, in the order of its iterations."""
        handle = self.capture_outer(stack)
        push = self.work.add("StackPushV2", (handle, x), "g_acc_push", [self.back.step])
        self.back.steps.wait_for(push, may_be_dead=True)
        return push

    def pop(self, handle: Output, pushed: Node) -> Output:
        """Pop what a node of the forward loop, or of one that ran before, has pushed."""
        decisions = self.decisions(self.guards.of_node(pushed))
        value = pushed.inputs[1]
        dtype = value.dtype
        assert dtype is not None
        pop = self.work.add(
            "StackPopV2",
            (self.under(handle, decisions),),
            "f_acc_pop",
            [self.back.step],
            elem_type=dtype.base,
        )
        if self.parallel > 1:
            self.back.steps.wait_for(pop, may_be_dead=bool(decisions))
        return pop.output()

    def done(self) -> Node:
        """A node of the site around that runs when this loop has ended."""
        if self._done is None:
            self._done = self.back.done()
        return self._done

    def _in_body(self, x: Output) -> Output:
        """A value of an iteration that is not the last one, where only the condition runs."""
        cond = self.form.cond.output()
        source = self.guards.source(cond)[0]
        if any(item.source == source for item in self.guards.of(x).decisions()):
            return x
        for use in x.node.readers(x.port):
            if role_of(use.node) is Role.SWITCH and is_loop_switch(use.node, self.form.cond):
                return use.node.output(1)
        return self.work.add_forward("Switch", (x, cond), "in_body").output(1)

    def switch(self, x: Output, pred: Output, sides: int) -> Node:
        """A Switch of so many sides, dead when the loop ends."""
        node = super().switch(x, pred, sides)
        ends = self.guards.source(self.back.cond)[0]
        if all(item.source != ends for item in self.guards.of_node(node).decisions()):
            # constants of the loop are there in its last iteration too
            self.work.graph.add_control(node, self.back.step)
            self.guards.forget(node)
        return node

    # -- guards ----------------------------------------------------------------------------------

    def decisions(self, guard: PathCondition) -> list[BranchDecision]:
        """The decisions within an iteration. Raises Unsupported where no predicate decides."""
        found = self.residual_decisions(guard.decisions())
        for item in found:
            if not item.sides:
                message = "it is live under conditions that no predicate tells"
                path = self.form.frame.path
                raise Unsupported(message, node=item.pred.node, frame=path, code="CFG505")
        return found

    def residual_decisions(self, decisions: Iterable[BranchDecision]) -> list[BranchDecision]:
        """These decisions without that of the loop itself, to go on."""
        own = self.guards.source(self.form.cond.output())[0]
        return [item for item in decisions if item.source != own]

    # -- shapes ----------------------------------------------------------------------------------

    def constant(self, array: Any, dtype: DType) -> Output:
        """A new constant that can be read here."""
        if array.ndim == 0 and dtype.is_integer and array == -1:
            # as a shape it says that the rank is unknown, and TensorFlow looks for it in a Const
            return self._const_in_loop(array, dtype)
        return self.enter(self.outer.const(array, dtype))

    def _const_in_loop(self, array: Any, dtype: DType) -> Output:
        attrs = {"dtype": dtype, "value": TensorValue(array)}
        return self.work.add("Const", (), "Const", [self.back.step], **attrs).output()

    def measured(self, x: Output, dtype: DType) -> Output:
        """The shape of a tensor; of one of the forward loop, found there."""
        if x.node in self.work.made:
            return super().measured(x, dtype)
        source = self._source(value_in_iteration(x))
        if source is not None:
            return self.enter(self.outer.shape(source, dtype))
        key = ("Shape", strip_identities(x), dtype)
        found = self._same.get(key)
        if found is None:
            node = self.work.add_forward("Shape", (x,), "f_shape", out_type=dtype)
            found = self._same[key] = self.read(node.output())
        return found

    def zeros_like(self, x: Output) -> Output:
        """Zeros of the shape and type of a tensor, live where it is."""
        dtype = x.dtype
        if dtype is not None and dtype.is_opaque:
            return super().zeros_like(x)
        source = self._source(value_in_iteration(x))
        if source is not None:
            zeros = self.enter(self.outer.zeros_like(source))
        elif not self.known_shape(x).is_full:
            # as dead as the shape, which was saved where x is
            return self.filled(x)
        else:
            zeros = self.capture_outer(self.top.filled(x))
        return self.under(zeros, self.decisions(self.guards.of(x)))

    def finish(self) -> None:
        """Add what orders the iterations."""
        self.work.within(self.form.frame)
        self.counter.steps.finish("f_sync")
        self.back.steps.finish("b_sync")
