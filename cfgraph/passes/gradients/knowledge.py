"""What is known of shapes and values before the run, kept up while gradients are added."""

from __future__ import annotations

from typing import Any

from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.shapes import UNKNOWN, Shape
from cfgraph.ops.shape_inference import infer_node, infer_shapes
from cfgraph.ops.static_values import Known, Value, decoded


class Knowledge:
    """The static shapes and values of a graph and of nodes added to it since."""

    def __init__(self, graph: Graph) -> None:
        self._found = infer_shapes(graph)
        self._shapes: dict[Output, Shape] = {}
        self._values: dict[Output, Known] = {}

    def shape(self, x: Output) -> Shape:
        """What is known of a tensor's shape."""
        added = self._shapes.get(x)
        return self._found[x] if added is None else added

    def value(self, x: Output) -> Any | None:
        """A tensor's value as an array, or None."""
        value = self._known(x)
        return None if value is None or value.known is not None else value.array

    def learn(self, node: Node) -> None:
        """Infer what a new node gives."""
        inputs = [self.shape(item) for item in node.inputs]
        try:
            shapes, values = infer_node(node, inputs, [self._known(i) for i in node.inputs])
        except ValueError:
            return
        for port, (shape, value) in enumerate(zip(shapes, values, strict=True)):
            self._shapes[node.output(port)] = shape
            if value is not None:
                self._values[node.output(port)] = value

    def tell(self, x: Output, shape: Shape) -> None:
        """Note what is known of a new tensor's shape from elsewhere."""
        have = self._shapes.get(x, UNKNOWN)
        try:
            self._shapes[x] = have.merge(shape)
        except ValueError:
            self._shapes[x] = have

    def _known(self, x: Output) -> Value | None:
        if x in self._values:
            return decoded(self._values[x])
        array = self._found.value(x)
        return None if array is None else Value(array)
