"""Histograms, bin counts, and the L2 loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir.dtypes import DType, float16
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape, ShapeError, vector_shape
from cfgraph.limits import reserve
from cfgraph.ops.families.reduction import Sum
from cfgraph.ops.kernels.array_namespace import accumulated_at, computed_in_float32
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.op import FLOATS, INDEX, Kernel, Op, OpError, one_of
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank, static_int

_COUNTED_TYPES = "int32, int64, float32, float64"


class L2Loss(Op):
    """Half the sum of squares: sum(t²) / 2."""

    signature = "t: T -> output: T"
    attrs = one_of(FLOATS)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        def loss(t: Any) -> Any:
            return Sum.reduced(xp, t * t, tuple(range(t.ndim)), keep=False) * t.dtype.type(0.5)

        dtype = node.attr("T")
        return loss if xp is np and dtype is float16 else computed_in_float32(loss, dtype)

    shape = staticmethod(lambda context: [SCALAR_SHAPE])
    gradient = staticmethod(lambda g, node, dy: [g.Mul(node.inputs[0], dy)])


class Bincount(Op):
    """Number of occurrences, or sum of weights, of each integer from 0 to size - 1."""

    signature = "arr: int32, size: const int32, weights: T -> bins: T"
    attrs = one_of(_COUNTED_TYPES)
    compilation = CompilerSupport(traceable=False)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return bin_counter(xp)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        size = static_int(context, 1)
        if size is not None and size < 0:
            raise ShapeError(f"size ({size}) must be non-negative")
        return [vector_shape(size)]


class DenseBincount(Op):
    """Bin counts of a vector or of each row of a matrix; presence only if `binary_output`."""

    signature = "input: Tidx, size: const Tidx, weights: T -> output: T"
    attrs = f"Tidx: {INDEX}, {one_of(_COUNTED_TYPES)}, binary_output: bool = false"
    compilation = CompilerSupport(traceable=False)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        count = bin_counter(xp, binary=node.attr("binary_output"))

        def counts(values: Any, size: Any, weights: Any) -> Any:
            if values.ndim > 2:
                raise OpError(f"Shape must be at most rank 2 but is rank {values.ndim}")
            return count(values, size, weights, len(values) if values.ndim == 2 else None)

        return counts

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        size, shape = static_int(context, 1), context.inputs[0]
        if size is not None and size < 0:
            raise ShapeError(f"size ({size}) must be non-negative")
        if shape.dims is None:
            return [UNKNOWN_SHAPE]
        return [shape[:-1] + vector_shape(size)]


def check_bin_count(size: Any) -> Any:
    """Check a number of bins. Raises OpError unless it is a non-negative scalar."""
    if size.ndim and size.size != 1:
        raise OpError(f"Shape must be rank 0 but is rank {size.ndim}")
    if size < 0:
        raise OpError(f"size ({size}) must be non-negative")
    return size


# bytes of a count of NumPy, which is cast to the type of the weights
_COUNT_BYTES: Final = 8


def bin_counter(xp: ModuleType, *, binary: bool = False) -> Kernel:
    """A kernel that counts all values, or those of each of `rows` rows."""

    def count(values: Any, size: Any, weights: Any, rows: int | None = None) -> Any:
        if weights.size and weights.shape != values.shape:
            message = f"weights {list(weights.shape)} and input {list(values.shape)} must agree"
            raise OpError(message)
        if values.size and values.min() < 0:
            raise OpError("Input must be non-negative!")
        length = int(check_bin_count(size))
        shape = (length,) if rows is None else (rows, length)
        reserve(math.prod(shape) * (weights.dtype.itemsize + _COUNT_BYTES))
        positions = values.astype(np.int64)
        if rows is not None:
            positions += length * xp.arange(rows)[:, None]
        inside = values < length
        positions = positions[inside]
        if not (binary or weights.size):
            counts = xp.bincount(positions, minlength=math.prod(shape))
            return counts.astype(weights.dtype).reshape(shape)
        bins = xp.zeros(math.prod(shape), weights.dtype)
        if binary:
            bins[positions] = 1
        else:
            bins = accumulated_at(xp, bins, positions, weights[inside], "add")
        return bins.reshape(shape)

    return count


class HistogramFixedWidth(Op):
    """Number of values in each of `nbins` equal-width bins; the outer bins are unbounded."""

    signature = "values: T, value_range: const T, nbins: const int32 -> out: dtype"
    attrs = f"{one_of(_COUNTED_TYPES)}, dtype: {INDEX} = int32"
    compilation = CompilerSupport(traceable=False)

    @staticmethod
    def kernel(xp: ModuleType, dtype: DType, /, values: Any, bounds: Any, nbins: Any) -> Any:
        if bounds.shape != (2,):
            raise OpError(f"value_range should be a vector of 2 elements: {list(bounds.shape)}")
        low, high = bounds
        if not low < high:
            raise OpError(f"value_range should satisfy value_range[0] < value_range[1]: {bounds}")
        if nbins.ndim or nbins <= 0:
            raise OpError(f"nbins should be a positive number, but got '{nbins}'")
        step = (np.float64(high) - np.float64(low)) / np.float64(nbins)
        position = xp.clip((xp.float64(1) * values - low) / step, 0, int(nbins) - 1)
        return xp.bincount(position.astype(int).reshape(-1), minlength=int(nbins)).astype(
            dtype.numpy
        )

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        require_rank(context.inputs[1], 1)
        return [vector_shape(static_int(context, 2))]
