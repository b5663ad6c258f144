"""Ragged tensors as dense and as sparse ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.limits import reserve_array
from cfgraph.ops.families.ragged import check_splits, places_in_rows, row_count
from cfgraph.ops.opdef.facts import HostPlacement
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    int32_constant,
    row_shape,
    sum_to_shape,
)
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, dims_product


class RaggedTensorToSparse(Op):
    """A ragged tensor as a sparse one."""

    signature = (
        "rt_nested_splits: RAGGED_RANK*Tsplits, rt_dense_values: T "
        "-> sparse_indices: int64, sparse_values: T, sparse_dense_shape: int64"
    )
    attrs = "RAGGED_RANK: int >= 1, T: type, Tsplits: {int32, int64} = int64"
    placement = HostPlacement(host_only=True)

    @staticmethod
    def kernel(xp: ModuleType, *inputs: Any) -> Any:
        *nested, values = inputs
        for splits, inner in zip(nested, [*nested[1:], None], strict=True):
            check_splits(splits, len(values) if inner is None else len(inner) - 1)
        sizes = [len(nested[0]) - 1]
        columns = [np.arange(sizes[0], dtype=np.int64)]
        for splits in nested:
            starts = splits.astype(np.int64)
            lengths = starts[1:] - starts[:-1]
            sizes.append(int(lengths.max(initial=0)))
            last = places_in_rows(starts, lengths)
            columns = [*(np.repeat(column, lengths) for column in columns), last]
        inner_shape = values.shape[1:]
        count = math.prod(inner_shape)
        reserve_array((len(values) * count, len(columns) + len(inner_shape)), 8)
        columns = [np.repeat(column, count) for column in columns]
        grid = np.indices(inner_shape).reshape(len(inner_shape), count)
        columns += [np.tile(axis, len(values)) for axis in grid]
        indices = np.stack(columns, axis=1).astype(np.int64)
        return indices, values.reshape(-1), np.array([*sizes, *inner_shape], np.int64)

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
    placement = HostPlacement(host_only=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        kinds = tuple(node.attr("row_partition_types"))
        if not kinds or set(kinds) - {_FIRST_DIM, _ROW_IDS, _SPLITS}:
            shown = ", ".join(kind.decode("utf-8", "replace") for kind in kinds)
            raise OpError(f"unsupported row partition types: {shown or 'none'}")

        def to_dense(shape: Any, values: Any, default: Any, *partitions: Any) -> Any:
            if len(partitions) != len(kinds):
                raise OpError(f"{len(kinds)} row partition types for {len(partitions)} partitions")
            first, dims = _ragged_dims(kinds, partitions)
            sizes = _dense_sizes(shape, first, dims, values)
            reserve_array(sizes, values.dtype.itemsize)
            return _fill(sizes, first, dims, values, default)

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
        stop = g.Add(row_count(g, values), one)
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


class _RaggedDim(NamedTuple):
    """The row of each value of a ragged dimension, its place in the row, and the longest row."""

    rows: Any
    places: Any
    longest: int


def _ragged_dims(kinds: Sequence[bytes], partitions: Sequence[Any]) -> tuple[int, list[_RaggedDim]]:
    """The number of rows, and the ragged dimensions."""
    dims: list[_RaggedDim] = []
    first = None
    for kind, partition in zip(kinds, partitions, strict=True):
        if kind == _FIRST_DIM:
            if partition.ndim or first is not None or dims:
                raise OpError("FIRST_DIM_SIZE must be a scalar, and the first partition")
            first = int(partition)
            if first < 0:
                raise OpError(f"FIRST_DIM_SIZE must not be negative, got {first}")
            reserve_array((first,), 8)
            continue
        if kind == _SPLITS:
            check_splits(partition, None)
            first = len(partition) - 1 if first is None else first
        elif first is None:
            raise OpError("Cannot handle VALUE_ROWIDS in first dimension.")
        count = len(dims[-1].rows) if dims else first
        make = _dim_of_splits if kind == _SPLITS else _dim_of_rows
        dims.append(make(partition, count))
    assert first is not None
    return first, dims


def _dim_of_splits(partition: Any, count: int) -> _RaggedDim:
    splits = partition.astype(np.int64)
    lengths = splits[1:] - splits[:-1]
    if len(lengths) > count:
        filled = np.flatnonzero(lengths)
        _require_row(int(filled[-1]) if len(filled) else -1, count)
    reserve_array((int(splits[-1]),), 8)
    rows = np.arange(len(lengths)).repeat(lengths)
    longest = int(lengths.max()) if len(lengths) else 0
    return _RaggedDim(rows, places_in_rows(splits, lengths), longest)


def _dim_of_rows(partition: Any, count: int) -> _RaggedDim:
    if partition.ndim != 1 or (
        len(partition) and (partition[0] < 0 or (partition[1:] < partition[:-1]).any())
    ):
        raise OpError("VALUE_ROWIDS must be a vector that never decreases")
    rows = partition.astype(np.int64)
    _require_row(int(rows[-1]) if len(rows) else -1, count)
    lengths = np.bincount(rows)
    places = np.arange(len(rows)) - (lengths.cumsum() - lengths)[rows]
    return _RaggedDim(rows, places, int(lengths.max(initial=0)))


def _require_row(last: int, count: int) -> None:
    if last >= count:
        raise OpError(f"row {last} of a partition is not in [0, {count})")


def _dense_sizes(
    shape: Any, first: int, dims: Sequence[_RaggedDim], values: Any
) -> tuple[int, ...]:
    natural = [first, *(dim.longest for dim in dims), *values.shape[1:]]
    if shape.ndim == 0:
        if shape != -1:
            raise OpError(f"shape must be a vector, or the scalar -1, got {shape}")
        return tuple(natural)
    if shape.shape != (len(natural),):
        raise OpError(f"shape has {shape.size} dimensions, the ragged tensor {len(natural)}")
    requested = shape.tolist()
    if min(requested, default=0) < -1:
        raise OpError(f"the sizes in shape must be at least -1, got {requested}")
    wanted = [size if want < 0 else want for want, size in zip(requested, natural, strict=True)]
    if tuple(wanted[len(wanted) - values.ndim + 1 :]) != values.shape[1:]:
        raise OpError(f"shape {requested} does not fit values of shape {list(values.shape)}")
    return tuple(wanted)


def _fill(
    sizes: tuple[int, ...], first: int, dims: Sequence[_RaggedDim], values: Any, default: Any
) -> Any:
    """The dense tensor; of a row, and of the rows, what is beyond its size is cut."""
    count = len(dims[-1].rows) if dims else first
    if count > len(values):
        raise OpError(f"the partitions describe {count} values, got {len(values)}")
    place, chosen = np.arange(first), values[:count]
    is_cut = first > sizes[0]
    if is_cut:
        place[sizes[0] :] = -1
    for (rows, places, longest), size in zip(dims, sizes[1:], strict=False):
        parent = place[rows]
        place = parent * size + places
        is_cut = is_cut or longest > size
        if is_cut:
            place[(parent < 0) | (places >= size)] = -1
    if is_cut:
        kept = place >= 0
        place, chosen = place[kept], chosen[kept]
    inner = values.shape[1:]
    result = np.empty((math.prod(sizes[: len(sizes) - len(inner)]), *inner), values.dtype)
    result[...] = default
    result[place] = chosen
    return result.reshape(sizes)
