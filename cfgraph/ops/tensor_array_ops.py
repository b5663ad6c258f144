"""The ops on TensorArrays. Versions 2 and 1 differ from 3 in the handle's type alone."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape
from cfgraph.ops import tensor_array_gradients
from cfgraph.ops.adjoint import stop
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError
from cfgraph.ops.tensor_array import TensorArray


class ArrayOp(Op, abstract=True):
    """An op whose input 0 is a TensorArray; its outputs are scalars unless it says more.

    `access` is what it does to elements: `read`, `write`, or nothing of the kind.
    """

    stateful = True
    access: ClassVar[str] = ""
    host_inputs: ClassVar[tuple[int, ...]] = (0,)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [SCALAR_SHAPE] * context.output_count


class TensorArrayV3(ArrayOp):
    """A new array of tensors, and the flow that orders what is done with it."""

    signature = "size: int32 -> handle: resource, flow: float32"
    attrs = (
        "dtype: type, element_shape: shape = ?, dynamic_size: bool = false,"
        " clear_after_read: bool = true, identical_element_shapes: bool = false,"
        " tensor_array_name: string = ''"
    )
    gradient = staticmethod(stop)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("dtype")
        known = cls.parsed().attrs
        options = {
            "element_shape": node.attr("element_shape"),
            "dynamic": node.attr("dynamic_size"),
            "clear_after_read": node.attr("clear_after_read"),
            "identical": "identical_element_shapes" in known
            and node.attr("identical_element_shapes"),
            "name": node.attr("tensor_array_name").decode() or node.name,
        }
        flow = np.float32(0)
        bare = len(cls.parsed().outputs) == 1

        def make(step: Any, size: Any) -> Any:
            if size.shape != ():
                message = f"TensorArray size must be scalar, but had shape: {Shape(size.shape)}"
                raise OpError(message)
            array = TensorArray(xp, dtype, int(size), **options)
            return array if bare else (array, flow)

        return make


class TensorArrayGradV3(ArrayOp):
    """The array that gathers gradients for the elements of another one."""

    signature = "handle: resource, flow_in: float32 -> grad_handle: resource, flow_out: float32"
    attrs = "source: string"
    gradient = staticmethod(stop)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        source = node.attr("source").decode()
        if len(cls.parsed().outputs) == 1:
            return lambda step, array, flow: array.gradient(source)
        return lambda step, array, flow: (array.gradient(source), flow)


class TensorArrayGradWithShape(ArrayOp):
    """The array that gathers gradients whose shapes begin with more dimensions."""

    signature = (
        "handle: resource, flow_in: float32, shape_to_prepend: int32"
        " -> grad_handle: resource, flow_out: float32"
    )
    attrs = "source: string"
    host_inputs = (0, 2)
    gradient = staticmethod(stop)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        source = node.attr("source").decode()
        return lambda step, array, flow, prepend: (array.gradient(source, prepend.tolist()), flow)


class TensorArrayWriteV3(ArrayOp):
    """Write one element."""

    signature = "handle: resource, index: int32, value: T, flow_in: float32 -> flow_out: float32"
    access = "write"
    host_inputs = (0, 1)
    gradient = staticmethod(tensor_array_gradients.write)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T")

        def write(step: Any, array: TensorArray, index: Any, value: Any, flow: Any) -> Any:
            array.put(index, value, dtype)
            return flow

        return write


class TensorArrayReadV3(ArrayOp):
    """Read one element."""

    signature = "handle: resource, index: int32, flow_in: float32 -> value: dtype"
    access = "read"
    host_inputs = (0, 1)
    gradient = staticmethod(tensor_array_gradients.read)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("dtype")
        return lambda step, array, index, flow: array.get(index, dtype)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [UNKNOWN_SHAPE]


class TensorArraySizeV3(ArrayOp):
    """The number of elements."""

    signature = "handle: resource, flow_in: float32 -> size: int32"
    gradient = staticmethod(stop)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        return lambda step, array, flow: np.int32(array.size)


class TensorArrayCloseV3(ArrayOp):
    """Free an array before the run ends."""

    signature = "handle: resource ->"

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        return lambda step, array: array.close()
