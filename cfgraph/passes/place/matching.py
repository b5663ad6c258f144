"""Which rule decides on which node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from cfgraph.analysis.loops.frames import Frames, frames
from cfgraph.analysis.node_filter import matches_filter
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.names import did_you_mean
from cfgraph.passes.place.rules import Rule, Rules

_MAGIC: Final = frozenset("*?[")
_TOLD: Final = 3


class Matched:
    """The rule of each node that one matches, the nodes to put together, and warnings."""

    def __init__(self, graph: Graph, rules: Rules) -> None:
        self.by: dict[Node, Rule] = {}
        self.graph = graph
        self._frames = _frames_for(graph, rules)
        used = self._match(rules.rules)
        self.together = [self._chosen(patterns) for patterns in rules.together]
        self.warnings = tuple(self._silent(rules.rules, used))

    def _match(self, rules: tuple[Rule, ...]) -> set[int]:
        """Find the last rule of each node, so that a file of many exact names takes no longer."""
        exact: dict[str, int] = {}
        wide: list[tuple[int, Rule]] = []
        for place, rule in enumerate(rules):
            names = _exact_names(rule)
            exact.update((name, place) for name in names)
            if not names:
                wide.append((place, rule))
        used: set[int] = set()
        wide.reverse()
        for node in self.graph if rules else ():
            best = exact.get(node.name, -1)
            for place, rule in wide:
                if place < best:
                    break
                if self._matches(node, rule):
                    best = place
                    break
            if best >= 0:
                self.by[node] = rules[best]
                used.add(best)
        return used

    def _matches(self, node: Node, rule: Rule) -> bool:
        return all(
            any(matches_filter(node, self._frames, kind, pattern) for pattern in patterns)
            for kind, patterns in rule.filters
        )

    def _chosen(self, patterns: Iterable[str]) -> list[Node]:
        return [
            node
            for node in self.graph
            if any(matches_filter(node, None, "", pattern) for pattern in patterns)
        ]

    def _silent(self, rules: tuple[Rule, ...], used: set[int]) -> Iterator[str]:
        """Tell of rules that match no node, for a name in them may be wrong."""
        silent = [rule for place, rule in enumerate(rules) if place not in used]
        silent = [rule for rule in silent if not self._matches_any(rule)]
        for rule in silent[:_TOLD]:
            guess = did_you_mean(rule.filters[0][1][0], self._known(rule.filters[0][0]))
            yield f"no node matches {rule.label}" + (f"; {guess}" if guess else "")
        if len(silent) > _TOLD:
            yield f"{len(silent) - _TOLD} more rules match no node"

    def _matches_any(self, rule: Rule) -> bool:
        names = _exact_names(rule)
        if names:
            return any(name in self.graph.nodes for name in names)
        return any(self._matches(node, rule) for node in self.graph)

    def _known(self, kind: str) -> Iterable[str]:
        if kind == "op":
            return dict.fromkeys(node.op for node in self.graph)
        return self.graph.nodes if not kind else ()


def _exact_names(rule: Rule) -> tuple[str, ...]:
    """The names of a rule that goes by whole names alone, else none."""
    if len(rule.filters) != 1 or rule.filters[0][0]:
        return ()
    patterns = rule.filters[0][1]
    return () if any(_MAGIC & set(pattern) for pattern in patterns) else patterns


def _frames_for(graph: Graph, rules: Rules) -> Frames | None:
    by_frame = any(kind == "frame" for rule in rules.rules for kind, _ in rule.filters)
    return frames(graph) if by_frame else None
