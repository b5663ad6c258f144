"""Interpreter of plans without control flow, for runs that are not repeated.

Generating and compiling the code of a node takes about as long as ten calls of a small kernel. So a
session interprets the first run, which may be the only one, and generates code for the second.
Conditionals and loops are compiled at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.node import make_pair
from cfgraph.ops.families.constants import identity
from cfgraph.runtime.compiled.node_writer import called_kernel, is_located
from cfgraph.runtime.engine.plan import NodePlan, Plan
from cfgraph.runtime.engine.references import dereference
from cfgraph.runtime.engine.step import RunStep
from cfgraph.stack_position import frame_variables


class Interpreter:
    """Runs the kernels of a straight-line plan in topological order.

    Values and errors are those of generated code. `has_run` is true once a run has started.
    """

    def __init__(self, plan: Plan, fetch_count: int) -> None:
        self._plan = plan
        self._fetches = [plan.fetches[index] for index in range(fetch_count)]
        self.has_run = False

    def run(self, step: RunStep, feeds: Sequence[Any], iterations: range) -> tuple[Any, ...]:
        """The fetched values; a value is dropped after its last use."""
        self.has_run = True
        plan, last_readers = self._plan, self._last_readers()
        fed = frozenset(plan.feeds.values())
        values = {output: feeds[index] for index, output in plan.feeds.items()}
        for node in plan.frames.order:
            known = plan.nodes[node]
            inputs = [values[output] for output in known.inputs]
            if known.deref_slots:
                _dereference(known, inputs)
            result = self._result(known, step, inputs)
            results = (result,) if known.outputs == 1 else result if known.outputs else ()
            for port, value in enumerate(results):
                output = make_pair(Output, (node, port))
                if output in last_readers and output not in fed:
                    values[output] = value
            for output in known.inputs:
                if last_readers[output] is node:
                    values.pop(output, None)
        return tuple([values[output] for output in self._fetches])

    def _last_readers(self) -> dict[Output, Node | None]:
        """The last reader of each output that is read or fetched; None for a fetched one."""
        last: dict[Output, Node | None] = {}
        for node in self._plan.frames.order:
            for output in self._plan.nodes[node].inputs:
                last[output] = node
        last.update(dict.fromkeys(self._fetches))
        return last

    def _result(self, known: NodePlan, step: RunStep, inputs: list[Any]) -> Any:
        op = known.op
        if not op.effects.stateful:
            return known.kernel(*inputs) if inputs or known.outputs else None
        kernel = called_kernel(known, self._plan.frames.root)
        return kernel(step, (), *inputs) if is_located(op) else kernel(step, *inputs)

    def node_of(self, stack: Iterable[FrameType]) -> NodePlan | None:
        """The node that a stack with a run of this interpreter is at; None without one."""
        known: NodePlan | None = self._variables(stack).get("known")
        return known

    def inputs_in(self, stack: Iterable[FrameType]) -> Sequence[Any]:
        """The inputs of the node that a stack with a run of this interpreter is at."""
        inputs: Sequence[Any] = self._variables(stack).get("inputs", ())
        return inputs

    def _variables(self, stack: Iterable[FrameType]) -> dict[str, Any]:
        for frame in stack:
            if frame.f_code is Interpreter.run.__code__:
                variables = frame_variables(frame)
                if variables["self"] is self:
                    return variables
        return {}


def _dereference(known: NodePlan, inputs: list[Any]) -> None:
    """Replace references by values; an identity that forwards a reference only checks it."""
    for slot in known.deref_slots:
        if slot not in known.forwarded_slots:
            inputs[slot] = dereference(inputs[slot])
        elif known.kernel is identity:
            dereference(inputs[slot])
