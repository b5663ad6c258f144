"""Shape, rank, and size of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import SCALAR_SHAPE, Shape, vector_shape
from cfgraph.ops.families.split import as_outputs
from cfgraph.ops.opdef.facts import AlgebraicFacts
from cfgraph.ops.opdef.op import Kernel, Op
from cfgraph.ops.opdef.shape_functions import InferenceContext


def sizes_of_value(value: Any) -> tuple[int, ...]:
    """Dimension sizes of a runtime value; an opaque resource or variant is a scalar."""
    return (
        value.shape if isinstance(value, (np.ndarray, np.generic)) else _static_shape_sizes(value)
    )


def _static_shape_sizes(value: Any) -> tuple[int, ...]:
    # arrays of other namespaces have a dtype; anything without one is an opaque object
    return tuple(value.shape) if hasattr(value, "dtype") and hasattr(value, "ndim") else ()


class ShapeOp(Op, name="Shape"):
    """Shape of a tensor, as a vector."""

    signature = "input: T -> output: out_type"
    attrs = "out_type: {int32, int64} = int32"
    algebra = AlgebraicFacts(shape_only=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype, array = node.attr("out_type").numpy, np.array
        if node.attr("T").is_object:
            return lambda value: array(sizes_of_value(value), dtype)
        return lambda value: array(value.shape, dtype)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [vector_shape(context.inputs[0].rank)]


class ShapeN(Op):
    """Shapes of several tensors, one vector each."""

    signature = "input: N*T -> output: N*out_type"
    attrs = "out_type: {int32, int64} = int32"
    algebra = AlgebraicFacts(shape_only=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("out_type").numpy
        return lambda *values: as_outputs(
            [np.array(sizes_of_value(value), dtype) for value in values]
        )

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [vector_shape(shape.rank) for shape in context.inputs[: context.output_count]]


class Rank(Op):
    """Number of dimensions of a tensor."""

    signature = "input: T -> output: int32"
    algebra = AlgebraicFacts(shape_only=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return lambda value: np.int32(len(sizes_of_value(value)))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [SCALAR_SHAPE]


class Size(Op):
    """Number of elements of a tensor."""

    signature = "input: T -> output: out_type"
    attrs = "out_type: {int32, int64} = int32"
    algebra = AlgebraicFacts(shape_only=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        make = node.attr("out_type").numpy.type
        return lambda value: make(math.prod(sizes_of_value(value)))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [SCALAR_SHAPE]
