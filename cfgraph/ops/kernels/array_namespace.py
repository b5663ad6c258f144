"""Kernels across NumPy, CuPy, and jax: host fallback, functional updates, half precision.

Also short rows, which NumPy reduces slowly, and conditions that kernels cannot test while they are
traced.
"""

from __future__ import annotations

import cmath
import importlib
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.ir.dtypes import DType, bfloat16, float16
from cfgraph.ir.graph import Node
from cfgraph.ops.opdef.op import Kernel, OpError


def is_gpu_namespace(xp: ModuleType) -> bool:
    """True for the array library of a GPU, whose arrays must be copied to the host explicitly."""
    return xp is not np and hasattr(xp, "asnumpy")  # NumPy looks long for what it has not


def scipy_special(xp: ModuleType) -> ModuleType:
    """SciPy's special functions for an array namespace, or that namespace's own."""
    own: ModuleType | None = getattr(xp, "special", None)
    if own is not None:
        return own
    package = {"jax.numpy": "jax.scipy", "cupy": "cupyx.scipy"}.get(xp.__name__, "scipy")
    return importlib.import_module(f"{package}.special")


@lru_cache(maxsize=1)
def lapack() -> Any:
    """SciPy's functions of LAPACK, without the package of theirs, which takes 0.14 s to import."""
    import scipy

    folders = [f"{folder}/linalg" for folder in scipy.__path__]
    found = PathFinder.find_spec("scipy.linalg._flapack", folders)
    if found is None or found.loader is None:
        from scipy.linalg import lapack as functions

        return functions
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


def checked_axis(axis: Any, rank: int, what: str = "axis") -> int:
    """An axis that is a tensor, counted from the front. Raises OpError if out of range."""
    index = operator.index(axis)
    if index < 0:
        index += rank
    if not 0 <= index < rank:
        raise OpError(f"{what} {operator.index(axis)} is out of the range [{-rank}, {rank})")
    return index


def on_host(function: Kernel, node: Node, xp: ModuleType) -> Kernel:
    """Adapt a kernel over NumPy arrays to those of any namespace."""
    if xp is np:
        return function
    fetch = getattr(xp, "asnumpy", np.asarray)

    def call(*inputs: Any) -> Any:
        result = function(*map(fetch, inputs))
        return tuple(map(xp.asarray, result)) if isinstance(result, tuple) else xp.asarray(result)

    return call


# elements from which flat positions pay, and elements that are combined at once
_MANY: Final = 1 << 8
_BLOCK: Final = 1 << 16
# the ufunc of each operation of jax's `.at`
_UFUNC_NAMES = {"add": "add", "subtract": "subtract", "min": "minimum", "max": "maximum"}


def updated_at(array: Any, index: Any, value: Any) -> Any:
    """A copy of `array` with `value` at `index`."""
    if hasattr(array, "at"):
        return array.at[index].set(value)
    result = array.copy()
    result[index] = value
    return result


def last_updates(xp: ModuleType, array: Any, index: Any, updates: Any) -> Any:
    """The updates at index arrays; on a GPU the last of those at one index replaces the others.

    CUDA writes them in any order, NumPy and XLA in the given one.
    """
    if not is_gpu_namespace(xp) or not updates.ndim:
        return updates
    arrays = index if isinstance(index, tuple) else (index,)
    flat_index = arrays[0]
    for size, component in zip(array.shape[1:], arrays[1:], strict=False):
        flat_index = flat_index * size + component
    flat = flat_index.reshape(-1)
    last = xp.zeros(math.prod(array.shape[: len(arrays)]), np.int32)
    xp.maximum.at(last, flat, xp.arange(flat.size, dtype=np.int32))
    rows = updates.reshape((flat.size, *array.shape[len(arrays) :]))
    return rows[last[flat]].reshape(updates.shape)


def accumulated_at(xp: ModuleType, array: Any, index: Any, value: Any, how: str) -> Any:
    """A copy of `array` with `value` combined (`how`) at `index`, once per occurrence."""
    if hasattr(array, "at"):
        if how == "subtract":
            return array.at[index].add(-value)
        either = how == "add" and array.dtype == bool
        return getattr(array.at[index], "max" if either else how)(value)
    result = array.copy()
    if how == "subtract" and not isinstance(result, np.ndarray):
        how, value = "add", -value  # CuPy has no atomic subtraction
    combine_at(getattr(xp, _UFUNC_NAMES.get(how, how)), result, index, value)
    if how in ("min", "max") and is_gpu_namespace(xp) and array.dtype.kind == "f":
        # the atomic extremes of CUDA ignore NaN
        xp.add.at(result, index, xp.where(xp.isnan(value), value, array.dtype.type(-0.0)))
        result = xp.where(xp.isnan(array), array, result)
    return result


def combine_at(ufunc: Any, target: Any, index: Any, values: Any) -> None:
    """`ufunc.at`, in place; rows are combined by flat positions, for which NumPy is faster.

    Index arrays of several dimensions must not be negative.
    """
    arrays = index if isinstance(index, tuple) else (index,)
    few = getattr(values, "size", 1) < _MANY
    if few or target.ndim == 1 or not _are_row_numbers(arrays, target, values):
        ufunc.at(target, index, values)
        return
    sizes, first = target.shape[len(arrays) :], arrays[0]
    rows = first.astype(np.int64)
    for size, array in zip(target.shape[1:], arrays[1:], strict=False):
        rows = rows * size + array
    width = math.prod(sizes)
    flat, values = target.reshape(-1), values.reshape(-1, width)
    rows, columns = rows.reshape(-1, 1) * width, np.arange(width)
    block = max(1, _BLOCK // max(1, width))
    for start in range(0, len(rows), block):
        positions = (rows[start : start + block] + columns).reshape(-1)
        ufunc.at(flat, positions, values[start : start + block].reshape(-1))


def _are_row_numbers(arrays: tuple[Any, ...], target: Any, values: Any) -> bool:
    """True for arrays of integers, one shape, that select a row of `target` for each of values."""
    if not arrays or not all(isinstance(x, np.ndarray) for x in (*arrays, target, values)):
        return False
    if not target.flags.c_contiguous or any(x.dtype.kind not in "iu" for x in arrays):
        return False
    shape = arrays[0].shape
    is_one_shape = all(x.shape == shape for x in arrays)
    return is_one_shape and bool(values.shape == shape + target.shape[len(arrays) :])


def computed_in_float32(kernel: Kernel, dtype: DType) -> Kernel:
    """Make a kernel compute half-precision floats in float32 and round its results once."""
    if dtype not in (bfloat16, float16):
        return kernel
    narrow = dtype.numpy

    def wide(*inputs: Any) -> Any:
        result = kernel(*(_cast(x, narrow, np.float32) for x in inputs))
        if isinstance(result, tuple):
            return tuple(_cast(x, np.float32, narrow) for x in result)
        return _cast(result, np.float32, narrow)

    return wide


def in_float32(kernel: Kernel, node: Node, xp: ModuleType) -> Kernel:
    """Adapt a kernel: half-precision floats are computed in float32 and rounded once."""
    return computed_in_float32(kernel, node.attr("T"))


def rounds_each_step(kernel: Kernel, node: Node, xp: ModuleType) -> Kernel:
    """Adapt a kernel: half-precision floats are rounded after each operation, as on a CPU.

    NumPy does so by itself. In other namespaces, the results of float32 are rounded once.
    """
    return kernel if xp is np else in_float32(kernel, node, xp)


def _cast(value: Any, have: Any, want: Any) -> Any:
    return value.astype(want) if getattr(value, "dtype", None) == have else value


# rows up to this length are reduced element by element, if there are enough of them
_SHORT_ROW: Final = 32
_ROWS_PER_ELEMENT: Final = 8
# lengths and number of rows that are reduced as columns, and the elements of their copy
_MIN_TURNED, _MAX_TURNED, _MIN_ROWS, _MAX_COPIED = 4, 64, 24, 8192
# smaller arrays are reduced over all axes at once
SPLIT_ABOVE: Final = 4096
# rows are searched at most this often instead of sorted, if they have enough elements
_FEW: Final = 8
LEAST_SEARCHED: Final = 128
# numbers up to which a loop of Python takes less time than two calls of NumPy
FEW_NUMBERS: Final = 32


def reduced_rows(ufunc: np.ufunc, value: Any, *, keep: bool) -> Any:
    """The reduction of a nonempty NumPy value over its last dimension.

    NumPy takes 80 ns for each row. For many short rows, operations on their first, second, ...
    elements are faster, or a reduction of the columns of a copy that stays in the cache; the ufunc
    must not depend on the order.
    """
    length = value.shape[-1]
    if _MIN_TURNED < length <= _MAX_TURNED and _MIN_ROWS * length <= value.size <= _MAX_COPIED:
        columns = value.reshape(-1, length).T.copy()
        result = ufunc.reduce(columns, 0, value.dtype).reshape(value.shape[:-1])
        return result[..., None] if keep else result
    if not 1 < length <= _SHORT_ROW or value.size < _ROWS_PER_ELEMENT * length * length:
        return ufunc.reduce(value, -1, value.dtype, keepdims=keep)
    result = ufunc(value[..., 0], value[..., 1])
    for index in range(2, length):
        ufunc(result, value[..., index], out=result)
    return result[..., None] if keep else result


def reduced_axes(ufunc: np.ufunc, value: Any, axes: tuple[int, ...], *, keep: bool) -> Any:
    """The reduction of a nonempty NumPy value over several dimensions, or none.

    The last one is reduced separately where that makes the inner loops of NumPy longer.
    """
    is_leading = axes == tuple(range(len(axes))) and 0 < len(axes) < value.ndim
    if value.size < SPLIT_ABOVE or not (is_leading or _has_short_rows(value, axes)):
        return ufunc.reduce(value, axes, value.dtype, keepdims=keep)
    rows = ufunc.reduce(value, axes[:-1], value.dtype, keepdims=keep)
    last = axes[-1] if keep else axes[-1] - len(axes) + 1
    return ufunc.reduce(rows, last, value.dtype, keepdims=keep)


def _has_short_rows(value: Any, axes: tuple[int, ...]) -> bool:
    """True if the last of several axes is reduced, short, and apart from the others."""
    last = value.ndim - 1
    if len(axes) < 2 or axes[-1] != last or axes != tuple(sorted(axes)):
        return False
    return axes[-2] != last - 1 and bool(value.shape[last] <= _SHORT_ROW)


def few_largest(value: Any, k: int) -> tuple[Any, Any] | None:
    """The k largest elements of NumPy rows and their indices, the first of equals first.

    They are found by repeated search. None if sorting is faster, and for rows with NaN or with the
    least value of the dtype among the k largest.
    """
    dtype = value.dtype
    if not 0 < k <= _FEW or value.size < LEAST_SEARCHED * k or dtype.kind not in "fiu":
        return None
    rest = value.reshape((-1, value.shape[-1])).copy()
    rows = np.arange(len(rest))
    least: Any = -np.inf if dtype.kind == "f" else np.iinfo(dtype).min
    indices = np.empty((len(rest), k), np.intp)
    values = np.empty((len(rest), k), dtype)
    for position in range(k):
        found = rest.argmax(axis=1)
        indices[:, position] = found
        values[:, position] = rest[rows, found]
        rest[rows, found] = least
    sizes = (*value.shape[:-1], k)
    if (values[:, -1] == least).any() or np.isnan(values).any():
        return None
    return values.reshape(sizes), indices.reshape(sizes)


def channel_sums(xp: ModuleType, x: Any) -> Any:
    """The sum of each channel; a product with ones is the fastest sum of short rows."""
    if xp is not np or not x.size:
        return xp.sum(x, axis=tuple(range(x.ndim - 1)), dtype=x.dtype)
    rows = x.reshape((-1, x.shape[-1]))
    return np.ones(len(rows), x.dtype) @ rows


class _CheckScope(NamedTuple):
    """The conditions of a scope, and those of enclosing scopes that are computed before it."""

    earlier: Sequence[Any]
    conditions: list[Any]


_SCOPE: Final[ContextVar[_CheckScope | None]] = ContextVar("_SCOPE", default=None)


def defer_check(condition: Callable[[], Any]) -> None:
    """Require an array of Booleans to be all true; without a scope nothing checks it.

    Traced code computes the condition, and its caller decides what follows if it does not hold.
    """
    if _SCOPE.get() is not None:
        require(condition().all())


class KnownRange(NamedTuple):
    """A traced integer whose least and largest values are known, such as the counter of a loop."""

    value: Any
    least: int
    largest: int


_RANGES: Final[ContextVar[tuple[KnownRange, ...]]] = ContextVar("_RANGES", default=())


@contextmanager
def known_ranges(ranges: Iterable[KnownRange]) -> Iterator[None]:
    """Scope in which traced integers are in these ranges; those of enclosing scopes hold, too."""
    token = _RANGES.set((*_RANGES.get(), *ranges))
    try:
        yield
    finally:
        _RANGES.reset(token)


def range_of(value: Any) -> KnownRange | None:
    """The range of an integer scalar that is traced or a number, None if it is not known."""
    if isinstance(value, np.ndarray | np.generic) and value.size == 1:
        value = value.item()
    if isinstance(value, int):
        return KnownRange(value, value, value)
    return next((known for known in _RANGES.get() if known.value is value), None)


def is_in_range(index: Any, size: Any) -> bool:
    """True for an index that is known to be in [0, size), and needs no check."""
    numbers, end = range_of(index), range_of(size)
    if numbers is None or end is None:
        return False
    return numbers.least >= 0 and numbers.largest < end.least


def is_tracing(xp: ModuleType) -> bool:
    """True for the namespace of arrays that may be traced."""
    return xp.__name__ == "jax.numpy"


def holds(xp: ModuleType, condition: Any) -> bool:
    """True if a condition on arrays of a namespace holds; jax may trace it, and checks it later."""
    if xp is np or is_gpu_namespace(xp):
        return bool(condition)
    defer_check(lambda: xp.asarray(condition))
    return True


def require(condition: Any) -> None:
    """Add a condition to the current scope, unless it is known to hold."""
    scope = _SCOPE.get()
    assert scope is not None
    if not isinstance(condition, np.bool_) or not condition:
        scope.conditions.append(condition)


def earlier_checks() -> list[Any]:
    """The conditions that are computed so far, in the current scope and in enclosing ones."""
    scope = _SCOPE.get()
    return [] if scope is None else [*scope.earlier, *scope.conditions]


@contextmanager
def collected_checks(earlier: Sequence[Any] = ()) -> Iterator[list[Any]]:
    """Open a scope and return its conditions; a loop, branch, or function body is a scope.

    `earlier` conditions are those of enclosing scopes, which need not hold where it runs.
    """
    conditions: list[Any] = []
    token = _SCOPE.set(_CheckScope(earlier, conditions))
    try:
        yield conditions
    finally:
        _SCOPE.reset(token)


def is_finite(*arrays: Any) -> bool:
    """True if all numbers of NumPy arrays are finite."""
    # the sum of their squares is not finite if one of them is not, and takes half the time
    for array in arrays:
        flat = array.reshape(-1)
        if not (cmath.isfinite(flat.dot(flat)) or np.isfinite(flat).all()):
            return False
    return True


def filled(xp: ModuleType, sizes: tuple[int, ...], value: Any, dtype: Any) -> Any:
    """A new array of one value, which NumPy's own function makes in four times the time."""
    if xp is not np:
        return xp.full(sizes, value, dtype)
    array = np.empty(sizes, dtype)
    array[...] = value
    return array
