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


def lower_for(rewriter: Rewriter, site: CallSite) -> None:
    """Lower a For: loop variables for the index and for the arguments that the body changes."""
    (body,) = site.functional_node.functions
    start, limit, delta = site.inputs[:3]
    up = _counts_up(rewriter, site)
    forwarded = rewriter.plan.summaries[body].forwarded
    changed = [port for port, argument in enumerate(forwarded) if argument != port + 1]
    loop = LoopBuilder(rewriter, site, parallel_iterations(site.node))
    index = loop.enter(start, _INT32)
    for port in changed:
        loop.enter(site.arguments[port], body.input_types[port + 1])

    predicate = _loop_condition(loop, index, limit, up)
    effects = rewriter.plan.summaries[body].final_effects
    values = loop.add_switches(predicate, [loop.merges[0]] if effects else [])

    # argument 0 of the body is the index, the others are those of the For
    argument = loop_arguments(
        loop, body.input_types[1:], dict(zip(changed, values[1:], strict=True))
    )
    outputs = sum(1 << port for port in changed)
    body_copy = inline_body(
        rewriter,
        body,
        lambda number: argument(number - 1) if number else values[0],
        loop.body_scope(),
        outputs,
    )
    step = loop.constant(delta, _INT32)
    name, device = f"{loop.name}/index", loop.device
    next_index = rewriter.add(name, "AddV2", (values[0], step), (), device, T=_INT32)
    updated = [x for port in changed if (x := body_copy.returns[port]) is not None]
    loop.close([Output(next_index), *updated], tuple(effect.node for effect in body_copy.effects))
    add_results(rewriter, site, loop, {port: number for number, port in enumerate(changed, 1)})


def _loop_condition(loop: LoopBuilder, index: Output, limit: Output, up: Output | bool) -> Output:
    """Compare the index with the limit."""
    end = loop.constant(limit, _INT32)

    def compared(op: str) -> Output:
        name = f"{loop.name}/cond/{op}"
        return Output(loop.rewriter.add(name, op, (index, end), (), loop.device, T=_INT32))

    if isinstance(up, bool):
        return compared("Less" if up else "Greater")
    inputs = (loop.constant(up, dtypes.bool_), compared("Less"), compared("Greater"))
    name = f"{loop.name}/cond/SelectV2"
    attrs: dict[str, Any] = {"T": dtypes.bool_}
    return Output(loop.rewriter.add(name, "SelectV2", inputs, (), loop.device, **attrs))


def _counts_up(rewriter: Rewriter, site: CallSite) -> Output | bool:
    """True if the loop counts up; a bool tensor, with a check of the range, if not static."""
    values = [constant_value(item) for item in site.inputs[:3]]
    if all(value is not None and value.size == 1 for value in values):
        start, limit, delta = (int(value.reshape(-1)[0]) for value in values)
        if start == limit or (delta and (start < limit) == (delta > 0)):
            return start <= limit
    return _DirectionCheck(rewriter, site).up()


class _DirectionCheck:
    """Nodes before the loop that compute its direction, and fail for an invalid range."""

    def __init__(self, rewriter: Rewriter, site: CallSite) -> None:
        self.rewriter = rewriter
        self.site = site
        self.name = f"{site.node.name}/check"

    def up(self) -> Output:
        """True if the loop counts up; the loop waits for the check."""
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
        name, controls = f"{self.name}/Assert", self.site.edge_controls(valid)
        checked = self.rewriter.add(
            name, "Assert", (valid, *data), controls, self.site.node.device, T=types
        )
        self.site.controls = (checked,)
        return up

    def op(self, op: str, *inputs: Output) -> Output:
        """Add a node of the check."""
        attrs: dict[str, Any] = {"T": inputs[-1].dtype}
        if op.startswith("Logical"):
            attrs = {}
        name, controls = f"{self.name}/{op}", self.site.edge_controls(*inputs)
        return Output(self.rewriter.add(name, op, inputs, controls, self.site.node.device, **attrs))

    def constant(self, name: str, value: Any) -> Node:
        """Add a constant of the check."""
        attrs = {"dtype": dtypes.string if value.dtype == object else _INT32}
        controls, device = self.site.edge_controls(), self.site.node.device
        name = f"{self.name}/{name}"
        return self.rewriter.add(
            name, "Const", (), controls, device, value=TensorValue(value), **attrs
        )
