"""Generated tensors: Fill, Empty, Range, LinSpace, OneHot, SobolSample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape, ShapeError, vector_shape
from cfgraph.limits import reserve, reserve_array
from cfgraph.ops.opdef.facts import CompilerSupport, HostPlacement, SideEffects
from cfgraph.ops.opdef.gradient_api import no_gradient, sum_all
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import (
    InferenceContext,
    require_rank,
    shape_of_rank,
    static_axis,
    static_int,
)

# those of TensorFlow
_MAX_SOBOL_DIMENSIONS: Final = 21_200
_SOBOL_BITS: Final = 31


class Fill(Op):
    """A tensor of a requested shape filled with one value."""

    signature = "dims: const index_type, value: T -> output: T"
    attrs = "index_type: {int32, int64} = int32"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        full, dtype = xp.full, node.attr("T").numpy

        def fill(dims: Any, value: Any) -> Any:
            # the kernel accepts a scalar as a vector of one size, the shape function does not
            sizes = dims.reshape(-1).tolist() if dims.ndim == 0 else dims.tolist()
            if dims.ndim > 1:
                raise OpError(f"dims must be a vector, got shape {list(dims.shape)}")
            if value.ndim:
                raise OpError(f"value must be a scalar, got shape {list(value.shape)}")
            if sizes and min(sizes) < 0:
                raise OpError(f"Dimension {min(sizes)} must be >= 0")
            reserve_array(sizes, dtype.itemsize)
            return full(sizes, value, dtype)

        return fill

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        require_rank(context.inputs[1], 0)
        require_rank(context.inputs[0], 1)
        value = context.value(0)
        if value is not None and value.size and value.min() < 0:
            raise ShapeError(f"the sizes {value.tolist()} must not be negative")
        return [context.shape_value(0)]

    gradient = staticmethod(lambda g, node, dz: (None, sum_all(g, dz)))


class Empty(Op):
    """A tensor of a requested shape with unspecified content (zeros in cfgraph)."""

    signature = "shape: const int32 -> output: dtype"
    attrs = "init: bool = false"
    effects = SideEffects(stateful=True)

    @staticmethod
    def kernel(xp: ModuleType, dtype: DType, /, step: Any, shape: Any) -> Any:
        sizes = tuple(shape.tolist())
        reserve_array(sizes, dtype.numpy.itemsize)
        return xp.full(sizes, (b"" if dtype.is_object else 0), dtype.numpy)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        require_rank(context.inputs[0], 1)
        return [context.shape_value(0)]


class Range(Op):
    """The numbers from `start` (inclusive) to `limit` (exclusive) in steps of `delta`."""

    signature = "start: const Tidx, limit: const Tidx, delta: const Tidx -> output: Tidx"
    attrs = (
        "Tidx: {bfloat16, float16, float32, float64, int8, int16, int32, int64, uint16, uint32, "
        "uint64} = int32"
    )

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("Tidx")
        if dtype.is_integer:
            return _integer_range(dtype.numpy)
        return lambda start, limit, delta: _range_steps(start, limit, delta, dtype.numpy)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        for input_shape in context.inputs:
            require_rank(input_shape, 0)
        bounds = [context.value(slot) for slot in range(3)]
        if any(bound is None for bound in bounds):
            return [vector_shape()]
        start, limit, delta = (bound[()] for bound in bounds if bound is not None)
        try:
            return [vector_shape(_range_count(start, limit, delta))]
        except OpError as error:
            raise ShapeError(str(error)) from None

    gradient = staticmethod(no_gradient)


def _integer_range(dtype: Any) -> Kernel:
    lowest, highest = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    arange: Any = np.arange

    def integers(start: Any, limit: Any, delta: Any) -> Any:
        if start.ndim or limit.ndim or delta.ndim:
            _check_scalars(start, limit, delta)
        first, step = int(start), int(delta)
        if step == 1 and first <= limit:
            reserve(8 * (int(limit) - first))
            return arange(first, int(limit), 1, dtype)
        count = _range_count(first, int(limit), step)
        reserve(8 * count)
        end = first + count * step
        if lowest <= end <= highest:
            return arange(first, end, step, dtype)
        # `end` may overflow the dtype in which arange would compute
        return arange(first, end, step).astype(dtype)

    return integers


def _range_steps(start: Any, limit: Any, delta: Any, dtype: Any) -> Any:
    _check_scalars(start, limit, delta)
    count = _range_count(start, limit, delta)
    reserve(8 * int(count))
    return start + np.arange(count).astype(dtype) * delta


def _check_scalars(start: Any, limit: Any, delta: Any) -> None:
    for name, value in (("start", start), ("limit", limit), ("delta", delta)):
        if value.ndim:
            raise OpError(f"{name} must be a scalar, got shape {list(value.shape)}")


def _range_count(start: Any, limit: Any, delta: Any) -> int:
    if delta == 0:
        raise OpError(f"Requires delta != 0: {delta}")
    if (delta > 0 and start > limit) or (delta < 0 and start < limit):
        order = "<=" if delta > 0 else ">="
        raise OpError(
            f"Requires start {order} limit when delta {'>' if delta > 0 else '<'} 0: "
            f"{start}/{limit}"
        )
    if isinstance(delta, int | np.integer):
        return -(-abs(int(limit) - int(start)) // abs(int(delta)))
    count = math.ceil(abs(np.float64((limit - start) / delta)))
    if count > 2**48:
        raise OpError(f"Requires ((limit - start) / delta) <= 2^48, it is {count}")
    return count


class LinSpace(Op):
    """`num` evenly spaced numbers from `start` to `stop`, both inclusive."""

    signature = "start: host T, stop: host T, num: const Tidx -> output: T"
    attrs = "T: {bfloat16, float16, float32, float64}, Tidx: {int32, int64} = int32"
    compilation = CompilerSupport(traceable=False)

    @staticmethod
    def kernel(xp: ModuleType, T: DType, /, start: Any, stop: Any, num: Any) -> Any:
        dtype = T.numpy
        count = int(num)
        _check_scalars(start, stop, num)
        if count <= 0:
            raise OpError(f"Requires num > 0: {count}")
        if count == 1:
            return np.full(1, start, dtype)
        reserve(8 * count)
        step = (stop - start) / dtype.type(count - 1)
        result = start + step * np.arange(count).astype(dtype)
        result[0], result[-1] = start, stop
        return result

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        require_rank(context.inputs[0], 0)
        require_rank(context.inputs[1], 0)
        count = static_int(context, 2)
        if count is not None and count <= 0:
            raise ShapeError(f"num must be positive, got {count}")
        return [vector_shape(count)]

    gradient = staticmethod(no_gradient)


def _marked(indices: Any, axis: int, depth: int, on_value: Any, off_value: Any) -> Any:
    """An array of `off_value`, with `on_value` at each index along a new axis."""
    sizes = indices.shape
    result = np.full((*sizes[:axis], depth, *sizes[axis:]), off_value)
    inner = math.prod(sizes[axis:])
    flat = indices.reshape(-1)
    rows = np.arange(flat.size)
    if inner == 1:
        positions = rows * depth + flat
    else:
        positions = (rows // max(inner, 1) * depth + flat) * inner + rows % max(inner, 1)
    inside = (flat >= 0) & (flat < depth)
    result.reshape(-1)[positions if inside.all() else positions[inside]] = on_value
    return result


class OneHot(Op):
    """One-hot vectors: `on_value` at each index, `off_value` elsewhere, along a new axis."""

    signature = "indices: TI, depth: const int32, on_value: T, off_value: T -> output: T"
    attrs = "axis: int = -1, TI: {uint8, int8, int32, int64} = int64"

    @staticmethod
    def kernel(
        xp: ModuleType, axis: int, /, indices: Any, depth: Any, on_value: Any, off_value: Any
    ) -> Any:
        rank = indices.ndim
        if not -1 <= axis <= rank:
            raise OpError(f"Expected axis to be -1 or in [0, {rank + 1}).  But received: {axis}")
        for name, value in (("depth", depth), ("on_value", on_value), ("off_value", off_value)):
            if value.ndim:
                raise OpError(f"{name} must be a scalar, but got shape {list(value.shape)}")
        if depth < 0:
            raise OpError(f"depth must be non-negative, got: {depth}")
        reserve_array((*indices.shape, int(depth)), on_value.dtype.itemsize)
        position = rank if axis == -1 else axis
        if xp is np:
            return _marked(indices, position, int(depth), on_value, off_value)
        classes = xp.arange(int(depth)).reshape([-1] + [1] * (rank - position))
        sizes = indices.shape
        chosen = indices.reshape((*sizes[:position], 1, *sizes[position:])) == classes
        return xp.where(chosen, on_value, off_value)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        indices, depth = context.inputs[0], static_int(context, 1)
        if depth is not None and depth < 0:
            raise ShapeError(f"depth must not be negative, got {depth}")
        require_rank(context.inputs[2], 0)
        require_rank(context.inputs[3], 0)
        if indices.dims is None:
            return [shape_of_rank(None)]
        position = static_axis(context.attr("axis"), len(indices.dims) + 1)
        return [Shape((*indices.dims[:position], depth, *indices.dims[position:]))]

    gradient = staticmethod(no_gradient)


class SobolSample(Op):
    """Consecutive points of the Sobol sequence after the origin, in the unit cube."""

    signature = "dim: int32, num_results: int32, skip: int32 -> samples: dtype"
    attrs = "dtype: {float32, float64} = float32"
    placement = HostPlacement(host_only=True)

    @staticmethod
    def kernel(xp: ModuleType, dtype: DType, /, dim: Any, count: Any, skip: Any) -> Any:
        for name, value, low in (("dim", dim, 1), ("num_results", count, 1), ("skip", skip, 0)):
            if value.ndim:
                raise OpError(f"{name} must be a scalar, got shape {list(value.shape)}")
            if value < low:
                raise OpError(f"{name} must be at least {low}, got {value}")
        if dim > _MAX_SOBOL_DIMENSIONS:
            raise OpError(f"dim must be at most {_MAX_SOBOL_DIMENSIONS}, got {dim}")
        first, last = int(skip) + 1, int(skip) + int(count)
        if last >= np.iinfo(np.int32).max:
            raise OpError(f"num_results+skip must be less than {np.iinfo(np.int32).max}")
        reserve_array((int(count), int(dim)), 8)
        points = _sobol_points(int(dim), first, last) * 2.0**-_SOBOL_BITS
        return points.astype(dtype.numpy)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        dim, count, _ = (static_int(context, slot) for slot in range(3))
        return [Shape((count, dim))]


def _sobol_points(dim: int, first: int, last: int) -> Any:
    """The points of the sequence from one number to another, as integers.

    A point differs from the one before by the direction of the lowest bit that its number sets.
    """
    from scipy.stats.qmc import Sobol

    directions = Sobol(dim, scramble=False, bits=_SOBOL_BITS)._sv.T
    gray = first ^ first >> 1
    numbers = np.arange(first + 1, last + 1)
    steps = directions[np.log2(numbers & -numbers).astype(np.int64)]
    is_set = [bool(gray >> bit & 1) for bit in range(_SOBOL_BITS)]
    start = np.bitwise_xor.reduce(directions[is_set], 0, keepdims=True)
    return np.bitwise_xor.accumulate(np.concatenate([start, steps]), 0)
