"""TensorArray ops, version 3, and the gradients of all versions, which use gradient arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.names import decode_text
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.ops.families.split import split_lengths
from cfgraph.ops.families.tensor_array import TensorArray
from cfgraph.ops.kernels.variant_math import stack_values, unstack_value, zeros_of_dtype
from cfgraph.ops.opdef.facts import SideEffects
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, no_gradient
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext


def read_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of a read: a write to the gradient array, which accumulates."""
    _, index, flow = node.inputs
    flow = _flow_after_gradient(g, flow, dz)
    return None, None, _array_op(g, node, "Write")(_gradient_array(g, node, flow), index, dz, flow)


def write_gradient(g: GradientBuilder, node: Node, dflow: Output) -> InputGradients:
    """Gradient of a write: a read from the gradient array."""
    _, index, value, _ = node.inputs
    done = _flow_after_write(g, node, dflow)

    def element() -> Output:
        return _array_op(g, node, "Read")(
            _gradient_array(g, node, done), index, done, dtype=value.dtype
        )

    return None, None, element, done


def gather_elements_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of a gather: a scatter to the gradient array."""
    _, indices, flow = node.inputs
    flow = _flow_after_gradient(g, flow, dz)
    return (
        None,
        None,
        _array_op(g, node, "Scatter")(_gradient_array(g, node, flow), indices, dz, flow),
    )


def scatter_elements_gradient(g: GradientBuilder, node: Node, dflow: Output) -> InputGradients:
    """Gradient of a scatter: a gather from the gradient array."""
    _, indices, value, _ = node.inputs
    done, shape = _flow_after_write(g, node, dflow), g.known_shape(value)[1:]

    def rows() -> Output:
        op, array = _array_op(g, node, "Gather"), _gradient_array(g, node, done)
        return op(array, indices, done, dtype=value.dtype, element_shape=shape)

    return None, None, rows, done


def concat_gradient(g: GradientBuilder, node: Node, dz: Output, dlengths: None) -> InputGradients:
    """Gradient of a concatenation: a split into the gradient array."""
    flow, lengths = _flow_after_gradient(g, node.inputs[1], dz), node.output(1)
    return None, _array_op(g, node, "Split")(_gradient_array(g, node, flow), dz, lengths, flow)


def split_gradient(g: GradientBuilder, node: Node, dflow: Output) -> InputGradients:
    """Gradient of a split: a concatenation of the gradient array."""
    _, value, _, _ = node.inputs
    done, row_dims = _flow_after_write(g, node, dflow), g.known_shape(value)[1:]

    def value_gradient() -> Output:
        op, array = _array_op(g, node, "Concat"), _gradient_array(g, node, done)
        return op(array, done, dtype=value.dtype, element_shape_except0=row_dims)

    return None, value_gradient, None, done


def pack_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of a pack: an unpack into the gradient array."""
    flow = _flow_after_gradient(g, node.inputs[1], dz)
    return None, g.TensorArrayUnpack(_gradient_array(g, node, flow), dz, flow)


def unpack_gradient(g: GradientBuilder, node: Node, dflow: Output) -> InputGradients:
    """Gradient of an unpack: a pack of the gradient array."""
    _, value, _ = node.inputs
    done, shape = _flow_after_write(g, node, dflow), g.known_shape(value)[1:]

    def rows() -> Output:
        array = _gradient_array(g, node, done)
        return g.TensorArrayPack(array, done, dtype=value.dtype, element_shape=shape)

    return None, rows, done


def _array_op(g: GradientBuilder, node: Node, verb: str) -> Callable[..., Output]:
    """Builder of the TensorArray op for a verb, in the same version as `node`."""
    version = node.op[-2:] if node.op[-2] == "V" else ""
    made: Callable[..., Output] = getattr(g, f"TensorArray{verb}{version}")
    return made


def _gradient_array(g: GradientBuilder, node: Node, flow: Output) -> Output:
    """The gradient array; creating it fixes the size of the forward array."""
    return _array_op(g, node, "Grad")(node.inputs[0], flow, source=g.source)


def _flow_after_gradient(g: GradientBuilder, flow: Output, dz: Output) -> Output:
    """The flow after `dz`, so that all forward writes precede the gradient array."""
    return g.with_control_deps(flow, dz)


def _flow_after_write(g: GradientBuilder, node: Node, dflow: Output) -> Output:
    """The gradient of the flow, ordered after the differentiated write.

    Each write forwards this to the previous write, so that all writes precede the first creation of
    the gradient array.
    """
    return g.with_control_deps(dflow, node.output(0))


class TensorArrayOp(Op, abstract=True):
    """Op on a TensorArray at input 0; its outputs are scalars unless overridden.

    `access` is its effect on elements: `read`, `write`, or empty.
    """

    effects = SideEffects(stateful=True, atomic=True)
    access: ClassVar[str] = ""

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [SCALAR_SHAPE] * context.output_count


class TensorArrayV3(TensorArrayOp):
    """New array of tensors, and the flow that orders operations on it."""

    signature = "size: host int32 -> handle: resource, flow: float32"
    attrs = (
        "dtype: type, element_shape: shape = ?, dynamic_size: bool = false,"
        " clear_after_read: bool = true, identical_element_shapes: bool = false,"
        " tensor_array_name: string = ''"
    )
    gradient = staticmethod(no_gradient)

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
            "name": decode_text(node.attr("tensor_array_name")) or node.name,
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


class TensorArrayGradV3(TensorArrayOp):
    """Array that accumulates the gradients of another array's elements."""

    signature = (
        "handle: host resource, flow_in: float32 -> grad_handle: resource, flow_out: float32"
    )
    attrs = "source: string"
    gradient = staticmethod(no_gradient)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        source = decode_text(node.attr("source"))
        if len(cls.parsed().outputs) == 1:
            return lambda step, array, flow: array.gradient(source)
        return lambda step, array, flow: (array.gradient(source), flow)


class TensorArrayGradWithShape(TensorArrayOp):
    """TensorArrayGradV3 for element gradients with additional leading dimensions."""

    signature = (
        "handle: host resource, flow_in: float32, shape_to_prepend: host int32"
        " -> grad_handle: resource, flow_out: float32"
    )
    attrs = "source: string"
    gradient = staticmethod(no_gradient)

    @staticmethod
    def kernel(
        xp: ModuleType, source: bytes, /, step: Any, array: Any, flow: Any, prepend: Any
    ) -> Any:
        return (array.gradient(decode_text(source), prepend.tolist()), flow)


class TensorArrayWriteV3(TensorArrayOp):
    """Write one element."""

    signature = (
        "handle: host resource, index: host int32, value: T, flow_in: float32 -> flow_out: float32"
    )
    access = "write"
    gradient = staticmethod(write_gradient)

    @staticmethod
    def kernel(
        xp: ModuleType, T: DType, /, step: Any, array: Any, index: Any, value: Any, flow: Any
    ) -> Any:
        array.put(index, value, T)
        return flow


class TensorArrayReadV3(TensorArrayOp):
    """Read one element."""

    signature = "handle: host resource, index: host int32, flow_in: float32 -> value: dtype"
    access = "read"
    gradient = staticmethod(read_gradient)
    kernel = staticmethod(lambda xp, dtype, /, step, array, index, flow: array.get(index, dtype))
    shape = staticmethod(lambda context: [UNKNOWN_SHAPE])


class TensorArraySizeV3(TensorArrayOp):
    """Number of elements."""

    signature = "handle: host resource, flow_in: float32 -> size: int32"
    gradient = staticmethod(no_gradient)
    kernel = staticmethod(lambda xp, step, array, flow: np.int32(array.size))


class TensorArrayCloseV3(TensorArrayOp):
    """Free an array before the run ends."""

    signature = "handle: host resource ->"
    kernel = staticmethod(lambda xp, step, array: array.close())


class TensorArrayGatherV3(TensorArrayOp):
    """Read the elements at several indices, stacked."""

    signature = "handle: host resource, indices: host int32, flow_in: float32 -> value: dtype"
    attrs = "element_shape: shape = ?"
    access = "read"
    gradient = staticmethod(gather_elements_gradient)

    @staticmethod
    def kernel(
        xp: ModuleType, dtype: DType, element_shape: Shape, /, step: Any, array: Any, *inputs: Any
    ) -> Any:
        indices, _ = inputs
        if indices.ndim != 1:
            raise OpError(
                f"Expected indices to be a vector, but received shape: {Shape(indices.shape)}"
            )
        return stack_elements(xp, array, indices.tolist(), dtype, element_shape)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        count = context.inputs[1] if context.inputs[1].rank == 1 else vector_shape()
        return [count + context.attr("element_shape")]


def stack_elements(
    xp: ModuleType, array: TensorArray, indices: Sequence[int], dtype: Any, shape: Shape
) -> Any:
    """The elements at these indices, stacked. Raises OpError for inconsistent shapes."""
    array.narrow(shape)
    values = array.get_many(indices, dtype)
    if not values and not shape.is_full:
        raise OpError(
            f"TensorArray has size zero, but element shape {shape} is not fully defined. "
            f"Currently only static shapes are supported when packing zero-size TensorArrays."
        )
    first: Any = values[0].shape if values else shape.dims
    if not shape.accepts(first):
        raise OpError(
            f"TensorArray was passed element_shape {shape} which does not match the element at "
            f"index 0: {Shape(first)}"
        )
    for index, value in enumerate(values):
        if value.shape != first:
            raise OpError(
                f"TensorArray has inconsistent shapes.  Index 0 has shape: {Shape(first)} but "
                f"index {index} has shape: {Shape(value.shape)}"
            )
    return stack_values(xp, dtype, values, first)


class TensorArrayScatterV3(TensorArrayOp):
    """Write the slices of a tensor to several indices."""

    signature = (
        "handle: host resource, indices: host int32, value: T, flow_in: float32 "
        "-> flow_out: float32"
    )
    access = "write"
    gradient = staticmethod(scatter_elements_gradient)

    @staticmethod
    def kernel(xp: ModuleType, T: DType, /, step: Any, array: TensorArray, *inputs: Any) -> Any:
        indices, value, flow = inputs
        if indices.ndim != 1 or value.ndim == 0 or len(indices) != len(value):
            raise OpError(
                f"Expected a vector of indices and as many slices of the value, but the "
                f"shapes are {Shape(indices.shape)} and {Shape(value.shape)}"
            )
        write_elements(array, indices.tolist(), unstack_value(value), T)
        return flow


def write_elements(
    array: TensorArray, indices: Sequence[int], values: Sequence[Any], dtype: Any
) -> None:
    """Write values to these indices. Raises OpError if an index is out of range."""
    size = max(indices, default=-1) + 1
    if array.dynamic:
        array.grow_to(size)
    elif size > array.size:
        raise OpError(f"Max scatter index must be < array size ({size - 1} vs. {array.size})")
    array.put_many(indices, values, dtype)


class TensorArrayConcatV3(TensorArrayOp):
    """Concatenation of all elements along their first axis, and their lengths."""

    signature = "handle: host resource, flow_in: float32 -> value: dtype, lengths: int64"
    attrs = "element_shape_except0: shape = ?"
    access = "read"
    gradient = staticmethod(concat_gradient)

    @staticmethod
    def kernel(
        xp: ModuleType,
        dtype: DType,
        element_shape_except0: Shape,
        /,
        step: Any,
        array: Any,
        flow: Any,
    ) -> Any:
        return _concat_elements(xp, array, dtype, element_shape_except0)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [vector_shape() + context.attr("element_shape_except0"), vector_shape()]


def _concat_elements(
    xp: ModuleType, array: TensorArray, dtype: Any, row_shape: Shape
) -> tuple[Any, Any]:
    values = array.get_many(range(array.packed_size), dtype)
    for index, value in enumerate(values):
        if value.ndim == 0:
            raise OpError(
                f"Concat saw a scalar shape at index {index} but requires at least vectors.  "
                f"Did you mean to call pack?"
            )
        if value.shape[1:] != values[0].shape[1:] or not row_shape.accepts(value.shape[1:]):
            raise OpError(
                f"TensorArray has inconsistent shapes.  Index 0 has shape: "
                f"{Shape(values[0].shape)} but index {index} has shape: {Shape(value.shape)}, "
                f"and all after the first dimension should be {row_shape}"
            )
    if values:
        return xp.concatenate(values), np.array([len(value) for value in values], np.int64)
    if not row_shape.is_full:
        raise OpError(
            f"TensorArray has size zero, but element_shape_except0 {row_shape} is not fully "
            "defined. "
            f"Currently only static shapes are supported when concatenating zero-size "
            f"TensorArrays."
        )
    return zeros_of_dtype(xp, dtype, (0, *(size or 0 for size in row_shape))), np.zeros(0, np.int64)


class TensorArraySplitV3(TensorArrayOp):
    """Split a tensor along its first axis by lengths, and write the pieces as elements."""

    signature = (
        "handle: host resource, value: T, lengths: host int64, flow_in: float32 "
        "-> flow_out: float32"
    )
    access = "write"
    gradient = staticmethod(split_gradient)

    @staticmethod
    def kernel(xp: ModuleType, T: DType, /, step: Any, array: TensorArray, *inputs: Any) -> Any:
        value, lengths, flow = inputs
        pieces = split_lengths(value, lengths)
        if array.dynamic:
            array.grow_to(len(pieces))
        if array.size != len(pieces):
            raise OpError(
                f"TensorArray's size is not equal to the size of lengths ({array.size} vs. "
                f"{len(pieces)}), and the TensorArray is not marked as dynamically resizeable"
            )
        array.mark(len(pieces))
        for index, piece in enumerate(pieces):
            array.put(index, piece, T)
        return flow
