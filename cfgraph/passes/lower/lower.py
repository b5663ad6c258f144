"""Lower conditionals, loops and calls to Switch, Merge, Enter, Exit and NextIteration.

The outermost functional node is lowered first; the functional nodes in its functions are then
lowered in place, using an explicit stack, so that nesting depth costs no recursion. `lower_cond`,
`lower_while` and `inline` show the lowered forms. Afterwards unread nodes are removed, colocation
with missing nodes is dropped, and the new nodes are moved to the position of the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from cfgraph.analysis.verify.verify import require_valid
from cfgraph.errors import Unsupported
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import called_functions, remove_uncalled_functions
from cfgraph.ir.role import Role
from cfgraph.ir.topological_order import OpRoles, topological_order
from cfgraph.ops.opdef.op import lookup
from cfgraph.passes.gradients.function_gradients import expand_symbolic_gradients
from cfgraph.passes.lower.functional_node import CallSite, InlineScope
from cfgraph.passes.lower.inline import COLOCATION_PREFIX, lower_call
from cfgraph.passes.lower.lower_cond import lower_conditional
from cfgraph.passes.lower.lower_for import lower_for
from cfgraph.passes.lower.lower_while import lower_while
from cfgraph.passes.lower.plan import LoweringPlan
from cfgraph.passes.lower.rewriter import Rewriter
from cfgraph.passes.report import Report, op_counts


def remove_unread(graph: Graph, made: Iterable[Node]) -> None:
    """Remove what lowering made and nobody reads, and what only that read; effects stay."""
    candidates = {node: None for node in made if graph.nodes.get(node.name) is node}
    todo = [node for node in candidates if _is_unused(node)]
    while todo:
        node = todo.pop()
        sources = dict.fromkeys([*(item.node for item in node.inputs), *node.controls])
        del candidates[node]
        graph.remove(node)
        todo.extend(n for n in sources if n in candidates and _is_unused(n))


def _is_unused(node: Node) -> bool:
    op = lookup(node.op)
    return not node.uses and op is not None and not op.effects.stateful


def drop_dangling_colocation(graph: Graph, made: Iterable[Node]) -> None:
    """Drop from what lowering made the wish to be beside a node that is not there."""
    for node in made:
        groups = node.attrs.get("_class")
        if not isinstance(groups, tuple):
            continue
        kept = tuple(group for group in groups if not _is_dangling(graph, group))
        if not kept:
            del node.attrs["_class"]
        elif kept != groups:
            graph.set_attr(node, "_class", kept)


def _is_dangling(graph: Graph, group: Any) -> bool:
    if not isinstance(group, bytes) or not group.startswith(COLOCATION_PREFIX):
        return False
    return group[len(COLOCATION_PREFIX) :].decode("utf-8", "replace") not in graph.nodes


def restore_order(graph: Graph, groups: Mapping[Node, list[Node]]) -> None:
    """Let what was made for a node stand where the node stood, sources first."""
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
) -> Report:
    """Replace functional nodes by the primitives of control flow, in place.

    `functions` restricts it to the nodes that run one of these functions, with all that is in
    them; `keep_calls` leaves calls as they are, or those of some functions. The names of lowered
    nodes can be fetched and run as before. Functions that nothing calls any more leave the library.

    Raises InvalidInput for a graph that is not valid, UsageError for a function that does not
    exist, Unsupported for what has no lowered form; the graph is unchanged then.
    """
    require_valid(graph)
    with paused_gc():
        report = _lower_graph(graph, functions, keep_calls)
    if report:
        require_valid(graph)
    return report


def _lower_graph(
    graph: Graph,
    functions: Iterable[str] | None,
    keep_calls: bool | Collection[str],
    within: frozenset[str] = frozenset(),
) -> Report:
    before = op_counts(graph)
    called = called_functions(graph)
    called.update(expand_symbolic_gradients(graph, _lower_body, within))
    survey = LoweringPlan(graph, functions, keep_calls)
    if not survey.functional_nodes:
        return Report(before=before, after=before)
    _require_unpartitioned(graph)
    work = Rewriter(graph, survey)
    for node, sources in survey.held.items():
        graph.set_controls(node, [*node.controls, *sources])
    groups = {node: _lower_node(work, node) for node in survey.functional_nodes}
    remove_unread(graph, [node for group in groups.values() for node in group])
    for group in groups.values():
        group[:] = [node for node in group if graph.nodes.get(node.name) is node]
    drop_dangling_colocation(graph, [node for group in groups.values() for node in group])
    restore_order(graph, groups)
    remove_uncalled_functions(
        graph, graph.functions.keys() - called
    )  # what was not called before stays
    warnings = tuple(survey.warnings())
    return Report(work.lowered, _new_names(groups), warnings, before, op_counts(graph))


def _lower_body(graph: Graph, within: frozenset[str], keep_calls: frozenset[str]) -> Report:
    """Lower the body of a function, to differentiate it."""
    require_valid(graph)
    return _lower_graph(graph, None, keep_calls, within)


def _lower_node(work: Rewriter, node: Node) -> list[Node]:
    """Lower one node of the graph with all that is in it; the nodes made for it."""
    work.made = []
    construct, guarded = work.plan.functional_nodes[node], node in work.plan.guarded
    work.push([CallSite(node, construct, InlineScope(), True, guarded)])
    while work.stack:
        site = work.open()
        _LOWERINGS[site.functional_node.kind](work, site)
    return work.made


def _require_unpartitioned(graph: Graph) -> None:
    """A partitioned graph is not lowered: what crosses devices would be cut in the wrong place."""
    roles = OpRoles()
    for node in graph:
        if roles[node.op] in (Role.SEND, Role.RECV):
            message = "the graph is partitioned already"
            hint = "lower it before it is partitioned"
            raise Unsupported(message, node=node, hint=hint, code="CFG411")


def _new_names(groups: dict[Node, list[Node]]) -> dict[str, tuple[str, ...]]:
    """What became of the lowered nodes, and of their outputs."""
    found: dict[str, tuple[str, ...]] = {}
    for node, group in groups.items():
        found[node.name] = (*(made.name for made in group), node.name)
        outputs = node.inputs if node.op == "IdentityN" else (node.output(),)
        for port, item in enumerate(() if node.op == "NoOp" else outputs):
            found[f"{node.name}:{port}"] = (item.name,)
    return found
