"""Firing of ordinary nodes, which run a kernel, and of Send and Recv.

The inner loop of the executor. Propagation to ordinary consumers is repeated inline for nodes with
one output: a call would cost a fifth of a token.

A dead Send runs too and sends deadness. A Recv that fires before its message arrives delays only
its own iteration; it is ready again when the message arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cfgraph.ir.role import Role
from cfgraph.ops.families.constants import identity
from cfgraph.runtime.engine.control_flow_nodes import (
    NodeContext,
    NodeMaker,
    adjust_outstanding,
    dead_fire,
)
from cfgraph.runtime.engine.frame_state import PENDING_MASK, Fire, Iteration, finish_iteration
from cfgraph.runtime.engine.plan import NodePlan
from cfgraph.runtime.engine.propagate import discard, kill_sender, value_sender
from cfgraph.runtime.engine.rendezvous import Channel


def kernel_node(plan: NodePlan, links: NodeContext) -> tuple[Fire, Fire]:
    """The closures of a node that is no primitive of control flow."""
    dead = dead_fire(plan, links)
    compute = _compute(plan, links)
    if plan.outputs == 1 and links.control is None:
        return _one_output(plan, links, compute), dead
    return _many_outputs(plan, links, compute), dead


def _compute(plan: NodePlan, links: NodeContext) -> Any:
    """The node's values from an iteration; its inputs are let go."""
    kernel, base, end = plan.kernel, plan.base, plan.end
    if plan.op.effects.stateful:
        kernel = _stateful(plan, links)
        blank = [None] * (end - base)

        def compute_stateful(it: Iteration) -> Any:
            values = it.values
            result = kernel(it, *values[base:end])
            values[base:end] = blank
            return result

        return compute_stateful
    if end - base == 0:
        return lambda it: kernel()
    if end - base == 1:

        def compute_one(it: Iteration) -> Any:
            values = it.values
            result = kernel(values[base])
            values[base] = None
            return result

        return compute_one
    blank = [None] * (end - base)

    def compute_many(it: Iteration) -> Any:
        values = it.values
        result = kernel(*values[base:end])
        values[base:end] = blank
        return result

    return compute_many


def _stateful(plan: NodePlan, links: NodeContext) -> Any:
    step, kernel, node = links.step, plan.kernel, plan.node

    def run(it: Iteration, *inputs: Any) -> Any:
        step.node = node
        step.iteration = it
        return kernel(step, *inputs)

    return run


def _one_output(plan: NodePlan, links: NodeContext, compute: Any) -> Fire:
    """One token for all readers, those of control edges included."""
    append = links.ready.append
    plain, others = links.ports[0].plain, links.ports[0].others

    def fire(it: Iteration) -> None:
        value = compute(it)
        values, pending = it.values, it.pending
        made = -1
        for slot, counter, live, dead in plain:
            values[slot] = value
            left = pending[counter] - 1
            pending[counter] = left
            if not left & PENDING_MASK:
                append((dead if left else live, it))
                made += 1
        for deliver in others:
            made += deliver(it, value)
        if made:
            left = it.outstanding + made
            it.outstanding = left
            if not left:
                finish_iteration(it)

    return fire


def _many_outputs(plan: NodePlan, links: NodeContext, compute: Any) -> Fire:
    """Deliver each output to its readers, then the control edges."""
    sends = [value_sender(port, links.ready) for port in links.ports]
    control = links.send_control() or discard
    count = plan.outputs

    def fire(it: Iteration) -> None:
        results = compute(it)
        made = control(it, True) - 1
        if count == 1:
            made += sends[0](it, results)
        elif count:
            for send, value in zip(sends, results, strict=True):
                made += send(it, value)
        adjust_outstanding(it, made)

    return fire


def send(plan: NodePlan, links: NodeContext) -> tuple[Fire, Fire]:
    """Leave the value, or that it is dead, at the rendezvous.

    A Send that only a control edge makes dead has a value, and sends it.
    """
    assert links.channel is not None
    put, control, kill = links.channel.put, links.send_control() or discard, links.kill_all()
    base = plan.base

    def live(it: Iteration) -> None:
        value = it.values[base]
        it.values[base] = None
        put(it, value)
        adjust_outstanding(it, control(it, True) - 1)

    def dead(it: Iteration) -> None:
        value = it.values[base]
        it.values[base] = None
        put(it, value)
        adjust_outstanding(it, kill(it) - 1)

    return live, dead


def recv(plan: NodePlan, links: NodeContext) -> tuple[Fire, Fire]:
    """Hand on the message. A dead one kills the output, not the control edges: the Recv ran.

    A Recv that its control inputs make dead takes its message all the same. For Merges, whom a
    value makes live and no flag makes dead, it counts; for all others it is dropped.
    """
    assert links.channel is not None
    take = _receive(plan, links.channel)
    value_to, kill_value = (
        value_sender(links.ports[0], links.ready),
        kill_sender(links.ports, links.ready),
    )
    control, kill = links.send_control() or discard, links.kill_all()
    merges = links.ports[0].merges

    def live(it: Iteration) -> None:
        value = take(it)
        made = kill_value(it) if value is None else value_to(it, value)
        for merge in merges:
            made += merge(it, value)
        adjust_outstanding(it, made + control(it, True) - 1)

    def dead(it: Iteration) -> None:
        value = take(it)
        adjust_outstanding(it, kill(it) + sum(merge(it, value) for merge in merges) - 1)

    return live, dead


def _receive(plan: NodePlan, channel: Channel) -> Callable[[Iteration], Any]:
    """What takes a message; where memory is counted, the kernel makes a copy of it here."""
    take, land = channel.take, plan.kernel
    return take if land is identity else lambda it: land(take(it))


def recv_gates(
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


TRANSFER_NODES: Final[dict[Role, NodeMaker]] = {Role.SEND: send, Role.RECV: recv}
