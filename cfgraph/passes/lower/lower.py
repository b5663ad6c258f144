"""Lower conditionals, loops and calls to Switch, Merge, Enter, Exit and NextIteration.

The outermost construct comes first; what its functions hold is lowered in its place, with a stack
of its own, so that depth costs no recursion. How each is lowered is drawn in `conditionals`,
`loop` and `calls`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from cfgraph.analysis.verify.verify import require_valid
from cfgraph.errors import Unsupported
from cfgraph.ir.calls import called_functions, drop_uncalled
from cfgraph.ir.collector import without_collector
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.walk import Roles
from cfgraph.passes.lower.calls import lower_call
from cfgraph.passes.lower.conditionals import lower_conditional
from cfgraph.passes.lower.counted import lower_for
from cfgraph.passes.lower.loops import lower_while
from cfgraph.passes.lower.rewriter import Rewriter
from cfgraph.passes.lower.scope import Scope, Site
from cfgraph.passes.lower.survey import Survey
from cfgraph.passes.lower.symbolic import write_out_gradients
from cfgraph.passes.lower.tidy import (
    forget_missing_neighbours,
    put_in_order,
    remove_unread,
)
from cfgraph.passes.report import Report, op_counts

_LOWER: Final[dict[str, Callable[[Rewriter, Site], None]]] = {
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
    with without_collector():
        report = _lower(graph, functions, keep_calls)
    if report:
        require_valid(graph)
    return report


def _lower(
    graph: Graph,
    functions: Iterable[str] | None,
    keep_calls: bool | Collection[str],
    within: frozenset[str] = frozenset(),
) -> Report:
    before = op_counts(graph)
    called = called_functions(graph)
    called.update(write_out_gradients(graph, _lower_body, within))
    survey = Survey(graph, functions, keep_calls)
    if not survey.constructs:
        return Report(before=before, after=before)
    _require_whole(graph)
    work = Rewriter(graph, survey)
    for node, sources in survey.held.items():
        graph.set_controls(node, [*node.controls, *sources])
    groups = {node: _lower_all(work, node) for node in survey.constructs}
    remove_unread(graph, [node for group in groups.values() for node in group])
    for group in groups.values():
        group[:] = [node for node in group if graph.nodes.get(node.name) is node]
    forget_missing_neighbours(graph, [node for group in groups.values() for node in group])
    put_in_order(graph, groups)
    drop_uncalled(graph, graph.functions.keys() - called)  # what was not called before stays
    warnings = tuple(survey.warnings())
    return Report(work.lowered, _names(groups), warnings, before, op_counts(graph))


def _lower_body(graph: Graph, within: frozenset[str], keep_calls: frozenset[str]) -> Report:
    """Lower the body of a function, to differentiate it."""
    require_valid(graph)
    return _lower(graph, None, keep_calls, within)


def _lower_all(work: Rewriter, node: Node) -> list[Node]:
    """Lower one node of the graph with all that is in it; the nodes made for it."""
    work.made = []
    construct, guarded = work.survey.constructs[node], node in work.survey.guarded
    work.push([Site(node, construct, Scope(), True, guarded)])
    while work.stack:
        site = work.open()
        _LOWER[site.construct.kind](work, site)
    return work.made


def _require_whole(graph: Graph) -> None:
    """A partitioned graph is not lowered: what crosses devices would be cut in the wrong place."""
    roles = Roles()
    for node in graph:
        if roles[node.op] in ("send", "recv"):
            message = "the graph is partitioned already"
            hint = "lower it before it is partitioned"
            raise Unsupported(message, node=node, hint=hint, code="CFG411")


def _names(groups: dict[Node, list[Node]]) -> dict[str, tuple[str, ...]]:
    """What became of the lowered nodes, and of their outputs."""
    found: dict[str, tuple[str, ...]] = {}
    for node, group in groups.items():
        found[node.name] = (*(made.name for made in group), node.name)
        outputs = node.inputs if node.op == "IdentityN" else (node.output(),)
        for port, item in enumerate(() if node.op == "NoOp" else outputs):
            found[f"{node.name}:{port}"] = (item.name,)
    return found
