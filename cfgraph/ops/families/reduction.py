"""Reductions over dimensions: sums, products, means, extremes, norms, ArgMax, ArgMin."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType, bfloat16, bool_, float16, float32, float64
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, ShapeError
from cfgraph.ops.families.division import truncated_quotient
from cfgraph.ops.kernels.array_namespace import (
    SPLIT_ABOVE,
    checked_axis,
    computed_in_float32,
    reduced_axes,
    reduced_rows,
)
from cfgraph.ops.kernels.half_reductions import reduced_half
from cfgraph.ops.opdef.batching import along_axes
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    conjugate,
    int32_constant,
)
from cfgraph.ops.opdef.op import ALL_NUMBERS, INDEX, QUANTIZED, REAL, Kernel, Op, OpError, one_of
from cfgraph.ops.opdef.shape_functions import (
    InferenceContext,
    shape_of_rank,
    static_axis,
    static_int,
)


def sum_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of Sum: dz broadcast to the input."""
    return _repeat_to_input(g, node, _broadcastable_result(g, node, dz)), None


def mean_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of Mean: dz / count, broadcast to the input."""
    share = g.RealDiv(dz, _reduced_count(g, node, dz))
    return _repeat_to_input(g, node, _broadcastable_result(g, node, share)), None


def extreme_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of Max and Min: dz, divided evenly among the extreme elements."""
    x, axes = node.inputs
    chosen = g.Cast(g.Equal(_broadcastable_result(g, node, node.output()), x), DstT=x.dtype)
    share = g.RealDiv(chosen, g.Sum(chosen, axes, keep_dims=True))
    return g.Mul(share, _broadcastable_result(g, node, dz)), None


def euclidean_norm_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of EuclideanNorm: dz * x / norm; NaN if the norm is zero."""
    norm, x = node.output(), node.inputs[0]
    if x.dtype is not None and x.dtype.is_complex:
        dz, norm = (g.Real(tensor, Tout=x.dtype.real) for tensor in (dz, norm))
        share = g.Cast(g.RealDiv(dz, norm), DstT=x.dtype)
        return g.Mul(x, _broadcastable_result(g, node, share)), None
    return g.RealDiv(x, _broadcastable_result(g, node, g.RealDiv(norm, dz))), None


def product_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of Prod: dz times the product of all other elements.

    Exclusive cumulative products compute it, because a division fails for zeros.
    """
    x, dx, axes = node.inputs[0], _broadcastable_result(g, node, dz), _static_axes(g, node)
    if axes is None:
        return g.Mul(dx, conjugate(g, _product_of_others_dynamic_axes(g, node))), None
    factors, rest, dims = [], x, list(g.known_shape(x))
    axes = [axis for axis in axes if dims[axis] != 1]
    if not axes:
        return _repeat_to_input(g, node, dx), None
    for axis in axes:
        axis_tensor = int32_constant(g, axis)
        factors.append(_product_of_others(g, rest, axis_tensor))
        if axis != axes[-1]:
            rest = g.Prod(rest, axis_tensor, keep_dims=True)
    return g.Mul(dx, conjugate(g, reduce(g.Mul, reversed(factors)))), None


def _static_axes(g: GradientBuilder, node: Node) -> list[int] | None:
    """The reduced axes in ascending order, or None if they or the rank are not static."""
    x, axes = node.inputs
    known, rank = g.known_value(axes), g.known_shape(x).rank
    if known is None or rank is None:
        return None
    return sorted(int(axis) % rank for axis in known.flat)


def _broadcastable_result(g: GradientBuilder, node: Node, y: Output) -> Output:
    """A tensor of the result's shape, reshaped to broadcast against the input."""
    x, axes = node.inputs[0], _static_axes(g, node)
    if node.attr("keep_dims") or (axes is not None and axes == list(range(len(axes)))):
        return y
    if axes is None:
        return g.Reshape(y, _sizes_with_ones(g, node))
    shape = g.known_shape(x)
    if shape.is_full:
        sizes = [1 if axis in axes else size for axis, size in enumerate(shape)]
        return g.Reshape(y, int32_constant(g, sizes))
    for axis in axes:
        y = g.ExpandDims(y, int32_constant(g, axis))
    return y


def _sizes_with_ones(g: GradientBuilder, node: Node) -> Output:
    """The shape of the input with size 1 for the reduced axes."""
    sizes, axes = g.shape(node.inputs[0]), _nonnegative_axes(g, node)
    return g.DynamicStitch(_axes_of(g, sizes), axes, sizes, g.OnesLike(axes))


def _nonnegative_axes(g: GradientBuilder, node: Node) -> Output:
    """The reduced axes as int32 without negative values."""
    x, axes = node.inputs
    if axes.dtype != dtypes.int32:
        axes = g.Cast(axes, DstT=dtypes.int32)
    return g.FloorMod(axes, g.Size(g.shape(x)))


def _axes_of(g: GradientBuilder, sizes: Output) -> Output:
    return g.Range(int32_constant(g, 0), g.Size(sizes), int32_constant(g, 1))


def _repeat_to_input(g: GradientBuilder, node: Node, y: Output) -> Output:
    """A tensor broadcast to the shape of the input."""
    x = node.inputs[0]
    shape = g.known_shape(x)
    return y if shape.is_full and g.known_shape(y) == shape else g.BroadcastTo(y, g.shape(x))


def _reduced_count(g: GradientBuilder, node: Node, dz: Output) -> Output | int:
    """The number of elements per result, in the dtype of the results."""
    x, axes = node.inputs[0], _static_axes(g, node)
    dims = list(g.known_shape(x)) if axes is not None else []
    sizes = [size for axis in axes or () if (size := dims[axis]) is not None]
    if axes is not None and len(sizes) == len(axes):
        return max(prod(sizes), 1)
    before, after = (g.Prod(g.shape(tensor), int32_constant(g, 0)) for tensor in (x, dz))
    return g.Cast(g.FloorDiv(before, g.Maximum(after, 1)), DstT=dz.dtype)


def _product_of_others(g: GradientBuilder, x: Output, axis: Output) -> Output:
    """The product of all other elements along an axis, for each element."""
    before = g.Cumprod(x, axis, exclusive=True)
    return g.Mul(before, g.Cumprod(x, axis, exclusive=True, reverse=True))


def _product_of_others_dynamic_axes(g: GradientBuilder, node: Node) -> Output:
    """The product of all other elements over axes that are known only at run time.

    The axes are moved to the front and flattened into one.
    """
    x, sizes = node.inputs[0], g.shape(node.inputs[0])
    axes = g.Reshape(_nonnegative_axes(g, node), int32_constant(g, [-1]))
    rest = g.ListDiff(_axes_of(g, sizes), axes)
    order = g.ConcatV2(axes, rest, int32_constant(g, 0))
    moved = g.Transpose(x, order)
    extents = [
        g.Prod(g.GatherV2(sizes, group, int32_constant(g, 0)), int32_constant(g, 0))
        for group in (axes, rest)
    ]
    flat = _product_of_others(g, g.Reshape(moved, g.Pack(extents)), int32_constant(g, 0))
    return g.Transpose(g.Reshape(flat, g.shape(moved)), g.InvertPermutation(order))


_REDUCTION_ATTRS = f"keep_dims: bool = false, Tidx: {INDEX} = int32"


class Reduction(Op, abstract=True):
    """A reduction over some dimensions: `kernel(xp, value, axes, keep)`."""

    signature = "input: T, reduction_indices: const Tidx -> output: T"
    attrs = f"{_REDUCTION_ATTRS}, {one_of(ALL_NUMBERS)}"
    batching = staticmethod(along_axes)
    # the ufunc whose `reduce` is the reduction; called directly, it takes half the time
    ufunc: ClassVar[np.ufunc | None] = None
    is_exact: ClassVar[bool] = False  # in any order of the operations
    # on a CPU, TensorFlow rounds to these after each operation
    narrow_types: ClassVar[tuple[DType, ...]] = ()

    @classmethod
    def reduce_ufunc(cls, xp: ModuleType, value: Any, axes: tuple[int, ...], keep: bool) -> Any:
        """The reduction of a NumPy value."""
        if not axes and isinstance(value, np.generic):
            return value
        assert cls.ufunc is not None
        if not value.size:
            return cls.kernel(xp, value, axes, keep)  # type: ignore[misc]
        if value.dtype.itemsize == 2 and DType.from_numpy(value.dtype) in cls.narrow_types:
            result = reduced_half(cls.ufunc, value, axes)
            return np.expand_dims(result, axes) if keep else result[()]
        if len(axes) == 1:
            if cls.is_exact and axes[0] == value.ndim - 1:
                return reduced_rows(cls.ufunc, value, keep=keep)
            return cls.ufunc.reduce(value, axes[0], value.dtype, keepdims=keep)
        return reduced_axes(cls.ufunc, value, axes, keep=keep)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        keep = node.attr("keep_dims")
        kernel: Any = cls.kernel if xp is not np or cls.ufunc is None else cls.reduce_ufunc
        dtype = node.attrs.get("T", bool_)
        widened = bool_ if xp is np and dtype in cls.narrow_types else dtype
        reduce = computed_in_float32(lambda value, axes: kernel(xp, value, axes, keep), widened)
        reduce_axis: Any = cls.ufunc and cls.ufunc.reduce
        is_direct = xp is np and cls.ufunc is not None and dtype not in (bfloat16, float16)
        numpy_type, no_output = dtype.numpy, None
        # the axes, and the size below which the ufunc itself reduces over them
        last: tuple[Any, tuple[int, ...], float] = (None, (), 0)

        def reduced(value: Any, indices: Any) -> Any:
            # cache the last axes: in most graphs they are constant
            nonlocal last
            key, known = (indices.tolist(), value.ndim), last
            if key != known[0]:
                axes = _reduction_axes(indices, value.ndim)
                by_rows = cls.is_exact and axes == (value.ndim - 1,)
                most = math.inf if len(axes) == 1 else SPLIT_ABOVE
                last = known = key, axes, most if is_direct and axes and not by_rows else 0
            if 0 < value.size < known[2]:
                return reduce_axis(value, known[1], numpy_type, no_output, keep)
            return reduce(value, known[1])

        return reduced

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data, keep = context.inputs[0], context.attr("keep_dims")
        indices = context.value(1)
        if (context.inputs[1].rank or 0) > 1:
            raise ShapeError(f"reduction_indices of shape {context.inputs[1]} must be a vector")
        if data.dims is None:
            return [UNKNOWN_SHAPE]
        if indices is None:
            return [shape_of_rank(len(data.dims)) if keep else UNKNOWN_SHAPE]
        axes = {static_axis(int(axis), len(data.dims)) for axis in indices.reshape(-1)}
        return [Shape(_reduced_sizes(data.dims, axes, keep))]


def _reduction_axes(indices: Any, rank: int) -> tuple[int, ...]:
    axes = tuple(checked_axis(axis, rank, "reduction axis") for axis in indices.flat)
    if len(set(axes)) != len(axes):
        raise OpError(f"Axes contains a duplicate dimension: {list(axes)}")
    return axes


def _reduced_sizes(sizes: Sequence[Any], axes: Container[int], keep: bool) -> list[Any]:
    if keep:
        return [1 if axis in axes else size for axis, size in enumerate(sizes)]
    return [size for axis, size in enumerate(sizes) if axis not in axes]


class Sum(Reduction):
    """Sum of elements across dimensions."""

    ufunc = np.add
    narrow_types = (float16,)

    @staticmethod
    def kernel(xp: ModuleType, value: Any, axes: Any, keep: bool) -> Any:
        return value.sum(axis=axes, dtype=value.dtype, keepdims=keep)

    @classmethod
    def reduced(cls, xp: ModuleType, value: Any, axes: tuple[int, ...], *, keep: bool) -> Any:
        """The sum of a value of any namespace."""
        return (cls.reduce_ufunc if xp is np else cls.kernel)(xp, value, axes, keep)

    gradient = staticmethod(sum_gradient)


class Prod(Reduction):
    """Product of elements across dimensions."""

    ufunc = np.multiply
    narrow_types = (float16, bfloat16)

    @staticmethod
    def kernel(xp: ModuleType, value: Any, axes: Any, keep: bool) -> Any:
        return value.prod(axis=axes, dtype=value.dtype, keepdims=keep)

    gradient = staticmethod(product_gradient)


class Mean(Reduction):
    """Mean of elements across dimensions; integers are truncated toward zero."""

    narrow_types = Sum.narrow_types

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        general, dtype = super().bind(node, xp), node.attr("T")
        if xp is not np or dtype not in (float32, float64):
            return general
        total_of = Sum.bind(node, xp)
        last: tuple[int, Any] = (0, None)

        def mean(value: Any, indices: Any) -> Any:
            nonlocal last
            if not value.size:
                return general(value, indices)
            total, known = total_of(value, indices), last
            count = value.size // total.size
            if count != known[0]:  # NumPy divides sooner by an array than by a number
                last = known = count, np.array(count, dtype.numpy)
            return total / known[1]

        return mean

    @staticmethod
    def kernel(xp: ModuleType, value: Any, axes: Any, keep: bool) -> Any:
        dtype = value.dtype
        if dtype.kind in "iu" and dtype.itemsize <= 2:
            value = value.astype(np.int64 if dtype.kind == "i" else np.uint64)
        total = Sum.reduced(xp, value, axes, keep=keep)
        count = math.prod([value.shape[axis] for axis in axes])
        if dtype.kind not in "iu":
            return total / dtype.type(count)
        mean = truncated_quotient(total, value.dtype.type(count)) if count else total
        return mean.astype(dtype)

    gradient = staticmethod(mean_gradient)


class EuclideanNorm(Reduction):
    """Euclidean norm across dimensions: the square root of the sum of squared magnitudes."""

    compilation = replace(Reduction.compilation, compiled=False)
    narrow_types = Sum.narrow_types

    @staticmethod
    def kernel(xp: ModuleType, value: Any, axes: Any, keep: bool) -> Any:
        squares = value * xp.conj(value)
        return xp.sqrt(Sum.reduced(xp, squares, axes, keep=keep)).astype(value.dtype)

    gradient = staticmethod(euclidean_norm_gradient)


class ExtremeReduction(Reduction, abstract=True):
    """The extreme element, which the method `function` of an array returns."""

    is_exact = True
    attrs = f"{_REDUCTION_ATTRS}, {one_of(REAL, QUANTIZED)}"
    function: ClassVar[str]
    worst: ClassVar[float]  # of floats

    @classmethod
    def kernel(cls, xp: ModuleType, value: Any, axes: Any, keep: bool) -> Any:
        if value.size:
            return getattr(value, cls.function)(axis=axes, keepdims=keep)
        worst: Any = cls.worst
        if value.dtype.kind in "iu":
            limits = np.iinfo(value.dtype)
            worst = limits.min if worst < 0 else limits.max
        return xp.full(_reduced_sizes(value.shape, axes, keep), worst, value.dtype)[()]

    gradient = staticmethod(extreme_gradient)


class Max(ExtremeReduction):
    """Maximum across dimensions; of no elements, the least value of the dtype."""

    ufunc, function, worst = np.maximum, "max", -np.inf


class Min(ExtremeReduction):
    """Minimum across dimensions; of no elements, the greatest value of the dtype."""

    ufunc, function, worst = np.minimum, "min", np.inf


class All(Reduction):
    """Logical AND of elements across dimensions."""

    ufunc = np.logical_and
    signature = "input: bool, reduction_indices: const Tidx -> output: bool"
    attrs = _REDUCTION_ATTRS
    kernel = staticmethod(lambda xp, value, axes, keep: value.all(axis=axes, keepdims=keep))


class AnyReduction(Reduction, name="Any"):
    """Logical OR of elements across dimensions."""

    ufunc = np.logical_or
    signature = "input: bool, reduction_indices: const Tidx -> output: bool"
    attrs = _REDUCTION_ATTRS
    kernel = staticmethod(lambda xp, value, axes, keep: value.any(axis=axes, keepdims=keep))


class ArgExtremum(Op, abstract=True):
    """The index of the first extreme element along one dimension; `function` is a method."""

    signature = "input: T, dimension: const Tidx -> output: output_type"
    function: ClassVar[str]
    worst: ClassVar[float]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        name, dtype = cls.function, node.attr("output_type").numpy
        floats = node.attr("T").is_floating
        worst = node.attr("T").numpy.type(cls.worst) if floats else None

        def arg_extremum(value: Any, dimension: Any) -> Any:
            if dimension.ndim:
                message = f"dim must be a scalar, but received tensor of shape: {dimension.shape}"
                raise OpError(message)
            axis = checked_axis(dimension, value.ndim, "Expected dimension")
            if value.shape[axis] == 0:
                raise OpError(f"Reduction axis {axis} is empty in shape {list(value.shape)}")
            if floats:  # NaN is never the extreme
                missing = xp.isnan(value)
                if xp is not np or np.count_nonzero(missing):
                    value = xp.where(missing, worst, value)
            # the method takes a tenth of the time of NumPy's function
            return getattr(value, name)(axis).astype(dtype)

        return arg_extremum

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        dims, axis = context.inputs[0].dims, static_int(context, 1)
        if dims is None:
            return [UNKNOWN_SHAPE]
        if axis is None:
            return [shape_of_rank(len(dims) - 1)] if dims else [UNKNOWN_SHAPE]
        position = static_axis(axis, len(dims))
        return [Shape(dims[:position] + dims[position + 1 :])]


class ArgMax(ArgExtremum):
    """Index of the largest element along one dimension; the first of equals."""

    attrs = (
        f"{one_of(REAL, QUANTIZED, 'bool')}, Tidx: {{int16, int32, int64}} = int32, "
        "output_type: {int16, uint16, int32, int64} = int64"
    )
    function = "argmax"
    worst = -float("inf")


class ArgMin(ArgExtremum):
    """Index of the smallest element along one dimension; the first of equals."""

    attrs = (
        f"{one_of(REAL, QUANTIZED, 'bool')}, Tidx: {{int32, int64}} = int32, "
        "output_type: {int32, int64} = int64"
    )
    function = "argmin"
    worst = float("inf")
