"""Lower conditionals, loops and calls to Switch, Merge, Enter, Exit and NextIteration.

The outermost functional node is lowered first; the functional nodes in its functions are then
lowered in place, using an explicit stack, so that nesting depth costs no recursion. `lower_cond`,
`lower_while` and `inline` show the lowered forms. Afterwards unread nodes are removed, colocation
with missing nodes is dropped, and the new nodes are moved to the position of the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from cfgraph.errors import Unsupported
from cfgraph.ir.colocation import COLOCATION_ATTR, colocated_name, without_groups
from cfgraph.ir.function_graph import FunctionGraphs
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import called_functions, remove_uncalled_functions
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import topological_order
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.op import calls_functions, lookup
from cfgraph.passes.lower.functional_node import CallSite, InlineScope
from cfgraph.passes.lower.inline import lower_call
from cfgraph.passes.lower.lower_cond import lower_conditional
from cfgraph.passes.lower.lower_while import lower_for, lower_while
from cfgraph.passes.lower.plan import LoweringPlan, LoweringSelection
from cfgraph.passes.lower.rewriter import Rewriter
from cfgraph.passes.outcome import Report, op_counts


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


def lower_graph(
    graph: Graph,
    functions: Iterable[str] | None = None,
    keep_calls: bool | Collection[str] = False,
    *,
    called: Collection[str] | None = None,
    bodies: FunctionGraphs | None = None,
) -> Report:
    """Lower a valid graph without symbolic gradients; functions that are not in `called` stay.

    `bodies` are the functions that are known as graphs. Raises Unsupported for a node without a
    lowered form; the graph may be changed then.
    """
    before = op_counts(graph)
    if functions is None and not calls_functions(graph):
        return Report(before=before, after=before)
    called = called_functions(graph) if called is None else called
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
    graph: Graph, plan: LoweringPlan, called: Collection[str], before: Mapping[str, int]
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
    remove_uncalled_functions(graph, graph.functions.keys() - set(called))
    warnings = tuple(plan.warnings())
    plan.instances.clear()
    return Report(rewriter.lowered, _new_names(groups), warnings, before, op_counts(graph))


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
