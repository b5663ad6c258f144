"""Lower `While`, and build the primitive loop that `While` and `For` share.

Each variable that the loop changes:

    x ──▶ Enter ──▶ Merge ──▶ Switch ──false──▶ Exit ──▶ result
                      ▲         │ ▲
                      │        true└─ LoopCond ◀── [condition]
                      │         ▼
               NextIteration ◀─[body]

A loop invariant is a constant Enter, added when the condition or the body reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cfgraph.analysis.loops.frames import DEFAULT_PARALLEL_ITERATIONS
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.passes.lower.functional_node import CallSite, InlineScope
from cfgraph.passes.lower.inline import inline_body
from cfgraph.passes.lower.lower_cond import as_bool
from cfgraph.passes.lower.rewriter import LoweredOutput, Rewriter


class LoopBuilder:
    """One loop as it is built: `enter` its variables, then `decide`, then `close`.

    Of the variables, number `lead` is the one that effects go round with and pivots hang on.
    """

    def __init__(self, work: Rewriter, site: CallSite, parallel: int, lead: int = 0) -> None:
        self.work = work
        self.site = site
        self.lead = lead
        self.name = site.node.name
        self.device = site.node.device
        self.frame: dict[str, Any] = {
            "frame_name": work.frame(self.name),
            "parallel_iterations": parallel,
        }
        self.merges: list[Node] = []
        self.switches: list[Node] = []
        self.types: list[DType] = []
        self.constants: dict[Output, Node] = {}
        self.loose: set[Node] = set()
        self._pivot: Node | None = None

    def enter(self, start: Output, dtype: DType) -> Output:
        """Add a variable; its value at the start of each iteration."""
        enter = self._enter(start, dtype, constant=False)
        inputs, device = (Output(enter), Output(enter)), enter.device
        merge = self.work.add(f"{self.name}/Merge", "Merge", inputs, (), device, T=dtype, N=2)
        self.merges.append(merge)
        self.types.append(dtype)
        return Output(merge)

    def constant(self, outer: Output, dtype: DType) -> Output:
        """A value that the loop does not change."""
        enter = self.constants.get(outer)
        if enter is None:
            enter = self.constants[outer] = self._enter(outer, dtype, constant=True)
            self.loose.add(enter)
        return Output(enter)

    def _enter(self, outer: Output, dtype: DType, *, constant: bool) -> Node:
        source = outer.node
        attrs: dict[str, Any] = {"T": dtype, **self.frame, "is_constant": constant}
        if "_class" in source.attrs:
            attrs["_class"] = source.attrs["_class"]
        controls = self.site.held(outer)
        return self.work.add(
            f"{self.name}/Enter", "Enter", (outer,), controls, source.device, **attrs
        )

    def condition_scope(self) -> InlineScope:
        """Where the condition's nodes go: they run once more than the body."""
        return InlineScope(
            f"{self.name}/cond", self.device, lambda: self.merges[self.lead], ordered=True
        )

    def body_scope(self) -> InlineScope:
        """Where the body's nodes go."""
        return InlineScope(f"{self.name}/body", self.device, self.pivot, self.loose)

    def decide(self, going_on: Output, waits: Sequence[Node]) -> list[Output]:
        """Let the condition choose; the variables as the body sees them.

        `waits` come before the choice: the effects of the condition, and those of the body in the
        iteration before, which the first variable waits for.
        """
        cond = self.work.add(
            f"{self.name}/LoopCond", "LoopCond", (going_on,), dict.fromkeys(waits), self.device
        )
        for merge, dtype in zip(self.merges, self.types, strict=True):
            inputs = (Output(merge), Output(cond))
            switch = self.work.add(
                f"{self.name}/Switch", "Switch", inputs, (), merge.device, T=dtype
            )
            self.switches.append(switch)
        return [Output(switch, 1) for switch in self.switches]

    def pivot(self) -> Node:
        """A node that is live exactly in the iterations that the body runs in."""
        if self._pivot is None:
            lead, dtype = Output(self.switches[self.lead], 1), self.types[self.lead]
            name = f"{self.name}/body/pivot"
            self._pivot = self.work.add(name, "Identity", (lead,), (), self.device, T=dtype)
        return self._pivot

    def close(self, values: Sequence[Output], waits: Sequence[Node]) -> None:
        """Hand the values to the next iteration; the leading one after `waits`."""
        for index, value in enumerate(values):
            merge, dtype = self.merges[index], self.types[index]
            controls = list(waits) if index == self.lead else []
            if value.node in self.loose:
                controls.append(self.pivot())
            following = self.work.add(
                f"{self.name}/NextIteration",
                "NextIteration",
                (value,),
                controls,
                merge.device,
                T=dtype,
            )
            self.work.graph.set_input(merge, 1, Output(following))

    def exit(self, index: int) -> Node:
        """The node that hands a variable out when the loop is over."""
        switch, dtype = self.switches[index], self.types[index]
        inputs = (Output(switch, 0),)
        return self.work.add(f"{self.name}/Exit", "Exit", inputs, (), switch.device, T=dtype)

    def become_exit(self, node: Node, index: int) -> None:
        """Let the lowered node itself hand out a variable."""
        switch = self.switches[index]
        self.work.convert_to(node, "Exit", (Output(switch, 0),), (), T=self.types[index])
        self.work.graph.set_device(node, switch.device)


class LoopCounter:
    """A variable that counts the iterations of a loop which changes nothing else."""

    def __init__(self, loop: LoopBuilder) -> None:
        self.loop = loop
        start = self._const("start", 0, loop.site.held())
        self.value = loop.enter(start, dtypes.int32)

    def next(self, value: Output) -> Output:
        """The count of the next iteration."""
        loop = self.loop
        one = self._const("one", 1, (loop.pivot(),))
        name = f"{loop.name}/count"
        return Output(loop.work.add(name, "AddV2", (value, one), (), loop.device, T=dtypes.int32))

    def _const(self, name: str, number: int, controls: Sequence[Node]) -> Output:
        loop, value = self.loop, TensorValue(np.array(number, np.int32))
        name, attrs = f"{loop.name}/count/{name}", {"dtype": dtypes.int32, "value": value}
        return Output(loop.work.create(name, "Const", attrs, (), controls, loop.device))


def lower_while(work: Rewriter, site: CallSite) -> None:
    """Lower a While: one trip of the loop machine for each variable that the body changes."""
    condition, body = site.functional_node.functions
    passes = work.plan.facts[body].passes
    changed = [place for place, passed in enumerate(passes) if passed != place]
    read = work.plan.facts[condition].arguments(condition)
    lead = next((index for index, place in enumerate(changed) if place in read), 0)
    loop = LoopBuilder(work, site, parallel_iterations(site.node), lead)
    starts = {
        place: loop.enter(site.arguments[place], body.input_types[place]) for place in changed
    }
    counter = None if changed else LoopCounter(loop)

    asked = inline_body(
        work, condition, loop_arguments(loop, body.input_types, starts), loop.condition_scope(), 1
    )
    assert asked.returns[0] is not None
    going_on = as_bool(work, site, asked.returns[0], condition.output_types[0])
    waits = list(asked.waits(0))
    if work.plan.facts[body].last:
        waits.append(loop.merges[lead])
    values = loop.decide(going_on, waits)

    inside = dict(zip(changed, values, strict=False))
    outputs = sum(1 << place for place in changed)
    done = inline_body(
        work, body, loop_arguments(loop, body.input_types, inside), loop.body_scope(), outputs
    )
    following = [item for place in changed if (item := done.returns[place]) is not None]
    effects = done.waits(changed[lead] if changed else 0)
    loop.close([counter.next(values[0])] if counter else following, effects)
    add_results(work, site, loop, {place: index for index, place in enumerate(changed)})


def add_results(
    work: Rewriter, site: CallSite, loop: LoopBuilder, variables: Mapping[int, int]
) -> None:
    """Hand out the results: `variables` says which variable of the loop an output is.

    What the loop does not change is its own result. Where the loop has effects, or waits for some,
    a reader of it must wait for the loop.
    """
    types, arguments = site.functional_node.output_types, site.arguments
    if site.surface and len(types) == 1 and variables:
        loop.become_exit(site.node, variables[0])
        return
    outputs = work.needed(site, len(types))
    ordered = bool(site.controls) or any(
        work.plan.facts[function].last for function in site.functional_node.functions
    )
    ports = [port for port in range(len(types)) if outputs >> port & 1]
    exits = {port: loop.exit(variables[port]) for port in ports if port in variables}
    unchanged = [port for port in ports if port not in variables]
    over: list[Node] = list(exits.values())[:1]
    if not over and (site.surface or site.node.control_readers or (unchanged and ordered)):
        over = [loop.exit(loop.lead)]
    results: list[LoweredOutput | None] = [None] * len(types)
    for port, node in exits.items():
        results[port] = LoweredOutput(Output(node))
    for port in unchanged:
        results[port] = LoweredOutput(arguments[port], tuple(over) if ordered else ())
    work.finish(site, results, over)


def loop_arguments(
    loop: LoopBuilder, types: tuple[DType, ...], variables: Mapping[int, Output]
) -> Callable[[int], Output]:
    """The arguments of condition or body: a variable, or what the loop does not change."""

    def argument(place: int) -> Output:
        value = variables.get(place)
        if value is not None:
            return value
        return loop.constant(loop.site.arguments[place], types[place])

    return argument


def parallel_iterations(node: Node) -> int:
    """How many iterations of a functional loop may run at once."""
    said = node.attrs.get("parallel_iterations")
    return said if isinstance(said, int) else DEFAULT_PARALLEL_ITERATIONS
