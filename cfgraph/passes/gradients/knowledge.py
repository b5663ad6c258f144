"""What is known of shapes and values before the run, kept up while gradients are added."""

from __future__ import annotations

import contextlib
from typing import Any

from cfgraph.ir import registry
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.op import role
from cfgraph.ops.shape_inference import infer_node, infer_shapes
from cfgraph.ops.static_values import Known, Value, decoded


class Knowledge:
    """The static shapes and values of a graph and of nodes added to it since."""

    def __init__(self, graph: Graph) -> None:
        self._found = infer_shapes(graph)
        self._new: set[Node] = set()
        self._shapes: dict[Output, Shape] = {}
        self._values: dict[Output, Known] = {}

    def shape(self, x: Output) -> Shape:
        """What is known of a tensor's shape."""
        if x.node in self._new:
            self._infer(x.node)
        added = self._shapes.get(x)
        return self._found[x] if added is None else added

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
            if todo and role(node) != "merge":
                trail.extend(todo)
                continue
            trail.pop()
            self._take(node)

    def _take(self, node: Node) -> None:
        inputs = [self._shapes.get(item) or self._found[item] for item in node.inputs]
        try:
            shapes, values = infer_node(node, inputs, [self._known(i) for i in node.inputs])
        except ValueError:
            return
        for port, (shape, value) in enumerate(zip(shapes, values, strict=True)):
            self._shapes[node.output(port)] = shape
            if value is not None:
                self._values[node.output(port)] = value

    def _known(self, x: Output) -> Value | None:
        if x.node in self._new:
            self._infer(x.node)
        if x in self._values:
            return decoded(self._values[x])
        array = self._found.value(x)
        return None if array is None else Value(array)
