"""TensorList ops that stack, gather, scatter, concatenate, or split lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.limits import reserve
from cfgraph.ops.families import tensor_list_ops
from cfgraph.ops.families.split import split_lengths
from cfgraph.ops.families.tensor_list import (
    TensorList,
    element_shape_of,
    merge_shapes,
    tensor_list_of,
)
from cfgraph.ops.families.tensor_list_ops import (
    TensorListOp,
    known_element_shape,
    static_element_shape,
)
from cfgraph.ops.kernels.variant_math import (
    map_objects,
    stack_values,
    unstack_value,
    zeros_of_dtype,
)
from cfgraph.ops.opdef.gradient_api import no_gradient
from cfgraph.ops.opdef.op import Kernel, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext


def _stack_elements(
    xp: ModuleType, handle: TensorList, dtype: DType, values: Sequence[Any], shape_input: Any
) -> Any:
    if values and values[0] is not None:
        first, sizes = values[0].shape, shape_input.tolist()
        fits = sizes in (-1, list(first)) and handle.element_shape.accepts(first)
        if fits and all(value is not None and value.shape == first for value in values):
            return stack_values(xp, dtype, values, first)
    shape = known_element_shape(handle, shape_input, values)
    if shape.dims is None or not shape.is_full:
        raise OpError(
            f"Tried to stack elements of an empty list, or uninitialized ones, with "
            f"non-fully-defined element_shape: {shape}"
        )
    dims = tuple(int(size or 0) for size in shape)
    full = [zeros_of_dtype(xp, dtype, dims) if value is None else value for value in values]
    for value in full:
        if value.shape != dims:
            raise OpError(
                f"Tried to stack elements of differing shapes: {Shape(value.shape)} and {shape}"
            )
    return stack_values(xp, dtype, full, dims)


class TensorListStack(TensorListOp):
    """All elements, stacked."""

    signature = "input_handle: host variant, element_shape: const int32 -> tensor: element_dtype"
    attrs = "num_elements: int = -1"
    compilation = replace(TensorListOp.compilation, row_operation="all")
    gradient = staticmethod(tensor_list_ops.stack_gradient)

    @staticmethod
    def kernel(
        xp: ModuleType, element_dtype: DType, num_elements: int, /, handle: TensorList, shape: Any
    ) -> Any:
        handle = tensor_list_of(handle, element_dtype)
        values = handle.all()
        if num_elements not in (-1, len(values)):
            raise OpError(
                f"Operation expected a list with {num_elements} elements but got a list with "
                f"{len(values)} elements."
            )
        return _stack_elements(xp, handle, element_dtype, values, shape)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        count = context.attr("num_elements")
        return [vector_shape(None if count < 0 else count) + static_element_shape(context, 1)]


class TensorListGather(TensorListOp):
    """Elements at several indices, stacked."""

    signature = (
        "input_handle: host variant, indices: host int32, element_shape: const int32 "
        "-> values: element_dtype"
    )
    compilation = replace(TensorListOp.compilation, row_operation="take")
    gradient = staticmethod(tensor_list_ops.gather_gradient)

    @staticmethod
    def kernel(
        xp: ModuleType, element_dtype: DType, /, handle: TensorList, indices: Any, shape: Any
    ) -> Any:
        handle = tensor_list_of(handle, element_dtype)
        values = handle.all()
        positions = indices.reshape(-1).tolist()  # indices may have any shape, as in TensorFlow
        for position in positions:
            if not 0 <= position < len(values):
                message = f"Index {position} out of range; list only has {len(values)} elements."
                raise OpError(message)
        return _stack_elements(
            xp, handle, element_dtype, [values[position] for position in positions], shape
        )

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        count = context.inputs[1] if context.inputs[1].rank == 1 else vector_shape()
        return [count + static_element_shape(context, 2)]


class TensorListFromTensor(TensorListOp):
    """List of a tensor's slices along its first axis."""

    signature = "tensor: element_dtype, element_shape: const shape_type -> output_handle: variant"
    attrs = "shape_type: {int32, int64}"
    compilation = replace(TensorListOp.compilation, row_operation="of")
    gradient = staticmethod(tensor_list_ops.from_tensor_gradient)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("element_dtype")

        last: tuple[Any, Shape] = (None, UNKNOWN_SHAPE)

        def from_tensor(value: Any, shape: Any) -> TensorList:
            # in most graphs both shapes are always the same
            nonlocal last
            key, known = (value.shape, shape.tolist()), last
            if key != known[0]:
                last = known = key, _static_row_shape(value, shape)
            return TensorList(dtype, known[1], unstack_value(value))

        return from_tensor


def _static_row_shape(value: Any, shape: Any) -> Shape:
    element_shape = element_shape_of(shape)
    if value.ndim == 0:
        raise OpError("Tensor must be at least a vector, but saw shape: []")
    if not element_shape.accepts(value.shape[1:]):
        raise OpError(
            f"Specified a list with shape {element_shape} from a tensor with shape "
            f"{Shape(value.shape)}"
        )
    return element_shape


class TensorListScatter(TensorListOp):
    """List with a tensor's slices at several indices, and uninitialized elements elsewhere."""

    signature = (
        "tensor: element_dtype, indices: host int32, element_shape: host shape_type "
        "-> output_handle: variant"
    )
    attrs = "shape_type: {int32, int64}"
    gradient = staticmethod(tensor_list_ops.scatter_gradient)

    @staticmethod
    def kernel(
        xp: ModuleType,
        element_dtype: DType,
        /,
        value: Any,
        indices: Any,
        shape: Any,
        count: Any = -1,
    ) -> TensorList:
        element_shape = _static_row_shape(value, shape)
        if count < -1:
            raise OpError(f"TensorListScatter expects num_elements >= -1, found: {count}")
        size = max(indices.reshape(-1).tolist(), default=-1) + 1 if count == -1 else int(count)
        reserve(8 * size, "the list")
        return TensorList(
            element_dtype, element_shape, _scatter_elements([None] * size, value, indices)
        )


def _scatter_elements(elements: list[Any], value: Any, indices: Any) -> list[Any]:
    if indices.size != len(value):
        raise OpError(
            f"Specified {indices.size} indices, but the tensor to scatter has shape "
            f"{Shape(value.shape)}"
        )
    for index, row in zip(indices.reshape(-1).tolist(), unstack_value(value), strict=True):
        if not 0 <= index < len(elements):
            raise OpError(f"Trying to scatter at index {index} in list with size {len(elements)}")
        elements[index] = row
    return elements


class TensorListScatterV2(TensorListScatter):
    """TensorListScatter with an explicit number of elements."""

    signature = (
        "tensor: element_dtype, indices: host int32, element_shape: host shape_type, "
        "num_elements: host int32 -> output_handle: variant"
    )


class TensorListScatterIntoExistingList(TensorListOp):
    """List with a tensor's slices at several indices, and another list's elements elsewhere."""

    signature = (
        "input_handle: host variant, tensor: element_dtype, indices: host int32 "
        "-> output_handle: variant"
    )
    gradient = staticmethod(tensor_list_ops.scatter_into_gradient)

    @staticmethod
    def kernel(
        xp: ModuleType, element_dtype: DType, /, handle: TensorList, value: Any, indices: Any
    ) -> TensorList:
        handle = tensor_list_of(handle, element_dtype)
        if value.ndim == 0 or not handle.element_shape.accepts(value.shape[1:]):
            raise OpError(
                f"Specified a list with shape {handle.element_shape} from a tensor with shape "
                f"{Shape(value.shape)}"
            )
        if indices.ndim != 1:
            raise OpError(f"Expected indices to be a vector, but received {Shape(indices.shape)}")
        elements = handle.all().copy()
        elements += [None] * (max(indices.tolist(), default=-1) + 1 - len(elements))
        return handle.replaced(_scatter_elements(elements, value, indices))


class TensorListConcatV2(TensorListOp):
    """Concatenation of all elements along their first axis, and their lengths."""

    signature = (
        "input_handle: host variant, element_shape: host shape_type, leading_dims: host int64"
        " -> tensor: element_dtype, lengths: int64"
    )
    attrs = "shape_type: {int32, int64}"
    gradient = staticmethod(tensor_list_ops.concat_gradient)

    @staticmethod
    def kernel(
        xp: ModuleType, element_dtype: DType, /, handle: TensorList, shape: Any, leading: Any
    ) -> tuple[Any, Any]:
        return _concat_elements(
            xp, handle, element_dtype, element_shape_of(shape), leading.tolist()
        )

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [_unknown_length_shape(static_element_shape(context, 1)), vector_shape()]


def _unknown_length_shape(shape: Shape) -> Shape:
    return UNKNOWN_SHAPE if shape.dims is None else vector_shape() + shape[1:]


class TensorListConcat(TensorListOp):
    """TensorListConcatV2 with the element shape as an attribute."""

    signature = "input_handle: host variant -> tensor: element_dtype, lengths: int64"
    attrs = "element_shape: shape = ?"
    gradient = staticmethod(tensor_list_ops.concat_gradient)

    @staticmethod
    def kernel(xp: ModuleType, element_dtype: DType, element_shape: Shape, /, handle: Any) -> Any:
        return _concat_elements(xp, handle, element_dtype, element_shape, [])

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [_unknown_length_shape(context.attr("element_shape")), vector_shape()]


def _concat_elements(
    xp: ModuleType, handle: TensorList, dtype: DType, shape: Shape, leading: Sequence[int]
) -> tuple[Any, Any]:
    handle = tensor_list_of(handle, dtype)
    values = handle.all()
    _check_not_scalars(shape, handle.element_shape)
    piece_shape = merge_shapes(
        _unknown_length_shape(shape), _unknown_length_shape(handle.element_shape)
    )
    for value in values:
        if value is not None:
            _check_not_scalars(Shape(value.shape))
            if shape.dims and shape.dims[0] not in (None, len(value)):
                raise OpError(
                    f"First entry of element_shape input does not match the first dim of a list "
                    f"element. Expected: {shape.dims[0]} Actual: {len(value)}"
                )
            piece_shape = merge_shapes(piece_shape, _unknown_length_shape(Shape(value.shape)))
    row = piece_shape[1:]
    blank = any(value is None for value in values)
    if (not values or blank) and not row.is_full:
        raise OpError(
            f"All except the first dimension must be fully defined when concating an empty tensor "
            f"list, or uninitialized elements. element_shape: {shape}"
        )
    lengths = _element_lengths(values, merge_shapes(shape, handle.element_shape), leading)
    pieces = [
        zeros_of_dtype(xp, dtype, (length, *row)) if value is None else value
        for value, length in zip(values, lengths, strict=True)
    ]
    tensor = xp.concatenate(pieces) if pieces else zeros_of_dtype(xp, dtype, (0, *row))
    return tensor, np.array(lengths, np.int64)


def _check_not_scalars(*shapes: Shape) -> None:
    if any(shape.rank == 0 for shape in shapes):
        raise OpError("Concat requires elements to be at least vectors, found scalars instead.")


def _element_lengths(values: Sequence[Any], shape: Shape, leading: Sequence[int]) -> list[int]:
    """Length of each element.

    An uninitialized element has its length from `leading`, else from the shape, else from the
    initialized elements if all have the same length.
    """
    known = {len(value) for value in values if value is not None}
    first = shape.dims[0] if shape.dims else None
    if first is None and len(known) == 1:
        (first,) = known
    lengths = []
    for index, value in enumerate(values):
        length = first if value is None else len(value)
        if value is None and index < len(leading):
            length = leading[index]
        if length is None:
            raise OpError(
                f"List contains uninitialized tensor at index {index} but leading_dims has only "
                f"{len(leading)} elements."
            )
        lengths.append(length)
    return lengths


class TensorListSplit(TensorListOp):
    """List of a tensor's pieces along its first axis, by lengths."""

    signature = (
        "tensor: element_dtype, element_shape: host shape_type, lengths: host int64 "
        "-> output_handle: variant"
    )
    attrs = "shape_type: {int32, int64}"
    gradient = staticmethod(tensor_list_ops.split_gradient)

    @staticmethod
    def kernel(
        xp: ModuleType, element_dtype: DType, /, value: Any, shape: Any, lengths: Any
    ) -> TensorList:
        element_shape = element_shape_of(shape)
        if element_shape.rank == 0:
            raise OpError("TensorListSplit requires element_shape to be at least of rank 1, not []")
        if value.ndim and not _unknown_length_shape(element_shape).accepts(value.shape):
            raise OpError(
                f"Tensor of shape {Shape(value.shape)} cannot be split into elements of shape "
                f"{element_shape}"
            )
        return TensorList(element_dtype, element_shape, split_lengths(value, lengths))


class TensorListConcatLists(TensorListOp):
    """Concatenation of two lists."""

    signature = "input_a: host variant, input_b: host variant -> output: variant"
    attrs = "element_dtype: type"
    gradient = staticmethod(no_gradient)

    @staticmethod
    def kernel(xp: ModuleType, element_dtype: DType, /, left: Any, right: Any) -> Any:
        if left.shape != right.shape:
            raise OpError(
                f"input_a and input_b must have the same shape, not {Shape(left.shape)} and "
                f"{Shape(right.shape)}"
            )
        concat = partial(_concat_lists, dtype=element_dtype)
        return map_objects(concat, left, right) if left.ndim else concat(left, right)

    shape = staticmethod(lambda context: [context.inputs[0]])


def _concat_lists(left: TensorList, right: TensorList, dtype: DType) -> TensorList:
    left, right = tensor_list_of(left, dtype), tensor_list_of(right, dtype)
    if left.element_shape.dims != right.element_shape.dims:
        raise OpError(
            f"input_a and input_b TensorList element shapes are not identical. Saw "
            f"{left.element_shape} vs. {right.element_shape}"
        )
    return left.replaced(left.all() + right.all())
