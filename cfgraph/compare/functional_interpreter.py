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
from cfgraph.ir import registry
from cfgraph.ir.attrs import Func
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import expanded_size, select_implementation
from cfgraph.ir.traversal import ancestors, topological_order
from cfgraph.limits import check_deadline, current_limits, limited
from cfgraph.ops.families.functional import FunctionalOp
from cfgraph.ops.opdef.op import KERNEL_FAILURES, Op, is_functional, lookup
from cfgraph.ops.opdef.resources import Step

OutputValues = dict[Output, Any]

_FALLBACK_ERRORS: Final = (CfgraphError, RecursionError, *KERNEL_FAILURES)


def run_functional(
    graph: Graph,
    fetches: Sequence[Output],
    targets: Iterable[Node],
    feeds: Mapping[Output, Any],
    step: Step,
    max_iterations: int | None,
    timeout: float | None = None,
    instances: FunctionInstances | None = None,
) -> list[Any] | None:
    """Return the fetched values. Raises RunTimeout after `timeout` seconds.

    `instances` are those of an earlier run of the graph.

    Returns None if nothing is functional, if a node is not supported (control flow primitives, and
    random ops, whose numbers depend on names that lowering creates), if the functions expand to too
    many nodes, and if the run fails: the run of a session then reports the error.
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
            interpreter.run(nodes, values)
        return [values[tensor] for tensor in fetches]
    except RunTimeout:
        raise
    except _FALLBACK_ERRORS:
        return None


class _FunctionalInterpreter:
    """Interpreter of function calls, without recursion, which lowering also rejects."""

    def __init__(
        self, instances: FunctionInstances, step: Step, max_iterations: int | None
    ) -> None:
        self.instances = instances
        self.step = step
        self.max_iterations = max_iterations
        self.running: list[str] = []

    def run(self, nodes: Sequence[Node], values: OutputValues) -> None:
        """Run nodes in topological order, except nodes that already have values."""
        for node in topological_order(nodes).nodes:
            if _has_values(node, values):
                continue
            if any(tensor not in values for tensor in node.inputs):
                raise _unsupported_error(node)
            outputs = self.node(node, [values[tensor] for tensor in node.inputs])
            for port, value in enumerate(outputs):
                values.setdefault(node.output(port), value)

    def node(self, node: Node, inputs: list[Any]) -> tuple[Any, ...]:
        """Return the outputs of one node."""
        if node.op in self.instances.library:
            return self.call(Func(node.op, node.attrs), inputs)
        op = lookup(node.op)
        if op is not None and issubclass(op, FunctionalOp):
            return self.functional(node, op, inputs)
        return _run_kernel(node, op, inputs, self.step)

    def functional(self, node: Node, op: type[FunctionalOp], inputs: list[Any]) -> tuple[Any, ...]:
        """Return the outputs of a functional node."""
        first = inputs[: op.calls.first_argument]
        rest = inputs[op.calls.first_argument :]
        if op.calls.kind == "if":
            then_branch, else_branch = (node.attr(name) for name in op.calls.functions)
            return self.call(then_branch if _is_true(first[0]) else else_branch, rest)
        if op.calls.kind == "case":
            branches = node.attr("branches")
            index = int(first[0])
            return self.call(branches[index if 0 <= index < len(branches) else -1], rest)
        if op.calls.kind == "while":
            return self.loop(node, rest)
        if op.calls.kind == "for":
            return self.count(node.attr("body"), first, rest)
        if op.calls.kind == "call":
            func = node.attr("f")
            name = select_implementation(self.instances.library, func.name, node.device)
            return self.call(Func(name, func.attrs), rest)
        raise _unsupported_error(node)

    def loop(self, node: Node, values: Sequence[Any]) -> tuple[Any, ...]:
        """Call the body while the condition holds."""
        count = 0
        while _is_true(self.call(node.attr("cond"), values)[0]):
            if count == self.max_iterations:
                raise _unsupported_error(node)
            values = self.call(node.attr("body"), values)
            count += 1
        return tuple(values)

    def count(self, body: Func, bounds: Sequence[Any], values: Sequence[Any]) -> tuple[Any, ...]:
        """Call the body with each index."""
        start, limit, delta = (int(value) for value in bounds)
        for index in range(start, limit, delta):
            values = self.call(body, [np.int32(index), *values])
        return tuple(values)

    def call(self, func: Func, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Call a function: run the ancestors of its results and control outputs."""
        check_deadline()
        if func.name in self.running:
            message = f"function {func.name!r} calls itself"
            raise Unsupported(message)
        body: FunctionGraph = self.instances.get(func.name, func.attrs)
        outputs = [argument.output() for argument in body.arguments]
        values: OutputValues = dict(zip(outputs, arguments, strict=True))
        required = [*(tensor.node for tensor in body.returns), *body.control_returns]
        self.running.append(func.name)
        self.run(ancestors(body.graph, required), values)
        self.running.pop()
        return tuple(values[tensor] for tensor in body.returns)


def _has_values(node: Node, values: OutputValues) -> bool:
    """Return true if all outputs of a node have values (arguments and feeds)."""
    count = registry.output_count(node) or 1
    return all(node.output(port) in values for port in range(count))


def _run_kernel(node: Node, op: type[Op] | None, inputs: list[Any], step: Step) -> tuple[Any, ...]:
    """Return the outputs of a kernel."""
    if op is None or op.role or op.effects.random or not op.compilation.runnable:
        raise _unsupported_error(node)
    result = (
        op.prepare(node, np)(step, *inputs) if op.effects.stateful else op.bind(node, np)(*inputs)
    )
    count = registry.output_count(node)
    if count == 0:
        return ()
    return (result,) if count == 1 else tuple(result)


def _is_true(value: Any) -> bool:
    """Return the truth of a predicate: a nonzero number, or a nonempty string or list."""
    array = np.asarray(value)
    return bool(array.item()) if array.ndim == 0 else array.size > 0


def _unsupported_error(node: Node) -> Unsupported:
    return Unsupported(f"{node.op} is not supported in functional form", node=node)
