"""Calls of functions that have a registered gradient function in the library.

Such a call is differentiated before it is lowered: its gradient is a call of the gradient function
with the arguments of the call and the gradients of its results.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from typing import Final

from cfgraph.ir import registry
from cfgraph.ir.attrs import Func
from cfgraph.ir.function_graph import FunctionInstances
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import called_functions
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients

CALL_OP: Final = "StatefulPartitionedCall"


def called_functions_with_gradient(graph: Graph) -> frozenset[str]:
    """The functions that a graph runs, directly or not, and that have a gradient in the library."""
    if not graph.gradient_functions:
        return frozenset()
    return frozenset(called_functions(graph) & graph.gradient_functions.keys())


def rewrite_as_calls(graph: Graph, functions: Container[str]) -> None:
    """Write nodes whose op is one of some functions as calls, which say their types."""
    instances = FunctionInstances(graph.functions)
    for node in graph:
        if node.op not in functions:
            continue
        body = instances.get(node.op, node.attrs)
        attrs = {
            "Tin": body.input_types,
            "Tout": body.output_types,
            "f": Func(node.op, dict(node.attrs)),
        }
        graph.set_op(node, CALL_OP, attrs)


def call_gradient(graph: Graph, node: Node) -> Callable[..., InputGradients] | None:
    """The gradient hook of a call; None for any other node."""
    called = node.attrs.get("f")
    if not isinstance(called, Func) or called.name not in graph.gradient_functions:
        return None
    return partial(_call_gradient_function, graph.gradient_functions[called.name])


def _call_gradient_function(
    name: str, g: GradientBuilder, node: Node, *grads: Output | None
) -> InputGradients:
    """Call the gradient function."""
    given = [g.zeros_like(node.output(port)) if dy is None else dy for port, dy in enumerate(grads)]
    types = tuple(registry.input_types(node) or ())
    call = g.StatefulPartitionedCall(*node.inputs, *given, Tout=types, f=Func(name)).node
    return [
        call.output(place) if dtype.is_differentiable else None for place, dtype in enumerate(types)
    ]
