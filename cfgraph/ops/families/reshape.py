"""Shape queries, and ops that change the shape of a tensor but not its elements."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape, ShapeError, vector_shape
from cfgraph.ops.families.split import as_outputs
from cfgraph.ops.opdef.batching import (
    BatchBuilder,
    NotBatchable,
    along_axes,
    next_axis,
    reshaping,
)
from cfgraph.ops.opdef.facts import AlgebraicFacts, Aliasing
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import (
    InferenceContext,
    dims_product,
    shape_of_rank,
    static_axis,
)


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

    shape = staticmethod(lambda context: [vector_shape(context.inputs[0].rank)])


class ShapeN(Op):
    """Shapes of several tensors, one vector each."""

    signature = "input: N*T -> output: N*out_type"
    attrs = "out_type: {int32, int64} = int32"
    algebra = AlgebraicFacts(shape_only=True)

    @staticmethod
    def kernel(xp: ModuleType, out_type: DType, /, *values: Any) -> Any:
        dtype = out_type.numpy
        return as_outputs([np.array(sizes_of_value(value), dtype) for value in values])

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [vector_shape(shape.rank) for shape in context.inputs[: context.output_count]]


class Rank(Op):
    """Number of dimensions of a tensor."""

    signature = "input: T -> output: int32"
    algebra = AlgebraicFacts(shape_only=True)
    kernel = staticmethod(lambda xp, value: np.int32(len(sizes_of_value(value))))
    shape = staticmethod(lambda context: [SCALAR_SHAPE])


class Size(Op):
    """Number of elements of a tensor."""

    signature = "input: T -> output: out_type"
    attrs = "out_type: {int32, int64} = int32"
    algebra = AlgebraicFacts(shape_only=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        make = node.attr("out_type").numpy.type
        return lambda value: make(math.prod(sizes_of_value(value)))

    shape = staticmethod(lambda context: [SCALAR_SHAPE])


def _reshape_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    x = node.inputs[0]
    return [g.Reshape(dz, g.shape(x)), *[None] * (len(node.inputs) - 1)]


def reshape_array(value: Any, shape: Any) -> Any:
    """Reshape an array. Raises OpError for a shape that does not fit."""
    sizes = shape.tolist()
    try:
        if sizes and min(sizes) < -1:
            raise ValueError
        return value.reshape(sizes)
    except (ValueError, TypeError):
        if not value.size and shape.ndim == 1 and sizes.count(-1) == 1 and min(sizes) == -1:
            return _reshape_empty(value, sizes)
        raise OpError(_reshape_error(value, shape)) from None


class Reshape(Op):
    """A tensor with the same elements in row-major order and a new shape; -1 infers one size."""

    signature = "tensor: T, shape: const Tshape -> output: T"
    attrs = "Tshape: {int32, int64} = int32"
    aliasing = Aliasing(preserves_elements=True, aliases_input=True)
    batching = staticmethod(reshaping)
    function = staticmethod(reshape_array)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data, requested = context.inputs[0], context.shape_value(1)
        if requested.dims is None:
            return [UNKNOWN_SHAPE]
        known = context.value(1) is not None
        return [_reshaped_shape(data, list(requested.dims), known)]

    gradient = staticmethod(_reshape_gradient)


def _reshaped_shape(data: Shape, dims: list[int | None], known: bool) -> Shape:
    """The static result shape. If `known`, None in `dims` means -1, otherwise an unknown size."""
    if known and dims.count(None) > 1:
        raise ShapeError("only one size can be -1")
    total, rest = data.elements, dims_product([dim for dim in dims if dim is not None])
    if total is None or rest is None:
        return Shape(dims)
    if None not in dims:
        if total != rest:
            raise ShapeError(f"cannot reshape a tensor of shape {data} into {Shape(dims)}")
        return Shape(dims)
    if dims.count(None) > 1 or rest == 0:
        return Shape(dims)
    if total % rest:
        raise ShapeError(f"cannot reshape a tensor of shape {data} into {Shape(dims)}")
    return Shape(total // rest if dim is None else dim for dim in dims)


def _reshape_empty(value: Any, sizes: list[int]) -> Any:
    """Reshape an empty tensor; -1 is inferred as if no dimension had size 0."""
    total = math.prod(size for size in value.shape if size)
    inferred = total // math.prod(size for size in sizes if size > 0)
    try:
        return value.reshape([inferred if size == -1 else size for size in sizes])
    except ValueError:
        raise OpError(_reshape_error(value, np.array(sizes))) from None


def _reshape_error(value: Any, shape: Any) -> str:
    sizes = shape.reshape(-1).tolist()
    if shape.ndim != 1:
        return f"the shape must be a vector, got shape {list(shape.shape)}"
    for index, size in enumerate(sizes):
        if size < -1:
            return f"Size {index} must be non-negative, not {size}"
    if sizes.count(-1) > 1:
        return f"Only one input size may be -1, but there are {sizes.count(-1)} in {sizes}"
    rest = math.prod(size for size in sizes if size != -1)
    if -1 in sizes:
        return (
            f"Input to reshape is a tensor with {value.size} values, but the requested shape "
            f"requires a multiple of {rest}"
        )
    return (
        f"Input to reshape is a tensor with {value.size} values, but the requested shape has {rest}"
    )


def _expand_dims(value: Any, axis: Any) -> Any:
    sizes = value.shape
    rank = len(sizes)
    position = operator.index(axis if axis.ndim == 0 else _single_axis(axis))
    if position < 0:
        position += rank + 1
    if not 0 <= position <= rank:
        raise OpError(f"Tried to expand dim index {axis} for tensor with {rank} dimensions.")
    return value.reshape((*sizes[:position], 1, *sizes[position:]))


class ExpandDims(Op):
    """A tensor with a dimension of size 1 inserted at an axis."""

    signature = "input: T, dim: const Tdim -> output: T"
    attrs = "Tdim: {int32, int64} = int32"
    aliasing = Aliasing(preserves_elements=True, aliases_input=True)
    batching = staticmethod(along_axes)
    function = staticmethod(_expand_dims)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data, axis = context.inputs[0], context.value(1)
        if data.dims is None:
            return [UNKNOWN_SHAPE]
        if axis is None or axis.size != 1:
            return [shape_of_rank(len(data.dims) + 1)]
        position = static_axis(int(axis.reshape(-1)[0]), len(data.dims) + 1)
        return [Shape((*data.dims[:position], 1, *data.dims[position:]))]

    gradient = staticmethod(_reshape_gradient)


def _single_axis(axis: Any) -> Any:
    if axis.size != 1:
        message = f"'dim' must be a tensor with a single value, not of shape {list(axis.shape)}"
        raise OpError(message)
    return axis.reshape(())[()]


class Squeeze(Op):
    """A tensor without the listed dimensions of size 1; without all of them if none is listed."""

    signature = "input: T -> output: T"
    attrs = "squeeze_dims: list(int) >= 0 = []"
    aliasing = Aliasing(preserves_elements=True, aliases_input=True)

    @staticmethod
    def batching(g: BatchBuilder, node: Node) -> Output:
        axes = node.attr("squeeze_dims")
        if not axes:
            raise NotBatchable  # the rows may be one
        return g.copy(node, g.value(0), squeeze_dims=[next_axis(axis) for axis in axes])

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        axes = tuple(node.attr("squeeze_dims"))
        last: tuple[Any, list[int]] = (None, [])

        def squeeze(value: Any) -> Any:
            # in most graphs the shape is always the same
            nonlocal last
            known = last
            if value.shape != known[0]:
                last = known = value.shape, _squeezed_sizes(value.shape, axes)
            return value.reshape(known[1])

        return squeeze

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data, axes = context.inputs[0], context.attr("squeeze_dims")
        if data.dims is None:
            return [UNKNOWN_SHAPE]
        if axes:
            dims = {static_axis(axis, len(data.dims)) for axis in axes}
            for dim in dims:
                if data.dims[dim] not in (None, 1):
                    raise ShapeError(f"dimension {dim} of {data} has not size 1")
            return [Shape(size for dim, size in enumerate(data.dims) if dim not in dims)]
        if None in data.dims:
            return [UNKNOWN_SHAPE]
        return [Shape(size for size in data.dims if size != 1)]

    gradient = staticmethod(_reshape_gradient)


def _squeezed_sizes(sizes: tuple[int, ...], axes: tuple[int, ...]) -> list[int]:
    if not axes:
        return [size for size in sizes if size != 1]
    rank, removed = len(sizes), set()
    for axis in axes:
        if not -rank <= axis < rank:
            raise OpError(f"Tried to squeeze dim index {axis} for tensor with {rank} dimensions.")
        if sizes[axis] != 1:
            message = f"Can not squeeze dim[{axis}], expected a dimension of 1, got {sizes[axis]}"
            raise OpError(message)
        removed.add(axis % rank)
    return [size for dim, size in enumerate(sizes) if dim not in removed]
