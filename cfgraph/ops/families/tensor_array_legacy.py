"""TensorArray ops, versions 1 and 2, whose handles are strings or references to strings."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any, Final

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
from cfgraph.ops.kernels.variant_math import unstack_value
from cfgraph.ops.opdef.op import OpError, define_op


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


_SAME_IN_ALL_VERSIONS: Final[tuple[type[TensorArrayOp], ...]] = (
    TensorArrayWriteV3,
    TensorArrayReadV3,
    TensorArrayGatherV3,
    TensorArrayScatterV3,
    TensorArrayConcatV3,
    TensorArraySplitV3,
    TensorArraySizeV3,
    TensorArrayCloseV3,
)


def _define_versions(op: type[TensorArrayOp]) -> None:
    """Define versions 1 and 2 of an op, which differ from version 3 in the handle."""
    doc, name = (op.__doc__ or "").removesuffix("."), op.name.removesuffix("V3")
    for version, handle, text in ("V2", "string", doc), ("", "Ref(string)", f"{doc}; version 1"):
        signature = op.signature.replace("handle: host resource", f"handle: host {handle}")
        define_op(__name__, name + version, op, f"{text}.", signature=signature)


for _op in _SAME_IN_ALL_VERSIONS:
    _define_versions(_op)


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
            raise OpError(
                f"Input value must have first dimension equal to the array size "
                f"({Shape(value.shape)} vs. {array.size})"
            )
        array.mark(len(value))
        write_elements(array, range(len(value)), unstack_value(value), T)
        return flow
