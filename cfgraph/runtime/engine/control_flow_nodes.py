"""Firing of Switch, Merge, Enter, Exit, NextIteration, LoopCond, and ControlTrigger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cfgraph.errors import ExecutionError
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import OpError
from cfgraph.runtime.engine.frame_state import (
    DEAD,
    PENDING_MASK,
    Fire,
    FrameState,
    Iteration,
    Kill,
    Send,
    finish_iteration,
)
from cfgraph.runtime.engine.plan import NodePlan
from cfgraph.runtime.engine.propagate import Consumers, discard, kill_sender, value_sender
from cfgraph.runtime.engine.rendezvous import Channel
from cfgraph.runtime.engine.step import RunStep

NodeMaker = Callable[["NodePlan", "NodeContext"], tuple[Fire, Fire]]


@dataclass(slots=True)
class NodeContext:
    """What a node's closures are tied to: the queue, the step, and the readers by output.

    `control` is None where the readers of the control edges are among those of output 0; `channel`
    is where a Send or Recv meets the other end.
    """

    ready: list[tuple[Fire, Iteration]]
    step: RunStep
    ports: list[Consumers]
    control: Consumers | None
    channel: Channel | None = None

    @property
    def groups(self) -> list[Consumers]:
        """All readers."""
        return self.ports if self.control is None else [*self.ports, self.control]

    def send_all(self) -> Send:
        """Deliver one value to all readers."""
        sends = [value_sender(group, self.ready) for group in self.groups]
        if len(sends) == 1:
            return sends[0]
        return lambda it, value: sum(send(it, value) for send in sends)

    def send_control(self) -> Send | None:
        """Deliver to the readers of the control edges; None where there are none."""
        wired = self.control is not None and self.control.has_consumers
        return value_sender(self.control, self.ready) if self.control and wired else None

    def kill_all(self) -> Kill:
        """Deliver deadness to all readers."""
        return kill_sender(self.groups, self.ready)


def adjust_outstanding(it: Iteration, made: int) -> None:
    """Count the tokens that a fired one made (it counts -1 itself); end what has no more."""
    if made:
        left = it.outstanding + made
        it.outstanding = left
        if not left:
            finish_iteration(it)


def dead_fire(plan: NodePlan, links: NodeContext) -> Fire:
    """Do not run; let the inputs go and hand the deadness on."""
    kill = links.kill_all()
    base, end = plan.base, plan.end
    blank = [None] * (end - base)

    def fire(it: Iteration) -> None:
        it.values[base:end] = blank
        made = kill(it) - 1
        if made:
            adjust_outstanding(it, made)

    return fire


def switch(plan: NodePlan, links: NodeContext) -> tuple[Fire, Fire]:
    """The output that the predicate says is live, the others are dead; control edges are live."""
    sends = [value_sender(port, links.ready) for port in links.ports]
    kills = [
        kill_sender([other for other in links.ports if other is not port], links.ready)
        for port in links.ports
    ]
    control = links.send_control()
    base, count = plan.base, len(links.ports)

    def fire(it: Iteration) -> None:
        values = it.values
        value, index = values[base], values[base + 1]
        values[base] = None
        if index.ndim:
            raise OpError(f"the predicate must be a scalar, but it has shape {list(index.shape)}")
        taken = int(index)
        if not 0 <= taken < count:
            taken = count - 1
        made = sends[taken](it, value) + kills[taken](it) - 1
        if control is not None:
            made += control(it, True)
        if made:
            adjust_outstanding(it, made)

    return fire, dead_fire(plan, links)


def merge(plan: NodePlan, links: NodeContext) -> tuple[Fire, Fire]:
    """Hand on the lowest slot that has arrived, and its number."""
    send, index = (
        value_sender(links.ports[0], links.ready),
        value_sender(links.ports[1], links.ready),
    )
    has_index, control = links.ports[1].has_consumers, links.send_control()
    base, end = plan.base, plan.end
    numbers = [np.int32(slot) for slot in range(end - base)]

    def fire(it: Iteration) -> None:
        values = it.values
        slot = base
        while (value := values[slot]) is None:
            slot += 1
        values[slot] = None
        made = send(it, value) - 1
        if has_index:
            made += index(it, numbers[slot - base])
        if control is not None:
            made += control(it, True)
        if made:
            adjust_outstanding(it, made)

    return fire, dead_fire(plan, links)


def loop_cond(plan: NodePlan, links: NodeContext) -> tuple[Fire, Fire]:
    """Hand on the predicate."""
    send = links.send_all()
    base = plan.base

    def fire(it: Iteration) -> None:
        adjust_outstanding(it, send(it, it.values[base]) - 1)

    return fire, dead_fire(plan, links)


def control_trigger(plan: NodePlan, links: NodeContext) -> tuple[Fire, Fire]:
    """Live whatever came."""
    send = links.send_control() or discard

    def fire(it: Iteration) -> None:
        adjust_outstanding(it, send(it, True) - 1)

    return fire, fire


def enter(plan: NodePlan, links: NodeContext) -> tuple[Fire, Fire]:
    """Hand the value, or its deadness, into the child frame of this iteration."""
    constant = bool(plan.node.attr("is_constant"))
    send, kill = links.send_all(), links.kill_all()
    invariant = _LoopInvariant(links.groups)
    base, child_plan, ready, step = plan.base, plan.child, links.ready, links.step
    assert child_plan is not None

    def child(it: Iteration) -> FrameState:
        children = it.children
        if children is None:
            children = it.children = {}
        frame = children.get(child_plan)
        if frame is None:
            frame = children[child_plan] = FrameState(child_plan, it, ready, step.max_iterations)
            it.outstanding += 1
        frame.entering -= 1
        return frame

    def live(it: Iteration) -> None:
        value = it.values[base]
        it.values[base] = None
        frame = child(it)
        inner = frame.first
        assert inner is not None
        if constant:
            while inner is not None:
                inner.outstanding += send(inner, value)
                inner = inner.next
            invariant.enter(frame, value)
        else:
            inner.outstanding += send(inner, value)
        _finish_entered(it, frame)

    def dead(it: Iteration) -> None:
        frame = child(it)
        inner = frame.first
        assert inner is not None
        if constant:
            while inner is not None:
                inner.outstanding += kill(inner)
                inner = inner.next
            invariant.enter(frame, None)
        else:
            inner.outstanding += kill(inner)
        _finish_entered(it, frame)

    return live, dead


def _finish_entered(it: Iteration, frame: FrameState) -> None:
    """The child frame may be finished already; then so may be the iteration around it."""
    it.outstanding -= 1
    first = frame.first
    if first is not None and not first.outstanding and not frame.entering:
        finish_iteration(first)
    elif not it.outstanding:
        finish_iteration(it)


class _LoopInvariant:
    """Writes a constant Enter's token into the state that new iterations begin with."""

    def __init__(self, edges: list[Consumers]) -> None:
        self.edges = edges

    def enter(self, frame: FrameState, value: Any) -> None:
        """Deliver to the iterations that do not exist yet."""
        values, pending = frame.values, frame.pending
        for group in self.edges:
            for slot, counter, live, dead in group.plain:
                if value is not None:
                    values[slot] = value
                left = pending[counter] - 1 + (0 if value is not None else DEAD)
                pending[counter] = left
                if not left & PENDING_MASK:
                    frame.roots.append(dead if left >= DEAD else live)
            for deliver in group.others:
                frame.roots.append(_deliver_at_start(deliver, value))


def _deliver_at_start(deliver: Send, value: Any) -> Fire:
    """Deliver to a Merge when an iteration begins: as a token of its own."""

    def fire(it: Iteration) -> None:
        adjust_outstanding(it, deliver(it, value) - 1)

    return fire


def exit_(plan: NodePlan, links: NodeContext) -> tuple[Fire, Fire]:
    """Hand the value to the iteration around the frame; deadness when the frame ends."""
    send, kill = links.send_all(), links.kill_all()
    base, name = plan.base, plan.node.name

    def live(it: Iteration) -> None:
        value = it.values[base]
        it.values[base] = None
        frame = it.frame
        if name in frame.exited:
            message = "the loop hands out a second value for one run of it"
            raise ExecutionError(message, hint="an Exit must be live in one iteration only")
        frame.exited.add(name)
        around = frame.parent
        assert around is not None
        around.outstanding += send(around, value)
        adjust_outstanding(it, -1)

    def dead(it: Iteration) -> None:
        frame = it.frame
        if it is frame.newest:
            frame.dead_exits[name] = kill
        adjust_outstanding(it, -1)

    return live, dead


def next_iteration(plan: NodePlan, links: NodeContext) -> tuple[Fire, Fire]:
    """Hand the value to the next iteration, which begins if the bound allows; drop deadness."""
    send = links.send_all()
    base = plan.base
    parallel = plan.frame.parallel

    def live(it: Iteration) -> None:
        value = it.values[base]
        it.values[base] = None
        following = it.next
        if following is None:
            frame = it.frame
            if frame.alive >= parallel:
                frame.deferred.append((send, value))
                adjust_outstanding(it, -1)
                return
            following = frame.start()
        following.outstanding += send(following, value)
        left = it.outstanding - 1
        it.outstanding = left
        if not left:
            finish_iteration(it)

    def dead(it: Iteration) -> None:
        it.values[base] = None
        adjust_outstanding(it, -1)

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
