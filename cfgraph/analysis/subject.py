"""What the rules look at: a graph or the body of a function, with what they share about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from cfgraph.analysis.findings import Finding
from cfgraph.analysis.frames import Frames, frames
from cfgraph.analysis.signatures import Signatures, Types
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.names import did_you_mean
from cfgraph.ir.walk import Roles

Meant = Callable[[str, Iterable[str]], str | None]


@dataclass(eq=False)
class Subject:
    """A graph under verification. `function` names the function whose body it is.

    `arguments` are the nodes that stand for a function's arguments, with their types; they are no
    nodes of the file.
    """

    graph: Graph
    signatures: Signatures
    function: str = ""
    arguments: Mapping[Node, Types] = field(default_factory=dict)
    guesses: int = 10

    @cached_property
    def nodes(self) -> list[Node]:
        """The nodes that the file holds, in order."""
        arguments = self.arguments
        return [node for node in self.graph if node not in arguments]

    @cached_property
    def by_op(self) -> dict[str, list[Node]]:
        """The nodes of each op, in order; many rules ask only about some ops."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            found.setdefault(node.op, []).append(node)
        return found

    @cached_property
    def types(self) -> dict[Node, Types]:
        """The types that each node reads and returns."""
        found = dict(self.arguments)
        for op, nodes in self.by_op.items():
            types_of = self.signatures.types_of_op(op)
            for node in nodes:
                found[node] = types_of(node.attrs)
        return found

    @cached_property
    def frames(self) -> Frames:
        """The frames of the graph."""
        return frames(self.graph)

    @cached_property
    def roles(self) -> Roles:
        """The roles of ops."""
        return Roles()

    def guess(self, name: str, known: Iterable[str], meant: Meant = did_you_mean) -> str | None:
        """A hint with the name that is meant; only for the first few, since it takes its time."""
        self.guesses -= 1
        return meant(name, known) if self.guesses >= 0 else None


Rule = Callable[[Subject], Iterator[Finding]]
