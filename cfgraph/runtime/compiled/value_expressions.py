"""Python expressions of values, which they reproduce bit by bit."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from cfgraph.ir.attrs import repeated_element
from cfgraph.ir.dtypes import DType

# a numeral of a complex number may lose the sign of a zero
_NUMBERS: Final = "biuf"
_SPECIAL: Final = re.compile(r"\b(nan|inf)\b")


def value_expression(value: Any) -> str | None:
    """The expression of a value, in which `np`, `raw`, and `strings` are defined.

    None for a value that is no array of numbers or strings.
    """
    if value is None or type(value) in (str, bytes, bool, int):
        return ascii(value)
    if not isinstance(value, np.ndarray | np.generic):
        return None
    if value.dtype == object:
        return _strings(value)
    try:
        name = DType.from_numpy(value.dtype).name
    except TypeError:
        return None
    repeated = repeated_element(value)
    if repeated is not None:
        return f"np.broadcast_to({value_expression(repeated)}, {value.shape!r})"
    if value.dtype.kind in _NUMBERS and value.dtype.isnative and _reproduces(value):
        return _number_text(value)
    shape = value.shape if isinstance(value, np.ndarray) else None
    return f"raw({name!r}, {shape!r}, {value.tobytes()!r})"


def _strings(value: Any) -> str | None:
    """The expression of an array of strings."""
    elements = value.reshape(-1).tolist()
    if not isinstance(value, np.ndarray) or any(type(item) is not bytes for item in elements):
        return None
    return f"strings({value.shape!r}, {elements!r})"


def _reproduces(value: Any) -> bool:
    """True if the numerals of the elements stand for the same bits."""
    if value.dtype.kind != "f":
        return True
    numbers = [float(str(item)) for item in value.reshape(-1)]
    return bool(np.array(numbers, value.dtype).tobytes() == value.tobytes())


def _number_text(value: Any) -> str:
    dtype = f"np.{value.dtype.name}"
    if isinstance(value, np.generic):
        return f"{dtype.replace('np.bool', 'np.bool_')}({_numeral(value)})"
    if not value.size:
        return f"np.zeros({value.shape!r}, {dtype})"
    return f"np.array({_nested(value)}, {dtype})"


def _nested(value: Any) -> str:
    if value.ndim == 0:
        return _numeral(value)
    return "[" + ", ".join(map(_nested, value)) + "]"


def _numeral(value: Any) -> str:
    return _SPECIAL.sub(r"np.\1", str(value))


def raw(dtype: str, shape: tuple[int, ...] | None, data: bytes) -> Any:
    """The array of a type and shape from its bytes; without a shape, a scalar."""
    array = np.frombuffer(data, DType.from_name(dtype).numpy)
    return array[0] if shape is None else array.reshape(shape)


def strings(shape: tuple[int, ...], elements: list[bytes]) -> Any:
    """An array of byte strings, from its shape and its elements in order."""
    array = np.empty(len(elements), object)
    array[:] = elements
    return array.reshape(shape)
