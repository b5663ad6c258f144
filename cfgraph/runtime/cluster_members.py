"""Runs that name nodes inside clusters.

The nodes of such a cluster are inlined, and those that the run needs are clustered again. All
other clusters run as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cfgraph.analysis.reachability import ancestors
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import copy_graph, remove_uncalled_functions
from cfgraph.ir.names import node_name
from cfgraph.passes.cluster.inline_clusters import (
    InlinedNodes,
    called_function,
    cluster_calls,
    inline_clusters,
)
from cfgraph.runtime.engine.plan import nodes_to_run
from cfgraph.runtime.prepare import RunSpec, rebind_run


@dataclass(frozen=True, slots=True, eq=False)
class InlinedClusters:
    """A graph, some of its launches opened, and the nodes that were one, by its name."""

    graph: Graph
    groups: InlinedNodes


class ClusterMembers:
    """What the names of runs mean: nodes of a graph, or else of the clusters in it."""

    def __init__(self, graph: Graph) -> None:
        self._plain = InlinedClusters(graph, {})
        self._edits = -1
        self._library: tuple[Function, ...] = ()
        self._launches: list[Node] = []
        self._opened: dict[frozenset[str], InlinedClusters] = {}

    def of(self, names: Iterable[str]) -> InlinedClusters:
        """The graph, or a copy in which those launches are open that alone have one of the names.

        Raises InvalidInput for a launch that does not fit its function.
        """
        graph = self._plain.graph
        if self._edits != graph.edits:
            self._edits, self._opened = graph.edits, {}
            self._launches = cluster_calls(graph)
        if not self._launches:
            return self._plain
        library = tuple(graph.functions.values())
        if self._library != library:
            self._library, self._opened = library, {}
        holders = frozenset(
            node.name for node in member_nodes(graph, names, self._launches).values()
        )
        if not holders:
            return self._plain
        if holders not in self._opened:
            copy = copy_graph(graph)
            groups = inline_clusters(copy, [node for node in copy if node.name in holders])
            self._opened[holders] = InlinedClusters(copy, groups)
        return self._opened[holders]


def member_nodes(graph: Graph, names: Iterable[str], launches: Iterable[Node]) -> dict[str, Node]:
    """The nodes that only the functions of launches have, of those that are named; their launch."""
    hidden = {base for base in map(node_name, names) if base not in graph}
    found: dict[str, Node] = {}
    for launch in launches if hidden else ():
        function = called_function(graph, launch)
        for node in function.definition.nodes if function else ():
            if node.name in hidden:
                found.setdefault(node.name, launch)
    return found


def recluster_run(groups: InlinedNodes, run: RunSpec) -> RunSpec:
    """The same run of what it needs, with a launch for what it needs of each group."""
    from cfgraph.passes.cluster.encapsulate import ClusterBody, encapsulate

    graph, fetches, targets, feeds = run
    kept = [*(item.node for item in fetches), *targets]
    found = set(nodes_to_run(*run))
    copy = copy_graph(graph, ancestors(graph, [*kept, *(item.node for item in feeds)]))
    remove_uncalled_functions(copy)
    fed = {item.node for item in feeds}
    keep = {copy[node.name] for node in kept}
    for name, group in groups.items():
        members = [copy[node.name] for node in group if node in found]
        if members and not fed.intersection(group):
            encapsulate(copy, ClusterBody(tuple(members), ()), _unused_name(copy, name), keep)
    return rebind_run(run, copy)


def _unused_name(graph: Graph, name: str) -> str:
    """A name that neither a node nor a function has."""
    number, free = 0, name
    while free in graph or free in graph.functions:
        number += 1
        free = f"{name}_{number}"
    return free
