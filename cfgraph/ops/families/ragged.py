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
from cfgraph.ops.families.sparse_arithmetic import are_inside
from cfgraph.ops.kernels.array_namespace import FEW_NUMBERS
from cfgraph.ops.opdef.facts import HostPlacement
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, int32_constant
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext


def check_splits(splits: Any, count: int | None) -> None:
    """Raise OpError unless row splits begin with 0, never fall, and end with `count`."""
    if splits.ndim != 1 or not len(splits) or splits[0] != 0 or not _is_rising(splits):
        raise OpError("Ragged splits must be a vector that starts with 0 and never decreases")
    if count is not None and splits[-1] != count:
        message = f"Ragged splits must end with the number of values, {count}, not {splits[-1]}"
        raise OpError(message)


def _is_rising(splits: Any) -> bool:
    """True if no number of a vector is less than the one before."""
    if len(splits) <= FEW_NUMBERS:
        numbers = splits.tolist()
        return bool(numbers == sorted(numbers))
    return bool((splits[1:] >= splits[:-1]).all())


def splits_of(lengths: Any) -> Any:
    """The row splits of rows with these lengths, int64."""
    # a float, since the sum of integers may overflow
    reserve_array((int(lengths.sum(dtype=np.float64)),), 8)
    splits = np.zeros(len(lengths) + 1, np.int64)
    lengths.cumsum(out=splits[1:])
    return splits


def places_in_rows(splits: Any, lengths: Any) -> Any:
    """The place of each value in its row."""
    return np.arange(splits[-1]) - splits[:-1].repeat(lengths)


class RaggedRange(Op):
    """Ranges of different lengths as ragged rows."""

    signature = "starts: T, limits: T, deltas: T -> rt_nested_splits: Tsplits, rt_dense_values: T"
    attrs = "T: {bfloat16, float32, float64, int32, int64} = int32, Tsplits: {int32, int64} = int64"
    placement = HostPlacement(host_only=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        splits_type = node.attr("Tsplits").numpy
        most = np.iinfo(splits_type).max

        def ranges(*bounds: Any) -> Any:
            sizes = {x.shape[0] for x in bounds if x.ndim}
            if len(sizes) > 1 or any(x.ndim > 1 for x in bounds):
                raise OpError("starts, limits, and deltas must be scalars or vectors of one length")
            count = sizes.pop() if sizes else 1
            starts, limits, deltas = (x if x.ndim else x.repeat(count) for x in bounds)
            if not deltas.all():
                raise OpError("Requires delta != 0")
            lengths = _range_lengths(starts, limits, deltas)
            splits = splits_of(lengths)
            if splits[-1] > most:
                raise OpError(f"the ranges hold {splits[-1]} values, too many for Tsplits")
            steps = places_in_rows(splits, lengths).astype(starts.dtype) * deltas.repeat(lengths)
            return splits.astype(splits_type), starts.repeat(lengths) + steps

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
            raise OpError("Requires ((limit - start) / delta) <= 2^62")
        return np.array(exact, np.int64)
    ratio = np.ceil((limits.astype(np.float64) - starts) / deltas.astype(np.float64))
    ratio = np.maximum(ratio, 0)
    if not (ratio < 2**62).all():
        raise OpError("Requires ((limit - start) / delta) <= 2^62")
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
    placement = HostPlacement(host_only=True)

    @staticmethod
    def kernel(xp: ModuleType, OUTPUT_RAGGED_RANK: int, /, *inputs: Any) -> Any:
        *nested, values, indices = inputs
        if values.ndim == 0:
            raise OpError("params.rank must be nonzero")
        if indices.ndim + len(nested) - 1 != OUTPUT_RAGGED_RANK:
            expected = indices.ndim + len(nested) - 1
            raise OpError(f"OUTPUT_RAGGED_RANK must be {expected}, got {OUTPUT_RAGGED_RANK}")
        for splits, inner in zip(nested, [*nested[1:], None], strict=True):
            check_splits(splits, len(values) if inner is None else len(inner) - 1)
        gathered = _gather_rows(nested, values, indices)
        if OUTPUT_RAGGED_RANK == 0:  # one row, and one output
            return gathered[-1]
        outer = _outer_splits(indices, nested[0].dtype)
        return tuple([*outer, *gathered] if indices.ndim else gathered[1:])

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
            count = row_count(g, values)
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


def row_count(g: GradientBuilder, x: Output) -> Output:
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
    if not are_inside(flat[:, None], (rows,)):
        bad = ((flat < 0) | (flat >= rows)).argmax()
        raise OpError(f"indices[{bad}] = {flat[bad]} is not in [0, {rows})")
    result = []
    for splits in nested:
        starts = splits.astype(np.int64)
        lengths = (starts[1:] - starts[:-1])[flat]
        gathered = splits_of(lengths)
        flat = np.arange(gathered[-1]) + (starts[flat] - gathered[:-1]).repeat(lengths)
        result.append(gathered.astype(splits.dtype))
    return [*result, values[flat]]
