"""Put nodes that XLA can compile together into clusters, each a function and one XlaLaunch.

    a -> m -> n -> b      becomes      a -> XlaLaunch -> b      where m and n compile

A cluster runs when all its inputs are there, and is dead if one is. So its nodes must run in one
loop, on one device, and be live under one condition; and it must not wait for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from cfgraph.analysis.reachability import ancestors
from cfgraph.analysis.verify.verify import require_valid
from cfgraph.errors import UsageError
from cfgraph.ir import registry
from cfgraph.ir.collector import without_collector
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.names import did_you_mean, node_name
from cfgraph.passes.cluster.agreement import agreement, require_mode
from cfgraph.passes.cluster.compilable import Wishes
from cfgraph.passes.cluster.encapsulate import encapsulate
from cfgraph.passes.cluster.formation import Sizes
from cfgraph.passes.cluster.gains import gain_of, gains
from cfgraph.passes.cluster.plan import Plan, planned
from cfgraph.passes.cluster.report import Cluster, Clustering
from cfgraph.passes.cluster.settle import follow_neighbours, put_in_order
from cfgraph.passes.lift.lift import Lifting
from cfgraph.passes.lift.settle import raise_regions
from cfgraph.passes.lower.lower import lower
from cfgraph.passes.report import op_counts

_NAME: Final = "cluster"
Names = Mapping[str, tuple[str, ...]]


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
    require_mode(deadness)
    if min_size < 1 or (max_size is not None and max_size < min_size):
        message = f"no cluster has at least {min_size} and at most {max_size} nodes"
        raise UsageError(message, hint="min_size is 1 or more, max_size no less")
    fetches = None if fetches is None else list(fetches)
    feeds = list(feeds)
    wishes_of = partial(
        wished, only_ops=only_ops, exclude_ops=exclude_ops, fetches=fetches, feeds=feeds
    )
    wishes_of(graph)  # refused before anything is changed
    _require_ops(graph, [*only_ops, *exclude_ops, *what_if])
    before = op_counts(graph)
    with without_collector():
        lowered = lower(graph)
        ops = {node.name: node.op for node in graph}
        written = _clustered(
            graph, deadness, Sizes(min_size, max_size), wishes_of, regions, explain, what_if
        )
    report = replace(
        written,
        rewrites=lowered.rewrites + written.rewrites,
        names=_both(lowered.names, written.names),
        warnings=(*lowered.warnings, *written.warnings),
        before=before,
        nodes=len(ops),
        op_of=ops,
    )
    if report:
        require_valid(graph)
    return report


def _clustered(
    graph: Graph,
    mode: str,
    sizes: Sizes,
    wishes_of: Callable[[Graph], Wishes],
    regions: bool,
    explain: bool,
    what_if: Collection[str],
) -> Clustering:
    """Cluster a lowered graph, and say what was asked for of the edges and of what stays out."""
    wishes, lifting = wishes_of(graph), None
    if regions:
        lifting = raise_regions(graph, mode, sizes, wishes_of)
        wishes = lifting.told()
    plan = planned(graph, agreement(graph, mode), sizes, wishes)
    gained = gains(graph, plan, sizes, wishes) if explain else ()
    asked = gain_of(graph, plan, sizes, wishes, what_if) if what_if else None
    edges = tuple(plan.edges()) if explain else ()
    written = _written(graph, plan, wishes, lifting)
    return replace(written, edges=edges, gains=gained, what_if=asked)


def _both(first: Names, then: Names) -> Names:
    """What became of old names in two steps."""
    followed = {
        old: tuple(dict.fromkeys(end for name in new for end in then.get(name, (name,))))
        for old, new in first.items()
    }
    return {**then, **followed}


def _require_ops(graph: Graph, ops: Iterable[str]) -> None:
    known = {*registry.names(), *(node.op for node in graph)}
    for op in ops:
        if op not in known:
            message = f"there is no op {op!r}"
            raise UsageError(message, hint=did_you_mean(op, known))


def wished(
    graph: Graph,
    only_ops: Collection[str] = (),
    exclude_ops: Collection[str] = (),
    fetches: Iterable[str] | None = None,
    feeds: Iterable[str] = (),
) -> Wishes:
    """What a caller says of nodes. Raises UsageError for a name that there is not."""
    fed = {_node(graph, name) for name in feeds}
    if fetches is None:
        unread = {node for node in graph if not node.uses}
        return Wishes(only_ops, exclude_ops, (), fed, unread)
    kept = {_node(graph, name) for name in fetches}
    return Wishes(only_ops, exclude_ops, (), fed, kept, set(ancestors(graph, kept)))


def _node(graph: Graph, name: str) -> Node:
    return graph[node_name(name)]


def _written(graph: Graph, plan: Plan, wishes: Wishes, lifting: Lifting | None) -> Clustering:
    """Put the clusters of a plan into the graph; what was decided."""
    inside = {} if lifting is None else lifting.stands_for()
    order = list(graph)
    clusters, made = list[Cluster](), dict[Node, list[Node]]()
    names: dict[str, tuple[str, ...]] = {}
    told = [plan.told(body, "", inside) for body in plan.bodies]
    for body, cluster in zip(plan.bodies, told, strict=True):
        name = _unique(graph, len(clusters))
        done = encapsulate(graph, body, name, wishes.kept)
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
    put_in_order(graph, order, made)
    follow_neighbours(graph, {old: new for old, (new,) in names.items()})
    return Clustering(
        rewrites=len(clusters),
        names=names,
        warnings=plan.formation.agreed.limits(),
        after=op_counts(graph),
        clusters=tuple(clusters),
        absorbed=tuple(node.name for node in plan.absorbed if node not in inside),
        outside={n.name: reason for n, reason in plan.outside.items() if n not in inside},
        regions=() if lifting is None else lifting.regions,
    )


def _unique(graph: Graph, number: int) -> str:
    """A name that neither a node nor a function has."""
    name = f"{_NAME}_{number}"
    while name in graph or name in graph.functions:
        number += 1
        name = f"{_NAME}_{number}"
    return name
