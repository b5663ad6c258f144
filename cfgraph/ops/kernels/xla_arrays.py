"""Arrays as XLA moves them: dilated padding, windows, products and folds over any dimensions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir.shapes import Shape
from cfgraph.ops.kernels.array_namespace import accumulated_at
from cfgraph.ops.opdef.function_bodies import ScalarFunction
from cfgraph.ops.opdef.op import OpError

Arrays = tuple[Any, ...]
# the update of `accumulated_at` that the function of an op computes
_UPDATES: Final = {
    operator.add: "add",
    operator.mul: "multiply",
    "minimum": "min",
    "maximum": "max",
}


def is_traced(xp: ModuleType) -> bool:
    """True for the namespace of jax, whose arrays XLA traces."""
    return xp.__name__ == "jax.numpy"


def padded(xp: ModuleType, x: Any, fill: Any, config: Sequence[Sequence[int]]) -> Any:
    """An array with (low, high, interior) elements of `fill` per dimension; negative ones crop."""
    if len(config) != x.ndim or any(interior < 0 for _, _, interior in config):
        raise OpError(f"padding {[list(row) for row in config]} does not fit rank {x.ndim}")
    if is_traced(xp):
        from jax import lax

        return lax.pad(x, fill, [tuple(row) for row in config])
    sizes = [dilated_size(n, i + 1) for n, (_, _, i) in zip(x.shape, config, strict=True)]
    totals = [n + max(a, 0) + max(b, 0) for n, (a, b, _) in zip(sizes, config, strict=True)]
    result = xp.full(totals, fill, x.dtype)
    inner = tuple(
        slice(max(low, 0), max(low, 0) + size, step + 1)
        for size, (low, _, step) in zip(sizes, config, strict=True)
    )
    result[inner] = x
    crops = zip(totals, config, strict=True)
    return result[tuple(slice(max(-a, 0), max(n - max(-b, 0), 0)) for n, (a, b, _) in crops)]


def dilated_size(size: int, dilation: int) -> int:
    """The size of a dimension with `dilation` steps from element to element."""
    return (size - 1) * dilation + 1 if size else 0


def padded_shape(shape: Shape, config: Sequence[Sequence[int]]) -> Shape:
    """The static shape of `padded`."""
    if shape.dims is None:
        return Shape([None] * len(config))
    return Shape(
        None if n is None else max(dilated_size(n, i + 1) + a + b, 0)
        for n, (a, b, i) in zip(shape.dims, config, strict=True)
    )


def window_count(size: int, window: int, stride: int, dilation: int) -> int:
    """The number of windows in a dimension of a size that includes the padding."""
    extent = dilated_size(window, dilation)
    return (size - extent) // stride + 1 if size >= extent else 0


def windows(
    x: Any, sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> np.ndarray:
    """A view of the windows over the last dimensions: batch, then a position, then an element."""
    if min((*sizes, *strides, *dilations), default=1) < 1:
        raise OpError("windows need positive sizes, strides, and dilations")
    first = x.ndim - len(sizes)
    geometry = list(zip(x.shape[first:], sizes, strides, dilations, strict=True))
    counts = [window_count(*dimension) for dimension in geometry]
    steps = x.strides[first:]
    shape = (*x.shape[:first], *counts, *sizes)
    outer = [step * stride for step, stride in zip(steps, strides, strict=True)]
    inner = [step * dilation for step, dilation in zip(steps, dilations, strict=True)]
    if 0 in shape:
        return np.zeros(shape, x.dtype)
    view: np.ndarray = np.lib.stride_tricks.as_strided(
        x, shape, (*x.strides[:first], *outer, *inner), writeable=False
    )
    return view


def folded(xp: ModuleType, combine: Callable[..., Arrays], values: Arrays) -> Arrays:
    """Arrays reduced over their first dimension, which has elements, by pairs of neighbors.

    `combine` takes the arrays of the left operands, then those of the right ones.
    """
    while (count := len(values[0])) > 1:
        left, right = ([x[start : count - count % 2 : 2] for x in values] for start in (0, 1))
        results = combine(*left, *right)
        if count % 2:
            pairs = zip(results, values, strict=True)
            results = tuple(xp.concatenate((made, x[-1:])) for made, x in pairs)
        values = results
    return tuple(x[0] for x in values)


def folded_from(
    xp: ModuleType, combine: Callable[..., Arrays], inits: Arrays, values: Arrays
) -> Arrays:
    """The fold of arrays over their first dimension, from the initial values."""
    shape = values[0].shape[1:]
    starts = tuple(xp.broadcast_to(init, shape) for init in inits)
    return combine(*starts, *folded(xp, combine, values)) if len(values[0]) else starts


def product_over(dimensions: Any, x: Any, y: Any) -> Any:
    """The sums of products of two NumPy arrays: dimensions of the batch, of x, and of y.

    `dimensions` are pairs, those that are contracted and those of the batch.
    """
    (cx, cy), (bx, by) = dimensions
    contracted, batch = ([v.shape[i] for i in axes] for v, axes in ((x, cx), (x, bx)))
    if contracted != [y.shape[i] for i in cy] or batch != [y.shape[i] for i in by]:
        raise OpError(f"the shapes {list(x.shape)} and {list(y.shape)} do not fit each other")
    fx = [i for i in range(x.ndim) if i not in (*cx, *bx)]
    fy = [i for i in range(y.ndim) if i not in (*cy, *by)]
    rows, columns = ([v.shape[i] for i in free] for v, free in ((x, fx), (y, fy)))
    inner, many = math.prod(contracted), math.prod(batch)
    left = x.transpose((*bx, *fx, *cx)).reshape((many, math.prod(rows), inner))
    right = y.transpose((*by, *cy, *fy)).reshape((many, inner, math.prod(columns)))
    return (left @ right).reshape((*batch, *rows, *columns))


def combined_at(
    xp: ModuleType, flat: Any, index: Any, updates: Any, combine: ScalarFunction
) -> Any:
    """A vector with updates combined at indices, in order; an index beyond the end is dropped."""
    index, updates = index.reshape(-1), updates.reshape(-1)
    if not is_traced(xp):
        index, updates = index[index < flat.size], updates[index < flat.size]
    if combine.operation in _UPDATES:
        return accumulated_at(xp, flat, index, updates, _UPDATES[combine.operation])
    if is_traced(xp):
        return _combined_one_by_one(flat, index, updates, combine)
    result = flat.copy()
    order = np.argsort(index, kind="stable")
    index, updates = index[order], updates[order]
    while index.size:
        is_first = np.concatenate(([True], index[1:] != index[:-1]))
        chosen = index[is_first]
        result[chosen] = combine(result[chosen], updates[is_first])[0]
        index, updates = index[~is_first], updates[~is_first]
    return result


def _combined_one_by_one(flat: Any, index: Any, updates: Any, combine: Any) -> Any:
    from jax import lax

    def step(number: Any, state: Any) -> Any:
        target = index[number]
        return state.at[target].set(combine(state[target], updates[number])[0], mode="drop")

    return lax.fori_loop(0, index.size, step, flat)


def sorted_order(xp: ModuleType, less: Callable[[Any, Any], Any], shape: tuple[int, ...]) -> Any:
    """The stable order of rows; `less` compares elements by their positions in the last dimension.

    Runs are merged by the number of elements of the other run before each, found by bisection.
    """
    length = shape[-1]
    places = xp.arange(length)
    order, width = xp.broadcast_to(places, shape), 1
    while width < length:
        start = places // (2 * width) * (2 * width)
        middle, end = xp.minimum(start + width, length), xp.minimum(start + 2 * width, length)
        is_left = places < middle
        low = xp.broadcast_to(xp.where(is_left, middle, start), shape)
        high = xp.broadcast_to(xp.where(is_left, end, middle), shape)
        first = low
        for _ in range(width.bit_length()):
            probe = xp.minimum((low + high) // 2, length - 1)
            other = xp.take_along_axis(order, probe, -1)
            precedes = xp.where(is_left, less(other, order), ~less(order, other))
            goes_on = low < high
            low = xp.where(goes_on & precedes, probe + 1, low)
            high = xp.where(goes_on & ~precedes, probe, high)
        own = xp.where(is_left, places - start, places - middle)
        target = start + own + low - first
        order = xp.take_along_axis(order, xp.argsort(target, axis=-1), -1)
        width *= 2
    return order
