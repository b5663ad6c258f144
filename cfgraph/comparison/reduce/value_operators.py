"""Operators on constants, their shapes, devices, annotations, and the function library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cfgraph.comparison.reduce.node_operators import ControlOperator, RewireOperator
from cfgraph.comparison.reduce.search import ItemOperator
from cfgraph.comparison.reduce.subject import Subject
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import called_functions
from cfgraph.ir.shapes import Shape


@dataclass(frozen=True, slots=True)
class ConstantOperator(ItemOperator):
    """Reduction of the axes of constants and placeholders to one element."""

    name: str = "constants"

    def items(self, subject: Subject) -> list[str]:
        """Return the nodes with a tensor or a shape of more than one element."""
        return [node.name for node in subject.graphs[0] if _smaller(node)]

    def remove(self, graph: Graph, item: str) -> None:
        """Make a constant smaller."""
        node = graph.nodes.get(item)
        if node is not None:
            for key, value in _smaller(node).items():
                graph.set_attr(node, key, value)


def _smaller(node: Node) -> dict[str, Any]:
    """Return the attributes of a node that can be smaller."""
    if node.inputs:
        return {}
    smaller: dict[str, Any] = {}
    for key, value in node.attrs.items():
        if isinstance(value, TensorValue) and (value.shape.elements or 0) > 1:
            array = value.array
            smaller[key] = TensorValue(np.array(array[(slice(0, 1),) * array.ndim]))
        elif isinstance(value, Shape) and value.dims and set(value.dims) != {1}:
            smaller[key] = Shape([1] * len(value.dims))
    return smaller


@dataclass(frozen=True, slots=True)
class AnnotationOperator(ItemOperator):
    """Removal of devices, and of attributes that begin with an underscore."""

    name: str = "annotations"

    def items(self, subject: Subject) -> list[str]:
        """Return the nodes with a device or an annotation."""
        nodes = (node for graph in subject.graphs for node in graph)
        return list(dict.fromkeys(node.name for node in nodes if _is_annotated(node)))

    def remove(self, graph: Graph, item: str) -> None:
        """Remove the device and the annotations of a node."""
        node = graph.nodes.get(item)
        if node is not None:
            graph.set_device(node, "")
            attrs = {key: value for key, value in node.attrs.items() if key[:1] != "_"}
            graph.set_op(node, node.op, attrs)


def _is_annotated(node: Node) -> bool:
    return bool(node.device) or any(key[:1] == "_" for key in node.attrs)


@dataclass(frozen=True, slots=True)
class FunctionOperator(ItemOperator):
    """Removal of functions that are not called; a candidate that lacks another one is invalid."""

    name: str = "functions"

    def items(self, subject: Subject) -> list[str]:
        """Return the functions that no node of the graph needs."""
        graph = subject.graphs[0]
        called = called_functions(graph)
        return [name for name in graph.functions if name not in called]

    def remove(self, graph: Graph, item: str) -> None:
        """Remove a function."""
        graph.functions.pop(item, None)
        graph.gradient_functions.pop(item, None)


# the finest operators, which come last
LAST_OPERATORS: Final = (
    ControlOperator(),
    RewireOperator(),
    AnnotationOperator(),
    ConstantOperator(),
)
