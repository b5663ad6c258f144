"""Preparation of a run: lower, place and partition, and cluster a copy of what it needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cfgraph.analysis.reachability import ancestors
from cfgraph.analysis.transfers import is_partitioned
from cfgraph.errors import UsageError
from cfgraph.ir.devices import short_device_names
from cfgraph.ir.function_graph import OutputPorts
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import copy_graph, remove_uncalled_functions
from cfgraph.ir.shapes import UNKNOWN_SHAPE
from cfgraph.ops.families.functional import is_functional
from cfgraph.passes.place.rules import PlacementRules
from cfgraph.runtime.engine.plan import is_replaced_by_feed

RunSpec = tuple[Graph, tuple[Output, ...], tuple[Node, ...], tuple[Output, ...]]


def lower_run(
    graph: Graph, fetches: tuple[Output, ...], targets: tuple[Node, ...], feeds: tuple[Output, ...]
) -> RunSpec:
    """The same run on a lowered graph, or as it came where nothing in it is functional.

    Raises what `lower` raises.
    """
    wanted = [*(item.node for item in fetches), *targets]
    if not is_functional(graph, ancestors(graph, wanted, frozenset(feeds))):
        return graph, fetches, targets, feeds
    from cfgraph.passes.lower.lower import lower

    nodes = ancestors(graph, [*wanted, *(item.node for item in feeds)])
    copy = copy_graph(graph, nodes)
    remove_uncalled_functions(copy)  # what is wrong in them is no matter of the run
    fed = {item: _lowered_feed(copy, Output(copy[item.node.name], item.port)) for item in feeds}
    lower(copy)
    return (
        copy,
        tuple(fed.get(item) or Output(copy[item.node.name], item.port) for item in fetches),
        tuple(copy[node.name] for node in targets),
        tuple(fed.values()),
    )


def rebind_run(run: RunSpec, graph: Graph) -> RunSpec:
    """The same run on a graph whose nodes have the same names."""
    _, fetches, targets, feeds = run
    return (
        graph,
        tuple(Output(graph[item.node.name], item.port) for item in fetches),
        tuple(graph[node.name] for node in targets),
        tuple(Output(graph[item.node.name], item.port) for item in feeds),
    )


def _lowered_feed(graph: Graph, item: Output) -> Output:
    """What is fed for an output; those of functional nodes lose their readers by lowering."""
    return feed_placeholder(graph, item) if is_functional(graph, [item.node]) else item


def feed_placeholder(graph: Graph, item: Output) -> Output:
    """A placeholder that takes the readers of an output; the output where its type is unknown."""
    dtype = OutputPorts(graph.functions).dtype(item)
    if dtype is None:
        return item
    name = graph.unique_name(f"{item.node.name}/fed")
    attrs = {"dtype": dtype, "shape": UNKNOWN_SHAPE}
    fed = graph.create(name, "Placeholder", attrs=attrs, device=item.node.device).output()
    graph.replace_uses(item, fed)
    return fed


def partition_run(
    run: RunSpec, devices: Collection[str], soft_placement: bool, rules: PlacementRules
) -> RunSpec:
    """The same run on a placed and partitioned copy of what it needs of a lowered graph.

    A graph that is partitioned stays as it is. Raises what `place` and `partition` raise, and
    UsageError for a partitioned graph that names other devices, or has its place by rules.
    """
    from cfgraph.passes.partition.partition import partition
    from cfgraph.passes.place.place import place

    graph, fetches, targets, feeds = run
    if is_partitioned(graph):
        if rules != PlacementRules():
            message = "the graph is partitioned, so that no rule can place it"
            raise UsageError(message, hint="leave the rules out, or partition the graph anew")
        require_known_devices(graph, devices)
        return run
    copy = copy_graph(graph, ancestors(graph, [*_nodes_of(fetches), *targets, *_nodes_of(feeds)]))
    fed = {item: _partitioned_feed(copy, Output(copy[item.node.name], item.port)) for item in feeds}
    fetched = [fed.get(item) or Output(copy[item.node.name], item.port) for item in fetches]
    wanted = [*_nodes_of(fetched), *(copy[node.name] for node in targets), *_nodes_of(fed.values())]
    part = copy_graph(copy, ancestors(copy, wanted))
    place(part, devices=devices, rules=rules, soft_placement=soft_placement)
    partition(part)
    return (
        part,
        tuple(Output(part[item.node.name], item.port) for item in fetched),
        tuple(part[node.name] for node in targets),
        tuple(Output(part[item.node.name], item.port) for item in fed.values()),
    )


def require_known_devices(graph: Graph, devices: Collection[str]) -> None:
    """Raise UsageError for a node of a partitioned graph that is on none of the devices."""
    for node in graph:
        if node.device and node.device not in devices:
            message = f"the graph is partitioned for {node.device}, which is not among the devices"
            hint = f"leave the devices out; given are {short_device_names(devices)}"
            raise UsageError(message, node=node, hint=hint)


def _partitioned_feed(graph: Graph, item: Output) -> Output:
    """What is fed for an output: a node that runs all the same is not computed for it."""
    return item if is_replaced_by_feed(item.node) else feed_placeholder(graph, item)


def _nodes_of(items: Iterable[Output]) -> list[Node]:
    return [item.node for item in items]


def cluster_run(run: RunSpec, *, regions: bool = False) -> RunSpec:
    """The same run with clusters in place of nodes that compile together.

    What is fetched, fed or a target keeps its name; `regions` takes in whole loops and
    conditionals. Raises what `cluster` raises.
    """
    from cfgraph.passes.cluster.cluster import cluster

    graph, fetches, targets, feeds = run
    wanted = [*(item.node for item in (*fetches, *feeds)), *targets]
    copy = copy_graph(graph, ancestors(graph, wanted))
    kept = [*(item.name for item in fetches), *(node.name for node in targets)]
    cluster(copy, fetches=kept, feeds=[item.name for item in feeds], regions=regions)
    return rebind_run(run, copy)
