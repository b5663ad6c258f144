"""Turn lowered loops and conditionals into functional nodes: the inverse of `lower`.

Enter ▸ Merge ▸ Switch ▸ … ▸ Exit      becomes      While
Switch ▸ … ▸ Merge                     becomes      If
_SwitchN ▸ … ▸ Merge                   becomes      Case
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cfgraph.analysis.deadness.deadness import deadness
from cfgraph.analysis.verify.verify import require_valid
from cfgraph.errors import UsageError
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.names import name_list
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import ancestors, topological_order
from cfgraph.ops.opdef.op import lookup, may_write, role_of
from cfgraph.passes.functionalize.functionalizer import Functionalizer
from cfgraph.passes.functionalize.region_rules import RegionRules
from cfgraph.passes.functionalize.report import RegionReport
from cfgraph.passes.outcome import Report, op_counts, unchanged_on_error
from cfgraph.stack_position import LOCATORS, pass_position

TENSOR_ARRAY_MODES: Final = ("lists", "keep")


@dataclass(frozen=True, slots=True)
class Functionalization(Report):
    """Report of `functionalize`: the regions, and the nodes dropped because nothing needs them."""

    regions: tuple[RegionReport, ...] = ()
    dropped: tuple[str, ...] = ()

    @property
    def refused(self) -> tuple[RegionReport, ...]:
        """Return the regions that kept their lowered form."""
        return tuple(region for region in self.regions if region.replacement is None)


def functionalize(
    graph: Graph,
    fetches: str | Iterable[str] | None = None,
    *,
    tensor_arrays: str = "lists",
    dead_as: str | None = None,
) -> Functionalization:
    """Replace lowered loops and conditionals by While, If, and Case with functions, in place.

    `fetches` names the tensors, and nodes as `^node`, that will be fetched together: what none of
    them needs is removed. Without it, all nodes without consumers that are live in every run, or
    have effects, remain fetchable.

    A region that cannot be a function keeps its form; the report has the reason.

    Raises InvalidInput for an invalid graph, UsageError for an unknown name or mode; the graph is
    then unchanged.
    """
    require_valid(graph)
    if tensor_arrays not in TENSOR_ARRAY_MODES:
        message = f"unknown mode {tensor_arrays!r} of tensor arrays"
        raise UsageError(message, hint=f"use one of {', '.join(TENSOR_ARRAY_MODES)}")
    names = None if fetches is None else name_list(fetches)
    fetched = None if names is None else {name: _fetched_node(graph, name) for name in names}
    with paused_gc(), unchanged_on_error(graph):
        report = _functionalize_valid(graph, fetched)
        if report:
            require_valid(graph)
    return report


LOCATORS[functionalize.__code__] = pass_position


def _fetched_node(graph: Graph, name: str) -> Node:
    return graph[name[1:]] if name[:1] == "^" else graph.tensor(name).node


def _functionalize_valid(graph: Graph, fetched: dict[str, Node] | None) -> Functionalization:
    before = op_counts(graph)
    if fetched is None:
        dropped = _drop_dead_ends(graph)
        results = {node for node in graph if not node.uses}
        values = {node for node in results if role_of(node) is not None or not _is_effect(node)}
        rules = RegionRules(results, values, has_named_fetches=False)
    else:
        dropped = _drop_unneeded(graph, fetched.values())
        values = {node for name, node in fetched.items() if name[:1] != "^"}
        indices = {node for name, node in fetched.items() if name.endswith(":1")}
        rules = RegionRules(fetched.values(), values, indices)
    functionalizer = Functionalizer(graph, rules)
    functionalizer.run()
    dropped += [node.name for node in _drop_unread_triggers(graph, rules)]
    graph.reorder(topological_order(graph).nodes)
    regions = (
        *functionalizer.functionalized.values(),
        *functionalizer.nested,
        *functionalizer.left_lowered.values(),
    )
    replaced = sum(region.replacement is not None for region in regions)
    return Functionalization(
        rewrites=replaced + len(dropped),
        names=_new_names(graph, functionalizer),
        before=before,
        after=op_counts(graph),
        regions=regions,
        dropped=tuple(dropped),
    )


def _is_effect(node: Node) -> bool:
    op = lookup(node.op)
    return op is None or op.effects.stateful


def _is_input(node: Node) -> bool:
    op = lookup(node.op)
    return op is not None and op.effects.is_input and not node.inputs


def _drop_unneeded(graph: Graph, fetched: Iterable[Node]) -> list[str]:
    """Remove what no fetch needs; return the names."""
    needed = set(ancestors(graph, fetched))
    unneeded = [node for node in graph if node not in needed and not _is_input(node)]
    graph.remove(*unneeded)
    return [node.name for node in unneeded]


def _drop_dead_ends(graph: Graph) -> list[str]:
    """Remove nodes without effects that may be dead and that nothing reads; return the names.

    Nothing is removed if no other result would remain.
    """
    if not any(role_of(node) is Role.SWITCH for node in graph):
        return []
    conditions = deadness(graph, free_constants=True)
    ends = [node for node in graph if not node.uses]
    root = conditions.frames.root
    dead = [
        node
        for node in ends
        if not may_write(node)
        and not (
            conditions.frames.of_outputs.get(node, root) is root and conditions.always_live(node)
        )
    ]
    if len(dead) == len(ends):
        return []
    removed: list[str] = []
    todo = dead
    while todo:
        node = todo.pop()
        sources = dict.fromkeys([*(tensor.node for tensor in node.inputs), *node.controls])
        graph.remove(node)
        removed.append(node.name)
        todo += [
            source
            for source in sources
            if not source.uses and not may_write(source) and (source.inputs or source.controls)
        ]
    return removed


def _drop_unread_triggers(graph: Graph, rules: RegionRules) -> list[Node]:
    """Remove primitives that nothing reads any more; return them."""
    removed: list[Node] = []
    todo = [node for node in graph if role_of(node) is not None]
    for node in todo:
        is_present = graph.nodes.get(node.name) is node
        if not is_present or node.uses or role_of(node) is None or node in rules.fetched:
            continue
        todo += [*(tensor.node for tensor in node.inputs), *node.controls]
        graph.remove(node)
        removed.append(node)
    return removed


def _new_names(graph: Graph, functionalizer: Functionalizer) -> dict[str, tuple[str, ...]]:
    """Return the call that contains each node that is no longer in the graph."""
    names: dict[str, tuple[str, ...]] = {}
    for call, region in functionalizer.functionalized.items():
        for name in region.ops:
            if name not in graph:
                names[name] = (call.name,)
    return names
