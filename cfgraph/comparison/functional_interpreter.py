"""Interpreter of graphs in functional form: functions are called, nothing is lowered.

`lower` is tested against it, so the two share no code: nodes run in topological order, an If calls
one of its functions, a While calls its body while its condition holds. It is slow, and supports
neither lowered control flow nor devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from cfgraph.analysis.verify.verify import require_valid_nodes
from cfgraph.errors import CfgraphError, RunTimeout, Unsupported
from cfgraph.ir.attrs import Func
from cfgraph.ir.function_graph import ARG_OP, FunctionGraph, FunctionInstances
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import expanded_size, select_implementation
from cfgraph.ir.traversal import ancestors, topological_order
from cfgraph.limits import check_deadline, current_limits, limited
from cfgraph.ops.families.functional import FunctionalOp
from cfgraph.ops.opdef.op import (
    KERNEL_FAILURES,
    Op,
    function_calls,
    has_effect,
    is_functional,
    lookup,
)
from cfgraph.ops.opdef.random_streams import GRAPH, StreamScope
from cfgraph.passes.optimize.calls import LOWERED_ATTR
from cfgraph.runtime.engine.references import References, dereference
from cfgraph.runtime.engine.step import RunStep
from cfgraph.runtime.straight_line import library_kernel

OutputValues = dict[Output, Any]

_FALLBACK_ERRORS: Final = (CfgraphError, RecursionError, *KERNEL_FAILURES)


def run_functional(
    graph: Graph,
    fetches: Sequence[Output],
    targets: Iterable[Node],
    feeds: Mapping[Output, Any],
    step: RunStep,
    max_iterations: int | None,
    timeout: float | None = None,
    instances: FunctionInstances | None = None,
) -> list[Any] | None:
    """Return the fetched values. Raises RunTimeout after `timeout` seconds.

    `instances` are those of an earlier run of the graph.

    Returns None if nothing is functional, if a node is not supported (control flow primitives), if
    the functions expand to too many nodes, and if the run fails: the run of a session then reports
    the error.
    """
    required = [*(tensor.node for tensor in fetches if tensor not in feeds), *targets]
    nodes = ancestors(graph, required, set(feeds), {tensor.node for tensor in feeds})
    if not is_functional(graph, nodes) or (
        expanded_size(graph, nodes) > current_limits().max_nodes
    ):
        return None
    instances = instances or FunctionInstances(graph.functions)
    interpreter = _FunctionalInterpreter(instances, step, max_iterations)
    values: OutputValues = dict(feeds)
    try:
        require_valid_nodes(graph, nodes)
        with np.errstate(all="ignore"), limited(timeout=timeout):
            interpreter.run(nodes, values, References(nodes, frozenset(feeds)))
        return [dereference(values[tensor]) for tensor in fetches]
    except RunTimeout:
        raise
    except _FALLBACK_ERRORS:
        return None


class _FunctionalInterpreter:
    """Interpreter of function calls, without recursion, which lowering also rejects."""

    def __init__(
        self, instances: FunctionInstances, step: RunStep, max_iterations: int | None
    ) -> None:
        self.instances = instances
        self.step = step
        self.max_iterations = max_iterations
        self.running: list[str] = []
        self._references: dict[FunctionGraph, References] = {}
        # the call sites and iterations of what runs
        self.streams: StreamScope = GRAPH

    def run(self, nodes: Sequence[Node], values: OutputValues, references: References) -> None:
        """Run nodes in topological order, except nodes that already have values."""
        for node in topological_order(nodes).nodes:
            if _has_values(node, values):
                continue
            if any(tensor not in values for tensor in node.inputs):
                raise _unsupported_error(node)
            outputs = self.run_node(node, self.inputs(node, values, references))
            for port, value in enumerate(outputs):
                values.setdefault(node.output(port), value)

    def inputs(self, node: Node, values: OutputValues, references: References) -> list[Any]:
        """The inputs of a node; what a function receives by reference stays a reference."""
        inputs = [values[tensor] for tensor in node.inputs]
        if node.op not in self.instances.library:
            read = {*references.deref_slots(node)}.difference(references.forwarded_slots(node))
            for slot in read:
                inputs[slot] = dereference(inputs[slot])
        return inputs

    def run_node(self, node: Node, inputs: list[Any]) -> tuple[Any, ...]:
        """Return the outputs of one node."""
        if node.op in self.instances.library:
            return self.call(node, "", Func(node.op, node.attrs), inputs)
        op = lookup(node.op)
        if op is not None and issubclass(op, FunctionalOp):
            return self.functional(node, op, inputs)
        if op is not None and op.calls.kind == "combine":
            result = library_kernel(node, op, self.instances)(*inputs)
            return result if isinstance(result, tuple) else (result,)
        if op is not None and op.effects.stateful and op.effects.random:
            self.step.run_inside(node, self.streams)
        return _run_kernel(node, op, inputs, self.step)

    def functional(self, node: Node, op: type[FunctionalOp], inputs: list[Any]) -> tuple[Any, ...]:
        """Return the outputs of a functional node."""
        first = inputs[: op.calls.first_argument]
        rest = inputs[op.calls.first_argument :]
        if op.calls.kind == "if":
            label = "then" if _is_true(first[0]) else "else"
            return self.call(node, label, node.attr(f"{label}_branch"), rest)
        if op.calls.kind == "case":
            branches = node.attr("branches")
            index = int(first[0])
            index = index if 0 <= index < len(branches) else len(branches) - 1
            return self.call(node, f"branch{index}", branches[index], rest)
        if op.calls.kind == "while":
            return self.loop(node, rest)
        if op.calls.kind == "for":
            return self.count(node, first, rest)
        if op.calls.kind == "call":
            func = node.attr("f")
            name = select_implementation(self.instances.library, func.name, node.device)
            return self.call(node, "", Func(name, func.attrs), rest)
        raise _unsupported_error(node)

    def loop(self, node: Node, values: Sequence[Any]) -> tuple[Any, ...]:
        """Call the body while the condition holds."""
        count, cond, body = 0, node.attr("cond"), node.attr("body")
        while _is_true(self.call(node, "cond", cond, values, count)[0]):
            if count == self.max_iterations:
                raise _unsupported_error(node)
            values = self.call(node, "body", body, values, count)
            count += 1
        return tuple(values)

    def count(self, node: Node, bounds: Sequence[Any], values: Sequence[Any]) -> tuple[Any, ...]:
        """Call the body with each index."""
        start, limit, delta = (int(value) for value in bounds)
        body = node.attr("body")
        for number, index in enumerate(range(start, limit, delta)):
            values = self.call(node, "body", body, [np.int32(index), *values], number)
        return tuple(values)

    def call(
        self,
        node: Node,
        label: str,
        func: Func,
        arguments: Sequence[Any],
        iteration: int | None = None,
    ) -> tuple[Any, ...]:
        """Call a function of a node: run the ancestors of its results and control outputs."""
        check_deadline()
        if func.name in self.running:
            message = f"function {func.name!r} calls itself"
            raise Unsupported(message)
        body: FunctionGraph = self.instances.get(func.name, func.attrs)
        outputs = [argument.output() for argument in body.arguments]
        values: OutputValues = dict(zip(outputs, arguments, strict=True))
        required = [*(tensor.node for tensor in body.returns), *body.control_returns]
        is_call = function_calls(node.op).kind in ("", "call")
        if is_call or not node.attrs.get(LOWERED_ATTR):
            required += [each for each in body.graph if self._has_effect(each)]
        outer, self.streams = self.streams, self.streams.inside(node, label, iteration)
        self.running.append(func.name)
        if body not in self._references:
            self._references[body] = References(body.graph, frozenset(outputs))
        self.run(ancestors(body.graph, required), values, self._references[body])
        self.running.pop()
        self.streams = outer
        return tuple(values[tensor] for tensor in body.returns)

    def _has_effect(self, node: Node) -> bool:
        """Return true for a node that a function runs even if nothing needs it."""
        function = self.instances.library.get(node.op)
        if function is not None:
            return function.definition.stateful
        return node.op != ARG_OP and has_effect(node)


def _has_values(node: Node, values: OutputValues) -> bool:
    """Return true if all outputs of a node have values (arguments and feeds)."""
    count = node.output_count or 1
    return all(node.output(port) in values for port in range(count))


def _run_kernel(
    node: Node, op: type[Op] | None, inputs: list[Any], step: RunStep
) -> tuple[Any, ...]:
    """Return the outputs of a kernel."""
    if op is None or op.role or not op.compilation.runnable:
        raise _unsupported_error(node)
    result = (
        op.prepare(node, np)(step, *inputs) if op.effects.stateful else op.bind(node, np)(*inputs)
    )
    count = node.output_count
    if count == 0:
        return ()
    return (result,) if count == 1 else tuple(result)


def _is_true(value: Any) -> bool:
    """Return the truth of a predicate: a nonzero number, or a nonempty string or list."""
    array = np.asarray(value)
    return bool(array.item()) if array.ndim == 0 else array.size > 0


def _unsupported_error(node: Node) -> Unsupported:
    return Unsupported(f"{node.op} is not supported in functional form", node=node)
