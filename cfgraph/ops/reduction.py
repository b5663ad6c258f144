"""Reductions over some dimensions: sums, products, extremes, norms."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.dtypes import bool_
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops import reduction_gradients
from cfgraph.ops.dims import any_of_rank, runtime_axis, static_axis
from cfgraph.ops.division import truncated_quotient
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError
from cfgraph.ops.precision import widened
from cfgraph.ops.type_sets import ALL_NUMBERS, INDEX, QUANTIZED, REAL, one_of

_FLAGS = f"keep_dims: bool = false, Tidx: {INDEX} = int32"


class Reduction(Op, abstract=True):
    """One value from all that lie along the reduced dimensions.

    `kernel(xp, value, axes, keep)` reduces over some axes.
    """

    signature = "input: T, reduction_indices: Tidx -> output: T"
    attrs = f"{_FLAGS}, {one_of(ALL_NUMBERS)}"
    host_inputs = (1,)
    constant_inputs = (1,)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        keep = node.attr("keep_dims")
        kernel: Any = cls.kernel
        dtype = node.attrs.get("T", bool_)
        reduce = widened(lambda value, axes: kernel(xp, value, axes, keep), dtype)
        last: tuple[Any, tuple[int, ...]] = (None, ())

        def reduced(value: Any, indices: Any) -> Any:
            # in most graphs the axes are constants
            nonlocal last
            key, known = (indices.tolist(), value.ndim), last
            if key != known[0]:
                last = known = key, _axes(indices, value.ndim)
            return reduce(value, known[1])

        return reduced

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        have, keep = context.inputs[0], context.attr("keep_dims")
        indices = context.value(1)
        if have.dims is None:
            return [UNKNOWN_SHAPE]
        if indices is None:
            return [any_of_rank(len(have.dims)) if keep else UNKNOWN_SHAPE]
        axes = {static_axis(int(axis), len(have.dims)) for axis in indices.reshape(-1)}
        return [Shape(_left(have.dims, axes, keep))]


def _axes(indices: Any, rank: int) -> tuple[int, ...]:
    axes = tuple(runtime_axis(axis, rank, "reduction axis") for axis in indices.flat)
    if len(set(axes)) != len(axes):
        message = f"Axes contains a duplicate dimension: {list(axes)}"
        raise OpError(message)
    return axes


def _left(sizes: Sequence[Any], axes: Container[int], keep: bool) -> list[Any]:
    if keep:
        return [1 if place in axes else size for place, size in enumerate(sizes)]
    return [size for place, size in enumerate(sizes) if place not in axes]


class Sum(Reduction):
    """The sum."""

    @staticmethod
    def kernel(xp: ModuleType, value: Any, axes: Any, keep: bool) -> Any:
        return value.sum(axis=axes, dtype=value.dtype, keepdims=keep)

    gradient = staticmethod(reduction_gradients.of_sum)


class Prod(Reduction):
    """The product."""

    @staticmethod
    def kernel(xp: ModuleType, value: Any, axes: Any, keep: bool) -> Any:
        return value.prod(axis=axes, dtype=value.dtype, keepdims=keep)

    gradient = staticmethod(reduction_gradients.of_prod)


class Mean(Reduction):
    """The sum over the count; of integers, towards zero."""

    @staticmethod
    def kernel(xp: ModuleType, value: Any, axes: Any, keep: bool) -> Any:
        total = value.sum(axis=axes, dtype=value.dtype, keepdims=keep)
        count = math.prod(value.shape[axis] for axis in axes)
        if value.dtype.kind not in "iu":
            return total / value.dtype.type(count)
        return truncated_quotient(total, value.dtype.type(count)) if count else total

    gradient = staticmethod(reduction_gradients.of_mean)


class EuclideanNorm(Reduction):
    """The square root of the sum of squares."""

    compiled = False

    @staticmethod
    def kernel(xp: ModuleType, value: Any, axes: Any, keep: bool) -> Any:
        squares = value * xp.conj(value)
        total = squares.sum(axis=axes, dtype=value.dtype, keepdims=keep)
        return xp.sqrt(total).astype(value.dtype)

    gradient = staticmethod(reduction_gradients.of_euclidean_norm)


class Max(Reduction):
    """The largest; of nothing, the least that there is."""

    attrs = f"{_FLAGS}, {one_of(REAL, QUANTIZED)}"

    @staticmethod
    def kernel(xp: ModuleType, value: Any, axes: Any, keep: bool) -> Any:
        if value.size == 0:
            return xp.full(_left(value.shape, axes, keep), least(value.dtype), value.dtype)[()]
        return value.max(axis=axes, keepdims=keep)

    gradient = staticmethod(reduction_gradients.of_extreme)


class Min(Reduction):
    """The smallest; of nothing, the greatest that there is."""

    attrs = f"{_FLAGS}, {one_of(REAL, QUANTIZED)}"

    @staticmethod
    def kernel(xp: ModuleType, value: Any, axes: Any, keep: bool) -> Any:
        if value.size == 0:
            return xp.full(_left(value.shape, axes, keep), greatest(value.dtype), value.dtype)[()]
        return value.min(axis=axes, keepdims=keep)

    gradient = staticmethod(reduction_gradients.of_extreme)


def least(dtype: Any) -> Any:
    """The value of a NumPy type that none is below."""
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def greatest(dtype: Any) -> Any:
    """The value of a NumPy type that none is above."""
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.inf


class All(Reduction):
    """Whether all hold."""

    signature = "input: bool, reduction_indices: Tidx -> output: bool"
    attrs = _FLAGS

    @staticmethod
    def kernel(xp: ModuleType, value: Any, axes: Any, keep: bool) -> Any:
        return value.all(axis=axes, keepdims=keep)


class AnyOf(Reduction, name="Any"):
    """Whether any holds."""

    signature = "input: bool, reduction_indices: Tidx -> output: bool"
    attrs = _FLAGS

    @staticmethod
    def kernel(xp: ModuleType, value: Any, axes: Any, keep: bool) -> Any:
        return value.any(axis=axes, keepdims=keep)
