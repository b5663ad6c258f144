"""What one computation of gradients shares: the graph, what is known of it, and new names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from cfgraph.analysis.loops.frames import Frame, Frames
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ops.adjoint import Partials
from cfgraph.passes.gradients.calls import call_gradient
from cfgraph.passes.gradients.knowledge import Knowledge


class Work:
    """A graph that gets gradients.

    `scope` begins the names of all new nodes; `prefix` those of the nodes being added now, which
    ask for `device`. `made` are the nodes that belong to the gradients; others that are added, like
    the counter of a loop, belong to the graph itself. `segments` are the LoopConds of loops that
    are run again before their gradient, `twins` the nodes that do so, `left_out` those that hand on
    their input 1 and need not.
    """

    def __init__(self, graph: Graph, found: Frames, swap_memory: bool, ignore_custom: bool) -> None:
        self.graph = graph
        self.swap_memory = swap_memory
        self.ignore_custom = ignore_custom
        self.known = Knowledge(graph)
        self.scope = _free_scope(graph)
        self.prefix = self.scope
        self.device = ""
        self.made: set[Node] = set()
        self.added: list[Node] = []
        self.segments: Collection[Node] = ()
        self.twins: list[Node] = []
        self.left_out: Collection[Node] = ()
        self._frame_names = {frame.name for frame in found.all}

    def at(self, node: Node) -> None:
        """Let the nodes added from now on be named after this one, and run beside it."""
        self.prefix = f"{self.scope}/{node.name}_grad"
        self.device = node.device

    def within(self, frame: Frame) -> None:
        """Let the nodes added from now on be named after a loop."""
        self.prefix = f"{self.scope}/{frame.name}"
        self.device = frame.loop_conds[0].device

    def frame_name(self, name: str) -> str:
        """A name for the frame that runs back over the one of this name."""
        base = found = f"{self.scope}/{name}"
        number = 0
        while found in self._frame_names:
            number += 1
            found = f"{base}_{number}"
        self._frame_names.add(found)
        return found

    def add(
        self,
        op: str,
        inputs: Iterable[Output],
        name: str,
        controls: Iterable[Node] = (),
        **attrs: Any,
    ) -> Node:
        """Add a node of the gradients."""
        node = self._add(op, inputs, name, controls, attrs)
        self.made.add(node)
        return node

    def add_forward(
        self,
        op: str,
        inputs: Iterable[Output],
        name: str,
        controls: Iterable[Node] = (),
        **attrs: Any,
    ) -> Node:
        """Add a node to what is differentiated."""
        return self._add(op, inputs, name, controls, attrs)

    def _add(
        self,
        op: str,
        inputs: Iterable[Output],
        name: str,
        controls: Iterable[Node],
        attrs: dict[str, Any],
    ) -> Node:
        full = f"{self.prefix}/{name}"
        node = self.graph.add(
            op, *inputs, name=full, controls=controls, device=self.device, attrs=attrs
        )
        self.added.append(node)
        self.known.learn(node)
        return node

    def twin(self, node: Node) -> Node:
        """Add a node like one of the graph, without edges."""
        name = self.graph.unique_name(f"{self.scope}/again/{node.name}")
        twin = self.graph.create(name, node.op, attrs=dict(node.attrs), device=node.device)
        self.added.append(twin)
        self.twins.append(twin)
        return twin

    def call_gradient(self, node: Node) -> Callable[..., Partials] | None:
        """The gradient of a call whose function has one in the library."""
        return call_gradient(self.graph, node) if self.graph.gradient_functions else None

    def undo(self) -> None:
        """Remove all nodes that were added."""
        gone = set(self.added)
        for node in self.graph:
            if node not in gone and not gone.isdisjoint(node.controls):
                self.graph.set_controls(node, [c for c in node.controls if c not in gone])
        self.graph.remove(*self.added)


def _free_scope(graph: Graph) -> str:
    """`gradients`, or `gradients_1`, … where names begin with that."""
    taken = {name.split("/", 1)[0] for name in graph.nodes}
    number, scope = 0, "gradients"
    while scope in taken:
        number += 1
        scope = f"gradients_{number}"
    return scope
