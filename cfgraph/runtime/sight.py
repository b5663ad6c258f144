"""A run may ask for a node that is in a cluster: it sees into the launch that holds it.

The nodes of that launch stand in its place, and those that the run needs are one launch again. All
other launches run as a whole, as their op says.
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
from cfgraph.runtime.lowered import Run, moved
from cfgraph.runtime.plan import computed


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A graph, some of its launches opened, and the nodes that were one, by its name."""

    graph: Graph
    groups: InlinedNodes


class Sight:
    """What the names of runs mean: nodes of a graph, or else of the clusters in it."""

    def __init__(self, graph: Graph) -> None:
        self._plain = Opened(graph, {})
        self._edits = -1
        self._library: tuple[Function, ...] = ()
        self._launches: list[Node] = []
        self._opened: dict[frozenset[str], Opened] = {}

    def of(self, names: Iterable[str]) -> Opened:
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
        holders = frozenset(node.name for node in within(graph, names, self._launches).values())
        if not holders:
            return self._plain
        if holders not in self._opened:
            copy = copy_graph(graph)
            groups = inline_clusters(copy, [node for node in copy if node.name in holders])
            self._opened[holders] = Opened(copy, groups)
        return self._opened[holders]


def within(graph: Graph, names: Iterable[str], launches: Iterable[Node]) -> dict[str, Node]:
    """The nodes that only the functions of launches have, of those that are named; their launch."""
    hidden = {base for base in map(node_name, names) if base not in graph}
    found: dict[str, Node] = {}
    for launch in launches if hidden else ():
        function = called_function(graph, launch)
        for node in function.definition.nodes if function else ():
            if node.name in hidden:
                found.setdefault(node.name, launch)
    return found


def regrouped_run(groups: InlinedNodes, run: Run) -> Run:
    """The same run of what it needs, with a launch for what it needs of each group."""
    from cfgraph.passes.cluster.encapsulate import ClusterBody, encapsulate

    graph, fetches, targets, feeds = run
    kept = [*(item.node for item in fetches), *targets]
    found = set(computed(*run))
    copy = copy_graph(graph, ancestors(graph, [*kept, *(item.node for item in feeds)]))
    remove_uncalled_functions(copy)
    fed = {item.node for item in feeds}
    keep = {copy[node.name] for node in kept}
    for name, group in groups.items():
        members = [copy[node.name] for node in group if node in found]
        if members and not fed.intersection(group):
            encapsulate(copy, ClusterBody(tuple(members), ()), _free_name(copy, name), keep)
    return moved(run, copy)


def _free_name(graph: Graph, name: str) -> str:
    """A name that neither a node nor a function has."""
    number, free = 0, name
    while free in graph or free in graph.functions:
        number += 1
        free = f"{name}_{number}"
    return free
