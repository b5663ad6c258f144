"""Group nodes that XLA can compile together into clusters, each a function called by XlaLaunch.

    a -> m -> n -> b      becomes      a -> XlaLaunch -> b      where m and n compile

A cluster runs once all of its inputs have arrived, and is dead if any of them is dead. Its nodes
must therefore run in one frame and on one device and be live under the same condition, and the
cluster must not depend on itself.

`formation` plans the clusters, `functionalize` first turns whole loops and conditionals into calls
(on request), and `encapsulate` carries the plan out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from cfgraph.analysis.liveness_rules import liveness_rule, require_liveness_mode
from cfgraph.analysis.verify.verify import require_valid, require_valid_result
from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir import registry
from cfgraph.ir.colocation import COLOCATION_ATTR, renamed_groups
from cfgraph.ir.function_graph import FunctionGraphs, FunctionInstances
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.names import did_you_mean, name_list
from cfgraph.ir.node import node_name
from cfgraph.ir.traversal import ancestors
from cfgraph.passes.cluster.encapsulate import EncapsulatedCluster, encapsulate
from cfgraph.passes.cluster.formation.cluster_plan import ClusterPlan, plan_clusters
from cfgraph.passes.cluster.formation.compilable import ClusterConstraints
from cfgraph.passes.cluster.formation.merge_conflicts import ClusterSizes
from cfgraph.passes.cluster.formation.report import (
    Clustering,
    ClusterInputs,
    CompilationGain,
)
from cfgraph.passes.cluster.functional_form import compiled_calls, is_in_clusters
from cfgraph.passes.cluster.regions import (
    ClusterRegions,
    functionalize_regions,
)
from cfgraph.passes.functionalize.report import RegionRejected
from cfgraph.passes.lower.lower import drop_dangling_colocation
from cfgraph.passes.lowering import lower
from cfgraph.passes.outcome import op_counts, unchanged_on_error
from cfgraph.stack_position import LOCATORS, pass_position

_CLUSTER_PREFIX: Final = "cluster"
NewNames = Mapping[str, tuple[str, ...]]


def cluster(
    graph: Graph,
    *,
    deadness: str = "exact",
    min_size: int = 2,
    max_size: int | None = None,
    only_ops: Collection[str] = (),
    exclude_ops: Collection[str] = (),
    fetches: str | Iterable[str] | None = None,
    feeds: str | Iterable[str] = (),
    explain: bool = False,
    gains: bool | None = None,
    what_if: Collection[str] = (),
    regions: bool = False,
) -> Clustering:
    """Replace groups of nodes that XLA compiles together by function calls (XlaLaunch), in place.

    Functional nodes are lowered first. `deadness` selects the rule that decides whether nodes are
    live under the same condition: `exact` proves it, `inputs` also excludes nodes whose inputs may
    differ in liveness, `tf` uses TensorFlow's analysis, and `off` skips the check, which may change
    the values that are live. A cluster has at least `min_size` computing nodes and at most
    `max_size` nodes. `only_ops` and `exclude_ops` restrict the ops that may be clustered.

    `fetches` names the tensors that will be fetched together: only their ancestors are clustered.
    Without it, nodes without consumers remain fetchable, and nodes stay separate if a run could
    need one of them without the variables and side effects that the other depends on. Nodes named
    in `feeds` are not clustered.

    `explain` adds to the report the reason for each edge that remains between clusters, and the
    gain in clustered nodes if XLA compiled one more op, for frequent ops, each of which plans
    again; `gains=False` omits these. `what_if` adds the gain for several ops together. `regions`
    also clusters whole loops and conditionals whose nodes all compile.

    Raises InvalidInput for an invalid graph, UsageError for an unknown name, op, or mode, and
    Unsupported for nodes that cannot be lowered; the graph is then unchanged.
    """
    require_valid(graph)
    require_liveness_mode(deadness)
    sizes = ClusterSizes(min_size, max_size)
    fetches = None if fetches is None else name_list(fetches)
    feeds = name_list(feeds)
    constraints_of = partial(
        cluster_constraints,
        only_ops=only_ops,
        exclude_ops=exclude_ops,
        fetches=fetches,
        feeds=feeds,
    )
    constraints_of(graph)  # raises before the first edit
    _require_known_ops(graph, [*only_ops, *exclude_ops, *what_if])
    with_gains = explain if gains is None else gains
    return _lower_and_cluster(
        graph,
        lambda: _cluster_lowered(
            graph, deadness, sizes, constraints_of, regions, explain, with_gains, what_if
        ),
    )


def cluster_traced(
    graph: Graph, *, fetches: Iterable[str], feeds: Iterable[str], regions: bool = False
) -> Clustering:
    """Cluster a graph as `cluster` does, for the kernels that jax traces.

    Unlike the clusters of a graph that TensorFlow may run, these may contain ops for which its XLA
    has no kernel. Raises the errors of `cluster`.
    """
    require_valid(graph)

    def constraints_of(graph: Graph) -> ClusterConstraints:
        return replace(cluster_constraints(graph, (), (), fetches, feeds), traced=True)

    sizes = ClusterSizes(2, None)
    return _lower_and_cluster(
        graph,
        lambda: _cluster_lowered(graph, "exact", sizes, constraints_of, regions, False, False, ()),
    )


LOCATORS[cluster_traced.__code__] = pass_position


def cluster_functional(
    graph: Graph, *, fetches: Iterable[str], feeds: Iterable[str], bodies: FunctionGraphs
) -> FunctionInstances | None:
    """Cluster a valid graph, in place, whose loops and conditionals XLA compiles as they are.

    Return its functions as graphs, from `bodies` where these have them, or None if a loop or
    conditional must be lowered; the graph may be changed then.
    """
    sizes = ClusterSizes(2, None)
    constraints = replace(cluster_constraints(graph, (), (), fetches, feeds), traced=True)
    instances = FunctionInstances(graph.functions, bodies)
    try:
        functionalized = compiled_calls(graph, constraints, instances)
    except (RegionRejected, Unsupported):
        return None
    constraints = replace(constraints, functionalized=functionalized)
    plan = plan_clusters(graph, liveness_rule(graph, "exact"), sizes, constraints, instances)
    if not is_in_clusters(functionalized, plan):
        return None
    _, made = _encapsulate_clusters(graph, plan, constraints, {})
    require_valid_result(graph, "cluster", bodies)
    for cluster in made:  # its constant arguments come first
        function = instances.get(cluster.launch.name, {})
        instances.constants[function] = frozenset(range(cluster.constants))
    return instances


LOCATORS[cluster_functional.__code__] = pass_position


def _lower_and_cluster(graph: Graph, cluster_lowered: Callable[[], Clustering]) -> Clustering:
    """Lower the graph, cluster it, and report both."""
    before = op_counts(graph)
    with paused_gc(), unchanged_on_error(graph):
        lowered = lower(graph)
        ops = {node.name: node.op for node in graph}
        clustered = cluster_lowered()
        report = replace(
            clustered,
            rewrites=lowered.rewrites + clustered.rewrites,
            names=_composed_names(lowered.names, clustered.names),
            warnings=(*lowered.warnings, *clustered.warnings),
            before=before,
            nodes=len(ops),
            op_of=ops,
        )
        if report:
            require_valid_result(graph, "cluster")
    return report


LOCATORS[cluster.__code__] = pass_position


def _cluster_lowered(
    graph: Graph,
    mode: str,
    sizes: ClusterSizes,
    constraints_of: Callable[[Graph], ClusterConstraints],
    regions: bool,
    explain: bool,
    with_gains: bool,
    what_if: Collection[str],
) -> Clustering:
    """Cluster a lowered graph, with the requested explanations."""
    constraints, functionalizer = constraints_of(graph), None
    if regions:
        functionalizer, plan = functionalize_regions(graph, mode, sizes, constraints_of)
        constraints = functionalizer.cluster_constraints()
    else:
        plan = plan_clusters(graph, liveness_rule(graph, mode), sizes, constraints)
    gains = kernel_gains(graph, plan, sizes, constraints) if with_gains else ()
    gain = gain_if_compiled(graph, plan, sizes, constraints, what_if) if what_if else None
    edges = tuple(plan.edges()) if explain else ()
    report = _apply_plan(graph, plan, constraints, functionalizer)
    return replace(report, edges=edges, gains=gains, what_if=gain)


def _composed_names(first: NewNames, second: NewNames) -> NewNames:
    """Compose two renamings."""
    composed = {
        old: tuple(dict.fromkeys(final for name in new for final in second.get(name, (name,))))
        for old, new in first.items()
    }
    return {**second, **composed}


def _require_known_ops(graph: Graph, ops: Iterable[str]) -> None:
    known = {*registry.op_names(), *(node.op for node in graph)}
    for op in ops:
        if op not in known:
            message = f"unknown op {op!r}"
            raise UsageError(message, hint=did_you_mean(op, known))


def cluster_constraints(
    graph: Graph,
    only_ops: Collection[str] = (),
    exclude_ops: Collection[str] = (),
    fetches: Iterable[str] | None = None,
    feeds: Iterable[str] = (),
) -> ClusterConstraints:
    """Resolve the names that a caller passed. Raises UsageError for an unknown name."""
    fed = {_node_of_tensor(graph, name) for name in feeds}
    if fetches is None:
        unread = {node for node in graph if not node.uses}
        return ClusterConstraints(only_ops, exclude_ops, (), fed, unread)
    fetched = {_node_of_tensor(graph, name) for name in fetches}
    needed = set(ancestors(graph, fetched))
    return ClusterConstraints(only_ops, exclude_ops, (), fed, fetched, needed)


def _node_of_tensor(graph: Graph, name: str) -> Node:
    return graph[node_name(name)]


def _apply_plan(
    graph: Graph,
    plan: ClusterPlan,
    constraints: ClusterConstraints,
    functionalizer: ClusterRegions | None,
) -> Clustering:
    """Encapsulate the clusters of a plan; report the decisions."""
    original_ops = {} if functionalizer is None else functionalizer.original_ops()
    planned = [plan.cluster_report(body, original_ops) for body in plan.bodies]
    names, made = _encapsulate_clusters(graph, plan, constraints, original_ops)
    clusters = [
        replace(
            cluster,
            name=result.launch.name,
            inputs=ClusterInputs(result.constants, result.arguments, result.resources),
            results=len(result.outputs),
        )
        for cluster, result in zip(planned, made, strict=True)
    ]
    return Clustering(
        rewrites=len(clusters),
        names={old: (new,) for old, new in names.items()},
        warnings=plan.liveness.limits(),
        after=op_counts(graph),
        clusters=tuple(clusters),
        absorbed=tuple(node.name for node in plan.absorbed if node not in original_ops),
        outside={n.name: reason for n, reason in plan.outside.items() if n not in original_ops},
        regions=() if functionalizer is None else functionalizer.regions,
    )


def _encapsulate_clusters(
    graph: Graph,
    plan: ClusterPlan,
    constraints: ClusterConstraints,
    original_ops: Mapping[Node, Mapping[str, str]],
) -> tuple[dict[str, str], list[EncapsulatedCluster]]:
    """Carry a plan out; the new names of nodes and outputs, and the clusters."""
    order = list(graph)
    made, added = list[EncapsulatedCluster](), dict[Node, list[Node]]()
    names: dict[str, str] = {}
    for body in plan.bodies:
        name = _unique_cluster_name(graph, len(made))
        result = encapsulate(graph, body, name, constraints.fetched, plan.instances)
        added[body.members[-1]] = [result.launch, *result.aliases]
        names.update(dict.fromkeys(body.original_ops(original_ops), name))
        names.update(result.outputs)
        made.append(result)
    graph.remove(*plan.absorbed)
    reorder_with_clusters(graph, order, added)
    redirect_colocation(graph, names)
    return names, made


def _unique_cluster_name(graph: Graph, number: int) -> str:
    """Return a name that is unused by nodes and functions."""
    name = f"{_CLUSTER_PREFIX}_{number}"
    while name in graph or name in graph.functions:
        number += 1
        name = f"{_CLUSTER_PREFIX}_{number}"
    return name


def reorder_with_clusters(
    graph: Graph, order: Iterable[Node], added: Mapping[Node, list[Node]]
) -> None:
    """Move the nodes added for each cluster to the position of its last member."""
    nodes: list[Node] = []
    for node in order:
        if graph.nodes.get(node.name) is node:
            nodes.append(node)
        nodes.extend(added.get(node, ()))
    graph.reorder(nodes)


def redirect_colocation(graph: Graph, launches: Mapping[str, str]) -> None:
    """Redirect colocation constraints from clustered nodes to their XlaLaunch."""
    constrained = [node for node in graph if isinstance(node.attrs.get(COLOCATION_ATTR), tuple)]
    removed = {name: launch for name, launch in launches.items() if name not in graph}
    for node in constrained:
        groups = node.attrs[COLOCATION_ATTR]
        redirected = tuple(dict.fromkeys(renamed_groups(groups, removed.get)))
        if redirected != groups:
            graph.set_attr(node, COLOCATION_ATTR, redirected)
    drop_dangling_colocation(graph, constrained)


# reasons that an additional XLA kernel would remove
_KERNEL_REASONS: Final = ("effects", "not traced", "no kernel", "type")
_MAX_TRIED_OPS: Final = 12


def kernel_gains(
    graph: Graph, plan: ClusterPlan, sizes: ClusterSizes, constraints: ClusterConstraints
) -> tuple[CompilationGain, ...]:
    """Return the gains of the most frequent ops that XLA does not compile, largest first."""
    counts = Counter(n.op for n, reason in plan.outside.items() if reason.kind in _KERNEL_REASONS)
    ops = sorted(counts, key=lambda op: (-counts[op], op))[:_MAX_TRIED_OPS]
    gains = [gain_if_compiled(graph, plan, sizes, constraints, (op,)) for op in ops]
    return tuple(sorted(gains, key=lambda gain: (-gain.more, gain.ops)))


def gain_if_compiled(
    graph: Graph,
    plan: ClusterPlan,
    sizes: ClusterSizes,
    constraints: ClusterConstraints,
    ops: Collection[str],
) -> CompilationGain:
    """Plan again as if XLA compiled all these ops; return the difference."""
    trial = plan_clusters(graph, plan.liveness, sizes, replace(constraints, assume_compilable=ops))
    before = set(_clustered_names(plan))
    new = tuple(name for name in dict.fromkeys(_clustered_names(trial)) if name not in before)
    outside = {node.name: reason for node, reason in trial.outside.items() if node.op in ops}
    more = trial.clustered - plan.clustered
    return CompilationGain(tuple(ops), len(trial.bodies), trial.clustered, more, new, outside)


def _clustered_names(plan: ClusterPlan) -> Iterator[str]:
    for body in plan.bodies:
        yield from (node.name for node in body.members)
    yield from (node.name for node in plan.absorbed)
