"""How the primitives of control flow fire: Switch, Merge, Enter, Exit, NextIteration, LoopCond."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cfgraph.errors import ExecutionError
from cfgraph.ops.op import OpError
from cfgraph.runtime.deliver import Edges, killer, nobody, sender
from cfgraph.runtime.frame_state import DEAD, MASK, Fire, Frame, Iteration, Kill, Send, finish
from cfgraph.runtime.plan import NodePlan
from cfgraph.runtime.rendezvous import Channel
from cfgraph.runtime.step import RunStep

Make = Callable[["NodePlan", "Links"], tuple[Fire, Fire]]


@dataclass(slots=True)
class Links:
    """What a node's closures are tied to: the queue, the step, and the readers by output.

    `control` is None where the readers of the control edges are among those of output 0; `channel`
    is where a Send or Recv meets the other end.
    """

    ready: list[tuple[Fire, Iteration]]
    step: RunStep
    ports: list[Edges]
    control: Edges | None
    channel: Channel | None = None

    @property
    def groups(self) -> list[Edges]:
        """All readers."""
        return self.ports if self.control is None else [*self.ports, self.control]

    def send_all(self) -> Send:
        """Deliver one value to all readers."""
        sends = [sender(group, self.ready) for group in self.groups]
        if len(sends) == 1:
            return sends[0]
        return lambda it, value: sum(send(it, value) for send in sends)

    def send_control(self) -> Send | None:
        """Deliver to the readers of the control edges; None where there are none."""
        wired = self.control is not None and self.control.wired
        return sender(self.control, self.ready) if self.control and wired else None

    def kill_all(self) -> Kill:
        """Deliver deadness to all readers."""
        return killer(self.groups, self.ready)


def settle(it: Iteration, made: int) -> None:
    """Count the tokens that a fired one made (it counts -1 itself); end what has no more."""
    if made:
        left = it.outstanding + made
        it.outstanding = left
        if not left:
            finish(it)


def dead_fire(plan: NodePlan, links: Links) -> Fire:
    """Do not run; let the inputs go and hand the deadness on."""
    kill = links.kill_all()
    base, end = plan.base, plan.end
    blank = [None] * (end - base)

    def fire(it: Iteration) -> None:
        it.values[base:end] = blank
        made = kill(it) - 1
        if made:
            settle(it, made)

    return fire


def switch(plan: NodePlan, links: Links) -> tuple[Fire, Fire]:
    """The output that the predicate says is live, the others are dead; control edges are live."""
    sends = [sender(port, links.ready) for port in links.ports]
    kills = [
        killer([other for other in links.ports if other is not port], links.ready)
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
            settle(it, made)

    return fire, dead_fire(plan, links)


def merge(plan: NodePlan, links: Links) -> tuple[Fire, Fire]:
    """Hand on the lowest slot that has arrived, and its number."""
    send, index = sender(links.ports[0], links.ready), sender(links.ports[1], links.ready)
    has_index, control = links.ports[1].wired, links.send_control()
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
            settle(it, made)

    return fire, dead_fire(plan, links)


def loop_cond(plan: NodePlan, links: Links) -> tuple[Fire, Fire]:
    """Hand on the predicate."""
    send = links.send_all()
    base = plan.base

    def fire(it: Iteration) -> None:
        settle(it, send(it, it.values[base]) - 1)

    return fire, dead_fire(plan, links)


def trigger(plan: NodePlan, links: Links) -> tuple[Fire, Fire]:
    """Live whatever came."""
    send = links.send_control() or nobody

    def fire(it: Iteration) -> None:
        settle(it, send(it, True) - 1)

    return fire, fire


def enter(plan: NodePlan, links: Links) -> tuple[Fire, Fire]:
    """Hand the value, or its deadness, into the child frame of this iteration."""
    constant = bool(plan.node.attr("is_constant"))
    send, kill = links.send_all(), links.kill_all()
    invariant = _Invariant(links.groups)
    base, child_plan, ready, step = plan.base, plan.child, links.ready, links.step
    assert child_plan is not None

    def child(it: Iteration) -> Frame:
        children = it.children
        if children is None:
            children = it.children = {}
        frame = children.get(child_plan)
        if frame is None:
            frame = children[child_plan] = Frame(child_plan, it, ready, step.max_iterations)
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
        _entered(it, frame)

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
        _entered(it, frame)

    return live, dead


def _entered(it: Iteration, frame: Frame) -> None:
    """The child frame may be finished already; then so may be the iteration around it."""
    it.outstanding -= 1
    first = frame.first
    if first is not None and not first.outstanding and not frame.entering:
        finish(first)
    elif not it.outstanding:
        finish(it)


class _Invariant:
    """Writes a constant Enter's token into the state that new iterations begin with."""

    def __init__(self, edges: list[Edges]) -> None:
        self.edges = edges

    def enter(self, frame: Frame, value: Any) -> None:
        """Deliver to the iterations that do not exist yet."""
        values, pending = frame.values, frame.pending
        for group in self.edges:
            for slot, counter, live, dead in group.plain:
                if value is not None:
                    values[slot] = value
                left = pending[counter] - 1 + (0 if value is not None else DEAD)
                pending[counter] = left
                if not left & MASK:
                    frame.roots.append(dead if left >= DEAD else live)
            for deliver in group.others:
                frame.roots.append(_replay(deliver, value))


def _replay(deliver: Send, value: Any) -> Fire:
    """Deliver to a Merge when an iteration begins: as a token of its own."""

    def fire(it: Iteration) -> None:
        settle(it, deliver(it, value) - 1)

    return fire


def exit_(plan: NodePlan, links: Links) -> tuple[Fire, Fire]:
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
        settle(it, -1)

    def dead(it: Iteration) -> None:
        frame = it.frame
        if it is frame.newest:
            frame.dead_exits[name] = kill
        settle(it, -1)

    return live, dead


def next_iteration(plan: NodePlan, links: Links) -> tuple[Fire, Fire]:
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
                settle(it, -1)
                return
            following = frame.start()
        following.outstanding += send(following, value)
        left = it.outstanding - 1
        it.outstanding = left
        if not left:
            finish(it)

    def dead(it: Iteration) -> None:
        it.values[base] = None
        settle(it, -1)

    return live, dead


FIRES: Final[dict[str, Make]] = {
    "switch": switch,
    "merge": merge,
    "loop_cond": loop_cond,
    "trigger": trigger,
    "enter": enter,
    "exit": exit_,
    "next_iteration": next_iteration,
}
