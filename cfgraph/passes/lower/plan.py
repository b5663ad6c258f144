"""Lowering plan: summaries of all functions to lower, and rejection of others before any edit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cfgraph.errors import InvalidInput, Unsupported, UsageError
from cfgraph.ir.attrs import Func
from cfgraph.ir.function_graph import ARG_OP, FunctionGraph, FunctionGraphs, FunctionInstances
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.names import did_you_mean
from cfgraph.ir.traversal import topological_order
from cfgraph.limits import check_deadline, current_limits
from cfgraph.ops.families.constants import Const, Identity
from cfgraph.ops.opdef.op import lookup
from cfgraph.passes.lower.functional_node import (
    FunctionalNode,
    FunctionSummary,
    downstream_of_primitives,
    functional_kind,
    inputs_to_wait_for,
    read_functional_node,
    summarize_function,
)

LOWERED_KINDS = frozenset({"if", "case", "while", "for", "call"})


@dataclass(frozen=True, slots=True)
class LoweringSelection:
    """Kinds of functional nodes to lower; with `nodes` only these, and none in their functions."""

    kinds: frozenset[str] = LOWERED_KINDS
    nodes: frozenset[Node] | None = None

    def includes(self, node: Node, function: FunctionGraph | None) -> bool:
        """True for a selected node of a function, or of the graph itself."""
        return self.nodes is None or (function is None and node in self.nodes)


class LoweringPlan:
    """The functional nodes of a graph to lower, and summaries of all functions that they call."""

    def __init__(
        self,
        graph: Graph,
        only: Iterable[str] | None,
        keep_calls: bool | Collection[str],
        bodies: FunctionGraphs | None = None,
        selection: LoweringSelection | None = None,
    ) -> None:
        self.instances = FunctionInstances(graph.functions, bodies)
        self.keep_calls = keep_calls
        self.selection = selection or LoweringSelection()
        self.only = None if only is None else frozenset(only)
        self.summaries: dict[FunctionGraph, FunctionSummary] = {}
        self.guarded_nodes: frozenset[Node] = frozenset()
        self.awaited_inputs: dict[Node, tuple[Node, ...]] = {}
        self.functional_nodes: dict[Node, FunctionalNode] = {}
        self._gradients = dict(graph.gradient_functions)
        self._kinds: dict[str, str] = {}  # by op
        self._members: dict[tuple[FunctionGraph, int], tuple[Node, ...]] = {}
        self._require_known(graph)
        self._read(graph)
        self._require_bounded()

    def members(self, function: FunctionGraph, outputs: int) -> tuple[Node, ...]:
        """The nodes of a function that these outputs (bits) and its effects need."""
        key = (function, outputs)
        if key not in self._members:
            self._members[key] = self.summaries[function].members(function, outputs)
        return self._members[key]

    def warnings(self) -> Iterator[str]:
        """Warnings about functions that are inlined."""
        for name in dict.fromkeys(function.name for function in self.summaries):
            if name in self._gradients:
                yield (
                    f"function {name!r} is inlined, so its registered gradient "
                    f"({self._gradients[name]!r}) will not be used"
                )
        for function in self.summaries:
            for node in function.guessed:
                op = function.graph[node].op
                yield (
                    f"op {op!r} of node '{function.name}/{node}' is unknown: the output that is "
                    f"read is assumed to be its first"
                )

    def _require_known(self, graph: Graph) -> None:
        for name in sorted(self.only or ()):
            if name not in graph.functions:
                message = f"no function {name!r} in the library"
                raise UsageError(message, hint=did_you_mean(name, graph.functions))

    def _read(self, graph: Graph) -> None:
        kinds = {functional_kind(op, self.instances) for op in graph.ops}
        if kinds.isdisjoint(self.selection.kinds):
            return
        order = topological_order(graph).nodes
        for node in order:
            functional_node = self._functional_node(node, None)
            if functional_node is None or not self._is_included(functional_node):
                continue
            self.functional_nodes[node] = functional_node
            for function in functional_node.functions:
                self._summarize(function, node)
        self.guarded_nodes = downstream_of_primitives(order)
        self.awaited_inputs = inputs_to_wait_for(order, self.functional_nodes, self.summaries)

    def _require_bounded(self) -> None:
        """Raise Unsupported if the functions expand to too many nodes, which are counted first."""
        limits, counts = current_limits(), dict[FunctionGraph, int]()
        # callees come before their callers
        for function, summary in self.summaries.items():
            counts[function] = len(summary.order) + _expanded(summary.functional_nodes, counts)
        total = _expanded(self.functional_nodes, counts)
        if total > limits.max_nodes:
            called = [(f, n) for n, calls in self.functional_nodes.items() for f in calls.functions]
            largest, node = max(called, key=lambda call: counts[call[0]])
            limits.check_nodes(total, largest.name, node)

    def _is_included(self, functional_node: FunctionalNode) -> bool:
        return self.only is None or any(f.name in self.only for f in functional_node.functions)

    def _functional_node(self, node: Node, function: FunctionGraph | None) -> FunctionalNode | None:
        """The functions of a node to lower, or None for any other node, such as a call to keep.

        `function` contains the node; None is the graph itself.
        """
        kind = self._kinds.get(node.op)
        if kind is None:
            kind = self._kinds[node.op] = functional_kind(node.op, self.instances)
        if not kind or (kind == "call" and self._is_excluded(node)):
            return None
        location = node.name if function is None else f"{function.name}/{node.name}"
        if kind not in self.selection.kinds or not self.selection.includes(node, function):
            return None
        try:
            functional_node = read_functional_node(node, self.instances)
        except InvalidInput as error:
            error.node = error.node or location
            raise
        _require_target(node, functional_node, location)
        return functional_node

    def _is_excluded(self, node: Node) -> bool:
        """True for a call that stays a call."""
        if isinstance(self.keep_calls, bool):
            return self.keep_calls
        called = node.attrs.get("f")
        return (called.name if isinstance(called, Func) else node.op) in self.keep_calls

    def _summarize(self, start: FunctionGraph, caller: Node) -> None:
        """Summarize a function, after the functions that it calls."""
        if start in self.summaries:
            return
        path: dict[str, None] = {start.name: None}
        trail = [(start, self._body(start))]
        pending = [_called_by(trail[0][1])]
        while trail:
            for function in pending[-1]:
                if function in self.summaries:
                    continue
                if function.name in path:
                    raise _recursion_error([*path], function.name, caller)
                path[function.name] = None
                trail.append((function, self._body(function)))
                pending.append(_called_by(trail[-1][1]))
                break
            else:
                function, functional_nodes = trail.pop()
                pending.pop()
                del path[function.name]
                check_deadline()
                self.summaries[function] = summarize_function(
                    function, functional_nodes, self.summaries, self.instances.library
                )

    def _body(self, function: FunctionGraph) -> dict[Node, FunctionalNode]:
        """The functional nodes of a function."""
        nodes = {node: self._functional_node(node, function) for node in function.graph}
        return {
            node: functional_node
            for node, functional_node in nodes.items()
            if functional_node is not None
        }


def _expanded(
    functional_nodes: Mapping[Node, FunctionalNode], counts: Mapping[FunctionGraph, int]
) -> int:
    """The number of nodes that functional nodes expand to."""
    return sum(
        counts[function] for node in functional_nodes.values() for function in node.functions
    )


def _called_by(functional_nodes: dict[Node, FunctionalNode]) -> Iterator[FunctionGraph]:
    return (
        function
        for functional_node in functional_nodes.values()
        for function in functional_node.functions
    )


def _recursion_error(path: list[str], name: str, caller: Node) -> Unsupported:
    chain = [*path[path.index(name) :], name]
    shown = " → ".join(chain if len(chain) <= 12 else [*chain[:6], "…", *chain[-6:]])
    message = f"function {name!r} calls itself: {shown}"
    hint = "recursion has no finite lowered form; rewrite it as a While"
    return Unsupported(message, node=caller, hint=hint, code="CFG134")


def _require_target(node: Node, functional_node: FunctionalNode, location: str) -> None:
    """Raise Unsupported for a RemoteCall whose device is not a constant."""
    if (
        functional_node.kind == "call"
        and functional_node.first_argument
        and remote_target(node) is None
    ):
        message = f"the target device of {node.op} is computed, expected a constant"
        raise Unsupported(message, node=location, code="CFG410")


def remote_target(node: Node) -> str | None:
    """The device that input 0 of a RemoteCall names, or None if it is not a constant."""
    value = constant_value(node.inputs[0])
    if value is None or value.size != 1:
        return None
    text = value.reshape(-1)[0]
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else None


def constant_value(output: Output) -> Any:
    """The array of a Const, also through Identity nodes, or None for any other node."""
    node = output.node
    while (op := lookup(node.op)) is not None and issubclass(op, Identity):
        node = node.inputs[0].node
    if node.op == ARG_OP or op is None or not issubclass(op, Const):
        return None
    return node.attr("value").array
