"""What differs between two graphs, as `diff` answers: parts of nodes, nodes, functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cfgraph.ir.graph import Node


@dataclass(frozen=True, slots=True)
class Change:
    """One part of a node that is another: `op`, `device`, `input I`, `control`, `attr KEY`.

    None stands for what one of the two does not have.
    """

    part: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class ChangedNode:
    """A node that both graphs have, and what is different about it."""

    before: Node
    after: Node
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class NodesDiff:
    """What differs between the nodes of two graphs, or of two functions' bodies.

    `renamed` are those that are alike in all but their names, if names do not count.
    """

    added: tuple[Node, ...] = ()
    removed: tuple[Node, ...] = ()
    changed: tuple[ChangedNode, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    reordered: bool = False

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.reordered)


@dataclass(frozen=True, slots=True)
class ChangedFunction:
    """A function of both libraries: what differs in its body, and in the rest of it."""

    name: str
    nodes: NodesDiff
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphDiff:
    """What differs between two graphs; true where anything does."""

    nodes: NodesDiff = field(default_factory=NodesDiff)
    functions_added: tuple[str, ...] = ()
    functions_removed: tuple[str, ...] = ()
    functions_changed: tuple[ChangedFunction, ...] = ()
    changes: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        functions = self.functions_added or self.functions_removed or self.functions_changed
        return bool(self.nodes or functions or self.changes)
