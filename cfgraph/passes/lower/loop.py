"""The machine of a loop, for `While` and `For`.

What the loop changes goes round:

    x ──▶ Enter ──▶ Merge ──▶ Switch ──false──▶ Exit ──▶ result
                      ▲         │ ▲
                      │        true└─ LoopCond ◀── [condition]
                      │         ▼
               NextIteration ◀─[body]

What it does not change is a constant Enter, made when condition or body reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.attrs import Tensor
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.passes.lower.rewriter import Rewriter
from cfgraph.passes.lower.scope import Scope, Site


class Loop:
    """One loop as it is built: `enter` its variables, then `decide`, then `close`.

    Of the variables, number `lead` is the one that effects go round with and pivots hang on.
    """

    def __init__(self, work: Rewriter, site: Site, parallel: int, lead: int = 0) -> None:
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

    def condition_scope(self) -> Scope:
        """Where the condition's nodes go: they run once more than the body."""
        return Scope(f"{self.name}/cond", self.device, lambda: self.merges[self.lead], ordered=True)

    def body_scope(self) -> Scope:
        """Where the body's nodes go."""
        return Scope(f"{self.name}/body", self.device, self.pivot, self.loose)

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

    def exit_as(self, node: Node, index: int) -> None:
        """Let the lowered node itself hand out a variable."""
        switch = self.switches[index]
        self.work.become(node, "Exit", (Output(switch, 0),), (), T=self.types[index])
        self.work.graph.set_device(node, switch.device)


class Counter:
    """A variable that counts the iterations of a loop which changes nothing else."""

    def __init__(self, loop: Loop) -> None:
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
        loop, value = self.loop, Tensor(np.array(number, np.int32))
        name, attrs = f"{loop.name}/count/{name}", {"dtype": dtypes.int32, "value": value}
        return Output(loop.work.create(name, "Const", attrs, (), controls, loop.device))
