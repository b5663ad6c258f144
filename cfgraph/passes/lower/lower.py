"""Lower conditionals, loops and calls to Switch, Merge, Enter, Exit and NextIteration.

The outermost functional node is lowered first; the functional nodes in its functions are then
lowered in place, using an explicit stack, so that nesting depth costs no recursion. `lower_cond`,
`lower_while` and `inline` show the lowered forms. Afterwards unread nodes are removed, colocation
with missing nodes is dropped, and the new nodes are moved to the position of the old one.

With `unfuse`, fused ops are replaced by the ops that they stand for. The last op of the chain takes
the name of the fused one, so that fetches still work:

    y = _FusedMatMul(a, b, bias)          y/MatMul = MatMul(a, b)
          fused_ops=[BiasAdd, Relu]  ->   y/BiasAdd = BiasAdd(y/MatMul, bias)
                                          y = Relu(y/BiasAdd)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Final

from cfgraph.analysis.verify.verify import require_valid, require_valid_result
from cfgraph.errors import Unsupported
from cfgraph.ir.colocation import COLOCATION_ATTR, colocated_name, without_groups
from cfgraph.ir.function_graph import FunctionGraphs, is_polymorphic
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import called_functions, remove_uncalled_functions
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import topological_order
from cfgraph.limits import check_deadline
from cfgraph.ops.families.fused import FusedOp
from cfgraph.ops.opdef.op import OpError, calls_functions, lookup
from cfgraph.passes.gradients.function_gradients import (
    FunctionsInProgress,
    expand_symbolic_gradients,
)
from cfgraph.passes.lower.functional_node import CallSite, InlineScope
from cfgraph.passes.lower.inline import lower_call
from cfgraph.passes.lower.lower_cond import lower_conditional
from cfgraph.passes.lower.lower_while import lower_for, lower_while
from cfgraph.passes.lower.plan import LoweringPlan, LoweringSelection
from cfgraph.passes.lower.rewriter import Rewriter
from cfgraph.passes.outcome import Report, op_counts, unchanged_on_error
from cfgraph.stack_position import LOCATORS, pass_position


def remove_unread(graph: Graph, added: Iterable[Node]) -> None:
    """Remove added nodes that nothing reads, repeatedly; nodes with effects stay."""
    candidates = dict.fromkeys(added)
    graph.remove_unread(candidates, lambda node: node in candidates and not _is_stateful(node))


def _is_stateful(node: Node) -> bool:
    op = lookup(node.op)
    return op is None or op.effects.stateful


def drop_dangling_colocation(graph: Graph, added: Iterable[Node]) -> None:
    """Drop colocation constraints of added nodes that name a missing node."""
    for node in added:
        groups = node.attrs.get(COLOCATION_ATTR)
        if not isinstance(groups, tuple):
            continue
        present = tuple(group for group in groups if not _is_dangling(graph, group))
        if not present:
            node.attrs = without_groups(node.attrs)
        elif present != groups:
            graph.set_attr(node, COLOCATION_ATTR, present)


def _is_dangling(graph: Graph, group: Any) -> bool:
    name = colocated_name(group)
    return name is not None and name not in graph.nodes


def restore_order(graph: Graph, groups: Mapping[Node, list[Node]]) -> None:
    """Move the nodes added for a node to its position, sources first."""
    inserted = {node for group in groups.values() for node in group}
    order: list[Node] = []
    for node in graph:
        if node in groups:
            order.extend(topological_order([*groups[node], node]).nodes)
        elif node not in inserted:
            order.append(node)
    graph.reorder(order)


_LOWERINGS: Final[dict[str, Callable[[Rewriter, CallSite], None]]] = {
    "if": lower_conditional,
    "case": lower_conditional,
    "while": lower_while,
    "for": lower_for,
    "call": lower_call,
}


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
        report = _lower_graph(graph, functions, keep_calls, bodies=bodies)
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


def _lower_graph(
    graph: Graph,
    functions: Iterable[str] | None,
    keep_calls: bool | Collection[str],
    within: FunctionsInProgress | None = None,
    bodies: FunctionGraphs | None = None,
) -> Report:
    before = op_counts(graph)
    called = called_functions(graph)
    called.update(expand_symbolic_gradients(graph, _lower_body, within or FunctionsInProgress()))
    if functions is None and not calls_functions(graph):
        return Report(before=before, after=before)
    return _apply_plan(graph, LoweringPlan(graph, functions, keep_calls, bodies), called, before)


def inline_calls(graph: Graph, nodes: Iterable[Node] | None = None) -> Report:
    """Replace function calls by the bodies of the functions, in place.

    All calls are replaced, also those in other calls, or only these `nodes`. Functional
    conditionals and loops stay. Raises InvalidInput for an inconsistent function, Unsupported for a
    recursive one; the graph may be changed then.
    """
    chosen = None if nodes is None else frozenset(nodes)
    plan = LoweringPlan(
        graph, None, False, selection=LoweringSelection(frozenset({"call"}), chosen)
    )
    return _apply_plan(graph, plan, called_functions(graph), op_counts(graph))


def _apply_plan(
    graph: Graph, plan: LoweringPlan, called: set[str], before: Mapping[str, int]
) -> Report:
    if not plan.functional_nodes:
        return Report(before=before, after=before)
    _require_unpartitioned(graph)
    rewriter = Rewriter(graph, plan)
    for node, sources in plan.awaited_inputs.items():
        graph.set_controls(node, [*node.controls, *sources])
    groups = {node: _lower_node(rewriter, node) for node in plan.functional_nodes}
    rewriter.close_readers()
    remove_unread(graph, [node for group in groups.values() for node in group])
    for group in groups.values():
        group[:] = [node for node in group if graph.nodes.get(node.name) is node]
    drop_dangling_colocation(graph, [node for group in groups.values() for node in group])
    restore_order(graph, groups)
    # functions that were not called before lowering stay
    remove_uncalled_functions(graph, graph.functions.keys() - called)
    warnings = tuple(plan.warnings())
    plan.instances.clear()
    return Report(rewriter.lowered, _new_names(groups), warnings, before, op_counts(graph))


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


def _lower_body(graph: Graph, within: FunctionsInProgress, keep_calls: frozenset[str]) -> Report:
    """Lower the body of a function that is to be differentiated."""
    require_valid(graph)
    return _lower_graph(graph, None, keep_calls, within)


def _lower_node(rewriter: Rewriter, node: Node) -> list[Node]:
    """Lower one node of the graph and the nodes in its functions; the added nodes."""
    rewriter.added = []
    functional_node, is_guarded = (
        rewriter.plan.functional_nodes[node],
        node in rewriter.plan.guarded_nodes,
    )
    rewriter.push([CallSite(node, functional_node, InlineScope(), True, is_guarded)])
    while rewriter.stack:
        check_deadline()
        site = rewriter.next_site()
        _LOWERINGS[site.functional_node.kind](rewriter, site)
    return rewriter.added


def _require_unpartitioned(graph: Graph) -> None:
    """Raise Unsupported for a partitioned graph, whose transfers would no longer match."""
    for node in graph:
        if ROLES[node.op] in (Role.SEND, Role.RECV):
            message = "the graph is already partitioned"
            hint = "lower it before partitioning"
            raise Unsupported(message, node=node, hint=hint, code="CFG411")


def _new_names(groups: dict[Node, list[Node]]) -> dict[str, tuple[str, ...]]:
    """For lowered nodes the added nodes; for their outputs the tensors that replace them."""
    names: dict[str, tuple[str, ...]] = {}
    for node, group in groups.items():
        names[node.name] = (*(added.name for added in group), node.name)
        outputs = node.inputs if node.op == "IdentityN" else (node.output(),)
        for port, x in enumerate(() if node.op == "NoOp" else outputs):
            names[f"{node.name}:{port}"] = (x.name,)
    return names


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
    except OpError as error:
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
