"""Report of a pass: number of rewrites, renamed nodes, warnings, and op counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from cfgraph.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Report:
    """Number of rewrites, renamed nodes, warnings, and op counts before and after a pass.

    `names` maps an old node to the nodes that replace it, and an old tensor (`name:port`) to the
    one that has its value now. A report is true if the pass changed something.
    """

    rewrites: int = 0
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    before: Mapping[str, int] = field(default_factory=dict)
    after: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.rewrites > 0

    def changes(self) -> list[tuple[str, int, int]]:
        """Ops whose number changed, sorted: (op, before, after)."""
        return [
            (op, self.before.get(op, 0), self.after.get(op, 0))
            for op in sorted({*self.before, *self.after})
            if self.before.get(op, 0) != self.after.get(op, 0)
        ]


def op_counts(graph: Graph) -> dict[str, int]:
    """Number of nodes of each op in a graph."""
    return dict(Counter(node.op for node in graph))
