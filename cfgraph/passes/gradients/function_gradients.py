"""Gradients of functions: calls with a registered gradient, and SymbolicGradient.

    SymbolicGradient(x, dy, f=@f)   ──▶   Call(x, dy, f=@f_gradient)

The gradient function is the one registered in the library; without one, the body of the function is
lowered and differentiated, and the result becomes a new function. A call of a function that has a
registered gradient is differentiated before it is lowered: its gradient is a call of the gradient
function with the arguments of the call and the gradients of its results.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cfgraph.analysis.verify.verify import require_valid
from cfgraph.errors import Unsupported
from cfgraph.ir.attrs import AttrPlaceholder, Func
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances, instantiate
from cfgraph.ir.functions import BodyNode, Function, FunctionDefinition
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import called_functions, function_from_nodes, remove_uncalled_functions
from cfgraph.ir.names import unused_name
from cfgraph.ops.opdef.op import function_calls
from cfgraph.ops.opdef.random_streams import stream_annotations
from cfgraph.passes.gradients.loop_gradient import reverse_loop
from cfgraph.passes.gradients.reverse import GradientRequest, differentiate
from cfgraph.passes.lower.lower import lower_graph

CALL_OP: Final = "StatefulPartitionedCall"


@dataclass(frozen=True, slots=True)
class FunctionsInProgress:
    """The functions that are being differentiated, and the definitions of gradients known so far.

    Gradients are known by function and attributes, so that a chain of functions that contain
    gradients of the next one takes linear time.
    """

    names: frozenset[str] = frozenset()
    known: dict[Any, FunctionDefinition] = field(default_factory=dict)


def called_functions_with_gradient(graph: Graph) -> frozenset[str]:
    """The functions that a graph calls, directly or not, and that have a registered gradient."""
    if not graph.gradient_functions:
        return frozenset()
    return frozenset(called_functions(graph) & graph.gradient_functions.keys())


def rewrite_as_calls(graph: Graph, functions: Container[str]) -> None:
    """Rewrite nodes whose op is one of `functions` as calls, which have type attributes."""
    instances = FunctionInstances(graph.functions)
    for node in graph:
        if node.op not in functions:
            continue
        body = instances.get(node.op, node.attrs)
        attrs = {
            "Tin": body.input_types,
            "Tout": body.output_types,
            "f": Func(node.op, dict(node.attrs)),
            **stream_annotations(node),
        }
        graph.set_op(node, CALL_OP, attrs)


def expand_symbolic_gradients(
    graph: Graph, within: FunctionsInProgress | None = None
) -> Iterable[str]:
    """Replace every SymbolicGradient of a graph and its functions, in place; return the new
    functions.

    `within` names the functions that are being differentiated. Raises Unsupported if a function
    cannot be differentiated, with the graph unchanged.
    """
    writer = _GradientFunctions(graph, within or FunctionsInProgress())
    symbolic = {op for op in graph.ops if _is_symbolic_gradient(op)}
    nodes = [
        (node, writer.call(node.name, node.attrs) | stream_annotations(node))
        for node in graph
        if node.op in symbolic
    ]
    called = called_functions(graph)
    bodies = {name: writer.expanded(graph.functions[name]) for name in sorted(called)}
    changed = {name: function for name, function in bodies.items() if function is not None}
    for node, attrs in nodes:
        graph.set_op(node, CALL_OP, attrs)
    graph.functions.update(changed)
    graph.functions.update(writer.added)
    return writer.added


def _is_symbolic_gradient(op: str) -> bool:
    return function_calls(op).kind == "gradient"


class _GradientFunctions:
    """The gradient functions that are added, each once."""

    def __init__(self, graph: Graph, within: FunctionsInProgress) -> None:
        self.graph = graph
        self.within = within
        self.added: dict[str, Function] = {}
        self._names: dict[Any, str] = {}

    def expanded(self, function: Function) -> Function | None:
        """A function with its symbolic gradients replaced, or None if it has none."""
        definition = function.definition
        if not any(_is_symbolic_gradient(node.op) for node in definition.nodes):
            return None
        nodes = tuple(self._expanded_node(function.name, node) for node in definition.nodes)
        return Function(function.name, replace(definition, nodes=nodes))

    def _expanded_node(self, location: str, node: BodyNode) -> BodyNode:
        if not _is_symbolic_gradient(node.op):
            return node
        attrs = self.call(f"{location}/{node.name}", node.attrs) | stream_annotations(node)
        return BodyNode(node.name, CALL_OP, node.inputs, node.device, attrs)

    def call(self, location: str, attrs: Any) -> dict[str, Any]:
        """The attributes of the call that replaces a SymbolicGradient."""
        called = attrs["f"]
        if any(isinstance(value, AttrPlaceholder) for value in called.attrs.values()):
            message = f"type attributes of the function {called.name!r} are placeholders"
            raise Unsupported(message, node=location, code="CFG501")
        registered = self.graph.gradient_functions.get(called.name)
        name = registered or self._gradient_name(called)
        return {"Tin": attrs["Tin"], "Tout": attrs["Tout"], "f": Func(name)}

    def _gradient_name(self, called: Func) -> str:
        """Add the gradient function of a function; return its name."""
        if called.name in self.within.names:
            message = f"the function {called.name!r} contains its own gradient"
            raise Unsupported(message, node=called.name, code="CFG501")
        key = (called.name, tuple(sorted((k, str(v)) for k, v in called.attrs.items())))
        if key not in self._names:
            name = unused_name(f"{called.name}_gradient", self.graph.functions, self.added)
            self._names[key] = name
            known = self.within.known
            if key not in known:
                body = instantiate(
                    self.graph.functions[called.name], called.attrs, self.graph.functions
                )
                known[key] = self._gradient_function(name, called.name, body).definition
            self.added[name] = Function(name, known[key])
        return self._names[key]

    def _gradient_function(self, name: str, function: str, body: FunctionGraph) -> Function:
        graph = body.graph
        graph.functions = dict(self.graph.functions)
        graph.gradient_functions = dict(self.graph.gradient_functions)
        graph.registered_gradients = self.graph.registered_gradients
        remove_uncalled_functions(graph)
        arguments = [node.name for node in body.arguments]
        returns = [graph.add("Identity", x, name="output") for x in body.returns]
        outputs = [node.name for node in returns]
        with_gradient = called_functions_with_gradient(graph)
        within = replace(self.within, names=self.within.names | {function})
        require_valid(graph)
        called = {*called_functions(graph), *expand_symbolic_gradients(graph, within)}
        lower_graph(graph, keep_calls=with_gradient, called=called)
        rewrite_as_calls(graph, graph.gradient_functions)
        weights = [
            graph.add("Placeholder", name="weight", dtype=dtype) for dtype in body.output_types
        ]
        xs = [graph[argument].output() for argument in arguments]
        ys = [graph[output].output() for output in outputs]
        upstream = [node.output() for node in weights]
        request = GradientRequest(ys, xs, upstream, zeros=xs, function=function)
        gradients = differentiate(graph, request, reverse_loop)
        results = {
            f"gradient_{index}": dx or graph.add("ZerosLike", x, name="zeros").output()
            for index, (x, dx) in enumerate(zip(xs, gradients, strict=True))
        }
        inputs = {x.node.name: x for x in (*xs, *(node.output() for node in weights))}
        return function_from_nodes(name, graph, inputs, results, library=graph.functions)
