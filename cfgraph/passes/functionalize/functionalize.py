"""Turn lowered loops and conditionals into functional nodes: the inverse of `lower`.

Enter ▸ Merge ▸ Switch ▸ … ▸ Exit      becomes      While
Switch ▸ … ▸ Merge                     becomes      If
_SwitchN ▸ … ▸ Merge                   becomes      Case
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from cfgraph.analysis.deadness.deadness import Deadness, deadness
from cfgraph.analysis.liveness_rules import liveness_rule
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.verify.verify import require_valid
from cfgraph.errors import UsageError
from cfgraph.ir import registry
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.names import name_list
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import ancestors, topological_order
from cfgraph.ops.opdef.op import lookup, may_write, role_of
from cfgraph.ops.shape_inference import infer_shapes
from cfgraph.passes.functionalize.converter_form import converter_form
from cfgraph.passes.functionalize.dead_fetches import DEAD_VALUES, DeadFetches
from cfgraph.passes.functionalize.function_body import ordered_nodes
from cfgraph.passes.functionalize.functionalizer import Functionalizer
from cfgraph.passes.functionalize.region_rules import RegionRules
from cfgraph.passes.functionalize.report import RegionReport
from cfgraph.passes.functionalize.tensor_lists import FunctionalizedLists, functionalize_lists
from cfgraph.passes.lower.lower import drop_dangling_colocation
from cfgraph.passes.outcome import Report, op_counts, unchanged_on_error
from cfgraph.stack_position import LOCATORS, pass_position

TENSOR_ARRAY_MODES: Final = ("lists", "keep")
TARGETS: Final = ("tensorflow", "converter")


@dataclass(frozen=True, slots=True)
class Functionalization(Report):
    """Report of `functionalize`: the regions, and the nodes dropped because nothing needs them.

    `resources` are the stacks and TensorArrays that did not become lists, with the reason.
    """

    regions: tuple[RegionReport, ...] = ()
    dropped: tuple[str, ...] = ()
    resources: tuple[RegionReport, ...] = ()

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
    them needs is removed. Without it, all nodes without consumers that are live in every run, or
    have effects, remain fetchable.

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
            changed = converter_form(graph, nodes or {node for node in graph if not node.uses})
            report = replace(report, rewrites=report.rewrites + changed, after=op_counts(graph))
        if report:
            require_valid(graph)
    return report


LOCATORS[functionalize.__code__] = pass_position


def _fetched_output(graph: Graph, name: str) -> Output:
    return graph[name[1:]].output() if name[:1] == "^" else graph.tensor(name)


def _functionalize_valid(
    graph: Graph, fetched: dict[str, Output] | None, tensor_arrays: str, dead_as: str | None
) -> Functionalization:
    before = op_counts(graph)
    read = () if fetched is None else fetched.values()
    forwarded = _forward_single_branches(
        graph, {tensor.node for tensor in read if tensor.port == 1}
    )
    dead = DeadFetches(graph, {})
    if fetched is None:
        conditions = deadness(graph, free_constants=True)
        edits = graph.edits
        ends, has_results = _dead_ends(graph, conditions)
        dropped = _remove_with_sources(graph, ends) if has_results else []
        if not has_results:
            dead = DeadFetches(graph, _named_outputs(ends))
            dead.resolve(conditions, dead_as)
        results = {node for node in graph if not node.uses}
        values = {node for node in results if role_of(node) is not None or not _is_effect(node)}
        rules = RegionRules(results, values, has_named_fetches=False)
    else:
        tensors = {name: tensor for name, tensor in fetched.items() if name[:1] != "^"}
        dropped = _drop_unneeded(graph, [tensor.node for tensor in fetched.values()])
        conditions = deadness(graph, free_constants=True)
        edits = graph.edits
        dead = DeadFetches(graph, tensors)
        dead.resolve(conditions, dead_as)
        nodes = {
            name: dead.replaced.get(tensor.node, tensor.node) for name, tensor in fetched.items()
        }
        indices = {nodes[name] for name, tensor in tensors.items() if tensor.port == 1}
        rules = RegionRules(nodes.values(), {nodes[name] for name in tensors}, indices)
    rules.shapes = infer_shapes(graph)
    lists = FunctionalizedLists()
    if tensor_arrays == "lists" and len(frames(graph).all) > 1:
        liveness = liveness_rule(graph, "exact")
        lists = functionalize_lists(graph, liveness, {}, rules.fetched, traced=True)
    functionalizer = Functionalizer(graph, rules)
    functionalizer.run(lists.original_ops(), conditions if graph.edits == edits else None)
    for name, reason in dead.reasons.items():
        node = dead.fetched[name].node
        functionalizer.reject("conditional", name, {node.name: node.op}, reason)
    dropped += [node.name for node in _drop_unread_triggers(graph, rules)]
    regions = (
        *functionalizer.functionalized.values(),
        *functionalizer.nested,
        *functionalizer.rejected.values(),
    )
    replaced = sum(region.replacement is not None for region in regions)
    rewrites = replaced + len(dropped) + forwarded + len(dead.replaced) + functionalizer.divided
    rewrites += lists.replaced
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


def _named_outputs(nodes: Iterable[Node]) -> dict[str, Output]:
    """Return the outputs that a run may fetch, by name; of a Merge only the value."""
    outputs: dict[str, Output] = {}
    for node in nodes:
        is_merge = role_of(node) is Role.MERGE
        count = 1 if is_merge else registry.output_count(node) or 1
        for port in range(count):
            outputs[f"{node.name}:{port}" if port else node.name] = node.output(port)
    return outputs


def _is_effect(node: Node) -> bool:
    op = lookup(node.op)
    return op is None or op.effects.stateful


def _forward_single_branches(graph: Graph, fetched_indices: Collection[Node]) -> int:
    """Replace Switches of one output, and Merges of one input, by identities; return the number."""
    replaced = 0
    ordered: Collection[Node] | None = None
    for node in list(graph):
        role = role_of(node)
        types = tuple(tensor.dtype for tensor in node.inputs)
        if role is Role.MERGE and len(node.inputs) == 1:
            if node.readers(1) or node in fetched_indices:
                continue
            if node.controls:
                ordered = ordered_nodes(graph.nodes.values()) if ordered is None else ordered
                _wait_for_effects(graph, node, ordered)
            graph.set_op(node, "Identity", {"T": node.attr("T")})
            replaced += 1
        elif role is Role.SWITCH and registry.output_count(node) == 1 and None not in types:
            # it waits for the index
            graph.set_op(node, "IdentityN", {"T": types})
            replaced += 1
    return replaced


def _wait_for_effects(graph: Graph, merge: Node, ordered: Collection[Node]) -> None:
    """Let a Merge wait for its control inputs, which may be dead, through a ControlTrigger.

    Those that follow no effect are dropped.
    """
    controls = [control for control in merge.controls if control in ordered]
    if controls:
        name = f"{merge.name}/order"
        trigger = graph.add("ControlTrigger", name=name, controls=controls, device=merge.device)
        controls = [trigger]
    graph.connect(merge, merge.inputs, controls)


def _is_resource(report: RegionReport) -> bool:
    return any((op := lookup(name)) is None or op.effects.stateful for name in report.ops.values())


def _is_input(node: Node) -> bool:
    op = lookup(node.op)
    return op is not None and op.effects.is_input and not node.inputs


def _drop_unneeded(graph: Graph, fetched: Iterable[Node]) -> list[str]:
    """Remove what no fetch needs; return the names."""
    needed = set(ancestors(graph, fetched))
    unneeded = [node for node in graph if node not in needed and not _is_input(node)]
    graph.remove(*unneeded)
    return [node.name for node in unneeded]


def _dead_ends(graph: Graph, conditions: Deadness) -> tuple[list[Node], bool]:
    """Return nodes without effects that may be dead and that nothing reads.

    Also return true if the graph has other results.
    """
    ends = [node for node in graph if not node.uses]
    if not any(role_of(node) is Role.SWITCH for node in graph):
        return [], True
    frame_of, root = conditions.frames.of_outputs, conditions.frames.root
    dead = [
        node
        for node in ends
        if not may_write(node)
        and not (frame_of.get(node, root) is root and conditions.always_live(node))
    ]
    return dead, any(not _is_input(node) for node in set(ends).difference(dead))


def _remove_with_sources(graph: Graph, nodes: Iterable[Node]) -> list[str]:
    """Remove nodes that nothing reads, and what only they read; return the names."""
    removed: list[str] = []
    todo = [*nodes]
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
