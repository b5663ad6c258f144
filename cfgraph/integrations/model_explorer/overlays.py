"""Edge overlays of Model Explorer: critical cycles, messages, and paths that may be dead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from cfgraph.analysis.loops.critical_cycle import Item
from cfgraph.console.explanations.explain_loop import explain_loop
from cfgraph.console.views.selection import GraphView
from cfgraph.errors import CfgraphError
from cfgraph.ir.graph import Node
from cfgraph.ir.traversal import sends_by_recv

Edge = tuple[Node, Node]
_CYCLE_COLOR: Final = "#d93025"
_MESSAGE_COLOR: Final = "#1a73e8"
_DEAD_COLOR: Final = "#5f6368"
_CONDITIONAL_COLOR: Final = "#e37400"
_WIDTH: Final = 3


def edge_overlays(view: GraphView, ids: Mapping[Node, str]) -> list[dict[str, Any]]:
    """Sets of overlays for a graph, without those that have no edges."""
    if view.name or not view.is_analyzable:
        return []
    sets = {
        "cfgraph: critical cycles": [*_critical_cycles(view)],
        "cfgraph: messages": [("Send to Recv", _MESSAGE_COLOR, _messages(view))],
        "cfgraph: liveness": [
            ("never live", _DEAD_COLOR, _live_edges(view, "never")),
            ("live under a condition", _CONDITIONAL_COLOR, _live_edges(view, "sometimes")),
        ],
    }
    written = {
        name: [_overlay(*item, ids) for item in overlays if item[2]]
        for name, overlays in sets.items()
    }
    return [
        {"type": "edge_overlays", "name": name, "overlays": overlays}
        for name, overlays in written.items()
        if overlays
    ]


def _overlay(
    name: str, color: str, edges: Iterable[Edge], ids: Mapping[Node, str]
) -> dict[str, Any]:
    pairs = dict.fromkeys((ids[source], ids[target]) for source, target in edges)
    return {
        "name": name,
        "edgeColor": color,
        "edgeWidth": _WIDTH,
        "edges": [{"sourceNodeId": source, "targetNodeId": target} for source, target in pairs],
    }


def _critical_cycles(view: GraphView) -> Iterator[tuple[str, str, list[Edge]]]:
    """The critical cycle of each loop that has one."""
    for frame in view.frames.all[1:]:
        try:
            answer = explain_loop(view.graph, frame.path)
        except CfgraphError:
            continue  # no back edge, a name of two loops, or too large
        share = f"{100 * answer.cycle.share:.0f} % of its work"
        yield f"{frame.path}: {share}", _CYCLE_COLOR, cycle_edges(answer.cycle.chain)


def cycle_edges(chain: Sequence[Item]) -> list[Edge]:
    """The edges between neighbors of a cycle, the last and the first one included."""
    steps = [*pairwise(chain), (chain[-1], chain[0])] if chain else []
    return [
        (source, target)
        for before, after in steps
        for source in _ends(before, is_source=True)
        for target in _ends(after, is_source=False)
        if not _is_region(before, after) or source in {item.node for item in target.inputs}
    ]


def _is_region(*items: Item) -> bool:
    return any(not isinstance(item, Node) for item in items)


def _ends(item: Item, *, is_source: bool) -> list[Node]:
    """A node, or the Exits or Enters of a loop."""
    if isinstance(item, Node):
        return [item]
    return item.frame.exits if is_source else item.frame.enters


def _messages(view: GraphView) -> list[Edge]:
    return [(send, recv) for recv, send in sends_by_recv(list(view.graph)).items()]


def _live_edges(view: GraphView, how_often: str) -> list[Edge]:
    """The edges out of nodes of a liveness class.

    What depends on nothing but the condition of a loop is no path that may be dead.
    """
    of_loops = {
        view.liveness[node].group
        for frame in view.frames.all[1:]
        for node in (*frame.merges, *frame.next_iterations, *frame.exits)
    }
    return [
        (source, node)
        for node in view.graph
        for source in node.predecessors
        if view.liveness[source].how_often == how_often
        if how_often == "never" or view.liveness[source].group not in of_loops
    ]
