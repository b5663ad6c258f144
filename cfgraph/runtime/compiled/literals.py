"""Python source text of values, which it reproduces bit by bit, and names of variables.

A name is derived from the name of a node. It has ASCII letters, digits, and underscores only,
starts with a letter, and is no keyword, no builtin, and no other name of the file, so that a graph
cannot change the meaning of the source.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from cfgraph.ir.attrs import repeated_element
from cfgraph.ir.dtypes import DType

# a numeral of a complex number may lose the sign of a zero
_NUMBERS: Final = "biuf"
_SPECIAL: Final = re.compile(r"\b(nan|inf)\b")


def literal(value: Any) -> str | None:
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
        return f"np.broadcast_to({literal(repeated)}, {value.shape!r})"
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


_MAX_LENGTH: Final = 40
_NO_NAME: Final = re.compile(r"[^a-z0-9]+")
_WORD_START: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", re.ASCII)
_RESERVED: Final = frozenset({*keyword.kwlist, *keyword.softkwlist, *dir(builtins)})
# the counters of loops
_COUNTER: Final = re.compile(r"i\d+")


class Identifiers:
    """The names of one file; each is used once."""

    def __init__(self, reserved: Iterable[str]) -> None:
        self._reserved = _RESERVED | frozenset(reserved)
        self._suffixes: dict[str, int] = {}
        self._used: set[str] = set()

    def unique(self, text: str) -> str:
        """An unused name like a text."""
        base = snake_case(text)
        name, suffix = base, self._suffixes.get(base, 1)
        while name in self._reserved or name in self._used or _COUNTER.fullmatch(name):
            suffix += 1
            name = f"{base}_{suffix}"
        self._suffixes[base] = suffix
        self._used.add(name)
        return name


def snake_case(text: str) -> str:
    """A text in lower case, with an underscore for each run of other characters."""
    words = _WORD_START.sub("_", text[: 2 * _MAX_LENGTH])
    name = _NO_NAME.sub("_", words.lower()).strip("_")[:_MAX_LENGTH].strip("_")
    if not name:
        return "value"
    return name if name[0].isalpha() else f"v_{name}"
