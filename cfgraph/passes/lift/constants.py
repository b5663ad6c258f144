"""Constants that are added to a graph where something reads them, so that they run with it."""

from __future__ import annotations

import numpy as np

from cfgraph.ir.attrs import Tensor
from cfgraph.ir.dtypes import int32
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.shapes import Shape


def constant_beside(graph: Graph, reader: Node, beside: Node, name: str, value: object) -> Node:
    """A constant of int32 for a reader, that runs when another node does."""
    always = not beside.inputs and not beside.controls
    return graph.add(
        "Const",
        name=f"{reader.name}/{name}",
        controls=() if always else [beside],
        device=reader.device,
        dtype=int32,
        value=Tensor(np.array(value, np.int32)),
    )


def shape_constant(graph: Graph, reader: Node, beside: Node, shape: Shape) -> Node:
    """A shape as an op on lists reads it: -1 for what is not known."""
    dims = shape.dims
    value = -1 if dims is None else [-1 if size is None else size for size in dims]
    return constant_beside(graph, reader, beside, "element_shape", value)
