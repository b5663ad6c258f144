"""Cycles in words: nodes that wait for each other, where no NextIteration closes a loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from cfgraph.analysis.findings import Finding
from cfgraph.ir.graph import Node

_SHOWN: Final = 8


def cycle_faults(found: Sequence[tuple[Node, ...]], nodes: Iterable[Node]) -> Iterator[Finding]:
    """A finding for each of some cycles, in the order of all `nodes`."""
    if not found:
        return
    places = {node: place for place, node in enumerate(nodes)}
    for cycle in sorted(found, key=lambda cycle: min(places[node] for node in cycle)):
        names, (first, *related) = in_a_circle(cycle, places)
        message = f"nodes wait for each other in a cycle: {names}"
        hint = "a loop closes through a NextIteration that feeds a Merge directly"
        yield Finding("CFG109", "error", message, first, hint, tuple(related))


def in_a_circle(cycle: Sequence[Node], places: Mapping[Node, int]) -> tuple[str, tuple[str, ...]]:
    """A cycle in words, cut in the middle, and its names, from the first node in graph order."""
    first = min(range(len(cycle)), key=lambda place: places[cycle[place]])
    nodes = (*cycle[first:], *cycle[:first])
    shown = [repr(node.name) for node in (*nodes, nodes[0])]
    if len(shown) > _SHOWN:
        shown[_SHOWN - 2 : -1] = [f"… {len(shown) - _SHOWN} more …"]
    return " -> ".join(shown), tuple(node.name for node in nodes)
