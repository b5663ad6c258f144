"""Lower a graph: functional nodes, symbolic gradients, and, with `unfuse`, fused ops.

The last op of the chain of a fused op takes its name, so that fetches still work:

    y = _FusedMatMul(a, b, bias)          y/MatMul = MatMul(a, b)
          fused_ops=[BiasAdd, Relu]  ->   y/BiasAdd = BiasAdd(y/MatMul, bias)
                                          y = Relu(y/BiasAdd)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from cfgraph.analysis.verify.verify import require_valid, require_valid_result
from cfgraph.errors import InvalidInput, Unsupported
from cfgraph.ir.function_graph import FunctionGraphs, is_polymorphic
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import called_functions
from cfgraph.ops.families.fused import FusedOp
from cfgraph.ops.opdef.op import OpError, function_calls, lookup
from cfgraph.passes.lower.lower import lower_graph, restore_order
from cfgraph.passes.outcome import Report, op_counts, unchanged_on_error
from cfgraph.stack_position import LOCATORS, pass_position

# late imports: the gradients, which few graphs contain as nodes


def lower(
    graph: Graph,
    *,
    functions: Iterable[str] | None = None,
    keep_calls: bool | Collection[str] = False,
    unfuse: bool = False,
) -> Report:
    """Replace functional nodes by the primitives of control flow, in place.

    Fetches and targets that name lowered nodes still work. Functions that are no longer called are
    removed from the library.

    Args:
        functions: lower only nodes that call one of these functions, and the nodes in them.
        keep_calls: leave function calls unchanged: all calls, or calls of these functions.
        unfuse: also replace fused ops, such as _FusedMatMul, by the ops that they stand for.

    Raises InvalidInput for an invalid graph, UsageError for an unknown function, Unsupported for a
    node without a lowered form; the graph is unchanged then.
    """
    bodies: FunctionGraphs = {}
    require_valid(graph, bodies)
    # a polymorphic function may have more bodies than are verified
    is_verified = not any(map(is_polymorphic, graph.functions.values()))
    # a graph without functions has nothing to lower
    guarded = bool(graph.functions) or unfuse
    with paused_gc(), unchanged_on_error(graph) if guarded else nullcontext():
        before, called = op_counts(graph), called_functions(graph)
        called |= _expand_symbolic_gradients(graph, called)
        lowered = lower_graph(graph, functions, keep_calls, called=called, bodies=bodies)
        report = replace(lowered, before=before)
        if unfuse:
            report = _with_unfused(graph, report)
        if report:
            _require_valid_result(graph, is_verified=is_verified)
    return report


LOCATORS[lower.__code__] = pass_position


def _require_valid_result(graph: Graph, *, is_verified: bool) -> None:
    """Raise InvalidResult for a fault of the pass, InvalidInput for one of the input."""
    if is_verified:
        require_valid_result(graph, "lower")
    else:
        require_valid(graph)


def _expand_symbolic_gradients(graph: Graph, called: Iterable[str]) -> set[str]:
    """Replace each SymbolicGradient by a call; return the functions that were added."""
    bodies = (graph.functions[name].definition.nodes for name in called)
    ops = {*graph.ops, *(node.op for nodes in bodies for node in nodes)}
    if not any(function_calls(op).kind == "gradient" for op in ops):
        return set()
    from cfgraph.passes.gradients.function_gradients import expand_symbolic_gradients

    return {*expand_symbolic_gradients(graph)}


def _with_unfused(graph: Graph, lowered: Report) -> Report:
    """Replace fused ops; the report of both rewrites."""
    groups, names = _unfuse_nodes(graph)
    restore_order(graph, groups)
    return replace(
        lowered,
        rewrites=lowered.rewrites + len(groups),
        names={**lowered.names, **names},
        after=op_counts(graph),
    )


def _unfuse_nodes(graph: Graph) -> tuple[dict[Node, list[Node]], dict[str, tuple[str, ...]]]:
    """Replace the fused ops of a graph, in place; those in functions stay.

    Returns the nodes added before each node, and the new names as in a Report. Raises Unsupported
    for a fused op that describes no chain.
    """
    names: dict[str, tuple[str, ...]] = {}
    fused = [node for node in graph if _fused_op(node) is not None]
    return {node: _unfuse_node(graph, node, names) for node in fused}, names


def _fused_op(node: Node) -> type[FusedOp] | None:
    op = lookup(node.op)
    return op if op is not None and issubclass(op, FusedOp) else None


def _unfuse_node(graph: Graph, node: Node, names: dict[str, tuple[str, ...]]) -> list[Node]:
    """Replace one node; the nodes added before it."""
    op = _fused_op(node)
    assert op is not None
    added: list[Node] = []

    def add(kind: str, *inputs: Output, **attrs: Any) -> Node:
        name = graph.unique_name(f"{node.name}/{kind}")
        made = graph.add(
            kind, *inputs, name=name, device=node.device, controls=node.controls, attrs=attrs
        )
        made.origin = node.origin
        added.append(made)
        return made

    try:
        outputs = list(op.unfused(add, node, node.inputs))
    except (OpError, InvalidInput) as error:
        raise Unsupported(error.message, node=node, code="CFG705") from error
    for port, output in enumerate(outputs[1:], 1):
        graph.replace_uses(node.output(port), output)
        names[f"{node.name}:{port}"] = (output.name,)
    last = outputs[0].node
    if last not in added or outputs[0].port or last in {x.node for x in outputs[1:]}:
        last = add("Identity", outputs[0])
    added.remove(last)
    kept = {key: value for key, value in node.attrs.items() if key.startswith("_")}
    inputs, attrs = list(last.inputs), {**dict(last.attrs), **kept}
    graph.remove(last)
    graph.set_inputs(node, inputs)
    graph.set_op(node, last.op, attrs)
    names[node.name] = (*(made.name for made in added), node.name)
    return added
