"""Partitioning of rows into several tensors, and interleaving of several tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.ops.families.split import as_outputs
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext


class DynamicPartition(Op):
    """Slices of `data` distributed over several outputs by partition number."""

    signature = "data: T, partitions: int32 -> outputs: num_partitions*T"
    compilation = CompilerSupport(traceable=False)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        count = node.attr("num_partitions")

        def dynamic_partition(data: Any, partitions: Any) -> Any:
            depth = partitions.ndim
            if data.shape[:depth] != partitions.shape:
                message = (
                    "data.shape must start with partitions.shape, "
                    f"got data.shape = {list(data.shape)}, "
                    f"partitions.shape = {list(partitions.shape)}"
                )
                raise OpError(message)
            row_shape = data.shape[depth:]
            rows, numbers = (
                data.reshape((-1, *row_shape)) if data.size else data,
                partitions.reshape(-1),
            )
            if not data.size:
                rows = data.reshape((numbers.size, *row_shape))
            bad = (numbers < 0) | (numbers >= count)
            if bad.any():
                position = int(bad.argmax())
                message = f"partitions[{position}] = {numbers[position]} is not in [0, {count})"
                raise OpError(message)
            return as_outputs([rows[numbers == number] for number in range(count)])

        return dynamic_partition

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data, partitions = context.inputs
        if partitions.rank is None or data.dims is None:
            return [UNKNOWN_SHAPE] * context.output_count
        data[: partitions.rank].merge(partitions)
        return [vector_shape() + data[partitions.rank :]] * context.output_count

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, *grads: Output | None) -> InputGradients:
        data, partitions = node.inputs
        sizes, count = g.shape(partitions), len(grads)
        zero, one = (g.const(value, dtypes.int32) for value in (0, 1))
        numbers = g.Range(zero, g.Prod(sizes, zero), one)
        positions = g.DynamicPartition(g.Reshape(numbers, sizes), partitions, num_partitions=count)
        indices = [positions.node.output(port) for port in range(count)]
        pieces = [
            g.zeros_like(node.output(port)) if grad is None else grad
            for port, grad in enumerate(grads)
        ]
        rows = g.ParallelDynamicStitch(indices, pieces)
        flat = g.known_shape(partitions).rank == 1
        return rows if flat else g.Reshape(rows, g.shape(data)), None


class DynamicStitch(Op):
    """Slices of several tensors merged at the positions given by their indices.

    For a repeated position the last slice wins; positions without an index are zero.
    """

    signature = "indices: N*int32, data: N*T -> merged: T"
    compilation = CompilerSupport(traceable=False)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        count, dtype = node.attr("N"), node.attr("T")
        fill = b"" if dtype.is_object else 0

        def dynamic_stitch(*inputs: Any) -> Any:
            indices, data = inputs[:count], inputs[count:]
            row_shape = data[0].shape[indices[0].ndim :]
            size = 0
            for number, (index, values) in enumerate(zip(indices, data, strict=True)):
                _check_indices(number, index, values, row_shape)
                size = max(size, int(index.max()) + 1 if index.size else 0)
            result = np.full((size, *row_shape), fill, dtype.numpy)
            for index, values in zip(indices, data, strict=True):
                if index.size and index.min() < 0:
                    message = f"indices {index.tolist()} are out of range"
                    raise OpError(message)
                result[index.reshape(-1)] = values.reshape((index.size, *row_shape))
            return result

        return dynamic_stitch

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        count = context.attr("N")
        indices, data = context.inputs[:count], context.inputs[count:]
        row_shape: Shape = UNKNOWN_SHAPE
        for index, shape in zip(indices, data, strict=True):
            if index.rank is None or shape.dims is None:
                continue
            if index.rank > len(shape.dims):
                message = f"data of shape {shape} must start with the shape {index} of its indices"
                raise ValueError(message)
            shape[: index.rank].merge(index)
            row_shape = row_shape.merge(shape[index.rank :])
        return [vector_shape(_stitched_shape(context, count)) + row_shape]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        indices = node.inputs[: node.attr("N")]
        return [
            *[None] * len(indices),
            *(partial(_partition_gradient, g, dz, index) for index in indices),
        ]


def _partition_gradient(g: GradientBuilder, dz: Output, indices: Output) -> Output:
    return g.GatherV2(dz, indices, g.const(0, dtypes.int32))


def _check_indices(number: int, index: Any, values: Any, row_shape: tuple[int, ...]) -> None:
    if values.shape[: index.ndim] != index.shape or values.shape[index.ndim :] != row_shape:
        message = (
            f"data[{number}].shape = {list(values.shape)} must start with "
            f"indices[{number}].shape = "
            f"{list(index.shape)}, followed by {list(row_shape)} as in data[0]"
        )
        raise OpError(message)


def _stitched_shape(context: InferenceContext, count: int) -> int | None:
    size = 0
    for slot in range(count):
        index = context.value(slot)
        if index is None:
            return None
        size = max(size, int(index.max()) + 1 if index.size else 0)
    return size


class ParallelDynamicStitch(DynamicStitch):
    """DynamicStitch for positions without repetitions."""

    signature = "indices: N*int32, data: N*T -> merged: T"
