"""Firing of Switch, Merge, Enter, Exit, NextIteration, LoopCond, and ControlTrigger.

`propagate` decides when a Merge is ready and when it is dead; this module forwards its value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from cfgraph.errors import ExecutionError
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import OpError
from cfgraph.runtime.engine.plan import FramePlan, NodePlan
from cfgraph.runtime.engine.propagate import (
    DEAD,
    PENDING_MASK,
    Consumers,
    Fire,
    FrameState,
    Iteration,
    Kill,
    Send,
    discard,
    finish_iteration,
    kill_sender,
    value_sender,
)
from cfgraph.runtime.engine.rendezvous import Channel
from cfgraph.runtime.engine.step import RunStep

NodeMaker = Callable[["NodePlan", "NodeContext"], tuple[Fire, Fire]]


@dataclass(slots=True)
class NodeContext:
    """Context of a node's closures: the queue, the step, and the consumers of each output.

    `control` is None where the consumers of output 0 include the consumers of the control edges;
    `channel` connects a Send or Recv to its peer. `skippable` are the frames that do not run if all
    their Enters are dead, each with the functions that deliver its dead Exits.
    """

    ready: list[tuple[Fire, Iteration]]
    step: RunStep
    ports: list[Consumers]
    control: Consumers | None
    channel: Channel | None = None
    skippable: Mapping[FramePlan, dict[str, Kill]] = field(default_factory=dict)

    @property
    def groups(self) -> list[Consumers]:
        """The consumers of all outputs and of the control edges."""
        return self.ports if self.control is None else [*self.ports, self.control]

    def send_all(self) -> Send:
        """A function that delivers one value to all consumers."""
        sends = [value_sender(group, self.ready) for group in self.groups]
        if len(sends) == 1:
            return sends[0]
        return lambda iteration, value: sum(send(iteration, value) for send in sends)

    def send_control(self) -> Send | None:
        """A function that delivers to consumers of the control edges, or None if there are none."""
        control = self.control
        if control is None or not control.has_consumers:
            return None
        return value_sender(control, self.ready)

    def kill_all(self) -> Kill:
        """A function that delivers deadness to all consumers."""
        return kill_sender(self.groups, self.ready)


def adjust_outstanding(iteration: Iteration, produced: int) -> None:
    """Add the tokens that a fired token produced, minus itself; finish the iteration at zero."""
    if produced:
        remaining = iteration.outstanding + produced
        iteration.outstanding = remaining
        if not remaining:
            finish_iteration(iteration)


def dead_fire(plan: NodePlan, context: NodeContext) -> Fire:
    """Skip the kernel: clear the inputs and propagate deadness."""
    kill = context.kill_all()
    base, end = plan.base, plan.end
    blank = [None] * (end - base)

    def fire(iteration: Iteration) -> None:
        iteration.values[base:end] = blank
        produced = kill(iteration) - 1
        if produced:
            adjust_outstanding(iteration, produced)

    return fire


class _KillsByBranch(dict[int, Kill]):
    """The function that kills all outputs of a Switch but one; made when that one is selected."""

    def __init__(self, context: NodeContext) -> None:
        super().__init__()
        self.context = context

    def __missing__(self, branch: int) -> Kill:
        ports = self.context.ports
        kill = kill_sender([*ports[:branch], *ports[branch + 1 :]], self.context.ready)
        self[branch] = kill
        return kill


def switch(plan: NodePlan, context: NodeContext) -> tuple[Fire, Fire]:
    """Forward to the output that the predicate selects, kill the others; control edges are live."""
    sends = [value_sender(port, context.ready) for port in context.ports]
    kills = _KillsByBranch(context)
    control = context.send_control()
    base, count = plan.base, len(context.ports)

    def fire(iteration: Iteration) -> None:
        values = iteration.values
        value, index = values[base], values[base + 1]
        values[base] = None
        if index.ndim:
            raise OpError(f"the predicate must be a scalar, but it has shape {list(index.shape)}")
        branch = int(index)
        if not 0 <= branch < count:
            branch = count - 1
        produced = sends[branch](iteration, value) + kills[branch](iteration) - 1
        if control is not None:
            produced += control(iteration, True)
        if produced:
            adjust_outstanding(iteration, produced)

    return fire, dead_fire(plan, context)


def merge(plan: NodePlan, context: NodeContext) -> tuple[Fire, Fire]:
    """Forward the value of the lowest slot that has arrived, and its index."""
    send, index = (
        value_sender(context.ports[0], context.ready),
        value_sender(context.ports[1], context.ready),
    )
    has_index, control = context.ports[1].has_consumers, context.send_control()
    base, end = plan.base, plan.end
    numbers = [np.int32(slot) for slot in range(end - base)]

    def fire(iteration: Iteration) -> None:
        values = iteration.values
        slot = base
        while (value := values[slot]) is None:
            slot += 1
        values[slot] = None
        produced = send(iteration, value) - 1
        if has_index:
            produced += index(iteration, numbers[slot - base])
        if control is not None:
            produced += control(iteration, True)
        if produced:
            adjust_outstanding(iteration, produced)

    return fire, dead_fire(plan, context)


def loop_cond(plan: NodePlan, context: NodeContext) -> tuple[Fire, Fire]:
    """Forward the predicate."""
    send = context.send_all()
    base = plan.base

    def fire(iteration: Iteration) -> None:
        adjust_outstanding(iteration, send(iteration, iteration.values[base]) - 1)

    return fire, dead_fire(plan, context)


def control_trigger(plan: NodePlan, context: NodeContext) -> tuple[Fire, Fire]:
    """Fire live even if an input is dead."""
    send = context.send_control() or discard

    def fire(iteration: Iteration) -> None:
        adjust_outstanding(iteration, send(iteration, True) - 1)

    return fire, fire


def enter(plan: NodePlan, context: NodeContext) -> tuple[Fire, Fire]:
    """Forward the value, or its deadness, into the child frame of this iteration.

    A frame that may be skipped receives dead tokens once another Enter is live; if none is, its
    Exits are dead at once.
    """
    constant = bool(plan.node.attr("is_constant"))
    send, kill = context.send_all(), context.kill_all()
    invariant = _LoopInvariant(context.groups)
    base, child_plan = plan.base, plan.child
    assert child_plan is not None
    dead_exits = context.skippable.get(child_plan)
    child = _child_frames(child_plan, context)

    def live(iteration: Iteration) -> None:
        value = iteration.values[base]
        iteration.values[base] = None
        frame = child(iteration)
        if frame.dead_enters is not None:
            _deliver_dead_enters(frame)
        inner = frame.first
        assert inner is not None
        if constant:
            while inner is not None:
                inner.outstanding += send(inner, value)
                inner = inner.next
            invariant.enter(frame, value)
        else:
            inner.outstanding += send(inner, value)
        _finish_entered(iteration, frame)

    def deliver_dead(frame: FrameState) -> None:
        inner = frame.first
        assert inner is not None
        if constant:
            while inner is not None:
                inner.outstanding += kill(inner)
                inner = inner.next
            invariant.enter(frame, None)
        else:
            inner.outstanding += kill(inner)

    def dead(iteration: Iteration) -> None:
        frame = child(iteration)
        if frame.dead_enters is None:
            deliver_dead(frame)
        elif frame.entering:
            frame.dead_enters.append(deliver_dead)
        elif dead_exits is not None:
            frame.dead_exits = dead_exits
        _finish_entered(iteration, frame)

    return live, dead


def _child_frames(plan: FramePlan, context: NodeContext) -> Callable[[Iteration], FrameState]:
    """A function that returns the child frame of an iteration; the first Enter starts it."""
    ready, step, may_be_skipped = context.ready, context.step, plan in context.skippable

    def child(iteration: Iteration) -> FrameState:
        children = iteration.children
        if children is None:
            children = iteration.children = {}
        frame = children.get(plan)
        if frame is None:
            frame = children[plan] = FrameState(plan, iteration, ready, step.max_iterations)
            if may_be_skipped:
                frame.dead_enters = []
            iteration.outstanding += 1
        frame.entering -= 1
        return frame

    return child


def _deliver_dead_enters(frame: FrameState) -> None:
    """Deliver the dead Enters that came before the first live one."""
    delivered, frame.dead_enters = frame.dead_enters or (), None
    for deliver in delivered:
        deliver(frame)


def _finish_entered(iteration: Iteration, frame: FrameState) -> None:
    """Finish the child frame if it is done already, and then the iteration that entered it."""
    iteration.outstanding -= 1
    first = frame.first
    if first is not None and not first.outstanding and not frame.entering:
        finish_iteration(first)
    elif not iteration.outstanding:
        finish_iteration(iteration)


class _LoopInvariant:
    """Writer of a constant Enter's token into the state that new iterations start from."""

    def __init__(self, consumers: list[Consumers]) -> None:
        self.consumers = consumers

    def enter(self, frame: FrameState, value: Any) -> None:
        """Deliver to the iterations that do not exist yet."""
        values, pending = frame.values, frame.pending
        for group in self.consumers:
            for slot, counter, live, dead in group.ordinary:
                if value is not None:
                    values[slot] = value
                remaining = pending[counter] - 1 + (0 if value is not None else DEAD)
                pending[counter] = remaining
                if not remaining & PENDING_MASK:
                    frame.roots.append(dead if remaining >= DEAD else live)
            for deliver in group.senders:
                frame.roots.append(_deliver_at_start(deliver, value))


def _deliver_at_start(deliver: Send, value: Any) -> Fire:
    """Deliver to a Merge as a separate token when an iteration starts."""

    def fire(iteration: Iteration) -> None:
        adjust_outstanding(iteration, deliver(iteration, value) - 1)

    return fire


def exit_(plan: NodePlan, context: NodeContext) -> tuple[Fire, Fire]:
    """Forward the value to the iteration that entered the frame; deadness when the frame ends."""
    send, kill = context.send_all(), context.kill_all()
    base, name, kernel = plan.base, plan.node.name, plan.kernel
    if plan.frame in context.skippable:
        context.skippable[plan.frame][name] = kill

    def live(iteration: Iteration) -> None:
        value = iteration.values[base]
        iteration.values[base] = None
        frame = iteration.frame
        if name in frame.exited:
            message = "an Exit of the loop has a second value in the same frame"
            raise ExecutionError(message, hint="an Exit must be live in one iteration only")
        frame.exited.add(name)
        parent = frame.parent
        assert parent is not None
        parent.outstanding += send(parent, kernel(value))
        adjust_outstanding(iteration, -1)

    def dead(iteration: Iteration) -> None:
        frame = iteration.frame
        if iteration is frame.newest:
            frame.dead_exits[name] = kill
        adjust_outstanding(iteration, -1)

    return live, dead


def next_iteration(plan: NodePlan, context: NodeContext) -> tuple[Fire, Fire]:
    """Forward the value to the next iteration, started if the bound allows; drop deadness."""
    send = context.send_all()
    base = plan.base
    parallel = plan.frame.parallel

    def live(iteration: Iteration) -> None:
        value = iteration.values[base]
        iteration.values[base] = None
        following = iteration.next
        if following is None:
            frame = iteration.frame
            if frame.alive >= parallel:
                frame.deferred.append((send, value))
                adjust_outstanding(iteration, -1)
                return
            following = frame.start()
        following.outstanding += send(following, value)
        remaining = iteration.outstanding - 1
        iteration.outstanding = remaining
        if not remaining:
            finish_iteration(iteration)

    def dead(iteration: Iteration) -> None:
        iteration.values[base] = None
        adjust_outstanding(iteration, -1)

    return live, dead


CONTROL_FLOW_NODES: Final[dict[Role, NodeMaker]] = {
    Role.SWITCH: switch,
    Role.MERGE: merge,
    Role.LOOP_COND: loop_cond,
    Role.CONTROL_TRIGGER: control_trigger,
    Role.ENTER: enter,
    Role.EXIT: exit_,
    Role.NEXT_ITERATION: next_iteration,
}
