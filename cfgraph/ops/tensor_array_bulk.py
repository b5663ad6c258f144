"""The ops on many elements of a TensorArray at once: stacked, one after the other, and back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape, vector_shape
from cfgraph.ops import tensor_array_gradients
from cfgraph.ops.elements import stack, unstack, zeros
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, OpError
from cfgraph.ops.tensor_array import TensorArray
from cfgraph.ops.tensor_array_ops import ArrayOp


class TensorArrayGatherV3(ArrayOp):
    """Read the elements of some indices, stacked."""

    signature = "handle: resource, indices: int32, flow_in: float32 -> value: dtype"
    attrs = "element_shape: shape = ?"
    host_inputs = (0, 1)
    access = "read"
    gradient = staticmethod(tensor_array_gradients.gather)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype, shape = node.attr("dtype"), node.attr("element_shape")

        def gather(step: Any, array: TensorArray, indices: Any, flow: Any) -> Any:
            if indices.ndim != 1:
                message = (
                    f"Expected indices to be a vector, but received shape: {Shape(indices.shape)}"
                )
                raise OpError(message)
            return pack(xp, array, indices.tolist(), dtype, shape)

        return gather

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        count = context.inputs[1] if context.inputs[1].rank == 1 else vector_shape()
        return [count + context.attr("element_shape")]


def pack(
    xp: ModuleType, array: TensorArray, indices: Sequence[int], dtype: Any, shape: Shape
) -> Any:
    """The elements of these indices, stacked. Raises OpError where their shapes do not fit."""
    array.narrow(shape)
    values = array.get_many(indices, dtype)
    if not values and not shape.is_full:
        message = (
            f"TensorArray has size zero, but element shape {shape} is not fully defined. "
            f"Currently only static shapes are supported when packing zero-size TensorArrays."
        )
        raise OpError(message)
    first: Any = values[0].shape if values else shape.dims
    if not shape.accepts(first):
        message = (
            f"TensorArray was passed element_shape {shape} which does not match the element at "
            f"index 0: {Shape(first)}"
        )
        raise OpError(message)
    for place, value in enumerate(values):
        if value.shape != first:
            message = (
                f"TensorArray has inconsistent shapes.  Index 0 has shape: {Shape(first)} but "
                f"index {place} has shape: {Shape(value.shape)}"
            )
            raise OpError(message)
    return stack(xp, dtype, values, first)


class TensorArrayScatterV3(ArrayOp):
    """Write the slices of a tensor to some indices."""

    signature = "handle: resource, indices: int32, value: T, flow_in: float32 -> flow_out: float32"
    host_inputs = (0, 1)
    access = "write"
    gradient = staticmethod(tensor_array_gradients.scatter)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T")

        def scatter(step: Any, array: TensorArray, indices: Any, value: Any, flow: Any) -> Any:
            if indices.ndim != 1 or value.ndim == 0 or len(indices) != len(value):
                message = (
                    f"Expected a vector of indices and as many slices of the value, but the "
                    f"shapes are {Shape(indices.shape)} and {Shape(value.shape)}"
                )
                raise OpError(message)
            unpack(array, indices.tolist(), unstack(value), dtype)
            return flow

        return scatter


def unpack(array: TensorArray, indices: Sequence[int], values: Sequence[Any], dtype: Any) -> None:
    """Write values to these indices. Raises OpError where the array has no room."""
    size = max(indices, default=-1) + 1
    if array.dynamic:
        array.grow_to(size)
    elif size > array.size:
        message = f"Max scatter index must be < array size ({size - 1} vs. {array.size})"
        raise OpError(message)
    array.put_many(indices, values, dtype)


class TensorArrayConcatV3(ArrayOp):
    """All elements one after the other along their first axis, and their lengths."""

    signature = "handle: resource, flow_in: float32 -> value: dtype, lengths: int64"
    attrs = "element_shape_except0: shape = ?"
    access = "read"
    gradient = staticmethod(tensor_array_gradients.concat)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype, rest = node.attr("dtype"), node.attr("element_shape_except0")
        return lambda step, array, flow: _concat(xp, array, dtype, rest)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [vector_shape() + context.attr("element_shape_except0"), vector_shape()]


def _concat(xp: ModuleType, array: TensorArray, dtype: Any, rest: Shape) -> tuple[Any, Any]:
    values = array.get_many(range(array.packed_size), dtype)
    for place, value in enumerate(values):
        if value.ndim == 0:
            message = (
                f"Concat saw a scalar shape at index {place} but requires at least vectors.  "
                f"Did you mean to call pack?"
            )
            raise OpError(message)
        if value.shape[1:] != values[0].shape[1:] or not rest.accepts(value.shape[1:]):
            message = (
                f"TensorArray has inconsistent shapes.  Index 0 has shape: "
                f"{Shape(values[0].shape)} but index {place} has shape: {Shape(value.shape)}, "
                f"and all after the first dimension should be {rest}"
            )
            raise OpError(message)
    if values:
        return xp.concatenate(values), np.array([len(value) for value in values], np.int64)
    if not rest.is_full:
        message = (
            f"TensorArray has size zero, but element_shape_except0 {rest} is not fully defined. "
            f"Currently only static shapes are supported when concatenating zero-size "
            f"TensorArrays."
        )
        raise OpError(message)
    return zeros(xp, dtype, (0, *(size or 0 for size in rest))), np.zeros(0, np.int64)


class TensorArraySplitV3(ArrayOp):
    """Cut a tensor into pieces of some lengths along its first axis: the elements."""

    signature = "handle: resource, value: T, lengths: int64, flow_in: float32 -> flow_out: float32"
    host_inputs = (0, 2)
    access = "write"
    gradient = staticmethod(tensor_array_gradients.split)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T")

        def split(step: Any, array: TensorArray, value: Any, lengths: Any, flow: Any) -> Any:
            pieces = split_rows(value, lengths)
            if array.dynamic:
                array.grow_to(len(pieces))
            if array.size != len(pieces):
                message = (
                    f"TensorArray's size is not equal to the size of lengths ({array.size} vs. "
                    f"{len(pieces)}), and the TensorArray is not marked as dynamically resizeable"
                )
                raise OpError(message)
            array.mark(len(pieces))
            for index, piece in enumerate(pieces):
                array.put(index, piece, dtype)
            return flow

        return split


def split_rows(value: Any, lengths: Any) -> list[Any]:
    """The pieces of these lengths along axis 0. Raises OpError where they do not add up."""
    if lengths.ndim != 1:
        message = f"Expected lengths to be a vector, received shape: {Shape(lengths.shape)}"
        raise OpError(message)
    if value.ndim == 0:
        message = "Expected value to be at least a vector, but received shape: []"
        raise OpError(message)
    if lengths.sum() != len(value) or (lengths < 0).any():
        message = (
            f"Expected sum of lengths to be equal to values.shape[0], but sum of lengths is "
            f"{lengths.sum()} and value's shape is: {Shape(value.shape)}"
        )
        raise OpError(message)
    ends = np.cumsum(lengths).tolist()
    return [value[start:end] for start, end in pairwise([0, *ends])]
