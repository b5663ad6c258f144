"""Order maintenance: labels that compare as the positions of vertices in a list.

A vertex that moves takes a label between those of its new neighbors. Where there is no room, the
vertices after it are spread, as many as make the labels sparse enough (Dietz and Sleator, "Two
algorithms for maintaining order in a list", 1987): an amortized logarithmic number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

# between neighbors at first
_GAP: Final = 1 << 32


class OrderLabels:
    """A list of the vertices 0 to n-1; `labels` has a number per vertex that grows in the list."""

    def __init__(self, order: Sequence[int]) -> None:
        self.labels = [0] * len(order)
        # the list is circular: its head, and its end, is vertex n
        self._head = len(order)
        self._next = [0] * (len(order) + 1)
        self._previous = [0] * (len(order) + 1)
        for position, vertex in enumerate(order, 1):
            self.labels[vertex] = position * _GAP
        for vertex, following in pairwise((self._head, *order, self._head)):
            self._link(vertex, following)

    def _link(self, vertex: int, following: int) -> None:
        self._next[vertex] = following
        self._previous[following] = vertex

    def move_before(self, anchor: int, vertices: Iterable[int]) -> list[int]:
        """Move vertices, in order, to before another; return those that have a new label."""
        return self._move(vertices, anchor, is_before=True)

    def move_after(self, anchor: int, vertices: Iterable[int]) -> list[int]:
        """Move vertices, in order, to after another; return those that have a new label."""
        return self._move(vertices, anchor, is_before=False)

    def replace(self, vertices: Sequence[int], new: Sequence[int]) -> list[int]:
        """Put new vertices, in order, at the positions of others; return those that moved."""
        occupant = dict(zip(vertices, new, strict=True))
        for vertex in occupant.values() - occupant.keys():
            self._link(self._previous[vertex], self._next[vertex])
        positions = [
            (self._previous[vertex], self._next[vertex], self.labels[vertex]) for vertex in vertices
        ]
        for vertex, (before, after, label) in zip(new, positions, strict=True):
            self._link(occupant.get(before, before), vertex)
            self._link(vertex, occupant.get(after, after))
            self.labels[vertex] = label
        return [vertex for vertex, old in zip(new, vertices, strict=True) if vertex != old]

    def _move(self, vertices: Iterable[int], anchor: int, *, is_before: bool) -> list[int]:
        moved = list(vertices)
        for vertex in moved:
            self._link(self._previous[vertex], self._next[vertex])
        start = self._previous[anchor] if is_before else anchor
        end = self._next[start]
        for vertex, following in pairwise((start, *moved, end)):
            self._link(vertex, following)
        low = 0 if start == self._head else self.labels[start]
        while end != self._head and self.labels[end] - low <= len(moved) ** 2:
            moved.append(end)
            end = self._next[end]
        last = low + _GAP * (len(moved) + 1) if end == self._head else self.labels[end]
        gap = (last - low) // (len(moved) + 1)
        for position, vertex in enumerate(moved, 1):
            self.labels[vertex] = low + position * gap
        return moved
