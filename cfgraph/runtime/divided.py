"""A run of a graph that is not partitioned, on several devices: placed and cut, in a copy."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cfgraph.analysis.reachability import ancestors
from cfgraph.analysis.transfers import is_partitioned
from cfgraph.errors import UsageError
from cfgraph.ir.devices import short_device_names
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import copy_graph
from cfgraph.passes.place.rules import PlacementRules
from cfgraph.runtime.lowered import Run, stand_in
from cfgraph.runtime.plan import is_replaced


def divided_run(
    run: Run, devices: Collection[str], soft_placement: bool, rules: PlacementRules
) -> Run:
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
        require_among(graph, devices)
        return run
    copy = copy_graph(graph, ancestors(graph, [*_nodes(fetches), *targets, *_nodes(feeds)]))
    fed = {item: _fed(copy, Output(copy[item.node.name], item.port)) for item in feeds}
    fetched = [fed.get(item) or Output(copy[item.node.name], item.port) for item in fetches]
    wanted = [*_nodes(fetched), *(copy[node.name] for node in targets), *_nodes(fed.values())]
    part = copy_graph(copy, ancestors(copy, wanted))
    place(part, devices=devices, rules=rules, soft_placement=soft_placement)
    partition(part)
    return (
        part,
        tuple(Output(part[item.node.name], item.port) for item in fetched),
        tuple(part[node.name] for node in targets),
        tuple(Output(part[item.node.name], item.port) for item in fed.values()),
    )


def require_among(graph: Graph, devices: Collection[str]) -> None:
    """Raise UsageError for a node of a partitioned graph that is on none of the devices."""
    for node in graph:
        if node.device and node.device not in devices:
            message = f"the graph is partitioned for {node.device}, which is not among the devices"
            hint = f"leave the devices out; given are {short_device_names(devices)}"
            raise UsageError(message, node=node, hint=hint)


def _fed(graph: Graph, item: Output) -> Output:
    """What is fed for an output: a node that runs all the same is not computed for it."""
    return item if is_replaced(item.node) else stand_in(graph, item)


def _nodes(items: Iterable[Output]) -> list[Node]:
    return [item.node for item in items]
