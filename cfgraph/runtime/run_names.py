"""Names of runs, resolved once: tensors to fetch, nodes to run, and conversions of their feeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any, Final

from cfgraph.analysis.feeds_and_fetches import fed_tensor, fetched_tensor
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.runtime.cluster_members import ClusterMembers, InlinedClusters
from cfgraph.runtime.feeds.conversion import FeedConverter

_MAX_RESOLVED: Final = 32


@dataclass(frozen=True, slots=True, eq=False)
class RunNames:
    """The tensors and nodes that a run names, in a graph where named clusters are inlined."""

    opened: InlinedClusters
    fetches: tuple[Output, ...]
    targets: tuple[Node, ...]
    feeds: Mapping[str, FeedConverter]

    def fed_values(self, feeds: Mapping[str, Any]) -> dict[Output, Any]:
        """The fed values by tensor. Raises UsageError for values that do not fit."""
        converters = self.feeds
        fed = {}
        for name, value in feeds.items():
            converter = converters[name]
            fed[converter.tensor] = converter.convert(value)
        return fed


class NameResolver:
    """Resolver of the names of runs of a graph; it remembers names until the graph changes."""

    def __init__(self, graph: Graph, lock: RLock) -> None:
        self.graph = graph
        self._lock = lock
        self._members = ClusterMembers(graph)
        self._unchanged = InlinedClusters(graph, {})
        self._version: Any = None
        self._resolved: dict[Any, RunNames] = {}

    def resolve(
        self, fetches: Sequence[str], targets: Sequence[str], feeds: Iterable[str]
    ) -> RunNames:
        """The tensors and nodes of a run. Raises UsageError for unknown names."""
        graph, key = self.graph, (tuple(fetches), tuple(targets), tuple(feeds))
        version = graph.edits, tuple(graph.functions.values())
        if self._version == version:
            names = self._resolved.get(key)
            if names is not None:
                return names
        with self._lock:
            opened = self._unchanged
            if graph.functions:
                opened = self._members.resolve([*fetches, *targets, *key[2]])
            tensors, nodes = _resolve_roots(opened.graph, fetches, targets)
            names = RunNames(opened, tensors, nodes, _converters(opened.graph, key[2]))
            if self._version != version:
                self._resolved, self._version = {}, version
            while len(self._resolved) >= _MAX_RESOLVED:
                del self._resolved[next(iter(self._resolved))]
            self._resolved[key] = names
            return names


def fetch_names(fetches: str | Iterable[str]) -> list[str]:
    """The fetches as a list. Raises UsageError for a mapping: results are in list order."""
    if isinstance(fetches, Mapping):
        message = "fetches is a mapping, expected a list of names; results are in its order"
        raise UsageError(message, hint=f"fetches={list(fetches.values())}")
    return [fetches] if isinstance(fetches, str) else list(fetches)


def _resolve_roots(
    graph: Graph, names: Iterable[str], targets: Iterable[str]
) -> tuple[tuple[Output, ...], tuple[Node, ...]]:
    """The tensors to fetch and the nodes to run. Raises UsageError if there are none."""
    tensors = tuple(fetched_tensor(graph, name) for name in names if not name.startswith("^"))
    fetched_nodes = [name[1:] for name in names if name.startswith("^")]
    nodes = tuple(graph[name.removeprefix("^")] for name in [*fetched_nodes, *targets])
    if not tensors and not nodes:
        message = "nothing to fetch or to run"
        raise UsageError(message, hint="name at least one fetch or target")
    return tensors, nodes


def _converters(graph: Graph, names: Iterable[str]) -> dict[str, FeedConverter]:
    """The conversions of feeds. Raises UsageError for unknown and repeated names."""
    converters: dict[str, FeedConverter] = {}
    fed = set[Output]()
    for name in names:
        tensor = fed_tensor(graph, name)
        if tensor in fed:
            message = f"{tensor.name} is fed more than once"
            raise UsageError(message, node=tensor.node)
        fed.add(tensor)
        converters[name] = FeedConverter(graph, tensor)
    return converters
