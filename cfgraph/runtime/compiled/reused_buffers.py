"""Elementwise operators that write into the buffer of an operand that nothing reads again.

A new array of more than 128 KB costs more than its elements: its pages are mapped and cleared.
Generated code knows the operands that are dead after a line; the reference count says that neither
a view, nor a stack, a variable, or the caller of the run holds the array.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

_MIN_BYTES: Final = 1 << 17
# the first operand is dead after the line, and the second
FIRST: Final = 1
SECOND: Final = 2
OPERATORS: Final = {"{} + {}": "_add", "{} - {}": "_subtract", "{} * {}": "_multiply"}


def reusing_form(form: str, dead: int) -> str:
    """The form of an operator for large operands that are `dead` after it."""
    plain = form.format("{0}", "{1}")
    field = "{0}" if dead & FIRST else "{1}"
    return f"{plain} if {field}.nbytes < {_MIN_BYTES} else {OPERATORS[form]}({{0}}, {{1}}, {dead})"


def _references(a: Any, b: Any, dead: int) -> int:
    return sys.getrefcount(a)


def _references_of_variable() -> int:
    """The reference count in a function of an array that only a variable of its caller holds."""
    array = np.empty(0)
    return _references(array, None, 0)


_UNSHARED: Final = _references_of_variable()


def _reusing(function: np.ufunc) -> Callable[[Any, Any, int], Any]:
    def run(a: Any, b: Any, dead: int) -> Any:
        if (
            a.__class__ is b.__class__ is np.ndarray
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.flags.c_contiguous
            and b.flags.c_contiguous
        ):
            if dead & FIRST and sys.getrefcount(a) <= _UNSHARED and a.flags.owndata:
                return function(a, b, a)
            if dead & SECOND and sys.getrefcount(b) <= _UNSHARED and b.flags.owndata:
                return function(a, b, b)
        return function(a, b)

    return run


REUSING: Final[dict[str, Callable[[Any, Any, int], Any]]] = {
    "_add": _reusing(np.add),
    "_subtract": _reusing(np.subtract),
    "_multiply": _reusing(np.multiply),
}
