"""Difference between two values, within the tolerances of their type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.names import decode_text
from cfgraph.ir.shapes import Shape
from cfgraph.reports import Count, Real

# (relative, absolute) by the size in bytes of a real number; other types are exact
_TOLERANCES: Final = {8: (1e-9, 0.0), 4: (2e-5, 1e-6), 2: (1e-2, 1e-3), 1: (0.25, 1e-2)}
# of an element in a description
_MAX_CHARACTERS: Final = 40


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """Difference between a value and the expected one.

    `count` of `total` elements are not within `rtol` and `atol`; `index` is the first of them. If
    the types or shapes differ, only `message` is set.
    """

    message: str
    count: Count = 0  #: Of elements that differ.
    total: Count = 0
    max_abs: Real | None = None
    max_rel: Real | None = None
    index: tuple[Count, ...] | None = None
    actual: Any = None
    expected: Any = None
    rtol: Real = 0.0
    atol: Real = 0.0

    @property
    def description(self) -> str:
        """The message, with the first elements that differ, expected first, and the largest gaps.

        Without them for a scalar, whose value is short.
        """
        if not self.index:
            return self.message
        text = f"{self.message}: {_element_text(self.expected)} and {_element_text(self.actual)}"
        if self.max_abs is None:
            return text
        return f"{text}; largest difference {self.max_abs:g}, relative {self.max_rel:g}"


def _element_text(element: Any) -> str:
    text = repr(decode_text(element)) if isinstance(element, bytes) else str(element)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"


def default_tolerances(dtype: DType) -> tuple[float, float]:
    """Return the relative and absolute tolerance of a type, both 0 except for floating types."""
    if dtype.is_complex:
        return _TOLERANCES[dtype.numpy.itemsize // 2]
    return _TOLERANCES[dtype.numpy.itemsize] if dtype.is_floating else (0.0, 0.0)


def value_difference(
    actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None
) -> ValueDifference | None:
    """Return the difference, or None if |a - e| <= atol + rtol * |e| for all elements.

    NaN equals NaN, and an infinity equals itself. The default tolerances depend on the type;
    integers, booleans, and strings are always compared exactly.
    """
    a, e = np.asarray(actual), np.asarray(expected)
    if a.dtype != e.dtype:
        return ValueDifference(f"the type is {_dtype_name(a)}, expected {_dtype_name(e)}")
    if a.shape != e.shape:
        return ValueDifference(f"the shape is {Shape(a.shape)}, expected {Shape(e.shape)}")
    dtype = DType.from_numpy(a.dtype)
    default = default_tolerances(dtype)
    inexact = dtype.is_floating or dtype.is_complex
    rtol = default[0] if rtol is None or not inexact else rtol
    atol = default[1] if atol is None or not inexact else atol
    with np.errstate(all="ignore"):
        wide, gaps = _absolute_gaps(a, e, dtype)
        bad = _mismatches(a, e, gaps <= atol + rtol * np.abs(wide)) if inexact else a != e
        return _describe(a, e, bad, wide, gaps, rtol, atol) if np.any(bad) else None


def _mismatches(a: Any, e: Any, close: Any) -> Any:
    """Mark floating values that differ: finite ones beyond the tolerances, others if unequal."""
    equal = (a == e) | (np.isnan(a) & np.isnan(e))
    return ~np.where(np.isfinite(a) & np.isfinite(e), close, equal)


def _dtype_name(array: Any) -> str:
    try:
        return DType.from_numpy(array.dtype).name
    except TypeError:
        return str(array.dtype)


def _absolute_gaps(a: Any, e: Any, dtype: DType) -> tuple[Any, Any]:
    """Return the expected values in a type that can represent all gaps, and the gaps."""
    if dtype.is_object or dtype.kind == "bool":
        return e, np.zeros(e.shape)
    if dtype.is_integer:
        wide = np.uint64 if dtype.kind == "uint" else np.int64
        a, e = a.astype(wide), e.astype(wide)
        # modulo 2**64, which the true gap is below
        return e, np.maximum(a, e).astype(np.uint64) - np.minimum(a, e).astype(np.uint64)
    exact = np.complex128 if dtype.is_complex else np.float64
    return e.astype(exact), np.abs(a.astype(exact) - e.astype(exact))


def _describe(
    a: Any, e: Any, bad: Any, wide: Any, gaps: Any, rtol: float, atol: float
) -> ValueDifference:
    count, total = int(np.sum(bad)), int(a.size)
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    max_abs, max_rel = (None, None) if e.dtype.kind in "Ob" else _largest_gaps(bad, wide, gaps)
    first = f"the first at {list(index)}" if index else "the value"
    message = f"{count} of {total} elements differ, {first}" if index else "the value differs"
    return ValueDifference(
        message, count, total, max_abs, max_rel, index, a[index], e[index], rtol, atol
    )


def _largest_gaps(bad: Any, wide: Any, gaps: Any) -> tuple[float, float]:
    """Return the largest absolute and relative gap of the elements that differ."""
    absolute = np.asarray(gaps)[bad].astype(np.float64)
    relative = absolute / np.abs(np.asarray(wide)[bad]).astype(np.float64)
    return float(absolute.max()), float(relative.max())
