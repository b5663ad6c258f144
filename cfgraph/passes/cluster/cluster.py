"""Group nodes that XLA can compile together into clusters, each a function and one XlaLaunch.

    a -> m -> n -> b      becomes      a -> XlaLaunch -> b      where m and n compile

A cluster runs once all of its inputs have arrived, and is dead if any of them is dead. Its nodes
must therefore run in one frame and on one device and be live under the same condition, and the
cluster must not depend on itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from cfgraph.analysis.reachability import ancestors
from cfgraph.analysis.verify.verify import require_valid
from cfgraph.errors import UsageError
from cfgraph.ir import registry
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.names import did_you_mean, node_name
from cfgraph.passes.cluster.encapsulate import encapsulate
from cfgraph.passes.cluster.formation.cluster_plan import ClusterPlan, plan_clusters
from cfgraph.passes.cluster.formation.compilable import ClusterConstraints
from cfgraph.passes.cluster.formation.grow import ClusterSizes
from cfgraph.passes.cluster.formation.liveness_rules import liveness_rule, require_liveness_mode
from cfgraph.passes.cluster.formation.report import Clustering, ClusterReport, CompilationGain
from cfgraph.passes.cluster.functionalize.functionalizer import (
    Functionalizer,
    functionalize_regions,
)
from cfgraph.passes.lower.inline import COLOCATION_PREFIX
from cfgraph.passes.lower.lower import drop_dangling_colocation, lower
from cfgraph.passes.report import op_counts

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
    fetches: Iterable[str] | None = None,
    feeds: Iterable[str] = (),
    explain: bool = False,
    what_if: Collection[str] = (),
    regions: bool = False,
) -> Clustering:
    """Replace nodes that compile together by launches of functions, in place.

    Functional nodes are lowered first. `deadness` is the rule by which nodes are live together:
    `exact`, `inputs` (that of the second seed), `tf`, or `off`, which may change what is live. A
    cluster has at least `min_size` nodes that do something, at most `max_size` nodes. The names of
    `fetches`, and of nodes that nothing reads, can be fetched as before. What `fetches` need is
    taken to run together, and nothing else is clustered; without them nodes stay apart of which
    one may be run without effects that the other is behind. What is in `feeds` stays. `explain`
    asks for the reasons of edges, and for what each op costs that XLA does not compile; `what_if`
    for some ops together. With `regions` whole loops and conditionals go into clusters, where XLA
    compiles all that is in them.

    Raises InvalidInput for a graph that is not valid, UsageError for a name, an op or a rule that
    there is not, Unsupported for what cannot be lowered; the graph is unchanged then.
    """
    require_valid(graph)
    require_liveness_mode(deadness)
    if min_size < 1 or (max_size is not None and max_size < min_size):
        message = f"no cluster has at least {min_size} and at most {max_size} nodes"
        raise UsageError(message, hint="min_size is 1 or more, max_size no less")
    fetches = None if fetches is None else list(fetches)
    feeds = list(feeds)
    wishes_of = partial(
        cluster_constraints,
        only_ops=only_ops,
        exclude_ops=exclude_ops,
        fetches=fetches,
        feeds=feeds,
    )
    wishes_of(graph)  # refused before anything is changed
    _require_known_ops(graph, [*only_ops, *exclude_ops, *what_if])
    before = op_counts(graph)
    with paused_gc():
        lowered = lower(graph)
        ops = {node.name: node.op for node in graph}
        written = _cluster_lowered(
            graph, deadness, ClusterSizes(min_size, max_size), wishes_of, regions, explain, what_if
        )
    report = replace(
        written,
        rewrites=lowered.rewrites + written.rewrites,
        names=_composed_names(lowered.names, written.names),
        warnings=(*lowered.warnings, *written.warnings),
        before=before,
        nodes=len(ops),
        op_of=ops,
    )
    if report:
        require_valid(graph)
    return report


def _cluster_lowered(
    graph: Graph,
    mode: str,
    sizes: ClusterSizes,
    constraints_of: Callable[[Graph], ClusterConstraints],
    regions: bool,
    explain: bool,
    what_if: Collection[str],
) -> Clustering:
    """Cluster a lowered graph, and say what was asked for of the edges and of what stays out."""
    wishes, lifting = constraints_of(graph), None
    if regions:
        lifting = functionalize_regions(graph, mode, sizes, constraints_of)
        wishes = lifting.told()
    plan = plan_clusters(graph, liveness_rule(graph, mode), sizes, wishes)
    gained = kernel_gains(graph, plan, sizes, wishes) if explain else ()
    asked = gain_if_compiled(graph, plan, sizes, wishes, what_if) if what_if else None
    edges = tuple(plan.edges()) if explain else ()
    written = _apply_plan(graph, plan, wishes, lifting)
    return replace(written, edges=edges, gains=gained, what_if=asked)


def _composed_names(first: NewNames, then: NewNames) -> NewNames:
    """What became of old names in two steps."""
    followed = {
        old: tuple(dict.fromkeys(end for name in new for end in then.get(name, (name,))))
        for old, new in first.items()
    }
    return {**then, **followed}


def _require_known_ops(graph: Graph, ops: Iterable[str]) -> None:
    known = {*registry.op_names(), *(node.op for node in graph)}
    for op in ops:
        if op not in known:
            message = f"there is no op {op!r}"
            raise UsageError(message, hint=did_you_mean(op, known))


def cluster_constraints(
    graph: Graph,
    only_ops: Collection[str] = (),
    exclude_ops: Collection[str] = (),
    fetches: Iterable[str] | None = None,
    feeds: Iterable[str] = (),
) -> ClusterConstraints:
    """What a caller says of nodes. Raises UsageError for a name that there is not."""
    fed = {_node_of_tensor(graph, name) for name in feeds}
    if fetches is None:
        unread = {node for node in graph if not node.uses}
        return ClusterConstraints(only_ops, exclude_ops, (), fed, unread)
    kept = {_node_of_tensor(graph, name) for name in fetches}
    return ClusterConstraints(only_ops, exclude_ops, (), fed, kept, set(ancestors(graph, kept)))


def _node_of_tensor(graph: Graph, name: str) -> Node:
    return graph[node_name(name)]


def _apply_plan(
    graph: Graph,
    plan: ClusterPlan,
    constraints: ClusterConstraints,
    functionalizer: Functionalizer | None,
) -> Clustering:
    """Put the clusters of a plan into the graph; what was decided."""
    inside = {} if functionalizer is None else functionalizer.original_ops()
    order = list(graph)
    clusters, made = list[ClusterReport](), dict[Node, list[Node]]()
    names: dict[str, tuple[str, ...]] = {}
    told = [plan.told(body, "", inside) for body in plan.bodies]
    for body, cluster in zip(plan.bodies, told, strict=True):
        name = _unique_cluster_name(graph, len(clusters))
        done = encapsulate(graph, body, name, constraints.kept)
        made[body.members[-1]] = [done.launch, *done.kept]
        names.update((old, (name,)) for old in cluster.nodes)
        names.update((old, (new,)) for old, new in done.outputs.items())
        clusters.append(
            replace(
                cluster,
                name=name,
                constants=done.constants,
                arguments=done.arguments,
                resources=done.resources,
                results=len(done.outputs),
            )
        )
    graph.remove(*plan.absorbed)
    reorder_with_clusters(graph, order, made)
    redirect_colocation(graph, {old: new for old, (new,) in names.items()})
    return Clustering(
        rewrites=len(clusters),
        names=names,
        warnings=plan.growth.liveness.limits(),
        after=op_counts(graph),
        clusters=tuple(clusters),
        absorbed=tuple(node.name for node in plan.absorbed if node not in inside),
        outside={n.name: reason for n, reason in plan.outside.items() if n not in inside},
        regions=() if functionalizer is None else functionalizer.regions,
    )


def _unique_cluster_name(graph: Graph, number: int) -> str:
    """A name that neither a node nor a function has."""
    name = f"{_CLUSTER_PREFIX}_{number}"
    while name in graph or name in graph.functions:
        number += 1
        name = f"{_CLUSTER_PREFIX}_{number}"
    return name


_COLOCATION_ATTR: Final = "_class"


def reorder_with_clusters(
    graph: Graph, order: Iterable[Node], made: Mapping[Node, list[Node]]
) -> None:
    """Let a launch stand where the last node of its cluster stood."""
    nodes: list[Node] = []
    for node in order:
        if graph.nodes.get(node.name) is node:
            nodes.append(node)
        nodes.extend(made.get(node, ()))
    graph.reorder(nodes)


def redirect_colocation(graph: Graph, launches: Mapping[str, str]) -> None:
    """Let what wished to be beside a node that went into a cluster be beside its launch."""
    wishing = [node for node in graph if isinstance(node.attrs.get(_COLOCATION_ATTR), tuple)]
    for node in wishing:
        groups = node.attrs[_COLOCATION_ATTR]
        followed = tuple(
            dict.fromkeys(_redirected_group(group, graph, launches) for group in groups)
        )
        if followed != groups:
            graph.set_attr(node, _COLOCATION_ATTR, followed)
    drop_dangling_colocation(graph, wishing)


def _redirected_group(group: Any, graph: Graph, launches: Mapping[str, str]) -> Any:
    if not isinstance(group, bytes) or not group.startswith(COLOCATION_PREFIX):
        return group
    name = group[len(COLOCATION_PREFIX) :].decode("utf-8", "replace")
    return (
        group
        if name in graph or name not in launches
        else COLOCATION_PREFIX + launches[name].encode()
    )


# reasons that a kernel of XLA would do away with
_KERNEL_REASONS: Final = ("effects", "not traced", "no kernel", "type")
_MAX_TRIED_OPS: Final = 12


def kernel_gains(
    graph: Graph, plan: ClusterPlan, sizes: ClusterSizes, constraints: ClusterConstraints
) -> tuple[CompilationGain, ...]:
    """The gain of each op that XLA does not compile, largest first; the most frequent are tried."""
    refused = Counter(n.op for n, reason in plan.outside.items() if reason.kind in _KERNEL_REASONS)
    ops = sorted(refused, key=lambda op: (-refused[op], op))[:_MAX_TRIED_OPS]
    found = [gain_if_compiled(graph, plan, sizes, constraints, (op,)) for op in ops]
    return tuple(sorted(found, key=lambda gain: (-gain.more, gain.ops)))


def gain_if_compiled(
    graph: Graph,
    plan: ClusterPlan,
    sizes: ClusterSizes,
    constraints: ClusterConstraints,
    ops: Collection[str],
) -> CompilationGain:
    """The gain if all these ops were compiled."""
    other = plan_clusters(
        graph, plan.growth.liveness, sizes, replace(constraints, assume_compilable=ops)
    )
    before = _clustered_name_set(plan)
    new = tuple(name for name in _clustered_name_set(other) if name not in before)
    still = {node.name: reason for node, reason in other.outside.items() if node.op in ops}
    more = other.clustered - plan.clustered
    return CompilationGain(tuple(ops), len(other.bodies), other.clustered, more, new, still)


def _clustered_name_set(plan: ClusterPlan) -> Mapping[str, None]:
    return dict.fromkeys(_clustered_names(plan))


def _clustered_names(plan: ClusterPlan) -> Iterator[str]:
    for body in plan.bodies:
        yield from (node.name for node in body.members)
    yield from (node.name for node in plan.absorbed)
