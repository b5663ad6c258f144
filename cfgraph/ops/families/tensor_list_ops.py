"""TensorList ops on single elements, and the gradients of all TensorList ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape
from cfgraph.limits import reserve as check_bytes
from cfgraph.ops.families.tensor_list import (
    TensorList,
    element_shape_of,
    merge_shapes,
    tensor_list_of,
)
from cfgraph.ops.kernels.variant_math import unstack_value, zeros_of_dtype
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, no_gradient, row_shape
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext


def push_back_gradient(g: GradientBuilder, node: Node, dlist: Output) -> InputGradients:
    """Gradient of a push: a pop."""
    value = node.inputs[1]
    popped = g.TensorListPopBack(dlist, g.shape(value), element_dtype=value.dtype).node
    return popped.output(0), popped.output(1)


def pop_back_gradient(
    g: GradientBuilder, node: Node, dlist: Output | None, dz: Output | None
) -> InputGradients:
    """Gradient of a pop: a push."""
    dlist = dlist or g.zeros_like(node.output(0))
    return g.TensorListPushBack(dlist, dz or g.zeros_like(node.output(1))), None


def get_item_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of a read: a list with this element set and zeros elsewhere."""
    source, index, _ = node.inputs
    return g.TensorListSetItem(_zero_list(g, source, dz), index, dz), None, None


def set_item_gradient(g: GradientBuilder, node: Node, dlist: Output) -> InputGradients:
    """Gradient of a write: a read for the value, and the list with that element zeroed."""
    source, index, value = node.inputs

    def element_gradient() -> Output:
        return g.TensorListGetItem(dlist, index, g.shape(value), element_dtype=value.dtype)

    def list_gradient() -> Output:
        zeroed = g.TensorListSetItem(dlist, index, g.ZerosLike(element_gradient()))
        grows = node.attr("resize_if_index_out_of_bounds")
        return g.TensorListResize(zeroed, g.TensorListLength(source)) if grows else zeroed

    return list_gradient, None, element_gradient


def resize_gradient(g: GradientBuilder, node: Node, dlist: Output) -> InputGradients:
    """Gradient of a resize: a resize to the previous length."""
    return g.TensorListResize(dlist, g.TensorListLength(node.inputs[0])), None


def stack_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of a stack: the list of slices."""
    return g.TensorListFromTensor(dz, _shape_input(g, g.known_shape(dz)[1:])), None


def from_tensor_gradient(g: GradientBuilder, node: Node, dlist: Output) -> InputGradients:
    """Gradient of the conversion from a tensor: the stacked elements."""
    value = node.inputs[0]
    known = g.known_shape(value)
    count = known.dims[0] if known.dims else None
    rows = g.TensorListStack(
        dlist,
        row_shape(g, value),
        element_dtype=value.dtype,
        num_elements=-1 if count is None else count,
    )
    return rows, None


def gather_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of a gather: a scatter; repeated indices sum."""
    source, indices, _ = node.inputs
    count = g.TensorListLength(source)
    if g.known_shape(indices).rank != 1:
        indices = g.Reshape(indices, g.const([-1], dtypes.int32))
    known = g.known_value(indices)
    if known is None or len(set(known.tolist())) < len(known):
        sums = g.UnsortedSegmentSum(dz, indices, count)
        dz = g.GatherV2(sums, indices, g.const(0, dtypes.int32))
    return g.TensorListScatterIntoExistingList(_zero_list(g, source, dz), dz, indices), None, None


def scatter_gradient(g: GradientBuilder, node: Node, dlist: Output) -> InputGradients:
    """Gradient of a scatter: a gather."""
    value, indices, *optional = node.inputs
    return _gather_rows(g, dlist, indices, value), *[None] * (1 + len(optional))


def scatter_into_gradient(g: GradientBuilder, node: Node, dlist: Output) -> InputGradients:
    """Gradient of a scatter into a list: a gather, and the list with those elements zeroed."""
    source, value, indices = node.inputs

    def list_gradient() -> Output:
        zeros = g.ZerosLike(_gather_rows(g, dlist, indices, value))
        zeroed = g.TensorListScatterIntoExistingList(dlist, zeros, indices)
        # the scatter may have extended the list
        return g.TensorListResize(zeroed, g.TensorListLength(source))

    return list_gradient, lambda: _gather_rows(g, dlist, indices, value), None


def concat_gradient(g: GradientBuilder, node: Node, dz: Output, dlengths: None) -> InputGradients:
    """Gradient of a concatenation: a split by the same lengths."""
    pieces = g.TensorListSplit(dz, _shape_input(g, Shape()), node.output(1))
    return pieces, *[None] * (len(node.inputs) - 1)


def split_gradient(g: GradientBuilder, node: Node, dlist: Output) -> InputGradients:
    """Gradient of a split: a concatenation."""
    value, _, lengths = node.inputs
    row_dims = g.known_shape(value)[1:]
    if row_dims.is_full:
        shape = g.const([-1, *row_dims], dtypes.int32)
    else:
        shape = g.ConcatV2(
            g.const([-1], dtypes.int32), row_shape(g, value), g.const(0, dtypes.int32)
        )
    return g.TensorListConcatV2(dlist, shape, lengths, element_dtype=value.dtype), None, None


def _zero_list(g: GradientBuilder, source: Output, element: Output) -> Output:
    """A list of reserved elements, which read as zeros, with the length of `like`."""
    length = g.TensorListLength(source)
    return g.TensorListReserve(_shape_input(g, Shape()), length, element_dtype=element.dtype)


def _gather_rows(g: GradientBuilder, source: Output, indices: Output, value: Output) -> Output:
    return g.TensorListGather(source, indices, row_shape(g, value), element_dtype=value.dtype)


def _shape_input(g: GradientBuilder, shape: Shape) -> Output:
    """A static shape as an `element_shape` input; the scalar -1 means unknown rank."""
    sizes = -1 if shape.dims is None else [-1 if size is None else size for size in shape.dims]
    return g.const(sizes, dtypes.int32)


class TensorListOp(Op, abstract=True):
    """Op on tensor lists. Outputs are list handles, which are scalars, unless overridden."""

    compilation = CompilerSupport(traceable=False, row_operation="")

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [SCALAR_SHAPE] * context.output_count


def check_element(handle: TensorList, value: Any) -> None:
    """Raise OpError unless the shape of `value` fits the list's element shape."""
    shape = handle.element_shape
    if shape.dims != value.shape and not shape.accepts(value.shape):
        raise OpError(
            f"Tried to put a tensor with incompatible shape into a list. Op element shape: "
            f"{Shape(value.shape)} list shape: {handle.element_shape}"
        )


def known_element_shape(handle: TensorList, shape_input: Any, values: Sequence[Any]) -> Shape:
    """Element shape from the list and the input, refined by the shapes of `values`."""
    shape = merge_shapes(element_shape_of(shape_input), handle.element_shape)
    if not shape.is_full:
        for value in values:
            if value is not None:
                shape = merge_shapes(shape, Shape(value.shape))
    return shape


def zero_element(
    xp: ModuleType, handle: TensorList, shape_input: Any, values: Sequence[Any]
) -> Any:
    """Zeros in place of a reserved element without a value."""
    shape = known_element_shape(handle, shape_input, values)
    if shape.dims is None or not shape.is_full:
        raise OpError(
            f"Trying to read an uninitialized tensor but element_shape is not fully defined: "
            f"{shape}"
        )
    return zeros_of_dtype(xp, handle.element_dtype, [int(size or 0) for size in shape])


class EmptyTensorList(TensorListOp):
    """List without elements; `max_num_elements` -1 means no limit."""

    signature = "element_shape: const shape_type, max_num_elements: const int32 -> handle: variant"
    attrs = "element_dtype: type, shape_type: {int32, int64}"
    compilation = replace(TensorListOp.compilation, row_operation="empty")
    gradient = staticmethod(no_gradient)

    @staticmethod
    def kernel(xp: ModuleType, element_dtype: DType, /, shape: Any, limit: Any) -> Any:
        return TensorList(element_dtype, element_shape_of(shape), [], int(limit))


class TensorListReserve(TensorListOp):
    """List of `num_elements` elements without values."""

    signature = "element_shape: const shape_type, num_elements: const int32 -> handle: variant"
    attrs = "element_dtype: type, shape_type: {int32, int64}"
    compilation = replace(TensorListOp.compilation, row_operation="reserve")
    gradient = staticmethod(no_gradient)

    @staticmethod
    def kernel(xp: ModuleType, element_dtype: DType, /, shape: Any, count: Any) -> TensorList:
        if count < 0:
            message = f"The num_elements to reserve must be a non negative number, but got {count}"
            raise OpError(message)
        check_bytes(8 * int(count), "the list")
        return TensorList(element_dtype, element_shape_of(shape), [None] * int(count))


class TensorListPushBack(TensorListOp):
    """List with an element appended."""

    signature = "input_handle: host variant, tensor: element_dtype -> output_handle: variant"
    compilation = replace(TensorListOp.compilation, row_operation="push")
    gradient = staticmethod(push_back_gradient)

    @staticmethod
    def kernel(xp: ModuleType, element_dtype: DType, /, handle: Any, value: Any) -> Any:
        return _push_element(handle, value, element_dtype)


def _push_element(handle: TensorList, value: Any, dtype: DType) -> TensorList:
    handle = tensor_list_of(handle, dtype)
    check_element(handle, value)
    if 0 <= handle.max_elements <= handle.length:
        raise OpError(
            f"Tried to push item into a full list list size: {handle.length} max_num_elements: "
            f"{handle.max_elements}"
        )
    return handle.pushed(value)


class TensorListPushBackBatch(TensorListOp):
    """Lists, each with one slice of the tensor appended."""

    signature = "input_handles: host variant, tensor: element_dtype -> output_handles: variant"
    gradient = staticmethod(no_gradient)

    @staticmethod
    def kernel(xp: ModuleType, element_dtype: DType, /, handles: Any, values: Any) -> Any:
        if values.ndim == 0 or handles.shape != values.shape[:1]:
            raise OpError(
                f"Expected tensor.shape[0] == input_handles.size, but the shapes are "
                f"{Shape(values.shape)} and {Shape(handles.shape)}"
            )
        result = np.empty(handles.shape, object)
        for index, value in enumerate(unstack_value(values)):
            result[index] = _push_element(handles[index], value, element_dtype)
        return result

    shape = staticmethod(lambda context: [context.inputs[0]])


class TensorListPopBack(TensorListOp):
    """List without its last element, and that element."""

    signature = (
        "input_handle: host variant, element_shape: const int32"
        " -> output_handle: variant, tensor: element_dtype"
    )
    compilation = replace(TensorListOp.compilation, row_operation="pop")
    gradient = staticmethod(pop_back_gradient)

    @staticmethod
    def kernel(
        xp: ModuleType, element_dtype: DType, /, handle: TensorList, shape: Any
    ) -> tuple[TensorList, Any]:
        handle = tensor_list_of(handle, element_dtype)
        values = handle.all()
        if not values:
            raise OpError("Trying to pop from an empty list.")
        value = values[-1]
        if value is None:
            value = zero_element(xp, handle, shape, ())
        return handle.replaced(handle.items.pop()), value

    shape = staticmethod(lambda context: [SCALAR_SHAPE, static_element_shape(context, 1)])


def static_element_shape(context: InferenceContext, slot: int) -> Shape:
    """The shape described by an `element_shape` input, as far as it is statically known."""
    value = context.value(slot)
    return UNKNOWN_SHAPE if value is None else element_shape_of(value)


class TensorListLength(TensorListOp):
    """Number of elements."""

    signature = "input_handle: host variant -> length: int32"
    compilation = replace(TensorListOp.compilation, row_operation="count")
    gradient = staticmethod(no_gradient)
    kernel = staticmethod(lambda xp, handle: np.int32(tensor_list_of(handle).length))


def element_shape_value(shape: Shape, dtype: DType) -> Any:
    """The shape of elements as ops take and return it."""
    dims = shape.dims
    return np.array(-1 if dims is None else [-1 if d is None else d for d in dims], dtype.numpy)


class TensorListElementShape(TensorListOp):
    """Shape of the elements: -1 for unknown sizes, the scalar -1 for unknown rank."""

    signature = "input_handle: host variant -> element_shape: shape_type"
    attrs = "shape_type: {int32, int64}"
    compilation = replace(TensorListOp.compilation, row_operation="shape")
    gradient = staticmethod(no_gradient)

    @staticmethod
    def kernel(xp: ModuleType, shape_type: DType, /, handle: TensorList) -> Any:
        return element_shape_value(tensor_list_of(handle).element_shape, shape_type)

    shape = staticmethod(lambda context: [UNKNOWN_SHAPE])


def _resize_list(handle: TensorList, size: Any) -> TensorList:
    size = int(size)
    if size < 0:
        raise OpError(f"TensorListResize expects size to be non-negative. Got: {size}")
    check_bytes(8 * size, "the list")
    return tensor_list_of(handle).resized(size)


class TensorListResize(TensorListOp):
    """List truncated, or extended with elements without values."""

    signature = "input_handle: host variant, size: host int32 -> output_handle: variant"
    gradient = staticmethod(resize_gradient)
    function = staticmethod(_resize_list)


class TensorListGetItem(TensorListOp):
    """One element of the list."""

    signature = (
        "input_handle: host variant, index: host int32, element_shape: const Tshape "
        "-> item: element_dtype"
    )
    attrs = "Tshape: {int32, int64} = int32"
    compilation = replace(TensorListOp.compilation, row_operation="get")
    gradient = staticmethod(get_item_gradient)

    @staticmethod
    def kernel(
        xp: ModuleType, element_dtype: DType, /, handle: TensorList, index: Any, shape: Any
    ) -> Any:
        handle = tensor_list_of(handle, element_dtype)
        values = handle.all()
        # the index may have any shape with one element, as in TensorFlow
        position = index.item()
        if not 0 <= position < len(values):
            message = f"Trying to access element {position} in a list with {len(values)} elements."
            raise OpError(message)
        value = values[position]
        return zero_element(xp, handle, shape, values) if value is None else value

    shape = staticmethod(lambda context: [static_element_shape(context, 2)])


class TensorListSetItem(TensorListOp):
    """List with one element replaced."""

    signature = (
        "input_handle: host variant, index: host int32, item: element_dtype "
        "-> output_handle: variant"
    )
    attrs = "resize_if_index_out_of_bounds: bool = false"
    compilation = replace(TensorListOp.compilation, row_operation="put")
    gradient = staticmethod(set_item_gradient)

    @staticmethod
    def kernel(
        xp: ModuleType,
        element_dtype: DType,
        resize_if_index_out_of_bounds: bool,
        /,
        handle: TensorList,
        index: Any,
        value: Any,
    ) -> TensorList:
        handle = tensor_list_of(handle, element_dtype)
        # the index may have any shape with one element, as in TensorFlow
        position = index.item()
        length = handle.length
        if resize_if_index_out_of_bounds and position >= length:
            if position == length:  # a resize copies the list
                check_bytes(8 * (length + 1), "the list")
                check_element(handle, value)
                return handle.pushed(value)
            handle = _resize_list(handle, position + 1)
        elif not 0 <= position < length:
            message = f"Trying to modify element {position} in a list with {length} elements."
            raise OpError(message)
        check_element(handle, value)
        return handle.replaced(handle.items.set(position, value))
