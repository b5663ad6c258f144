"""Outcome of a pass: a report, or an error and a graph without changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from cfgraph.ir.graph import Graph, require_graph
from cfgraph.rich_display import DisplayedReport


@dataclass(frozen=True, slots=True)
class Report(DisplayedReport):
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
        return changed_counts(self.before, self.after)


def changed_counts(
    before: Mapping[str, int], after: Mapping[str, int]
) -> list[tuple[str, int, int]]:
    """Ops whose number changed, sorted: (op, before, after)."""
    return [
        (op, before.get(op, 0), after.get(op, 0))
        for op in sorted({*before, *after})
        if before.get(op, 0) != after.get(op, 0)
    ]


def op_counts(graph: Graph) -> dict[str, int]:
    """Number of nodes of each op in a graph."""
    return dict(Counter(node.op for node in graph))


# of a node, besides its uses
_EDITED_FIELDS: Final = ("name", "op", "device", "origin", "attrs", "inputs", "controls")


class GraphState:
    """Shallow copies of everything in a graph that a pass may edit in place."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = dict(graph.nodes)
        # a list per field takes half the memory of a tuple per node
        self.fields = {name: [*map(attrgetter(name), graph)] for name in _EDITED_FIELDS}
        # of few readers it is the same tuple
        self.uses = [tuple(node.uses) for node in graph]
        self.functions = dict(graph.functions)
        self.gradient_functions = dict(graph.gradient_functions)
        self.versions, self.origin = graph.versions, graph.origin
        self.name_suffixes = dict(graph.name_suffixes)

    def restore(self, graph: Graph) -> None:
        """Undo all edits; the nodes are the same objects as before."""
        for name, values in self.fields.items():
            for node, value in zip(self.nodes.values(), values, strict=True):
                setattr(node, name, value)
        for node, uses in zip(self.nodes.values(), self.uses, strict=True):
            node.uses = ()
            for use in uses:
                node.add_use(use)
        graph.nodes = self.nodes
        graph.functions = self.functions
        graph.gradient_functions = self.gradient_functions
        graph.versions, graph.origin = self.versions, self.origin
        graph.name_suffixes = self.name_suffixes
        # derived data of the edited graph are stale, and so are those of its devices: a move is an
        # edit too, and one more edit is none
        graph.edits += 2
        graph.moves += 1


@contextmanager
def unchanged_on_error(graph: Graph) -> Iterator[None]:
    """Undo all edits of a graph if the body raises. Raises UsageError for what is no graph."""
    require_graph(graph)
    state = GraphState(graph)
    try:
        yield
    except BaseException:
        state.restore(graph)
        raise
