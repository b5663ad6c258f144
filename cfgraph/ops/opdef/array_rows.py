"""Operations on many short rows of NumPy arrays, which NumPy handles slowly."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final

import numpy as np

# rows up to this length are reduced element by element, if there are enough of them
_SHORT_ROW: Final = 32
_ROWS_PER_ELEMENT: Final = 8
# rows are searched at most this often instead of sorted, if they have enough elements
_FEW: Final = 8
_ELEMENTS_PER_SEARCH: Final = 128


def reduced_rows(ufunc: np.ufunc, value: Any, *, keep: bool) -> Any:
    """The reduction of a nonempty NumPy value over its last dimension.

    NumPy takes 80 ns for each row. For many short rows, operations on their first, second, ...
    elements are faster; the ufunc must not depend on the order.
    """
    length = value.shape[-1]
    if not 1 < length <= _SHORT_ROW or value.size < _ROWS_PER_ELEMENT * length * length:
        return ufunc.reduce(value, -1, value.dtype, keepdims=keep)
    result = ufunc(value[..., 0], value[..., 1])
    for index in range(2, length):
        ufunc(result, value[..., index], out=result)
    return result[..., None] if keep else result


def few_largest(value: Any, k: int) -> tuple[Any, Any] | None:
    """The k largest elements of NumPy rows and their indices, the first of equals first.

    They are found by repeated search. None if sorting is faster, and for rows with NaN or with the
    least value of the dtype among the k largest.
    """
    dtype = value.dtype
    if not 0 < k <= _FEW or value.size < _ELEMENTS_PER_SEARCH * k or dtype.kind not in "fiu":
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
