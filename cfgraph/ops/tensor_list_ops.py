"""The ops on tensor lists that take and give single elements."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape
from cfgraph.ops import tensor_list_gradients
from cfgraph.ops.adjoint import stop
from cfgraph.ops.elements import unstack, zeros
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError
from cfgraph.ops.tensor_list import TensorList, merge_shapes, opened, shape_of_input


class ListOp(Op, abstract=True):
    """An op on tensor lists; its outputs are lists, which are scalars, unless it says more.

    `as_rows` is what it does where a list is compiled, to the rows of an array.
    """

    traceable = False
    as_rows: ClassVar[str] = ""
    host_inputs: ClassVar[tuple[int, ...]] = (0,)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [SCALAR_SHAPE] * context.output_count


def check_element(handle: TensorList, value: Any) -> None:
    """Raise OpError unless the list takes elements of this shape."""
    shape = handle.element_shape
    if shape.dims != value.shape and not shape.accepts(value.shape):
        message = (
            f"Tried to put a tensor with incompatible shape into a list. Op element shape: "
            f"{Shape(value.shape)} list shape: {handle.element_shape}"
        )
        raise OpError(message)


def known_shape(handle: TensorList, wanted: Any, values: Sequence[Any]) -> Shape:
    """The shape of an element: what the list and the input say, else what `values` have."""
    shape = merge_shapes(shape_of_input(wanted), handle.element_shape)
    if not shape.is_full:
        for value in values:
            if value is not None:
                shape = merge_shapes(shape, Shape(value.shape))
    return shape


def blank(xp: ModuleType, handle: TensorList, wanted: Any, values: Sequence[Any]) -> Any:
    """The zeros that stand for an element which was reserved only."""
    shape = known_shape(handle, wanted, values)
    if shape.dims is None or not shape.is_full:
        message = (
            f"Trying to read an uninitialized tensor but element_shape is not fully defined: "
            f"{shape}"
        )
        raise OpError(message)
    return zeros(xp, handle.element_dtype, [int(size or 0) for size in shape])


class EmptyTensorList(ListOp):
    """A list without elements; it may have at most so many, -1 is no limit."""

    signature = "element_shape: shape_type, max_num_elements: int32 -> handle: variant"
    attrs = "element_dtype: type, shape_type: {int32, int64}"
    as_rows = "empty"
    constant_inputs = (0, 1)
    host_inputs = (0, 1)
    gradient = staticmethod(stop)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("element_dtype")
        return lambda shape, limit: TensorList(dtype, shape_of_input(shape), [], int(limit))


class TensorListReserve(ListOp):
    """A list of so many elements without a value."""

    signature = "element_shape: shape_type, num_elements: int32 -> handle: variant"
    attrs = "element_dtype: type, shape_type: {int32, int64}"
    as_rows = "reserve"
    constant_inputs = (0, 1)
    host_inputs = (0, 1)
    gradient = staticmethod(stop)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("element_dtype")

        def reserve(shape: Any, count: Any) -> TensorList:
            if count < 0:
                message = (
                    f"The num_elements to reserve must be a non negative number, but got {count}"
                )
                raise OpError(message)
            return TensorList(dtype, shape_of_input(shape), [None] * int(count))

        return reserve


class TensorListPushBack(ListOp):
    """The list with one element more."""

    signature = "input_handle: variant, tensor: element_dtype -> output_handle: variant"
    as_rows = "push"
    gradient = staticmethod(tensor_list_gradients.push_back)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("element_dtype")
        return lambda handle, value: _push(handle, value, dtype)


def _push(handle: TensorList, value: Any, dtype: DType) -> TensorList:
    handle = opened(handle, dtype)
    check_element(handle, value)
    if 0 <= handle.max_elements <= handle.length:
        message = (
            f"Tried to push item into a full list list size: {handle.length} max_num_elements: "
            f"{handle.max_elements}"
        )
        raise OpError(message)
    return handle.replaced(handle.items.push(value))


class TensorListPushBackBatch(ListOp):
    """Lists, each with one slice of the tensor more."""

    signature = "input_handles: variant, tensor: element_dtype -> output_handles: variant"
    gradient = staticmethod(stop)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("element_dtype")

        def push_all(handles: Any, values: Any) -> Any:
            if values.ndim == 0 or handles.shape != values.shape[:1]:
                message = (
                    f"Expected tensor.shape[0] == input_handles.size, but the shapes are "
                    f"{Shape(values.shape)} and {Shape(handles.shape)}"
                )
                raise OpError(message)
            result = np.empty(handles.shape, object)
            for place, value in enumerate(unstack(values)):
                result[place] = _push(handles[place], value, dtype)
            return result

        return push_all

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.inputs[0]]


class TensorListPopBack(ListOp):
    """The list without its last element, and that element."""

    signature = (
        "input_handle: variant, element_shape: int32"
        " -> output_handle: variant, tensor: element_dtype"
    )
    as_rows = "pop"
    constant_inputs = (1,)
    host_inputs = (0, 1)
    gradient = staticmethod(tensor_list_gradients.pop_back)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("element_dtype")

        def pop(handle: TensorList, shape: Any) -> tuple[TensorList, Any]:
            handle = opened(handle, dtype)
            values = handle.all()
            if not values:
                message = "Trying to pop from an empty list."
                raise OpError(message)
            value = values[-1]
            if value is None:
                value = blank(xp, handle, shape, ())
            return handle.replaced(handle.items.pop()), value

        return pop

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [SCALAR_SHAPE, element_shape(context, 1)]


def element_shape(context: InferenceContext, slot: int) -> Shape:
    """The shape that an `element_shape` input says, as far as it is known."""
    value = context.value(slot)
    return UNKNOWN_SHAPE if value is None else shape_of_input(value)


class TensorListLength(ListOp):
    """The number of elements."""

    signature = "input_handle: variant -> length: int32"
    as_rows = "count"
    gradient = staticmethod(stop)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return lambda handle: np.int32(opened(handle).length)


class TensorListElementShape(ListOp):
    """The shape of the elements: -1 for an unknown size, the scalar -1 for unknown rank."""

    signature = "input_handle: variant -> element_shape: shape_type"
    attrs = "shape_type: {int32, int64}"
    gradient = staticmethod(stop)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("shape_type").numpy

        def shape_of(handle: TensorList) -> Any:
            dims = opened(handle).element_shape.dims
            return np.array(-1 if dims is None else [-1 if d is None else d for d in dims], dtype)

        return shape_of

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [UNKNOWN_SHAPE]


class TensorListResize(ListOp):
    """The list cut, or filled up with elements without a value."""

    signature = "input_handle: variant, size: int32 -> output_handle: variant"
    host_inputs = (0, 1)
    gradient = staticmethod(tensor_list_gradients.resize)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return _resize


def _resize(handle: TensorList, size: Any) -> TensorList:
    size = int(size)
    if size < 0:
        message = f"TensorListResize expects size to be non-negative. Got: {size}"
        raise OpError(message)
    handle = opened(handle)
    values = handle.all()
    return handle.replaced(values[:size] + [None] * (size - len(values)))


class TensorListGetItem(ListOp):
    """One element."""

    signature = "input_handle: variant, index: int32, element_shape: Tshape -> item: element_dtype"
    attrs = "Tshape: {int32, int64} = int32"
    as_rows = "get"
    constant_inputs = (2,)
    host_inputs = (0, 1, 2)
    gradient = staticmethod(tensor_list_gradients.get_item)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("element_dtype")

        def get(handle: TensorList, index: Any, shape: Any) -> Any:
            handle = opened(handle, dtype)
            values = handle.all()
            place = index.item()  # a tensor of one element will do, whatever its shape
            if not 0 <= place < len(values):
                message = f"Trying to access element {place} in a list with {len(values)} elements."
                raise OpError(message)
            value = values[place]
            return blank(xp, handle, shape, values) if value is None else value

        return get

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [element_shape(context, 2)]


class TensorListSetItem(ListOp):
    """The list with one element replaced."""

    signature = "input_handle: variant, index: int32, item: element_dtype -> output_handle: variant"
    attrs = "resize_if_index_out_of_bounds: bool = false"
    as_rows = "put"
    host_inputs = (0, 1)
    gradient = staticmethod(tensor_list_gradients.set_item)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype, resize = node.attr("element_dtype"), node.attr("resize_if_index_out_of_bounds")

        def put(handle: TensorList, index: Any, value: Any) -> TensorList:
            handle = opened(handle, dtype)
            place = index.item()  # a tensor of one element will do, whatever its shape
            length = handle.length
            if resize and place >= length:
                handle = _resize(handle, place + 1)
            elif not 0 <= place < length:
                message = f"Trying to modify element {place} in a list with {length} elements."
                raise OpError(message)
            check_element(handle, value)
            return handle.replaced(handle.items.set(place, value))

        return put
