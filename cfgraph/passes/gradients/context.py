"""State shared by one gradient computation: the graph, static shapes and values, new names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable
from typing import Any

from cfgraph.analysis.loops.frames import Frame, Frames
from cfgraph.ir import registry
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import Shape
from cfgraph.ops.opdef.gradient_api import InputGradients
from cfgraph.ops.opdef.op import role_of
from cfgraph.ops.shape_inference import infer_node_shapes, infer_shapes
from cfgraph.ops.static_values import PartialArray, StaticValue, decode_value
from cfgraph.passes.gradients.function_gradients import call_gradient


class StaticInfo:
    """The static shapes and values of a graph and of nodes added to it since."""

    def __init__(self, graph: Graph) -> None:
        self._inferred = infer_shapes(graph)
        self._new: set[Node] = set()
        self._shapes: dict[Output, Shape] = {}
        self._values: dict[Output, StaticValue] = {}

    def shape(self, x: Output) -> Shape:
        """What is known of a tensor's shape."""
        if x.node in self._new:
            self._infer(x.node)
        added = self._shapes.get(x)
        return self._inferred[x] if added is None else added

    def value(self, x: Output) -> Any | None:
        """A tensor's value as an array, or None."""
        value = self._known(x)
        return None if value is None or value.known is not None else value.array

    def learn(self, node: Node) -> None:
        """Take note of a new node; what it gives is inferred when somebody asks."""
        self._new.add(node)

    def tell(self, x: Output, shape: Shape) -> None:
        """Note what is known of a new tensor's shape from elsewhere."""
        have = self.shape(x)
        with contextlib.suppress(ValueError):
            self._shapes[x] = have.merge(shape)

    def copy(self, twin: Node, node: Node) -> None:
        """Know of a new node what is known of another one."""
        for port in range(registry.output_count(node) or 0):
            x = node.output(port)
            self._shapes[twin.output(port)] = self.shape(x)
            value = self._known(x)
            if value is not None:
                self._values[twin.output(port)] = value

    def _infer(self, node: Node) -> None:
        """Infer what a new node gives, and before that what it reads."""
        trail = [node]
        while trail:
            node = trail[-1]
            before = [item.node for item in node.inputs if item.node in self._new]
            self._new.discard(node)
            todo = [source for source in before if source is not node]
            if todo and role_of(node) is not Role.MERGE:
                trail.extend(todo)
                continue
            trail.pop()
            self._take(node)

    def _take(self, node: Node) -> None:
        inputs = [self._shapes.get(item) or self._inferred[item] for item in node.inputs]
        try:
            shapes, values = infer_node_shapes(node, inputs, [self._known(i) for i in node.inputs])
        except ValueError:
            return
        for port, (shape, value) in enumerate(zip(shapes, values, strict=True)):
            self._shapes[node.output(port)] = shape
            if value is not None:
                self._values[node.output(port)] = value

    def _known(self, x: Output) -> PartialArray | None:
        if x.node in self._new:
            self._infer(x.node)
        if x in self._values:
            return decode_value(self._values[x])
        array = self._inferred.value(x)
        return None if array is None else PartialArray(array)


class GradientContext:
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
        self.known = StaticInfo(graph)
        self.scope = _unique_scope(graph)
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

    def call_gradient(self, node: Node) -> Callable[..., InputGradients] | None:
        """The gradient of a call whose function has one in the library."""
        return call_gradient(self.graph, node) if self.graph.gradient_functions else None

    def undo(self) -> None:
        """Remove all nodes that were added."""
        gone = set(self.added)
        for node in self.graph:
            if node not in gone and not gone.isdisjoint(node.controls):
                self.graph.set_controls(node, [c for c in node.controls if c not in gone])
        self.graph.remove(*self.added)


def _unique_scope(graph: Graph) -> str:
    """`gradients`, or `gradients_1`, … where names begin with that."""
    taken = {name.split("/", 1)[0] for name in graph.nodes}
    number, scope = 0, "gradients"
    while scope in taken:
        number += 1
        scope = f"gradients_{number}"
    return scope
