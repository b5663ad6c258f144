"""Report of a pass: number of rewrites, renamed nodes, warnings, and op counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from cfgraph.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Report:
    """The number of rewrites, what became of old names, warnings, and the ops before and after.

    `names` maps an old node to the nodes made for it, and an old tensor (`name:port`) to the one
    that now holds its value. A report is true if something changed.
    """

    rewrites: int = 0
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    before: Mapping[str, int] = field(default_factory=dict)
    after: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.rewrites > 0

    def changes(self) -> list[tuple[str, int, int]]:
        """The ops whose number changed: op, before, after; sorted by op."""
        return [
            (op, self.before.get(op, 0), self.after.get(op, 0))
            for op in sorted({*self.before, *self.after})
            if self.before.get(op, 0) != self.after.get(op, 0)
        ]


def op_counts(graph: Graph) -> dict[str, int]:
    """How many nodes of each op a graph has."""
    return dict(Counter(node.op for node in graph))
