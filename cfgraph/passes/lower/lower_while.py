"""Lower `While` and `For` to the primitive loop that both share.

Each variable that the loop changes:

    x ──▶ Enter ──▶ Merge ──▶ Switch ──false──▶ Exit ──▶ result
                      ▲         │ ▲
                      │        true└─ LoopCond ◀── [condition]
                      │         ▼
               NextIteration ◀─[body]

A loop invariant is a constant Enter, added when the condition or the body reads it.

    index ──▶ Less(index, limit) ──▶ LoopCond        index + delta ──▶ NextIteration

A delta whose sign is unknown during lowering takes two comparisons and a select. Invalid start,
limit and delta fail with an error at run time, as they do for `For`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cfgraph.analysis.loops.frame import DEFAULT_PARALLEL_ITERATIONS
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.colocation import COLOCATION_ATTR
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.opdef.op import SWAP_MEMORY_ATTR
from cfgraph.passes.lower.functional_node import CallSite, InlineScope
from cfgraph.passes.lower.inline import inline_body
from cfgraph.passes.lower.lower_cond import as_bool
from cfgraph.passes.lower.plan import constant_value
from cfgraph.passes.lower.rewriter import LoweredOutput, Rewriter


class LoopBuilder:
    """A loop under construction: `enter` its variables, then `add_switches`, then `close`.

    Variable number `lead` carries the order of effects, and is the source of pivots.
    """

    def __init__(self, rewriter: Rewriter, site: CallSite, parallel: int, lead: int = 0) -> None:
        self.rewriter = rewriter
        self.site = site
        self.lead = lead
        self.name = site.node.name
        self.device = site.node.device
        self._enter_attrs: dict[str, Any] = {
            "frame_name": rewriter.unique_frame_name(self.name),
            "parallel_iterations": parallel,
        }
        self.merges: list[Node] = []
        self.switches: list[Node] = []
        self.types: list[DType] = []
        self.constants: dict[Output, Node] = {}
        self.always_live: set[Node] = set()
        self._pivot: Node | None = None

    def enter(self, start: Output, dtype: DType) -> Output:
        """Add a variable; return its value at the start of each iteration."""
        enter = self._enter(start, dtype, constant=False)
        inputs, device = (Output(enter), Output(enter)), enter.device
        merge = self.rewriter.add(f"{self.name}/Merge", "Merge", inputs, (), device, T=dtype, N=2)
        self.merges.append(merge)
        self.types.append(dtype)
        return Output(merge)

    def constant(self, outer: Output, dtype: DType) -> Output:
        """A tensor from outside, entered as a loop invariant (a constant Enter)."""
        enter = self.constants.get(outer)
        if enter is None:
            enter = self.constants[outer] = self._enter(outer, dtype, constant=True)
            self.always_live.add(enter)
        return Output(enter)

    def _enter(self, outer: Output, dtype: DType, *, constant: bool) -> Node:
        source = outer.node
        attrs: dict[str, Any] = {"T": dtype, **self._enter_attrs, "is_constant": constant}
        if COLOCATION_ATTR in source.attrs:
            attrs[COLOCATION_ATTR] = source.attrs[COLOCATION_ATTR]
        controls = self.site.edge_controls(outer)
        return self.rewriter.add(
            f"{self.name}/Enter", "Enter", (outer,), controls, source.device, **attrs
        )

    def condition_scope(self) -> InlineScope:
        """The scope of the condition, which runs once more than the body."""
        return InlineScope(
            f"{self.name}/cond",
            self.device,
            lambda: self.merges[self.lead],
            orders_effects=True,
            streams=self.site.streams("cond", is_loop=True),
        )

    def body_scope(self) -> InlineScope:
        """The scope of the body."""
        streams = self.site.streams("body", is_loop=True)
        return InlineScope(
            f"{self.name}/body", self.device, self.pivot, self.always_live, streams=streams
        )

    def add_switches(self, predicate: Output, controls: Sequence[Node]) -> list[Output]:
        """Add the LoopCond and the Switches; return the variables as the body reads them.

        The LoopCond waits for `controls`: the effects of the condition, and the leading variable,
        which waits for the effects of the body in the preceding iteration.
        """
        attrs = {SWAP_MEMORY_ATTR: True} if self.site.node.attrs.get(SWAP_MEMORY_ATTR) else {}
        after, name = dict.fromkeys(controls), f"{self.name}/LoopCond"
        cond = self.rewriter.add(name, "LoopCond", (predicate,), after, self.device, **attrs)
        for merge, dtype in zip(self.merges, self.types, strict=True):
            inputs = (Output(merge), Output(cond))
            switch = self.rewriter.add(
                f"{self.name}/Switch", "Switch", inputs, (), merge.device, T=dtype
            )
            self.switches.append(switch)
        return [Output(switch, 1) for switch in self.switches]

    def pivot(self) -> Node:
        """A node that is live exactly in the iterations in which the body runs."""
        if self._pivot is None:
            lead, dtype = Output(self.switches[self.lead], 1), self.types[self.lead]
            name = f"{self.name}/body/pivot"
            self._pivot = self.rewriter.add(name, "Identity", (lead,), (), self.device, T=dtype)
        return self._pivot

    def close(self, values: Sequence[Output], effects: Sequence[Node]) -> None:
        """Add the back edges: the values of the next iteration, the leading one after `effects`."""
        for index, value in enumerate(values):
            merge, dtype = self.merges[index], self.types[index]
            controls = list(effects) if index == self.lead else []
            if value.node in self.always_live:
                controls.append(self.pivot())
            back_edge = self.rewriter.add(
                f"{self.name}/NextIteration",
                "NextIteration",
                (value,),
                controls,
                merge.device,
                T=dtype,
            )
            self.rewriter.graph.set_input(merge, 1, Output(back_edge))

    def exit(self, index: int) -> Node:
        """Add an Exit: the final value of a variable."""
        switch, dtype = self.switches[index], self.types[index]
        inputs = (Output(switch, 0),)
        return self.rewriter.add(f"{self.name}/Exit", "Exit", inputs, (), switch.device, T=dtype)

    def convert_to_exit(self, node: Node, index: int) -> None:
        """Convert the lowered node itself to the Exit of a variable."""
        switch = self.switches[index]
        self.rewriter.convert_to(node, "Exit", (Output(switch, 0),), (), T=self.types[index])
        self.rewriter.graph.set_device(node, switch.device)


class LoopCounter:
    """A variable that counts the iterations of a loop without other variables."""

    def __init__(self, loop: LoopBuilder) -> None:
        self.loop = loop
        start = self._const("start", 0, loop.site.edge_controls())
        self.value = loop.enter(start, dtypes.int32)

    def next(self, value: Output) -> Output:
        """The count of the next iteration."""
        loop = self.loop
        one = self._const("one", 1, (loop.pivot(),))
        name = f"{loop.name}/count"
        return Output(
            loop.rewriter.add(name, "AddV2", (value, one), (), loop.device, T=dtypes.int32)
        )

    def _const(self, name: str, number: int, controls: Sequence[Node]) -> Output:
        loop, value = self.loop, TensorValue(np.array(number, np.int32))
        name, attrs = f"{loop.name}/count/{name}", {"dtype": dtypes.int32, "value": value}
        return Output(loop.rewriter.create(name, "Const", attrs, (), controls, loop.device))


def lower_while(rewriter: Rewriter, site: CallSite) -> None:
    """Lower a While: a loop variable for each argument that the body changes."""
    condition, body = site.functional_node.functions
    forwarded = rewriter.plan.summaries[body].forwarded
    changed = [index for index, argument in enumerate(forwarded) if argument != index]
    read = rewriter.plan.summaries[condition].used_arguments(condition)
    lead = next((number for number, index in enumerate(changed) if index in read), 0)
    loop = LoopBuilder(rewriter, site, parallel_iterations(site.node), lead)
    starts = {
        index: loop.enter(site.arguments[index], body.input_types[index]) for index in changed
    }
    counter = None if changed else LoopCounter(loop)

    condition_copy = inline_body(
        rewriter,
        condition,
        loop_arguments(loop, body.input_types, starts),
        loop.condition_scope(),
        1,
    )
    assert condition_copy.returns[0] is not None
    predicate = as_bool(rewriter, site, condition_copy.returns[0], condition.output_types[0])
    controls = list(condition_copy.awaited_effects(0))
    if rewriter.plan.summaries[body].final_effects:
        controls.append(loop.merges[lead])
    values = loop.add_switches(predicate, controls)

    inner = dict(zip(changed, values, strict=False))
    outputs = sum(1 << index for index in changed)
    body_copy = inline_body(
        rewriter, body, loop_arguments(loop, body.input_types, inner), loop.body_scope(), outputs
    )
    updated = [x for index in changed if (x := body_copy.returns[index]) is not None]
    effects = body_copy.awaited_effects(changed[lead] if changed else 0)
    loop.close([counter.next(values[0])] if counter else updated, effects)
    add_results(rewriter, site, loop, {index: number for number, index in enumerate(changed)})


def add_results(
    rewriter: Rewriter, site: CallSite, loop: LoopBuilder, variables: Mapping[int, int]
) -> None:
    """Replace the node by the results; `variables` maps an output to a variable of the loop.

    The result of an invariant is its outer value. If the loop has or awaits effects, readers of the
    value wait for the loop.
    """
    types, arguments = site.functional_node.output_types, site.arguments
    if site.is_top_level and len(types) == 1 and variables:
        loop.convert_to_exit(site.node, variables[0])
        return
    outputs = rewriter.needed_outputs(site, len(types))
    ordered = bool(site.controls) or any(
        rewriter.plan.summaries[function].final_effects
        for function in site.functional_node.functions
    )
    ports = [port for port in range(len(types)) if outputs >> port & 1]
    exits = {port: loop.exit(variables[port]) for port in ports if port in variables}
    unchanged = [port for port in ports if port not in variables]
    completed: list[Node] = list(exits.values())[:1]
    if not completed and (
        site.is_top_level or site.node.control_readers or (unchanged and ordered)
    ):
        completed = [loop.exit(loop.lead)]
    results: list[LoweredOutput | None] = [None] * len(types)
    for port, node in exits.items():
        results[port] = LoweredOutput(Output(node))
    for port in unchanged:
        results[port] = LoweredOutput(arguments[port], tuple(completed) if ordered else ())
    rewriter.replace(site, results, completed)


def loop_arguments(
    loop: LoopBuilder, types: tuple[DType, ...], variables: Mapping[int, Output]
) -> Callable[[int], Output]:
    """The arguments of condition or body: a variable, or else an invariant."""

    def argument(index: int) -> Output:
        value = variables.get(index)
        if value is not None:
            return value
        return loop.constant(loop.site.arguments[index], types[index])

    return argument


def parallel_iterations(node: Node) -> int:
    """The limit on iterations of a functional loop that run in parallel."""
    limit = node.attrs.get("parallel_iterations")
    return limit if isinstance(limit, int) else DEFAULT_PARALLEL_ITERATIONS


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
        # the type of an input may be unknown, or a reference
        attrs: dict[str, Any] = {"T": dtypes.bool_ if op == "SelectV2" else _INT32}
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
