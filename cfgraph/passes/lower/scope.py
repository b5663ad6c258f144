"""Where lowered nodes live: what they are called, and what keeps them from running elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cfgraph.ir.graph import Node, Output
from cfgraph.passes.lower.construct import Construct


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """The surroundings of inlined nodes: the graph itself, a branch, one side of a loop, a call.

    `pivot` gives the node that is live exactly when the scope runs, None where that is always.
    `loose` nodes are live even in the iteration that a loop's body does not run in: its constant
    Enters. What reads nothing but them hangs on the pivot. `hold` goes before every node of the
    scope. In an `ordered` scope the effects, too, wait for the pivot.
    """

    prefix: str = ""
    device: str = ""
    pivot: Callable[[], Node | None] = lambda: None
    loose: frozenset[Node] | set[Node] = frozenset()
    hold: Sequence[Node] = ()
    ordered: bool = False


@dataclass(slots=True, eq=False)
class Site:
    """A functional node about to be lowered: what it reads and waits for, and where it stands.

    On the `surface`, in the graph itself, its name must live on. A `guarded` site stands behind
    primitives, so that only its own inputs tell when it runs.
    """

    node: Node
    construct: Construct
    scope: Scope
    surface: bool
    guarded: bool
    inputs: tuple[Output, ...] = ()
    controls: tuple[Node, ...] = ()
    conduits: tuple[Node, ...] = ()
    gate: Node | None = field(default=None)

    @property
    def arguments(self) -> tuple[Output, ...]:
        """What the functions are given."""
        return self.inputs[self.construct.first :]

    def pivot(self) -> Node | None:
        """The node that is live exactly when this one would run, None where that is always."""
        return self.gate or self.scope.pivot()

    @property
    def loose(self) -> frozenset[Node] | set[Node]:
        """The nodes that are live even when this one would not run."""
        return frozenset() if self.gate else self.scope.loose

    def held(self, *inputs: Output) -> tuple[Node, ...]:
        """The control inputs that a node needs which reads `inputs` at the site's edge."""
        if self.controls or not all(item.node in self.loose for item in inputs):
            return self.controls
        pivot = self.pivot()
        return () if pivot is None else (pivot,)
