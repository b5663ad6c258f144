"""Scatter into new tensors, and dynamic partition and stitch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, ShapeError, vector_shape
from cfgraph.limits import reserve_array
from cfgraph.ops.families.gather import index_vectors, widen_indices
from cfgraph.ops.families.split import as_outputs
from cfgraph.ops.kernels.array_namespace import accumulated_at, last_updates, updated_at
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, int32_constant
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank, require_rank_at_least

_BAD_INDICES_ATTR = "bad_indices_policy: string = ''"


def scatter_updates(
    xp: ModuleType, array: Any, indices: Any, updates: Any, combiner: str, *, ignore: bool
) -> Any:
    """A copy of `array` with updates at index vectors. Raises OpError if the shapes do not fit.

    `combiner` is `set`, `add`, `subtract`, `min`, or `max`; `ignore` drops updates out of bounds.
    """
    if not indices.ndim or not updates.ndim:
        raise OpError("indices and updates must have rank at least one")
    fits = updates.shape == indices.shape[:-1] + array.shape[indices.shape[-1] :]
    if indices.ndim == 1:
        # a vector must fit both as one index vector and as a list of indices
        indices = indices[:, None]
    if not fits or updates.shape != indices.shape[:-1] + array.shape[indices.shape[-1] :]:
        raise OpError(
            "Dimensions of updates must be those of indices and of the slices: "
            f"indices {list(indices.shape)}, updates {list(updates.shape)}, "
            f"output {list(array.shape)}"
        )
    if not updates.size:
        return array
    if not indices.size or not array.size:
        raise OpError("Indices and updates specified for empty output shape")
    index, bad = index_vectors(xp, indices, array.shape, check=not ignore)
    if bad is not None and hasattr(array, "at"):
        # JAX drops updates out of bounds
        index = (xp.where(bad, array.shape[0], index[0]), *index[1:])
    elif bad is not None:
        index, updates = tuple(component[~bad] for component in index), updates[~bad]
    if combiner == "set":
        return updated_at(array, index, last_updates(xp, array, index, updates))
    if combiner in ("min", "max") and array.dtype.kind not in "iu":
        # a NaN update leaves the old element, as comparisons with NaN are false
        neutral = array.dtype.type(float("inf") if combiner == "min" else float("-inf"))
        updates = xp.where(xp.isnan(updates), neutral, updates)
    return accumulated_at(xp, array, index, updates, combiner)


def _check_static_shapes(tensor: Shape, indices: Shape, updates: Shape) -> None:
    require_rank_at_least(indices, 1)
    require_rank_at_least(updates, 1)
    depth = None if indices.dims is None else indices.dims[-1]
    if depth is None or tensor.dims is None:
        return
    if depth > len(tensor.dims):
        raise ShapeError(f"index vectors of length {depth} do not fit a tensor of shape {tensor}")
    updates.merge(indices[:-1] + tensor[depth:])


class ScatterNd(Op):
    """A tensor of zeros with updates added at index vectors."""

    signature = "indices: Tindices, updates: T, shape: const Tindices -> output: T"
    attrs = f"Tindices: {{int16, int32, int64}}, {_BAD_INDICES_ATTR}"

    @staticmethod
    def kernel(xp: ModuleType, bad_indices_policy: bytes, T: DType, /, *inputs: Any) -> Any:
        indices, updates, shape = inputs
        sizes = shape.tolist()
        if shape.ndim != 1:
            raise OpError(f"Shape must be a vector, got shape {list(shape.shape)}")
        if any(size < 0 for size in sizes):
            raise OpError(f"the shape {sizes} has negative sizes")
        reserve_array(sizes, T.numpy.itemsize)
        zeros = xp.full(sizes, b"" if T.is_object else 0, T.numpy)
        ignore = bad_indices_policy == b"IGNORE"
        return scatter_updates(xp, zeros, indices, updates, "add", ignore=ignore)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        require_rank(context.inputs[2], 1)
        result = context.shape_value(2)
        _check_static_shapes(result, *context.inputs[:2])
        return [result]

    gradient = staticmethod(
        lambda g, node, dz: (None, _gathered_gradient(g, node, dz, node.inputs[0]), None)
    )


def _gathered_gradient(g: GradientBuilder, node: Node, dz: Output, indices: Output) -> Output:
    """The gradient of the updates: `dz` gathered at their index vectors."""
    if g.known_shape(indices).rank == 1:
        indices = g.ExpandDims(indices, int32_constant(g, 1))
    return g.GatherNd(
        dz, widen_indices(g, indices), bad_indices_policy=node.attr("bad_indices_policy")
    )


class TensorScatterOp(Op, abstract=True):
    """A tensor with updates at index vectors, combined with the old elements by `combiner`."""

    combiner: ClassVar[str]

    @classmethod
    def kernel(
        cls, xp: ModuleType, bad_indices_policy: bytes, /, tensor: Any, indices: Any, updates: Any
    ) -> Any:
        return scatter_updates(
            xp, tensor, indices, updates, cls.combiner, ignore=(bad_indices_policy == b"IGNORE")
        )

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        tensor, indices, updates = context.inputs
        _check_static_shapes(tensor, indices, updates)
        return [tensor]


class TensorScatterUpdate(TensorScatterOp):
    """A tensor with elements replaced at index vectors; the last of duplicates wins."""

    signature = "tensor: T, indices: Tindices, updates: T -> output: T"
    attrs = f"Tindices: {{int16, int32, int64, uint16}}, {_BAD_INDICES_ATTR}"
    combiner = "set"

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        _, indices, updates = node.inputs

        def tensor_gradient() -> Output:
            policy = node.attr("bad_indices_policy")
            zeros = g.zeros_like(updates)
            return g.TensorScatterUpdate(dz, indices, zeros, bad_indices_policy=policy)

        return tensor_gradient, None, lambda: _gathered_gradient(g, node, dz, indices)


class TensorScatterAdd(TensorScatterOp):
    """A tensor with updates added at index vectors."""

    signature = "tensor: T, indices: Tindices, updates: T -> output: T"
    attrs = f"Tindices: {{int32, int64}}, {_BAD_INDICES_ATTR}"
    combiner = "add"
    gradient = staticmethod(
        lambda g, node, dz: (dz, None, lambda: _gathered_gradient(g, node, dz, node.inputs[1]))
    )


class TensorScatterSub(TensorScatterOp):
    """A tensor with updates subtracted at index vectors."""

    signature = "tensor: T, indices: Tindices, updates: T -> output: T"
    attrs = f"Tindices: {{int32, int64}}, {_BAD_INDICES_ATTR}"
    combiner = "subtract"

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        return dz, None, lambda: g.Neg(_gathered_gradient(g, node, dz, node.inputs[1]))


class TensorScatterExtreme(TensorScatterOp, abstract=True):
    """The elementwise extreme of a tensor and updates; equal extremes share the gradient."""

    signature = "tensor: T, indices: Tindices, updates: T -> output: T"
    attrs = f"Tindices: {{int32, int64}}, {_BAD_INDICES_ATTR}"

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        x, indices, updates = node.inputs
        unchanged = g.Cast(g.Equal(x, node.output()), DstT=x.dtype)
        chosen = g.Cast(
            g.Equal(updates, _gathered_gradient(g, node, node.output(), indices)), DstT=x.dtype
        )
        policy = node.attr("bad_indices_policy")
        count = g.TensorScatterAdd(unchanged, indices, chosen, bad_indices_policy=policy)
        share = g.RealDiv(dz, count)
        return (
            lambda: g.Mul(unchanged, share),
            None,
            lambda: g.Mul(chosen, _gathered_gradient(g, node, share, indices)),
        )


class TensorScatterMin(TensorScatterExtreme):
    """Elementwise minimum of a tensor and the updates at index vectors."""

    combiner = "min"


class TensorScatterMax(TensorScatterExtreme):
    """Elementwise maximum of a tensor and the updates at index vectors."""

    combiner = "max"


class ScatterNdNonAliasingAdd(TensorScatterOp):
    """A tensor with updates added at index vectors; the older form of TensorScatterAdd."""

    signature = "input: T, indices: Tindices, updates: T -> output: T"
    attrs = (
        "T: {float32, float64, int32, uint8, int16, int8, complex64, int64, qint8, quint8, "
        "qint32, bfloat16, qint16, quint16, uint16, complex128, float16, uint32, uint64, bool}, "
        f"Tindices: {{int32, int64}}, {_BAD_INDICES_ATTR}"
    )
    compilation = CompilerSupport(compiled=False)
    combiner = "add"
    gradient = TensorScatterAdd.gradient


class DynamicPartition(Op):
    """Slices of `data` distributed over several outputs by partition number."""

    signature = "data: T, partitions: int32 -> outputs: num_partitions*T"
    compilation = CompilerSupport(traceable=False)

    @staticmethod
    def kernel(xp: ModuleType, num_partitions: int, /, data: Any, partitions: Any) -> Any:
        depth = partitions.ndim
        if data.shape[:depth] != partitions.shape:
            raise OpError(
                "data.shape must start with partitions.shape, "
                f"got data.shape = {list(data.shape)}, "
                f"partitions.shape = {list(partitions.shape)}"
            )
        row_shape = data.shape[depth:]
        rows, numbers = (
            data.reshape((-1, *row_shape)) if data.size else data,
            partitions.reshape(-1),
        )
        if not data.size:
            rows = data.reshape((numbers.size, *row_shape))
        bad = (numbers < 0) | (numbers >= num_partitions)
        if bad.any():
            position = int(bad.argmax())
            raise OpError(
                f"partitions[{position}] = {numbers[position]} is not in [0, {num_partitions})"
            )
        # stable: the rows of a partition keep their order
        order = numbers.argsort(kind="stable")
        ends = np.bincount(numbers, minlength=num_partitions).cumsum()
        return as_outputs(np.split(rows[order], ends[:-1].tolist()) if num_partitions else [])

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
        pieces = grads
        if None in grads:
            zeros = g.DynamicPartition(g.zeros_like(data), partitions, num_partitions=count).node
            pieces = tuple(grad or zeros.output(port) for port, grad in enumerate(grads))
        rows = g.ParallelDynamicStitch(indices, pieces)
        flat = g.known_shape(partitions).rank == 1
        return rows if flat else g.Reshape(rows, g.shape(data)), None


class DynamicStitch(Op):
    """Slices of several tensors merged at the positions in their index tensors.

    For a repeated position the last slice wins; positions without an index are zero.
    """

    signature = "indices: N*int32, data: N*T -> merged: T"
    compilation = CompilerSupport(traceable=False)

    @staticmethod
    def kernel(xp: ModuleType, N: int, T: DType, /, *inputs: Any) -> Any:
        indices, data = inputs[:N], inputs[N:]
        row_shape = data[0].shape[indices[0].ndim :]
        size = 0
        for number, (index, values) in enumerate(zip(indices, data, strict=True)):
            _check_indices(number, index, values, row_shape)
            size = max(size, int(index.max()) + 1 if index.size else 0)
        reserve_array((size, *row_shape), T.numpy.itemsize)
        result = np.full((size, *row_shape), b"" if T.is_object else 0, T.numpy)
        for index, values in zip(indices, data, strict=True):
            if index.size and index.min() < 0:
                raise OpError(f"indices {index.tolist()} are out of range")
            result[index.reshape(-1)] = values.reshape((index.size, *row_shape))
        return result

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
                raise ShapeError(message)
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
        raise OpError(
            f"data[{number}].shape = {list(values.shape)} must start with "
            f"indices[{number}].shape = "
            f"{list(index.shape)}, followed by {list(row_shape)} as in data[0]"
        )


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
