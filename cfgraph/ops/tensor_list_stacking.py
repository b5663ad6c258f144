"""The ops that make a tensor of a tensor list, or a list of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape, vector_shape
from cfgraph.ops import tensor_list_gradients
from cfgraph.ops.elements import stack, unstack, zeros
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, OpError
from cfgraph.ops.tensor_list import TensorList, opened, shape_of_input
from cfgraph.ops.tensor_list_ops import ListOp, element_shape, known_shape


def _stacked(
    xp: ModuleType, handle: TensorList, dtype: DType, values: Sequence[Any], wanted: Any
) -> Any:
    shape = known_shape(handle, wanted, values)
    if shape.dims is None or not shape.is_full:
        message = (
            f"Tried to stack elements of an empty list, or uninitialized ones, with "
            f"non-fully-defined element_shape: {shape}"
        )
        raise OpError(message)
    dims = tuple(int(size or 0) for size in shape)
    full = [zeros(xp, dtype, dims) if value is None else value for value in values]
    for value in full:
        if value.shape != dims:
            message = (
                f"Tried to stack elements of differing shapes: {Shape(value.shape)} and {shape}"
            )
            raise OpError(message)
    return stack(xp, dtype, full, dims)


class TensorListStack(ListOp):
    """All elements, stacked."""

    signature = "input_handle: variant, element_shape: int32 -> tensor: element_dtype"
    attrs = "num_elements: int = -1"
    as_rows = "all"
    constant_inputs = (1,)
    host_inputs = (0, 1)
    gradient = staticmethod(tensor_list_gradients.stack)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype, count = node.attr("element_dtype"), node.attr("num_elements")

        def stack_all(handle: TensorList, shape: Any) -> Any:
            handle = opened(handle, dtype)
            values = handle.all()
            if count not in (-1, len(values)):
                message = (
                    f"Operation expected a list with {count} elements but got a list with "
                    f"{len(values)} elements."
                )
                raise OpError(message)
            return _stacked(xp, handle, dtype, values, shape)

        return stack_all

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        count = context.attr("num_elements")
        return [vector_shape(None if count < 0 else count) + element_shape(context, 1)]


class TensorListGather(ListOp):
    """The elements of some indices, stacked."""

    signature = (
        "input_handle: variant, indices: int32, element_shape: int32 -> values: element_dtype"
    )
    as_rows = "take"
    constant_inputs = (2,)
    host_inputs = (0, 1, 2)
    gradient = staticmethod(tensor_list_gradients.gather)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("element_dtype")

        def gather(handle: TensorList, indices: Any, shape: Any) -> Any:
            handle = opened(handle, dtype)
            values = handle.all()
            places = indices.reshape(-1).tolist()  # of any shape, as in TensorFlow
            for place in places:
                if not 0 <= place < len(values):
                    message = f"Index {place} out of range; list only has {len(values)} elements."
                    raise OpError(message)
            return _stacked(xp, handle, dtype, [values[place] for place in places], shape)

        return gather

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        count = context.inputs[1] if context.inputs[1].rank == 1 else vector_shape()
        return [count + element_shape(context, 2)]


class TensorListFromTensor(ListOp):
    """The list of a tensor's slices along its first axis."""

    signature = "tensor: element_dtype, element_shape: shape_type -> output_handle: variant"
    attrs = "shape_type: {int32, int64}"
    as_rows = "of"
    constant_inputs = (1,)
    host_inputs = (1,)
    gradient = staticmethod(tensor_list_gradients.from_tensor)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("element_dtype")

        def from_tensor(value: Any, shape: Any) -> TensorList:
            wanted = _row_shape(value, shape)
            return TensorList(dtype, wanted, unstack(value))

        return from_tensor


def _row_shape(value: Any, shape: Any) -> Shape:
    wanted = shape_of_input(shape)
    if value.ndim == 0:
        message = "Tensor must be at least a vector, but saw shape: []"
        raise OpError(message)
    if not wanted.accepts(value.shape[1:]):
        message = (
            f"Specified a list with shape {wanted} from a tensor with shape {Shape(value.shape)}"
        )
        raise OpError(message)
    return wanted


class TensorListScatter(ListOp):
    """The list that has a tensor's slices at some indices, and no value elsewhere."""

    signature = (
        "tensor: element_dtype, indices: int32, element_shape: shape_type -> output_handle: variant"
    )
    attrs = "shape_type: {int32, int64}"
    host_inputs: ClassVar[tuple[int, ...]] = (1, 2)
    gradient = staticmethod(tensor_list_gradients.scatter)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("element_dtype")

        def scatter(value: Any, indices: Any, shape: Any, count: Any = -1) -> TensorList:
            wanted = _row_shape(value, shape)
            if count < -1:
                message = f"TensorListScatter expects num_elements >= -1, found: {count}"
                raise OpError(message)
            size = max(indices.reshape(-1).tolist(), default=-1) + 1 if count == -1 else int(count)
            return TensorList(dtype, wanted, _placed([None] * size, value, indices))

        return scatter


def _placed(items: list[Any], value: Any, indices: Any) -> list[Any]:
    if indices.size != len(value):
        message = (
            f"Specified {indices.size} indices, but the tensor to scatter has shape "
            f"{Shape(value.shape)}"
        )
        raise OpError(message)
    for place, row in zip(indices.reshape(-1).tolist(), unstack(value), strict=True):
        if not 0 <= place < len(items):
            message = f"Trying to scatter at index {place} in list with size {len(items)}"
            raise OpError(message)
        items[place] = row
    return items


class TensorListScatterV2(TensorListScatter):
    """The list of so many elements that has a tensor's slices at some indices."""

    signature = (
        "tensor: element_dtype, indices: int32, element_shape: shape_type, num_elements: int32"
        " -> output_handle: variant"
    )
    host_inputs = (1, 2, 3)


class TensorListScatterIntoExistingList(ListOp):
    """The list with some elements replaced by a tensor's slices."""

    signature = (
        "input_handle: variant, tensor: element_dtype, indices: int32 -> output_handle: variant"
    )
    host_inputs = (0, 2)
    gradient = staticmethod(tensor_list_gradients.scatter_into)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("element_dtype")

        def scatter(handle: TensorList, value: Any, indices: Any) -> TensorList:
            handle = opened(handle, dtype)
            if value.ndim == 0 or not handle.element_shape.accepts(value.shape[1:]):
                message = (
                    f"Specified a list with shape {handle.element_shape} from a tensor with shape "
                    f"{Shape(value.shape)}"
                )
                raise OpError(message)
            if indices.ndim != 1:
                message = f"Expected indices to be a vector, but received {Shape(indices.shape)}"
                raise OpError(message)
            items = handle.all().copy()
            items += [None] * (max(indices.tolist(), default=-1) + 1 - len(items))
            return handle.replaced(_placed(items, value, indices))

        return scatter
