"""Expand SymbolicGradient into a call of a gradient function.

    SymbolicGradient(x, dy, f=@f)   ──▶   Call(x, dy, f=@f_gradient)

The gradient function is the one registered in the library; without one, the body of the function is
lowered and differentiated, and the result becomes a new function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from cfgraph.errors import Unsupported
from cfgraph.ir.attrs import AttrPlaceholder, Func
from cfgraph.ir.function_graph import FunctionGraph, instantiate
from cfgraph.ir.functions import BodyNode, Function
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.library import called_functions, function_from_nodes, remove_uncalled_functions
from cfgraph.ops.opdef.op import function_calls
from cfgraph.passes.gradients.differentiate import GradientRequest, differentiate
from cfgraph.passes.gradients.function_gradients import (
    called_functions_with_gradient,
    rewrite_as_calls,
)

# lowers the body of a function, inside of the functions of these names; keeps calls of others
LowerBody = Callable[[Graph, frozenset[str], frozenset[str]], object]
_CALL = "StatefulPartitionedCall"


def expand_symbolic_gradients(
    graph: Graph, lower: LowerBody, within: frozenset[str]
) -> Iterable[str]:
    """Replace every SymbolicGradient of a graph and what it calls, in place; the functions made.

    `lower` lowers the body of a function; `within` names those that are being differentiated.
    Raises Unsupported where a function cannot be differentiated; the graph is unchanged then.
    """
    work = _SymbolicGradients(graph, lower, within)
    named = {op for op in graph.ops if _is_symbolic_gradient(op)}
    nodes = [(node, work.call(node.name, node.attrs)) for node in graph if node.op in named]
    called = called_functions(graph)
    bodies = {name: work.body(graph.functions[name]) for name in sorted(called)}
    changed = {name: found for name, found in bodies.items() if found is not None}
    for node, attrs in nodes:
        graph.set_op(node, _CALL, attrs)
    graph.functions.update(changed)
    graph.functions.update(work.made)
    return work.made


def _is_symbolic_gradient(op: str) -> bool:
    return function_calls(op).kind == "gradient"


class _SymbolicGradients:
    """The functions that are made, each once."""

    def __init__(self, graph: Graph, lower: LowerBody, within: frozenset[str]) -> None:
        self.graph = graph
        self.lower = lower
        self.within = within
        self.made: dict[str, Function] = {}
        self._names: dict[Any, str] = {}

    def body(self, function: Function) -> Function | None:
        """A function with its gradients written out; None if it has none."""
        definition = function.definition
        if not any(_is_symbolic_gradient(node.op) for node in definition.nodes):
            return None
        nodes = tuple(self._node(function.name, node) for node in definition.nodes)
        return Function(function.name, replace(definition, nodes=nodes))

    def _node(self, where: str, node: BodyNode) -> BodyNode:
        if not _is_symbolic_gradient(node.op):
            return node
        attrs = self.call(f"{where}/{node.name}", node.attrs)
        return BodyNode(node.name, _CALL, node.inputs, node.device, attrs)

    def call(self, where: str, attrs: Any) -> dict[str, Any]:
        """The attributes of the call that a SymbolicGradient becomes."""
        called = attrs["f"]
        if any(isinstance(value, AttrPlaceholder) for value in called.attrs.values()):
            message = f"the function {called.name!r} takes types that are not known yet"
            raise Unsupported(message, node=where, code="CFG501")
        given = self.graph.gradient_functions.get(called.name)
        name = given or self._gradient(called)
        return {"Tin": attrs["Tin"], "Tout": attrs["Tout"], "f": Func(name)}

    def _gradient(self, called: Func) -> str:
        """The name of the function that is the gradient of another."""
        if called.name in self.within:
            message = f"the function {called.name!r} holds its own gradient"
            raise Unsupported(message, node=called.name, code="CFG501")
        key = (called.name, tuple(sorted((k, str(v)) for k, v in called.attrs.items())))
        if key not in self._names:
            name, number = f"{called.name}_gradient", 0
            while name in self.graph.functions or name in self.made:
                number += 1
                name = f"{called.name}_gradient_{number}"
            self._names[key] = name
            body = instantiate(
                self.graph.functions[called.name], called.attrs, self.graph.functions
            )
            self.made[name] = self._gradient_function(name, called.name, body)
        return self._names[key]

    def _gradient_function(self, name: str, of: str, body: FunctionGraph) -> Function:
        graph = body.graph
        graph.functions = dict(self.graph.functions)
        graph.gradient_functions = dict(self.graph.gradient_functions)
        remove_uncalled_functions(graph)
        arguments = [node.name for node in body.arguments]
        kept = [graph.add("Identity", item, name="output") for item in body.returns]
        outputs = [node.name for node in kept]
        self.lower(graph, self.within | {of}, called_functions_with_gradient(graph))
        rewrite_as_calls(graph, graph.gradient_functions)
        weights = [
            graph.add("Placeholder", name="weight", dtype=dtype) for dtype in body.output_types
        ]
        xs = [graph[item].output() for item in arguments]
        ys = [graph[item].output() for item in outputs]
        wish = GradientRequest(ys, xs, [node.output() for node in weights], zeros=xs)
        found = differentiate(graph, wish)
        results = {
            f"gradient_{place}": dx or _zeros_like(graph, x)
            for place, (x, dx) in enumerate(zip(xs, found, strict=True))
        }
        inputs = {item.node.name: item for item in (*xs, *(node.output() for node in weights))}
        return function_from_nodes(name, graph, inputs, results, library=graph.functions)


def _zeros_like(graph: Graph, x: Output) -> Output:
    return graph.add("ZerosLike", x, name="zeros").output()
