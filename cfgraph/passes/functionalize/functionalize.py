"""Turn lowered loops and conditionals into functional nodes: the inverse of `lower`.

Enter ▸ Merge ▸ Switch ▸ … ▸ Exit      becomes      While
Switch ▸ … ▸ Merge                     becomes      If
_SwitchN ▸ … ▸ Merge                   becomes      Case
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from cfgraph.analysis.deadness.deadness import Deadness, deadness
from cfgraph.analysis.liveness_rules import liveness_rule
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.verify.verify import require_valid, require_valid_result
from cfgraph.errors import UsageError
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.names import name_list
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import topological_order
from cfgraph.ops.opdef.op import lookup, role_of
from cfgraph.ops.shape_inference import infer_shapes
from cfgraph.passes.functionalize.converter_form import converter_form
from cfgraph.passes.functionalize.dead_fetches import DEAD_VALUES, DeadFetches
from cfgraph.passes.functionalize.decided_branches import DecidedBranches
from cfgraph.passes.functionalize.functionalizer import Functionalizer
from cfgraph.passes.functionalize.lists.tensor_lists import (
    FunctionalizedLists,
    functionalize_lists,
    has_lists,
)
from cfgraph.passes.functionalize.region_rules import RegionRules
from cfgraph.passes.functionalize.report import RegionReport
from cfgraph.passes.functionalize.unneeded_nodes import (
    always_has_value,
    dead_ends,
    drop_unneeded,
    drop_unread_primitives,
    remove_with_sources,
)
from cfgraph.passes.lower.lower import drop_dangling_colocation
from cfgraph.passes.outcome import Report, op_counts, unchanged_on_error
from cfgraph.stack_position import LOCATORS, pass_position

TENSOR_ARRAY_MODES: Final = ("lists", "keep")
TARGETS: Final = ("tensorflow", "converter")


@dataclass(frozen=True, slots=True)
class Functionalization(Report):
    """Report of `functionalize`: the regions, and the nodes dropped because nothing needs them.

    `resources` are the stacks and TensorArrays that did not become lists, with the reason.
    `has_target_edits` is true if functional nodes got the form of another target.
    """

    regions: tuple[RegionReport, ...] = ()
    dropped: tuple[str, ...] = ()
    resources: tuple[RegionReport, ...] = ()
    has_target_edits: bool = False

    @property
    def rejected(self) -> tuple[RegionReport, ...]:
        """Return the regions that kept their lowered form."""
        return tuple(region for region in self.regions if region.replacement is None)


def functionalize(
    graph: Graph,
    fetches: str | Iterable[str] | None = None,
    *,
    tensor_arrays: str = "lists",
    dead_as: str | None = None,
    target: str = "tensorflow",
) -> Functionalization:
    """Replace lowered loops and conditionals by While, If, and Case with functions, in place.

    `fetches` names the tensors, and nodes as `^node`, that will be fetched together: what none of
    them needs is removed. Without it, all tensors outside of regions that are live in every run
    remain fetchable, and so do nodes without consumers that have effects.

    Stacks and TensorArrays become TensorLists where that is exact, unless `tensor_arrays` is
    "keep". A fetch that may be dead keeps its conditional in lowered form; with `dead_as="zeros"`
    it is zeros where it was dead. A region that cannot be a function keeps its form, and all others
    become functional nodes; the report has the reasons.

    With `target="converter"` the functional nodes are those that converters of models know: a
    While counts its iterations as in TensorFlow 2, Case becomes If, and nodes do not ask to be
    lowered again.

    Raises InvalidInput for an invalid graph, UsageError for an unknown name or mode; the graph is
    then unchanged.
    """
    require_valid(graph)
    if target not in TARGETS:
        message = f"unknown target {target!r}"
        raise UsageError(message, hint=f"use one of {', '.join(TARGETS)}")
    if tensor_arrays not in TENSOR_ARRAY_MODES:
        message = f"unknown mode {tensor_arrays!r} of tensor arrays"
        raise UsageError(message, hint=f"use one of {', '.join(TENSOR_ARRAY_MODES)}")
    names = None if fetches is None else name_list(fetches)
    if dead_as is not None and dead_as not in DEAD_VALUES:
        message = f"unknown value {dead_as!r} of dead fetches"
        raise UsageError(message, hint=f"use one of {', '.join(DEAD_VALUES)}")
    fetched = None if names is None else {name: _fetched_output(graph, name) for name in names}
    with paused_gc(), unchanged_on_error(graph):
        report = _functionalize_valid(graph, fetched, tensor_arrays, dead_as)
        if target == "converter":
            nodes = {tensor.node for tensor in (fetched or {}).values()}
            edits = converter_form(graph, nodes or {node for node in graph if not node.uses})
            rewrites, after = report.rewrites + edits, op_counts(graph)
            report = replace(report, rewrites=rewrites, after=after, has_target_edits=edits > 0)
        if report:
            require_valid_result(graph, "functionalize")
    return report


LOCATORS[functionalize.__code__] = pass_position


def _fetched_output(graph: Graph, name: str) -> Output:
    return graph[name[1:]].output() if name[:1] == "^" else graph.tensor(name)


@dataclass(slots=True)
class _PreparedGraph:
    """A graph that contains only what is needed, with the rules for its regions.

    `conditions` is its analysis, and `edits` the number of edits before it.
    """

    rules: RegionRules
    conditions: Deadness
    edits: int
    dead: DeadFetches
    dropped: list[str]
    decided: DecidedBranches

    @property
    def rewrites(self) -> int:
        """The number of fetches that got zeros, and of rewrites of decided branches."""
        return len(self.dead.replaced) + self.decided.rewrites


def _functionalize_valid(
    graph: Graph, fetched: dict[str, Output] | None, tensor_arrays: str, dead_as: str | None
) -> Functionalization:
    before = op_counts(graph)
    prepared = _prepare(graph, fetched, dead_as)
    rules, dead, dropped = prepared.rules, prepared.dead, prepared.dropped
    lists = FunctionalizedLists()
    if tensor_arrays == "lists" and len(frames(graph).all) > 1 and has_lists(graph):
        liveness = liveness_rule(graph, "exact")
        lists = functionalize_lists(graph, liveness, {}, rules.fetched, traced=True)
    functionalizer = Functionalizer(graph, rules)
    is_current = graph.edits == prepared.edits
    functionalizer.run(lists.original_ops(), prepared.conditions if is_current else None)
    if functionalizer.rejected:
        dropped += _retry_decided(functionalizer, prepared.decided)
    for name, reason in dead.reasons.items():
        node = dead.fetched[name].node
        functionalizer.reject("conditional", name, {node.name: node.op}, reason)
    dropped += drop_unread_primitives(graph, rules.fetched)
    regions = functionalizer.regions()
    replaced = sum(region.replacement is not None for region in regions)
    rewrites = replaced + prepared.rewrites + len(dropped) + functionalizer.divided + lists.replaced
    if rewrites:
        graph.reorder(topological_order(graph).nodes)
        drop_dangling_colocation(graph, graph)
    return Functionalization(
        rewrites=rewrites,
        names=_new_names(graph, functionalizer),
        before=before,
        after=op_counts(graph),
        warnings=tuple(f"{n.name} is zeros where it was dead" for n in dead.replaced.values()),
        regions=regions,
        dropped=tuple(dropped),
        resources=tuple(report for report in lists.rejected.values() if _is_resource(report)),
    )


def _retry_decided(functionalizer: Functionalizer, decided: DecidedBranches) -> list[str]:
    """Drop branches that never run, and try again what was rejected; return the dropped names."""
    graph, rules = functionalizer.graph, functionalizer.rules
    conditions = deadness(graph)
    unread = {node for node in graph if not node.uses}
    if not decided.drop_never_live(conditions):
        return []
    removed = graph.remove_unread(
        [node for node in graph if node not in unread],
        lambda node: node not in rules.fetched and functionalizer.is_droppable(node, conditions),
    )
    functionalizer.run()
    return [*decided.dropped, *(node.name for node in removed)]


def _prepare(
    graph: Graph, fetched: dict[str, Output] | None, dead_as: str | None
) -> _PreparedGraph:
    """Drop what no fetch needs and what never runs; give dead fetches a value."""
    if fetched is None:
        read, indexed = list[Node](), _unread_merges(graph)
    else:
        read = [tensor.node for tensor in fetched.values()]
        indexed = [tensor.node for tensor in fetched.values() if tensor.port == 1]
    decided = DecidedBranches(graph, read, indexed)
    decided.forward_single()
    dropped = [] if fetched is None else drop_unneeded(graph, decided.fetched)
    conditions = deadness(graph, free_constants=True)
    known = _known_liveness(graph, decided, conditions)
    outside: set[Node] = set()

    def has_value(node: Node) -> bool:
        return node in outside or always_has_value(conditions, node)

    if known is not None:
        outside.update(filter(has_value, graph))
        outside.update(n for n in graph if not n.uses and always_has_value(known, n))
        if decided.drop_never_live(known):
            dropped += decided.dropped
            decided.dropped.clear()
            conditions = deadness(graph, free_constants=True)
    edits, named = graph.edits, fetched
    if fetched is None:
        ends, has_results = dead_ends(graph, has_value)
        if has_results:
            dropped += remove_with_sources(graph, ends, has_value)
        else:
            named = _named_outputs(ends)
    dead = DeadFetches(graph, {n: each for n, each in (named or {}).items() if n[:1] != "^"})
    dead.resolve(conditions, dead_as)
    rules = _rules(graph, fetched, dead.replaced)
    rules.shapes, rules.outside = infer_shapes(graph), outside
    decided.fetched, decided.fetched_indices = rules.fetched, rules.fetched_indices
    return _PreparedGraph(rules, conditions, edits, dead, dropped, decided)


def _known_liveness(
    graph: Graph, decided: DecidedBranches, conditions: Deadness
) -> Deadness | None:
    """Return an analysis with known constants if a result is live only because of one."""
    results = decided.fetched or {node for node in graph if not node.uses}
    dead = [node for node in results if not conditions.always_live(node)]
    if not dead:
        return None
    known = deadness(graph)
    return known if any(map(known.always_live, dead)) else None


def _rules(
    graph: Graph, fetched: dict[str, Output] | None, replaced: Mapping[Node, Node]
) -> RegionRules:
    """Return the rules for fetches, some of which are replaced, or for all results."""
    if fetched is None:
        results = {node for node in graph if not node.uses}
        values = {node for node in results if role_of(node) is not None or not _is_effect(node)}
        return RegionRules(results, values, _unread_merges(graph), has_named_fetches=False)
    nodes = {name: replaced.get(tensor.node, tensor.node) for name, tensor in fetched.items()}
    tensors = {name: tensor for name, tensor in fetched.items() if name[:1] != "^"}
    indices = {nodes[name] for name, tensor in tensors.items() if tensor.port == 1}
    return RegionRules(nodes.values(), {nodes[name] for name in tensors}, indices)


def _unread_merges(graph: Graph) -> list[Node]:
    """Return the Merges that are results, of which a run may fetch the index, too."""
    return [node for node in graph if not node.uses and role_of(node) is Role.MERGE]


def _named_outputs(nodes: Iterable[Node]) -> dict[str, Output]:
    """Return the outputs that a run may fetch, by name; of a Merge only the value."""
    outputs: dict[str, Output] = {}
    for node in nodes:
        is_merge = role_of(node) is Role.MERGE
        count = 1 if is_merge else node.output_count or 1
        for port in range(count):
            outputs[f"{node.name}:{port}" if port else node.name] = node.output(port)
    return outputs


def _is_effect(node: Node) -> bool:
    op = lookup(node.op)
    return op is None or op.effects.stateful


def _is_resource(report: RegionReport) -> bool:
    return any((op := lookup(name)) is None or op.effects.stateful for name in report.ops.values())


def _new_names(graph: Graph, functionalizer: Functionalizer) -> dict[str, tuple[str, ...]]:
    """Return the call that contains each node that is no longer in the graph."""
    names: dict[str, tuple[str, ...]] = {}
    for call, region in functionalizer.functionalized.items():
        for name in region.ops:
            if name not in graph:
                names[name] = (call.name,)
    return names
