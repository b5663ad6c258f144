"""Operators on constants, their shapes, devices, annotations, and the function library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfgraph.compare.reduce.subject import Subject
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import called_functions, copy_graph
from cfgraph.ir.shapes import Shape


@dataclass(frozen=True, slots=True)
class ConstantOperator:
    """Reduction of the axes of constants and placeholders to one element."""

    name: str = "constants"

    def items(self, subject: Subject) -> list[str]:
        """Return the nodes with a tensor or a shape of more than one element."""
        return [node.name for node in subject.graphs[0] if _smaller(node)]

    def candidate(self, subject: Subject, items: Sequence[str]) -> Subject | None:
        """Return a subject with smaller constants."""

        def edit(graph: Graph) -> Graph:
            copy = copy_graph(graph)
            for name in items:
                node = copy.nodes.get(name)
                for key, value in _smaller(node).items() if node is not None else ():
                    copy.set_attr(copy.nodes[name], key, value)
            return copy

        return subject.edited(edit)


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
class AnnotationOperator:
    """Removal of devices, and of attributes that begin with an underscore."""

    name: str = "annotations"

    def items(self, subject: Subject) -> list[str]:
        """Return the nodes with a device or an annotation."""
        nodes = (node for graph in subject.graphs for node in graph)
        return list(dict.fromkeys(node.name for node in nodes if _is_annotated(node)))

    def candidate(self, subject: Subject, items: Sequence[str]) -> Subject | None:
        """Return a subject without some annotations."""

        def edit(graph: Graph) -> Graph:
            copy = copy_graph(graph)
            for name in items:
                node = copy.nodes.get(name)
                if node is not None:
                    copy.set_device(node, "")
                    attrs = {key: value for key, value in node.attrs.items() if key[:1] != "_"}
                    copy.set_op(node, node.op, attrs)
            return copy

        return subject.edited(edit)


def _is_annotated(node: Node) -> bool:
    return bool(node.device) or any(key[:1] == "_" for key in node.attrs)


@dataclass(frozen=True, slots=True)
class FunctionOperator:
    """Removal of functions that are not called; a candidate that lacks another one is invalid."""

    name: str = "functions"

    def items(self, subject: Subject) -> list[str]:
        """Return the functions that no node of the graph needs."""
        graph = subject.graphs[0]
        called = called_functions(graph)
        return [name for name in graph.functions if name not in called]

    def candidate(self, subject: Subject, items: Sequence[str]) -> Subject | None:
        """Return a subject without some functions."""

        def edit(graph: Graph) -> Graph:
            copy = copy_graph(graph)
            for name in items:
                copy.functions.pop(name, None)
                copy.gradient_functions.pop(name, None)
            return copy

        return subject.edited(edit)
