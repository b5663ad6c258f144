"""Bodies of functions: each is optimized like a graph whose outputs are fetched.

Arguments, returned nodes, and stateful nodes stay. A function whose types depend on attributes of
its caller, or with ops of unknown signature, is left unchanged.
"""

from __future__ import annotations

from collections.abc import Callable

from cfgraph.errors import InvalidInput, Unsupported
from cfgraph.ir.function_graph import FunctionGraph, instantiate, is_polymorphic
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import with_body
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.op import has_effect, lookup
from cfgraph.passes.optimize.rewriting import FixedNodes, KeptLoop, Rewrite, RewriteContext


def optimize_functions(
    graph: Graph, apply: Callable[[RewriteContext], None], kept: list[KeptLoop]
) -> list[Rewrite]:
    """Apply rules to the bodies of all functions; returns their rewrites, and adds to `kept`."""
    rewrites: list[Rewrite] = []
    for name, function in list(graph.functions.items()):
        check_deadline()
        body = _body(graph, function)
        if body is None:
            continue
        context = RewriteContext(body.graph, _fixed_nodes(body), name, graph.functions)
        apply(context)
        kept += context.kept_loops
        if context.rewrites:
            graph.functions[name] = with_body(function, body, graph.functions)
            rewrites += context.rewrites
    return rewrites


def _body(graph: Graph, function: Function) -> FunctionGraph | None:
    """The body of a function as a graph, or None if it is not optimized."""
    if is_polymorphic(function):
        return None
    try:
        body = instantiate(function, {}, graph.functions)
    except (InvalidInput, Unsupported):
        return None
    known = all(lookup(node.op) or node.op in graph.functions for node in body.graph)
    return body if known else None


def _fixed_nodes(body: FunctionGraph) -> FixedNodes:
    effects = {node for node in body.graph if has_effect(node)}
    returned = {tensor.node for tensor in body.returns}
    named = frozenset({*body.arguments, *returned, *body.control_returns})
    return FixedNodes(named | effects, frozenset(), named)
