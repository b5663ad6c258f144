"""The counters of a loop and of the loop that runs back over it.

    forward:   0 ──▶ Enter ─▶ Merge ─▶ Switch on the loop's LoopCond ─▶ +1 ─▶ NextIteration; Exit: N
    backward:  N ──▶ Enter ─▶ Merge ─▶ >= 1, LoopCond ─▶ Switch ─▶ -1 ─▶ NextIteration

What an iteration pushes or pops must be done before its counter goes on, and waits for the counter
of that iteration: so stacks are pushed and popped in order, however many iterations run at once.
What a conditional may leave out is waited for by a ControlTrigger, which runs for dead inputs too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.attrs import Tensor
from cfgraph.ir.graph import Node, Output
from cfgraph.passes.gradients.work import Work


class Steps:
    """What every iteration of a counter must wait for before it goes on."""

    def __init__(self, work: Work, back: Node) -> None:
        self.work = work
        self.back = back
        self._always: list[Node] = []
        self._sometimes: list[Node] = []

    def wait_for(self, node: Node, *, may_be_dead: bool) -> None:
        """Let the next iteration begin behind this node."""
        (self._sometimes if may_be_dead else self._always).append(node)

    def finish(self, name: str) -> None:
        """Add the edges."""
        controls = list(self._always)
        if self._sometimes:
            sync = self.work.add_forward("ControlTrigger", (), name, self._sometimes)
            controls.append(sync)
        self.work.graph.set_controls(self.back, [*self.back.controls, *controls])


class ForwardCounter:
    """Counts the iterations of a loop; belongs to the loop itself.

    `total` is how many there were, `step` a node that runs once in each before anything is pushed.
    """

    def __init__(
        self,
        work: Work,
        cond: Node,
        enter: dict[str, Any],
        one: Output,
        behind: Sequence[Node],
    ) -> None:
        add = work.add_forward
        zero = Tensor(np.zeros((), np.int32))
        start = add("Const", (), "f_count", behind, dtype=dtypes.int32, value=zero)
        first = add("Enter", (start.output(),), "f_count_enter", **enter)
        merge = add("Merge", (first.output(), first.output()), "f_count_merge")
        switch = add("Switch", (merge.output(), cond.output()), "f_count_switch")
        self.step = add("AddV2", (switch.output(1), one), "f_count_add")
        back = add("NextIteration", (self.step.output(),), "f_count_next")
        work.graph.set_input(merge, 1, back.output())
        self.total = add("Exit", (switch.output(0),), "f_count_exit").output()
        self.steps = Steps(work, back)


class BackwardCounter:
    """Lets the backward loop run as often as the forward one did."""

    def __init__(self, work: Work, enter: dict[str, Any], total: Output, one: Output) -> None:
        self._work = work
        add = work.add
        first = add("Enter", (total,), "b_count_enter", **enter)
        merge = add("Merge", (first.output(), first.output()), "b_count_merge")
        more = add("GreaterEqual", (merge.output(), one), "b_count_more")
        self.cond = add("LoopCond", (more.output(),), "b_count_cond").output()
        self._switch = add("Switch", (merge.output(), self.cond), "b_count_switch")
        self.step = add("Sub", (self._switch.output(1), one), "b_count_sub")
        back = add("NextIteration", (self.step.output(),), "b_count_next")
        work.graph.set_input(merge, 1, back.output())
        self.steps = Steps(work, back)

    def done(self) -> Node:
        """A node outside the loop that runs when the loop has ended."""
        return self._work.add("Exit", (self._switch.output(0),), "b_count_exit")
