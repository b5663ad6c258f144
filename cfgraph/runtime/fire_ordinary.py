"""How an ordinary node fires: it runs its kernel and delivers what comes out.

The inner loop of the executor. The delivery to plain readers stands here once more, inline, for
nodes with one output: a call for it would cost a fifth of a token.
"""

from __future__ import annotations

from typing import Any

from cfgraph.runtime.deliver import nobody, sender
from cfgraph.runtime.fire_control import Links, dead_fire, settle
from cfgraph.runtime.frame_state import MASK, Fire, Iteration, finish
from cfgraph.runtime.plan import NodePlan


def ordinary(plan: NodePlan, links: Links) -> tuple[Fire, Fire]:
    """The closures of a node that is no primitive of control flow."""
    dead = dead_fire(plan, links)
    compute = _compute(plan, links)
    if plan.outputs == 1 and links.control is None:
        return _one_output(plan, links, compute), dead
    return _many_outputs(plan, links, compute), dead


def _compute(plan: NodePlan, links: Links) -> Any:
    """The node's values from an iteration; its inputs are let go."""
    kernel, base, end = plan.kernel, plan.base, plan.end
    if plan.op.stateful:
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


def _stateful(plan: NodePlan, links: Links) -> Any:
    step, kernel, node = links.step, plan.kernel, plan.node

    def run(it: Iteration, *inputs: Any) -> Any:
        step.node = node
        step.iteration = it
        return kernel(step, *inputs)

    return run


def _one_output(plan: NodePlan, links: Links, compute: Any) -> Fire:
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
            if not left & MASK:
                append((dead if left else live, it))
                made += 1
        for deliver in others:
            made += deliver(it, value)
        if made:
            left = it.outstanding + made
            it.outstanding = left
            if not left:
                finish(it)

    return fire


def _many_outputs(plan: NodePlan, links: Links, compute: Any) -> Fire:
    """Deliver each output to its readers, then the control edges."""
    sends = [sender(port, links.ready) for port in links.ports]
    control = links.send_control() or nobody
    count = plan.outputs

    def fire(it: Iteration) -> None:
        results = compute(it)
        made = control(it, True) - 1
        if count == 1:
            made += sends[0](it, results)
        elif count:
            for send, value in zip(sends, results, strict=True):
                made += send(it, value)
        settle(it, made)

    return fire
