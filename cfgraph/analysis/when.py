"""When each node runs, in a word and as a formula, for lists of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from cfgraph.analysis.deadness.deadness import deadness
from cfgraph.ir.graph import Graph, Node

HOW_OFTEN: Final = ("always", "sometimes", "never")


class When(NamedTuple):
    """When a node runs: `always`, `sometimes` or `never`, and the formula of that.

    Nodes of one `group` are live in the same runs and iterations; it is 0 for `always`.
    """

    how_often: str
    predicate: str
    group: int

    @property
    def text(self) -> str:
        """The formula, or the word where there is nothing to tell."""
        return self.predicate if self.how_often == "sometimes" else self.how_often

    def matches(self, pattern: str) -> bool:
        """True if the word or the formula passes a glob."""
        return fnmatchcase(self.how_often, pattern) or fnmatchcase(self.predicate, pattern)


def when(graph: Graph) -> Mapping[Node, When]:
    """When each node of a graph runs.

    Raises InvalidInput where the graph has no order to run in.
    """
    found = deadness(graph)
    groups: dict[int, int] = {}
    told: dict[Node, When] = {}
    for node in graph:
        predicate = found.runs(node)
        if found.prover.always(predicate):
            told[node] = When("always", "true", 0)
            continue
        group = groups.setdefault(predicate, len(groups) + 1)
        how_often = "never" if found.prover.can_hold(predicate) is False else "sometimes"
        told[node] = When(how_often, found.text(predicate), group)
    return told
