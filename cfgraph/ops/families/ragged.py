"""Ragged tensors: rows of different lengths, as values and vectors of row splits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.limits import reserve_array
from cfgraph.ops.opdef.facts import CompilerSupport, HostPlacement
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    int32_constant,
    row_shape,
    sum_to_shape,
)
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, dims_product


def check_splits(splits: Any, count: int | None) -> None:
    """Raise OpError unless row splits begin with 0, never fall, and end with `count`."""
    if splits.ndim != 1 or not len(splits) or splits[0] != 0 or (np.diff(splits) < 0).any():
        message = "Ragged splits must be a vector that starts with 0 and never decreases"
        raise OpError(message)
    if count is not None and splits[-1] != count:
        message = f"Ragged splits must end with the number of values, {count}, not {splits[-1]}"
        raise OpError(message)


def _ranges(starts: Any, lengths: Any) -> Any:
    """The concatenated indices of ranges."""
    # a float, since the sum of integers may overflow
    reserve_array((int(lengths.sum(dtype=np.float64)),), 8)
    total = int(lengths.sum())
    first = np.cumsum(lengths) - lengths
    return np.arange(total, dtype=np.int64) + np.repeat(starts - first, lengths)


class RaggedRange(Op):
    """Ranges of different lengths as ragged rows."""

    signature = "starts: T, limits: T, deltas: T -> rt_nested_splits: Tsplits, rt_dense_values: T"
    attrs = "T: {bfloat16, float32, float64, int32, int64} = int32, Tsplits: {int32, int64} = int64"
    compilation = CompilerSupport(traceable=False)
    placement = HostPlacement(host_only=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        splits_type = node.attr("Tsplits").numpy

        def ranges(*bounds: Any) -> Any:
            sizes = {x.shape[0] for x in bounds if x.ndim}
            if len(sizes) > 1 or any(x.ndim > 1 for x in bounds):
                message = "starts, limits, and deltas must be scalars or vectors of one length"
                raise OpError(message)
            count = sizes.pop() if sizes else 1
            starts, limits, deltas = (np.broadcast_to(x, (count,)) for x in bounds)
            if (deltas == 0).any():
                message = "Requires delta != 0"
                raise OpError(message)
            lengths = _range_lengths(starts, limits, deltas)
            places = _ranges(np.zeros(count, np.int64), lengths)
            steps = places.astype(starts.dtype) * np.repeat(deltas, lengths)
            splits = np.concatenate([[0], np.cumsum(lengths)])
            if splits[-1] > np.iinfo(splits_type).max:
                message = f"the ranges hold {splits[-1]} values, too many for Tsplits"
                raise OpError(message)
            return splits.astype(splits_type), np.repeat(starts, lengths) + steps

        return ranges

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        counts = [shape.dims[0] for shape in context.inputs if shape.dims]
        known = next((count for count in counts if count is not None), None)
        scalars = all(shape.rank == 0 for shape in context.inputs)
        count = 1 if scalars else known
        return [vector_shape(None if count is None else count + 1), vector_shape(None)]


def _range_lengths(starts: Any, limits: Any, deltas: Any) -> Any:
    if np.issubdtype(starts.dtype, np.integer):
        exact = [
            max(-((low - high) // step), 0)
            for low, high, step in zip(
                starts.tolist(), limits.tolist(), deltas.tolist(), strict=True
            )
        ]
        if max(exact, default=0) >= 1 << 62:
            message = "Requires ((limit - start) / delta) <= 2^62"
            raise OpError(message)
        return np.array(exact, np.int64)
    ratio = np.ceil((limits.astype(np.float64) - starts) / deltas.astype(np.float64))
    ratio = np.maximum(ratio, 0)
    if not (ratio < 2**62).all():
        message = "Requires ((limit - start) / delta) <= 2^62"
        raise OpError(message)
    return ratio.astype(np.int64)


class RaggedGather(Op):
    """Rows of a ragged tensor at indices."""

    signature = (
        "params_nested_splits: PARAMS_RAGGED_RANK*Tsplits, params_dense_values: Tvalues, "
        "indices: Tindices "
        "-> output_nested_splits: OUTPUT_RAGGED_RANK*Tsplits, output_dense_values: Tvalues"
    )
    attrs = (
        "Tvalues: type, Tindices: {int32, int64}, Tsplits: {int32, int64} = int64, "
        "PARAMS_RAGGED_RANK: int >= 1, OUTPUT_RAGGED_RANK: int >= 0"
    )
    compilation = CompilerSupport(traceable=False)
    placement = HostPlacement(host_only=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        expected = node.attr("OUTPUT_RAGGED_RANK")

        def gather(*inputs: Any) -> Any:
            *nested, values, indices = inputs
            if values.ndim == 0:
                message = "params.rank must be nonzero"
                raise OpError(message)
            if indices.ndim + len(nested) - 1 != expected:
                message = (
                    f"OUTPUT_RAGGED_RANK must be {indices.ndim + len(nested) - 1}, got {expected}"
                )
                raise OpError(message)
            for splits, inner in zip(nested, [*nested[1:], None], strict=True):
                check_splits(splits, len(values) if inner is None else len(inner) - 1)
            return (
                *_outer_splits(indices, nested[0].dtype),
                *_gather_rows(nested, values, indices),
            )

        return gather

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        values = context.inputs[-2]
        inner = UNKNOWN_SHAPE if values.rank is None else vector_shape(None) + values[1:]
        return [*[vector_shape(None)] * (context.output_count - 1), inner]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, *grads: Output | None) -> InputGradients:
        *nested, values, indices = node.inputs
        dy = grads[-1]
        if dy is None:
            return [None] * len(node.inputs)

        def values_gradient() -> Output:
            count = _row_count(g, values)
            ids = g.Range(int32_constant(g, 0), count, int32_constant(g, 1))
            gathered = g.RaggedGather(
                *nested,
                ids,
                indices,
                PARAMS_RAGGED_RANK=len(nested),
                OUTPUT_RAGGED_RANK=node.attr("OUTPUT_RAGGED_RANK"),
            )
            origin = gathered.node.output(len(grads) - 1)
            return g.UnsortedSegmentSum(dy, origin, count)

        return [*[None] * len(nested), values_gradient, None]


def _row_count(g: GradientBuilder, x: Output) -> Output:
    """The size of the first dimension, as a scalar."""
    first = g.Slice(g.shape(x), int32_constant(g, [0]), int32_constant(g, [1]))
    return g.Reshape(first, g.const(np.zeros(0), dtypes.int32))


def _outer_splits(indices: Any, splits_type: Any) -> list[Any]:
    """The splits of all dimensions of the indices but the first."""
    splits = []
    for axis in range(1, indices.ndim):
        rows = math.prod(indices.shape[:axis])
        splits.append((np.arange(rows + 1) * indices.shape[axis]).astype(splits_type))
    return splits


def _gather_rows(nested: Sequence[Any], values: Any, indices: Any) -> list[Any]:
    flat = indices.reshape(-1).astype(np.int64)
    rows = len(nested[0]) - 1
    bad = np.flatnonzero((flat < 0) | (flat >= rows))
    if len(bad):
        message = f"indices[{bad[0]}] = {flat[bad[0]]} is not in [0, {rows})"
        raise OpError(message)
    result = []
    for splits in nested:
        lengths = np.diff(splits.astype(np.int64))[flat]
        flat = _ranges(splits.astype(np.int64)[:-1][flat], lengths)
        result.append(np.concatenate([[0], np.cumsum(lengths)]).astype(splits.dtype))
    return [*result, values[flat]]


class RaggedTensorToSparse(Op):
    """A ragged tensor as a sparse one."""

    signature = (
        "rt_nested_splits: RAGGED_RANK*Tsplits, rt_dense_values: T "
        "-> sparse_indices: int64, sparse_values: T, sparse_dense_shape: int64"
    )
    attrs = "RAGGED_RANK: int >= 1, T: type, Tsplits: {int32, int64} = int64"
    compilation = CompilerSupport(traceable=False)
    placement = HostPlacement(host_only=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        def to_sparse(*inputs: Any) -> Any:
            *nested, values = inputs
            for splits, inner in zip(nested, [*nested[1:], None], strict=True):
                check_splits(splits, len(values) if inner is None else len(inner) - 1)
            sizes = [len(nested[0]) - 1]
            columns = [np.arange(sizes[0], dtype=np.int64)]
            for splits in nested:
                lengths = np.diff(splits.astype(np.int64))
                sizes.append(int(lengths.max(initial=0)))
                last = _ranges(np.zeros(len(lengths), np.int64), lengths)
                columns = [*(np.repeat(column, lengths) for column in columns), last]
            inner_shape = values.shape[1:]
            count = math.prod(inner_shape)
            reserve_array((len(values) * count, len(columns) + len(inner_shape)), 8)
            columns = [np.repeat(column, count) for column in columns]
            grid = np.indices(inner_shape).reshape(len(inner_shape), count)
            columns += [np.tile(axis, len(values)) for axis in grid]
            indices = np.stack(columns, axis=1).astype(np.int64)
            return indices, values.reshape(-1), np.array([*sizes, *inner_shape], np.int64)

        return to_sparse

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        values = context.inputs[-1]
        rank = None if values.rank is None else values.rank + len(context.inputs) - 1
        count = None if values.dims is None else dims_product(values.dims)
        rows = vector_shape(count)
        return [rows + vector_shape(rank), rows, vector_shape(rank)]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, *grads: Output | None) -> InputGradients:
        values, dy = node.inputs[-1], grads[1]
        if dy is None:
            return [None] * len(node.inputs)
        return [*[None] * (len(node.inputs) - 1), lambda: g.Reshape(dy, g.shape(values))]


_FIRST_DIM, _ROW_IDS, _SPLITS = b"FIRST_DIM_SIZE", b"VALUE_ROWIDS", b"ROW_SPLITS"


class RaggedTensorToTensor(Op):
    """A ragged tensor as a dense one, cut or filled with a default value."""

    signature = (
        "shape: Tshape, values: T, default_value: T, "
        "row_partition_tensors: num_row_partition_tensors*Tindex -> result: T"
    )
    attrs = (
        "T: type, Tindex: {int64, int32}, Tshape: {int64, int32}, "
        "num_row_partition_tensors: int >= 1, row_partition_types: list(string)"
    )
    compilation = CompilerSupport(traceable=False)
    placement = HostPlacement(host_only=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        kinds = tuple(node.attr("row_partition_types"))
        if not kinds or set(kinds) - {_FIRST_DIM, _ROW_IDS, _SPLITS}:
            shown = ", ".join(kind.decode("utf-8", "replace") for kind in kinds)
            message = f"unsupported row partition types: {shown or 'none'}"
            raise OpError(message)

        def to_dense(shape: Any, values: Any, default: Any, *partitions: Any) -> Any:
            if len(partitions) != len(kinds):
                message = f"{len(kinds)} row partition types for {len(partitions)} partitions"
                raise OpError(message)
            first, rows = _row_partitions(kinds, partitions)
            sizes = _dense_sizes(shape, first, rows, values)
            reserve_array(sizes, values.dtype.itemsize)
            return _fill(sizes, first, rows, values, default)

        return to_dense

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        kinds = context.attr("row_partition_types")
        ranks = len(kinds) + (0 if kinds[:1] == (_FIRST_DIM,) else 1)
        values, wanted = context.inputs[1], context.shape_value(0)
        known = UNKNOWN_SHAPE if values.rank is None else Shape([None] * ranks) + values[1:]
        return [known if wanted.rank is None else known.merge(wanted)]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        shape, values, default, *partitions = node.inputs
        kinds = node.attr("row_partition_types")
        ranks = len(kinds) + (0 if kinds[0] == _FIRST_DIM else 1)
        zero, one = int32_constant(g, 0), int32_constant(g, 1)
        stop = g.Add(_row_count(g, values), one)
        if g.known_shape(shape).rank != 0:
            begin, size = int32_constant(g, [0]), int32_constant(g, [ranks])
            shape = g.Slice(shape, begin, size)
        numbers = g.RaggedTensorToTensor(
            shape,
            g.Range(one, stop, one),
            zero,
            *partitions,
            row_partition_types=kinds,
            num_row_partition_tensors=len(partitions),
        )
        inner = row_shape(g, values)
        rows = g.Reshape(dy, g.ConcatV2(int32_constant(g, [-1]), inner, zero))
        ids = g.Reshape(numbers, int32_constant(g, [-1]))
        sums = g.UnsortedSegmentSum(rows, ids, stop)

        def default_gradient() -> Output:
            total = g.GatherV2(sums, zero, zero)
            return sum_to_shape(g, total, default, total)

        def values_gradient() -> Output:
            return g.GatherV2(sums, g.Range(one, stop, one), zero)

        return [None, values_gradient, default_gradient, *[None] * len(partitions)]


def _row_partitions(kinds: Sequence[bytes], partitions: Sequence[Any]) -> tuple[int, list[Any]]:
    """The number of rows, and the row of each value per ragged dimension."""
    rows: list[Any] = []
    first = None
    for kind, partition in zip(kinds, partitions, strict=True):
        if kind == _FIRST_DIM:
            if partition.ndim or first is not None or rows:
                message = "FIRST_DIM_SIZE must be a scalar, and the first partition"
                raise OpError(message)
            first = int(partition)
            if first < 0:
                message = f"FIRST_DIM_SIZE must not be negative, got {first}"
                raise OpError(message)
            reserve_array((first,), 8)
        elif kind == _SPLITS:
            check_splits(partition, None)
            first = len(partition) - 1 if first is None else first
            lengths = np.diff(partition.astype(np.int64))
            reserve_array((int(lengths.sum()),), 8)
            rows.append(np.repeat(np.arange(len(lengths)), lengths))
        else:
            if partition.ndim != 1 or (np.diff(partition) < 0).any() or (partition < 0).any():
                message = "VALUE_ROWIDS must be a vector that never decreases"
                raise OpError(message)
            rows.append(partition.astype(np.int64))
    if first is None:
        message = "Cannot handle VALUE_ROWIDS in first dimension."
        raise OpError(message)
    return first, rows


def _positions(rows: Any) -> Any:
    """The place of each value in its row."""
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    lengths = np.diff(np.append(starts, len(rows)))
    return np.arange(len(rows)) - np.repeat(starts, lengths)


def _dense_sizes(shape: Any, first: int, rows: Sequence[Any], values: Any) -> tuple[int, ...]:
    natural = [first, *(int(_positions(ids).max(initial=-1)) + 1 for ids in rows)]
    natural += values.shape[1:]
    if shape.ndim == 0:
        if shape != -1:
            message = f"shape must be a vector, or the scalar -1, got {shape}"
            raise OpError(message)
        return tuple(natural)
    if shape.shape != (len(natural),):
        message = f"shape has {shape.size} dimensions, the ragged tensor {len(natural)}"
        raise OpError(message)
    if (shape < -1).any():
        message = f"the sizes in shape must be at least -1, got {shape.tolist()}"
        raise OpError(message)
    wanted = [
        size if want < 0 else want for want, size in zip(shape.tolist(), natural, strict=True)
    ]
    if tuple(wanted[len(wanted) - values.ndim + 1 :]) != values.shape[1:]:
        message = f"shape {shape.tolist()} does not fit values of shape {list(values.shape)}"
        raise OpError(message)
    return tuple(wanted)


def _fill(
    sizes: tuple[int, ...], first: int, rows: Sequence[Any], values: Any, default: Any
) -> Any:
    place = np.where(np.arange(first) < sizes[0], np.arange(first), -1)
    for ids, size in zip(rows, sizes[1:], strict=False):
        if len(ids) and ids[-1] >= len(place):
            message = f"row {ids[-1]} of a partition is not in [0, {len(place)})"
            raise OpError(message)
        positions, parent = _positions(ids), place[ids]
        place = np.where((parent >= 0) & (positions < size), parent * size + positions, -1)
    if len(place) > len(values):
        message = f"the partitions describe {len(place)} values, got {len(values)}"
        raise OpError(message)
    inner = values.shape[1:]
    result = np.empty((math.prod(sizes[: len(sizes) - len(inner)]), *inner), values.dtype)
    result[...] = default
    result[place[place >= 0]] = values[: len(place)][place >= 0]
    return result.reshape(sizes)
