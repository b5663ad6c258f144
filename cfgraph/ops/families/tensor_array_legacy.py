"""TensorArray ops, versions 1 and 2, whose handles are strings or references to strings."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

from cfgraph.ir.dtypes import DType
from cfgraph.ir.shapes import Shape, vector_shape
from cfgraph.ops.families import tensor_array_ops
from cfgraph.ops.families.tensor_array import TensorArray
from cfgraph.ops.families.tensor_array_ops import (
    TensorArrayCloseV3,
    TensorArrayConcatV3,
    TensorArrayGatherV3,
    TensorArrayGradV3,
    TensorArrayOp,
    TensorArrayReadV3,
    TensorArrayScatterV3,
    TensorArraySizeV3,
    TensorArraySplitV3,
    TensorArrayV3,
    TensorArrayWriteV3,
    stack_elements,
    write_elements,
)
from cfgraph.ops.opdef.op import OpError
from cfgraph.ops.opdef.variant_math import unstack_value


class TensorArrayV2(TensorArrayV3):
    """New array of tensors."""

    signature = "size: host int32 -> handle: string"
    placement = replace(TensorArrayV3.placement, handle_outputs=(0,))
    attrs = (
        "dtype: type, element_shape: shape = ?, dynamic_size: bool = false,"
        " clear_after_read: bool = true, tensor_array_name: string = ''"
    )


class TensorArrayV1(TensorArrayV3, name="TensorArray"):
    """New array of tensors; version 1."""

    signature = "size: host int32 -> handle: Ref(string)"
    placement = replace(TensorArrayV3.placement, handle_outputs=(0,))
    attrs = (
        "dtype: type, dynamic_size: bool = false, clear_after_read: bool = true,"
        " tensor_array_name: string = '', element_shape: shape = ?"
    )


class TensorArrayGradV2(TensorArrayGradV3):
    """Array that accumulates the gradients of another array's elements."""

    signature = "handle: host string, flow_in: float32 -> grad_handle: string"
    placement = replace(TensorArrayGradV3.placement, handle_outputs=(0,))


class TensorArrayGrad(TensorArrayGradV3):
    """Array that accumulates the gradients of another array's elements; version 1."""

    signature = "handle: host string, flow_in: float32 -> grad_handle: Ref(string)"
    placement = replace(TensorArrayGradV3.placement, handle_outputs=(0,))


class TensorArrayWriteV2(TensorArrayWriteV3):
    """Write one element."""

    signature = (
        "handle: host string, index: host int32, value: T, flow_in: float32 -> flow_out: float32"
    )


class TensorArrayWrite(TensorArrayWriteV3):
    """Write one element; version 1."""

    signature = (
        "handle: host Ref(string), index: host int32, value: T, flow_in: float32 "
        "-> flow_out: float32"
    )


class TensorArrayReadV2(TensorArrayReadV3):
    """Read one element."""

    signature = "handle: host string, index: host int32, flow_in: float32 -> value: dtype"


class TensorArrayRead(TensorArrayReadV3):
    """Read one element; version 1."""

    signature = "handle: host Ref(string), index: host int32, flow_in: float32 -> value: dtype"


class TensorArrayGatherV2(TensorArrayGatherV3):
    """Read the elements at several indices, stacked."""

    signature = "handle: host string, indices: host int32, flow_in: float32 -> value: dtype"


class TensorArrayGather(TensorArrayGatherV3):
    """Read the elements at several indices, stacked; version 1."""

    signature = "handle: host Ref(string), indices: host int32, flow_in: float32 -> value: dtype"


class TensorArrayScatterV2(TensorArrayScatterV3):
    """Write the slices of a tensor to several indices."""

    signature = (
        "handle: host string, indices: host int32, value: T, flow_in: float32 -> flow_out: float32"
    )


class TensorArrayScatter(TensorArrayScatterV3):
    """Write the slices of a tensor to several indices; version 1."""

    signature = (
        "handle: host Ref(string), indices: host int32, value: T, flow_in: float32 "
        "-> flow_out: float32"
    )


class TensorArrayConcatV2(TensorArrayConcatV3):
    """Concatenation of all elements along their first axis, and their lengths."""

    signature = "handle: host string, flow_in: float32 -> value: dtype, lengths: int64"


class TensorArrayConcat(TensorArrayConcatV3):
    """Concatenation of all elements along their first axis, and their lengths; version 1."""

    signature = "handle: host Ref(string), flow_in: float32 -> value: dtype, lengths: int64"


class TensorArraySplitV2(TensorArraySplitV3):
    """Split a tensor along its first axis by lengths, and write the pieces as elements."""

    signature = (
        "handle: host string, value: T, lengths: host int64, flow_in: float32 -> flow_out: float32"
    )


class TensorArraySplit(TensorArraySplitV3):
    """Split a tensor along its first axis, and write the pieces as elements; version 1."""

    signature = (
        "handle: host Ref(string), value: T, lengths: host int64, flow_in: float32 "
        "-> flow_out: float32"
    )


class TensorArraySizeV2(TensorArraySizeV3):
    """Number of elements."""

    signature = "handle: host string, flow_in: float32 -> size: int32"


class TensorArraySize(TensorArraySizeV3):
    """Number of elements; version 1."""

    signature = "handle: host Ref(string), flow_in: float32 -> size: int32"


class TensorArrayCloseV2(TensorArrayCloseV3):
    """Free an array before the run ends."""

    signature = "handle: host string ->"


class TensorArrayClose(TensorArrayCloseV3):
    """Free an array before the run ends; version 1."""

    signature = "handle: host Ref(string) ->"


class TensorArrayPack(TensorArrayOp):
    """All elements, stacked."""

    signature = "handle: host Ref(string), flow_in: float32 -> value: dtype"
    attrs = "element_shape: shape = ?"
    access = "read"
    gradient = staticmethod(tensor_array_ops.pack_gradient)

    @staticmethod
    def kernel(
        xp: ModuleType, dtype: DType, element_shape: Shape, /, step: Any, array: Any, flow: Any
    ) -> Any:
        return stack_elements(xp, array, range(array.packed_size), dtype, element_shape)

    shape = staticmethod(lambda context: [vector_shape() + context.attr("element_shape")])


class TensorArrayUnpack(TensorArrayOp):
    """Write the slices of a tensor to all elements."""

    signature = "handle: host Ref(string), value: T, flow_in: float32 -> flow_out: float32"
    access = "write"
    gradient = staticmethod(tensor_array_ops.unpack_gradient)

    @staticmethod
    def kernel(
        xp: ModuleType, T: DType, /, step: Any, array: TensorArray, value: Any, flow: Any
    ) -> Any:
        if value.ndim == 0 or (len(value) != array.size and not array.dynamic):
            message = (
                f"Input value must have first dimension equal to the array size "
                f"({Shape(value.shape)} vs. {array.size})"
            )
            raise OpError(message)
        array.mark(len(value))
        write_elements(array, range(len(value)), unstack_value(value), T)
        return flow
