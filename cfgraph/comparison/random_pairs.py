"""Streams of random numbers of two graphs, neither of which was written from the other.

A stateful random node draws from a stream that its name and the calls around it name, so that a
pass changes no number. Two exports of one model name them differently; the second graph then draws
from the streams of the first where a node has one counterpart with the same op, seeds, and types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.analysis.findings import Finding
from cfgraph.comparison.pairing import pair_by_kind
from cfgraph.errors import CfgraphError
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import copy_graph
from cfgraph.ir.traversal import ancestors, dependents
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.random_streams import STREAM, draws, stream_name
from cfgraph.passes.lowering import lower

_SEEDS: Final = ("seed", "seed2", "dtype", "T", "Tout")


@dataclass(frozen=True, slots=True)
class PairedStreams:
    """The second graph with streams of the first, and their names in both graphs.

    `unpaired` are its tensors with other streams.
    """

    graph: Graph
    names: Mapping[str, str]
    unpaired: frozenset[str]

    def finding(self) -> Finding:
        """The reason why a tensor is not compared."""
        message = "the graphs draw random numbers from streams that do not correspond"
        hint = "compare with fed numbers, or without the random ops"
        return Finding("CFG810", "note", message, hint=hint)


def pair_streams(
    a: Graph, b: Graph, fetches: Sequence[tuple[str, str]], inits: Collection[str] = ()
) -> PairedStreams | None:
    """Return the second graph with the streams of the first.

    `fetches` are the tensors of both graphs, and `inits` the nodes that run first, where a graph
    has them. None if all streams have the same names, or if the random ops have other seeds, which
    is a difference.
    """
    try:
        first, second = _lowered(a), _lowered(b)
    except CfgraphError:
        check_deadline()
        return None
    drawn = _drawn(first, [name for name, _ in fetches], inits)
    drawn_b = _drawn(second, [name for _, name in fetches], inits)
    names, names_b = (dict.fromkeys(map(stream_name, nodes)) for nodes in (drawn, drawn_b))
    same = names.keys() == names_b.keys()
    if same or Counter(map(_kind, drawn)) != Counter(map(_kind, drawn_b)):
        return None
    pairs = pair_by_kind(
        {node: _kind(node) for node in drawn if stream_name(node) not in names_b},
        {node: _kind(node) for node in drawn_b if stream_name(node) not in names},
    )
    paired = {stream_name(node): stream_name(partner) for node, partner in pairs}
    for node, partner in pairs:
        second.set_attr(partner, STREAM, stream_name(node).encode())
    known = {partner for _, partner in pairs}
    unpaired = [n for n in drawn_b if stream_name(n) not in names and n not in known]
    return PairedStreams(second, paired, frozenset(_reached(second, fetches, unpaired)))


def _lowered(graph: Graph) -> Graph:
    copy = copy_graph(graph)
    lower(copy)
    return copy


def _drawn(graph: Graph, names: Iterable[str], inits: Iterable[str]) -> list[Node]:
    """Return the random nodes that tensors and initializers need."""
    required = [graph.tensor(name).node for name in names]
    required += [graph[name] for name in inits if name in graph]
    return [node for node in ancestors(graph, required) if draws(node, graph.functions)]


def _kind(node: Node) -> Hashable:
    values: list[Any] = [node.attrs.get(key) for key in _SEEDS]
    return node.op, *values


def _reached(
    graph: Graph, fetches: Sequence[tuple[str, str]], nodes: Collection[Node]
) -> list[str]:
    """Return the fetches, by their names in the first graph, that depend on nodes."""
    reached = dependents(graph, nodes)
    return [name for name, other in fetches if graph.tensor(other).node in reached]
