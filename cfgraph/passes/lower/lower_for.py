"""Lower `For`: a loop whose condition compares an index with a limit.

    index ──▶ Less(index, limit) ──▶ LoopCond        index + delta ──▶ NextIteration

A delta whose sign is unknown during lowering takes two comparisons and a select. Invalid start,
limit and delta fail with an error at run time, as they do for `For`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import Node, Output
from cfgraph.passes.lower.functional_node import CallSite
from cfgraph.passes.lower.inline import inline_body
from cfgraph.passes.lower.lower_while import (
    LoopBuilder,
    add_results,
    loop_arguments,
    parallel_iterations,
)
from cfgraph.passes.lower.plan import constant_value
from cfgraph.passes.lower.rewriter import Rewriter

_INT32 = dtypes.int32


def lower_for(work: Rewriter, site: CallSite) -> None:
    """Lower a For: the loop machine for the index and for what the body changes."""
    (body,) = site.functional_node.functions
    start, limit, delta = site.inputs[:3]
    up = _counts_up(work, site)
    passes = work.plan.facts[body].passes
    changed = [place for place, passed in enumerate(passes) if passed != place + 1]
    loop = LoopBuilder(work, site, parallel_iterations(site.node))
    index = loop.enter(start, _INT32)
    for place in changed:
        loop.enter(site.arguments[place], body.input_types[place + 1])

    going_on = _loop_condition(loop, index, limit, up)
    effects = work.plan.facts[body].last
    values = loop.decide(going_on, [loop.merges[0]] if effects else [])

    # argument 0 of the body is the index, the others are those of the For
    known = loop_arguments(loop, body.input_types[1:], dict(zip(changed, values[1:], strict=True)))
    outputs = sum(1 << place for place in changed)
    done = inline_body(
        work,
        body,
        lambda place: known(place - 1) if place else values[0],
        loop.body_scope(),
        outputs,
    )
    step = loop.constant(delta, _INT32)
    name, device = f"{loop.name}/index", loop.device
    after = work.add(name, "AddV2", (values[0], step), (), device, T=_INT32)
    following = [item for place in changed if (item := done.returns[place]) is not None]
    loop.close([Output(after), *following], tuple(effect.node for effect in done.effects))
    add_results(work, site, loop, {place: number for number, place in enumerate(changed, 1)})


def _loop_condition(loop: LoopBuilder, index: Output, limit: Output, up: Output | bool) -> Output:
    """The condition."""
    end = loop.constant(limit, _INT32)

    def compared(op: str) -> Output:
        name = f"{loop.name}/cond/{op}"
        return Output(loop.work.add(name, op, (index, end), (), loop.device, T=_INT32))

    if isinstance(up, bool):
        return compared("Less" if up else "Greater")
    inputs = (loop.constant(up, dtypes.bool_), compared("Less"), compared("Greater"))
    name = f"{loop.name}/cond/SelectV2"
    attrs: dict[str, Any] = {"T": dtypes.bool_}
    return Output(loop.work.add(name, "SelectV2", inputs, (), loop.device, **attrs))


def _counts_up(work: Rewriter, site: CallSite) -> Output | bool:
    """Whether the loop counts up: known now, or a tensor; with a check where one is needed."""
    values = [constant_value(item) for item in site.inputs[:3]]
    if all(value is not None and value.size == 1 for value in values):
        start, limit, delta = (int(value.reshape(-1)[0]) for value in values)
        if start == limit or (delta and (start < limit) == (delta > 0)):
            return start <= limit
    return _DirectionCheck(work, site).up()


class _DirectionCheck:
    """Nodes before the loop that find its direction, and fail where it has none."""

    def __init__(self, work: Rewriter, site: CallSite) -> None:
        self.work = work
        self.site = site
        self.name = f"{site.node.name}/check"

    def up(self) -> Output:
        """The direction; the loop waits for the check."""
        start, limit, delta = self.site.inputs[:3]
        zero = Output(self.constant("zero", np.array(0, np.int32)))
        up = self.op("Greater", delta, zero)
        ahead = self.op(
            "SelectV2", up, self.op("Less", start, limit), self.op("Less", limit, start)
        )
        leads = self.op("LogicalAnd", ahead, self.op("NotEqual", delta, zero))
        valid = self.op("LogicalOr", leads, self.op("Equal", start, limit))
        text = np.array(b"Invalid start/limit/delta", object)
        data = [Output(self.constant("text", text)), start, limit, delta]
        types = (dtypes.string, _INT32, _INT32, _INT32)
        name, controls = f"{self.name}/Assert", self.site.held(valid)
        checked = self.work.add(
            name, "Assert", (valid, *data), controls, self.site.node.device, T=types
        )
        self.site.controls = (checked,)
        return up

    def op(self, op: str, *inputs: Output) -> Output:
        """A node of the check."""
        attrs: dict[str, Any] = {"T": inputs[-1].dtype}
        if op.startswith("Logical"):
            attrs = {}
        name, controls = f"{self.name}/{op}", self.site.held(*inputs)
        return Output(self.work.add(name, op, inputs, controls, self.site.node.device, **attrs))

    def constant(self, name: str, value: Any) -> Node:
        """A constant of the check."""
        attrs = {"dtype": dtypes.string if value.dtype == object else _INT32}
        controls, device = self.site.held(), self.site.node.device
        name = f"{self.name}/{name}"
        return self.work.add(name, "Const", (), controls, device, value=TensorValue(value), **attrs)
