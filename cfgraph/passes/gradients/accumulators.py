"""Accumulators: the stacks in which a loop saves forward values for its backward loop.

    forward loop:    value in iteration i ──▶ StackPushV2
    backward loop:   StackPopV2 ──▶ the same value, last iteration first

    forward counter:    0 ─▶ Enter ─▶ Merge ─▶ Switch on the loop's LoopCond ─▶ +1 ─▶ NextIteration
                                                  └──▶ Exit: N
    backward counter:   N ─▶ Enter ─▶ Merge ─▶ >= 1, LoopCond ─▶ Switch ─▶ -1 ─▶ NextIteration

Pushes and pops of an iteration wait for the counter of that iteration and finish before the counter
advances, so that stacks stay in order however many iterations run in parallel. A push or pop that a
conditional may skip is awaited by a ControlTrigger, which also runs for dead inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.colocation import COLOCATION_ATTR, colocation_group
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.opdef.op import SWAP_MEMORY_ATTR
from cfgraph.passes.gradients.context import GradientContext
from cfgraph.passes.gradients.scope import GradientScope


class IterationBarrier:
    """The nodes of an iteration that finish before its counter advances."""

    def __init__(self, ctx: GradientContext, back_edge: Node) -> None:
        self._ctx = ctx
        self._back_edge = back_edge
        self._always: list[Node] = []
        self._sometimes: list[Node] = []

    def wait_for(self, node: Node, *, may_be_dead: bool) -> None:
        """Start the next iteration after this node."""
        (self._sometimes if may_be_dead else self._always).append(node)

    def finish(self, name: str) -> None:
        """Add control edges from all these nodes to the NextIteration of the counter."""
        controls = list(self._always)
        if self._sometimes:
            sync = self._ctx.add_forward("ControlTrigger", (), name, self._sometimes)
            controls.append(sync)
        self._ctx.graph.set_controls(self._back_edge, [*self._back_edge.controls, *controls])


class ForwardTripCounter:
    """Count the iterations of a loop, in the loop itself.

    `total` is their number; `step` is a node that runs once per iteration, before any push.
    `swap_memory` is that of the loop.
    """

    def __init__(
        self,
        ctx: GradientContext,
        cond: Node,
        enter_attrs: dict[str, Any],
        one: Output,
        start_after: Sequence[Node],
    ) -> None:
        self.swap_memory = bool(cond.attrs.get(SWAP_MEMORY_ATTR))
        add = ctx.add_forward
        zero = TensorValue(np.zeros((), np.int32))
        start = add("Const", (), "f_count", start_after, dtype=dtypes.int32, value=zero)
        enter = add("Enter", (start.output(),), "f_count_enter", **enter_attrs)
        merge = add("Merge", (enter.output(), enter.output()), "f_count_merge")
        switch = add("Switch", (merge.output(), cond.output()), "f_count_switch")
        self.step = add("AddV2", (switch.output(1), one), "f_count_add")
        back_edge = add("NextIteration", (self.step.output(),), "f_count_next")
        ctx.graph.set_input(merge, 1, back_edge.output())
        self.total = add("Exit", (switch.output(0),), "f_count_exit").output()
        self.barrier = IterationBarrier(ctx, back_edge)


class BackwardTripCounter:
    """Counter that runs a backward loop as many times as the forward loop ran.

    `cond` is the predicate of the loop; `step` is a node that runs once per iteration, before any
    pop.
    """

    def __init__(
        self,
        ctx: GradientContext,
        enter_attrs: dict[str, Any],
        forward: ForwardTripCounter,
        total: Output,
        one: Output,
    ) -> None:
        self._ctx = ctx
        add = ctx.add
        enter = add("Enter", (total,), "b_count_enter", **enter_attrs)
        merge = add("Merge", (enter.output(), enter.output()), "b_count_merge")
        more = add("GreaterEqual", (merge.output(), one), "b_count_more")
        attrs: dict[str, Any] = {SWAP_MEMORY_ATTR: True} if forward.swap_memory else {}
        self.cond = add("LoopCond", (more.output(),), "b_count_cond", **attrs).output()
        self._switch = add("Switch", (merge.output(), self.cond), "b_count_switch")
        self.step = add("Sub", (self._switch.output(1), one), "b_count_sub")
        back_edge = add("NextIteration", (self.step.output(),), "b_count_next")
        ctx.graph.set_input(merge, 1, back_edge.output())
        self.barrier = IterationBarrier(ctx, back_edge)

    def add_exit(self) -> Node:
        """Add a node outside the loop that runs when the loop has ended."""
        return self._ctx.add("Exit", (self._switch.output(0),), "b_count_exit")


def add_stack(top: GradientScope, name: str, x: Output) -> Output:
    """Add a stack for the values of a tensor, colocated with it, and return its handle.

    The stack has no size limit and is in the root frame.
    """
    assert x.dtype is not None
    attrs: dict[str, Any] = {
        "elem_type": x.dtype.base,
        "stack_name": name.encode(),
        COLOCATION_ATTR: (colocation_group(x.node.name),),
    }
    size = top.const(-1, dtypes.int32)
    with top.ctx.on_device(x.node.device):
        return top.ctx.add("StackV2", [size], name, **attrs).output()


def push_forward(
    ctx: GradientContext,
    handle: Output,
    x: Output,
    counter: ForwardTripCounter,
    *,
    may_be_dead: bool,
) -> Node:
    """Save a value in each iteration of a forward loop."""
    attrs = {"swap_memory": ctx.swap_memory or counter.swap_memory}
    push = ctx.add_forward("StackPushV2", (handle, x), "f_acc_push", [counter.step], **attrs)
    counter.barrier.wait_for(push, may_be_dead=may_be_dead)
    return push


def push_gradient(
    ctx: GradientContext, handle: Output, dx: Output, counter: BackwardTripCounter
) -> Node:
    """Push a gradient in each iteration of a backward loop."""
    push = ctx.add("StackPushV2", (handle, dx), "g_acc_push", [counter.step])
    counter.barrier.wait_for(push, may_be_dead=True)
    return push


def pop_saved(
    ctx: GradientContext, handle: Output, dtype: DType, counter: BackwardTripCounter
) -> Node:
    """Restore a saved value in each iteration of a backward loop."""
    return ctx.add("StackPopV2", (handle,), "f_acc_pop", [counter.step], elem_type=dtype)
