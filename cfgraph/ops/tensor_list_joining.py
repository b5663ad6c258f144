"""The ops that join the elements of tensor lists, or cut a tensor into elements of many lengths."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.ops import tensor_list_gradients
from cfgraph.ops.adjoint import stop
from cfgraph.ops.elements import each, zeros
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, OpError
from cfgraph.ops.tensor_array_bulk import split_rows
from cfgraph.ops.tensor_list import TensorList, merge_shapes, opened, shape_of_input
from cfgraph.ops.tensor_list_ops import ListOp, element_shape


class TensorListConcatV2(ListOp):
    """All elements one after the other along their first axis, and their lengths."""

    signature = (
        "input_handle: variant, element_shape: shape_type, leading_dims: int64"
        " -> tensor: element_dtype, lengths: int64"
    )
    attrs = "shape_type: {int32, int64}"
    host_inputs = (0, 1, 2)
    gradient = staticmethod(tensor_list_gradients.concat)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("element_dtype")

        def concat(handle: TensorList, shape: Any, leading: Any) -> tuple[Any, Any]:
            return _concat(xp, handle, dtype, shape_of_input(shape), leading.tolist())

        return concat

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [_any_length(element_shape(context, 1)), vector_shape()]


def _any_length(shape: Shape) -> Shape:
    return UNKNOWN_SHAPE if shape.dims is None else vector_shape() + shape[1:]


class TensorListConcat(ListOp):
    """All elements one after the other along their first axis, and their lengths."""

    signature = "input_handle: variant -> tensor: element_dtype, lengths: int64"
    attrs = "element_shape: shape = ?"
    gradient = staticmethod(tensor_list_gradients.concat)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype, shape = node.attr("element_dtype"), node.attr("element_shape")
        return lambda handle: _concat(xp, handle, dtype, shape, [])

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [_any_length(context.attr("element_shape")), vector_shape()]


def _concat(
    xp: ModuleType, handle: TensorList, dtype: DType, shape: Shape, leading: Sequence[int]
) -> tuple[Any, Any]:
    handle = opened(handle, dtype)
    values = handle.all()
    _check_vectors(shape, handle.element_shape)
    rest = merge_shapes(_any_length(shape), _any_length(handle.element_shape))
    for value in values:
        if value is not None:
            _check_vectors(Shape(value.shape))
            if shape.dims and shape.dims[0] not in (None, len(value)):
                message = (
                    f"First entry of element_shape input does not match the first dim of a list "
                    f"element. Expected: {shape.dims[0]} Actual: {len(value)}"
                )
                raise OpError(message)
            rest = merge_shapes(rest, _any_length(Shape(value.shape)))
    row = rest[1:]
    blank = any(value is None for value in values)
    if (not values or blank) and not row.is_full:
        message = (
            f"All except the first dimension must be fully defined when concating an empty tensor "
            f"list, or uninitialized elements. element_shape: {shape}"
        )
        raise OpError(message)
    lengths = _lengths(values, merge_shapes(shape, handle.element_shape), leading)
    pieces = [
        zeros(xp, dtype, (length, *row)) if value is None else value
        for value, length in zip(values, lengths, strict=True)
    ]
    tensor = xp.concatenate(pieces) if pieces else zeros(xp, dtype, (0, *row))
    return tensor, np.array(lengths, np.int64)


def _check_vectors(*shapes: Shape) -> None:
    if any(shape.rank == 0 for shape in shapes):
        message = "Concat requires elements to be at least vectors, found scalars instead."
        raise OpError(message)


def _lengths(values: Sequence[Any], shape: Shape, leading: Sequence[int]) -> list[int]:
    """The length of each element: its own; of one without a value what `leading` says, else the
    shape, else the length that all others share.
    """
    known = {len(value) for value in values if value is not None}
    first = shape.dims[0] if shape.dims else None
    if first is None and len(known) == 1:
        (first,) = known
    lengths = []
    for place, value in enumerate(values):
        length = first if value is None else len(value)
        if value is None and place < len(leading):
            length = leading[place]
        if length is None:
            message = (
                f"List contains uninitialized tensor at index {place} but leading_dims has only "
                f"{len(leading)} elements."
            )
            raise OpError(message)
        lengths.append(length)
    return lengths


class TensorListSplit(ListOp):
    """The list of a tensor's pieces of some lengths along its first axis."""

    signature = (
        "tensor: element_dtype, element_shape: shape_type, lengths: int64 -> output_handle: variant"
    )
    attrs = "shape_type: {int32, int64}"
    host_inputs = (1, 2)
    gradient = staticmethod(tensor_list_gradients.split)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("element_dtype")

        def split(value: Any, shape: Any, lengths: Any) -> TensorList:
            wanted = shape_of_input(shape)
            if wanted.rank == 0:
                message = "TensorListSplit requires element_shape to be at least of rank 1, not []"
                raise OpError(message)
            if value.ndim and not _any_length(wanted).accepts(value.shape):
                message = (
                    f"Tensor of shape {Shape(value.shape)} cannot be split into elements of shape "
                    f"{wanted}"
                )
                raise OpError(message)
            return TensorList(dtype, wanted, split_rows(value, lengths))

        return split


class TensorListConcatLists(ListOp):
    """The elements of two lists, in one."""

    signature = "input_a: variant, input_b: variant -> output: variant"
    attrs = "element_dtype: type"
    host_inputs = (0, 1)
    gradient = staticmethod(stop)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("element_dtype")

        def concat(one: Any, other: Any) -> Any:
            if one.shape != other.shape:
                message = (
                    f"input_a and input_b must have the same shape, not {Shape(one.shape)} and "
                    f"{Shape(other.shape)}"
                )
                raise OpError(message)
            return each(concat, one, other) if one.ndim else _joined(one, other, dtype)

        return concat

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.inputs[0]]


def _joined(one: TensorList, other: TensorList, dtype: DType) -> TensorList:
    one, other = opened(one, dtype), opened(other, dtype)
    if one.element_shape.dims != other.element_shape.dims:
        message = (
            f"input_a and input_b TensorList element shapes are not identical. Saw "
            f"{one.element_shape} vs. {other.element_shape}"
        )
        raise OpError(message)
    return one.replaced(one.all() + other.all())
