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
from cfgraph.runtime.engine.plan import NodePlan
from cfgraph.runtime.engine.propagate import (
    PENDING_MASK,
    Fire,
    Iteration,
    discard,
    finish_iteration,
    kill_sender,
    value_sender,
)
from cfgraph.runtime.engine.rendezvous import Channel


def kernel_node(plan: NodePlan, context: NodeContext) -> tuple[Fire, Fire]:
    """The live and dead closures of a node that runs a kernel."""
    dead = dead_fire(plan, context)
    compute = _compute(plan, context)
    if plan.outputs == 1 and context.control is None:
        return _one_output(plan, context, compute), dead
    return _many_outputs(plan, context, compute), dead


def _compute(plan: NodePlan, context: NodeContext) -> Any:
    """A function that computes a node's outputs from an iteration and clears its inputs."""
    kernel, base, end = plan.kernel, plan.base, plan.end
    if plan.op.effects.stateful:
        kernel = _stateful(plan, context)
        blank = [None] * (end - base)

        def compute_stateful(iteration: Iteration) -> Any:
            values = iteration.values
            result = kernel(iteration, *values[base:end])
            values[base:end] = blank
            return result

        return compute_stateful
    if end - base == 0:
        return lambda iteration: kernel()
    if end - base == 1:

        def compute_one(iteration: Iteration) -> Any:
            values = iteration.values
            result = kernel(values[base])
            values[base] = None
            return result

        return compute_one
    blank = [None] * (end - base)

    def compute_many(iteration: Iteration) -> Any:
        values = iteration.values
        result = kernel(*values[base:end])
        values[base:end] = blank
        return result

    return compute_many


def _stateful(plan: NodePlan, context: NodeContext) -> Any:
    step, kernel, node = context.step, plan.kernel, plan.node
    lock = step.state.lock

    def run_atomic(iteration: Iteration, *inputs: Any) -> Any:
        return kernel(step, *inputs)

    def run(iteration: Iteration, *inputs: Any) -> Any:
        step.node = node
        step.iteration = iteration
        with lock:
            return kernel(step, *inputs)

    def run_call(iteration: Iteration, *inputs: Any) -> Any:
        step.node = node
        step.iteration = iteration
        return kernel(step, *inputs)

    if plan.op.effects.atomic:
        return run_atomic
    # the kernel of a call locks the state itself if its function uses it
    return run_call if plan.op.calls.kind else run


def _one_output(plan: NodePlan, context: NodeContext, compute: Any) -> Fire:
    """Deliver one token to all consumers, including consumers of control edges."""
    append = context.ready.append
    ordinary, senders = context.ports[0].ordinary, context.ports[0].senders

    def fire(iteration: Iteration) -> None:
        value = compute(iteration)
        values, pending = iteration.values, iteration.pending
        produced = -1
        for slot, counter, live, dead in ordinary:
            values[slot] = value
            remaining = pending[counter] - 1
            pending[counter] = remaining
            if not remaining & PENDING_MASK:
                append((dead if remaining else live, iteration))
                produced += 1
        for deliver in senders:
            produced += deliver(iteration, value)
        if produced:
            remaining = iteration.outstanding + produced
            iteration.outstanding = remaining
            if not remaining:
                finish_iteration(iteration)

    return fire


def _many_outputs(plan: NodePlan, context: NodeContext, compute: Any) -> Fire:
    """Deliver each output to its consumers, then the control edges."""
    sends = [value_sender(port, context.ready) for port in context.ports]
    control = context.send_control() or discard
    count = plan.outputs

    def fire(iteration: Iteration) -> None:
        results = compute(iteration)
        produced = control(iteration, True) - 1
        if count == 1:
            produced += sends[0](iteration, results)
        elif count:
            for send, value in zip(sends, results, strict=True):
                produced += send(iteration, value)
        adjust_outstanding(iteration, produced)

    return fire


def send(plan: NodePlan, context: NodeContext) -> tuple[Fire, Fire]:
    """Put the value, or its deadness, into the rendezvous.

    A Send that only a control edge makes dead has a value, and sends it.
    """
    assert context.channel is not None
    put, control, kill = context.channel.put, context.send_control() or discard, context.kill_all()
    base = plan.base

    def live(iteration: Iteration) -> None:
        value = iteration.values[base]
        iteration.values[base] = None
        put(iteration, value)
        adjust_outstanding(iteration, control(iteration, True) - 1)

    def dead(iteration: Iteration) -> None:
        value = iteration.values[base]
        iteration.values[base] = None
        put(iteration, value)
        adjust_outstanding(iteration, kill(iteration) - 1)

    return live, dead


def recv(plan: NodePlan, context: NodeContext) -> tuple[Fire, Fire]:
    """Forward the message. A dead one kills the output but not the control edges: the Recv ran.

    A Recv with dead control inputs still receives its message. It delivers the message to Merges,
    which any live value makes live, and drops it for other consumers.
    """
    assert context.channel is not None
    receive = _receive(plan, context.channel)
    value_to, kill_value = (
        value_sender(context.ports[0], context.ready),
        kill_sender(context.ports, context.ready),
    )
    control, kill = context.send_control() or discard, context.kill_all()
    merges = context.ports[0].merges

    def live(iteration: Iteration) -> None:
        value = receive(iteration)
        produced = kill_value(iteration) if value is None else value_to(iteration, value)
        for merge in merges:
            produced += merge(iteration, value)
        adjust_outstanding(iteration, produced + control(iteration, True) - 1)

    def dead(iteration: Iteration) -> None:
        value = receive(iteration)
        adjust_outstanding(
            iteration, kill(iteration) + sum(merge(iteration, value) for merge in merges) - 1
        )

    return live, dead


def _receive(plan: NodePlan, channel: Channel) -> Callable[[Iteration], Any]:
    """A function that receives a message; with memory accounting, the kernel copies it."""
    receive, receive_kernel = channel.receive, plan.kernel
    return (
        receive
        if receive_kernel is identity
        else lambda iteration: receive_kernel(receive(iteration))
    )


def recv_gates(
    channel: Channel, ready: list[tuple[Fire, Iteration]], live: Fire, dead: Fire
) -> tuple[Fire, Fire]:
    """Closures of a Recv that fire on its control inputs and then await the message."""
    expect = channel.expect

    def gate(iteration: Iteration) -> None:
        if expect(iteration, live, ready):
            live(iteration)

    def dead_gate(iteration: Iteration) -> None:
        if expect(iteration, dead, ready):
            dead(iteration)

    return gate, dead_gate


TRANSFER_NODES: Final[dict[Role, NodeMaker]] = {Role.SEND: send, Role.RECV: recv}
