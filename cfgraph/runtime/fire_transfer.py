"""How Send and Recv fire.

A Send runs also when it is dead: its message says so. A Recv that fires before its message came
holds up nothing but its own iteration; it is ready again when the message is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cfgraph.ops.array import same
from cfgraph.runtime.deliver import killer, nobody, sender
from cfgraph.runtime.fire_control import Links, Make, settle
from cfgraph.runtime.frame_state import Fire, Iteration
from cfgraph.runtime.plan import NodePlan
from cfgraph.runtime.rendezvous import Channel


def send(plan: NodePlan, links: Links) -> tuple[Fire, Fire]:
    """Leave the value, or that it is dead, at the rendezvous.

    A Send that only a control edge makes dead has a value, and sends it.
    """
    assert links.channel is not None
    put, control, kill = links.channel.put, links.send_control() or nobody, links.kill_all()
    base = plan.base

    def live(it: Iteration) -> None:
        value = it.values[base]
        it.values[base] = None
        put(it, value)
        settle(it, control(it, True) - 1)

    def dead(it: Iteration) -> None:
        value = it.values[base]
        it.values[base] = None
        put(it, value)
        settle(it, kill(it) - 1)

    return live, dead


def recv(plan: NodePlan, links: Links) -> tuple[Fire, Fire]:
    """Hand on the message. A dead one kills the output, not the control edges: the Recv ran.

    A Recv that its control inputs make dead takes its message all the same. For Merges, whom a
    value makes live and no flag makes dead, it counts; for all others it is dropped.
    """
    assert links.channel is not None
    take = _landing(plan, links.channel)
    value_to, kill_value = sender(links.ports[0], links.ready), killer(links.ports, links.ready)
    control, kill = links.send_control() or nobody, links.kill_all()
    merges = links.ports[0].merges

    def live(it: Iteration) -> None:
        value = take(it)
        made = kill_value(it) if value is None else value_to(it, value)
        for merge in merges:
            made += merge(it, value)
        settle(it, made + control(it, True) - 1)

    def dead(it: Iteration) -> None:
        value = take(it)
        settle(it, kill(it) + sum(merge(it, value) for merge in merges) - 1)

    return live, dead


def _landing(plan: NodePlan, channel: Channel) -> Callable[[Iteration], Any]:
    """What takes a message; where memory is counted, the kernel makes a copy of it here."""
    take, land = channel.take, plan.kernel
    return take if land is same else lambda it: land(take(it))


def gates(
    channel: Channel, ready: list[tuple[Fire, Iteration]], live: Fire, dead: Fire
) -> tuple[Fire, Fire]:
    """The closures that fire when the control inputs of a Recv have come; the message may not."""
    expect = channel.expect

    def gate(it: Iteration) -> None:
        if expect(it, live, ready):
            live(it)

    def dead_gate(it: Iteration) -> None:
        if expect(it, dead, ready):
            dead(it)

    return gate, dead_gate


TRANSFERS: Final[dict[str, Make]] = {"send": send, "recv": recv}
