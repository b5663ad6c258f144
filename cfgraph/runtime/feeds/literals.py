"""Arrays from JSON literals, and conversion of arrays to a dtype and shape without loss."""

from __future__ import annotations

import json
import math
import re
from itertools import chain
from typing import Any, Final

import numpy as np

from cfgraph.errors import UsageError
from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType
from cfgraph.ir.names import did_you_mean
from cfgraph.ir.shapes import Shape
from cfgraph.runtime.feeds.grammar import GENERATORS


def fit_dtype(array: Any, dtype: DType) -> Any:
    """An array as one of type `dtype`: rounding to fewer digits is all that may happen to it.

    Raises UsageError where a value would overflow, lose its fraction or change its meaning.
    """
    have, want = array.dtype, dtype.numpy
    if dtype.is_object or have.kind in "SUO":
        return _fit_strings(array, dtype)
    if have == want:
        return array
    if have.kind == "V" and have.names is None and have.itemsize == want.itemsize:
        return array.view(want)  # how .npy files hold bfloat16 and float8
    source = _dtype_kind(have)
    if source == dtype.kind == "bool":
        return array.astype(want)
    if source not in _SOURCES.get(dtype.kind, ()):
        raise UsageError(f"the value has type {have.name}, {dtype} is wanted", code="CFG034")
    if dtype.is_integer:
        return _fit_integers(array, dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        fitted = array.astype(want)
    lost = np.isfinite(array) & ~np.isfinite(fitted)
    if lost.any():
        value = array[lost].flat[0]
        raise UsageError(f"{value} is beyond the range of {dtype}", code="CFG034")
    if (np.isinf(array) & ~np.isinf(fitted)).any():
        raise UsageError(f"{dtype} has no infinity", code="CFG034")
    return fitted


_SOURCES: Final = {
    "int": ("int", "float"),
    "uint": ("int", "float"),
    "float": ("int", "float"),
    "complex": ("int", "float", "complex"),
}


def _dtype_kind(dtype: Any) -> str:
    try:
        kind = DType.from_numpy(dtype).kind
    except TypeError:
        return "none"
    return "int" if kind == "uint" else kind


def _fit_integers(array: Any, dtype: DType) -> Any:
    if _dtype_kind(array.dtype) == "float":
        array = array.astype(np.float64)
        if (bad := ~(array == np.trunc(array)) | np.isinf(array)).any():
            raise UsageError(f"{array[bad].flat[0]} is no {dtype}", code="CFG034")
    if array.size:
        low, high = integer_limits(dtype)
        for value in (int(array.min()), int(array.max())):
            if not low <= value <= high:
                raise out_of_range_error(value, dtype)
    return array.astype(dtype.numpy)


def _fit_strings(array: Any, dtype: DType) -> Any:
    if dtype is not dtypes.string:
        raise UsageError(f"{_describe_elements(array)}, {dtype} is wanted", code="CFG034")
    if array.dtype.kind not in "SUO":
        message = f"the value has type {array.dtype.name}, {dtype} is wanted"
        raise UsageError(message, code="CFG034")
    made = np.empty(array.shape, object)
    items = (item.encode() if isinstance(item, str) else bytes(item) for item in array.flat)
    made.reshape(-1)[:] = list(items)
    return made


def _describe_elements(array: Any) -> str:
    """What there is instead of numbers."""
    items = array.flat if array.dtype.kind == "O" else ()
    strange = next((item for item in items if not isinstance(item, str | bytes)), "")
    if strange is None:
        return "the value is None" if array.ndim == 0 else "the value has None in it"
    return "the value has strings" if strange == "" else f"the value is a {type(strange).__name__}"


def check_shape(shape: tuple[int, ...], wanted: Shape) -> None:
    """Raise UsageError, naming the dimension, where a value does not have the wanted shape."""
    if wanted.accepts(shape):
        return
    assert wanted.dims is not None
    both = f"(expected {wanted}, got {Shape(shape)})"
    if len(shape) != len(wanted.dims):
        message = f"the rank is {len(shape)}, expected {len(wanted.dims)} {both}"
        raise UsageError(message, code="CFG035")
    place = next(
        place
        for place, (have, want) in enumerate(zip(shape, wanted.dims, strict=True))
        if want not in (None, have)
    )
    message = f"dimension {place} is {shape[place]}, expected {wanted.dims[place]} {both}"
    raise UsageError(message, code="CFG035")


def integer_limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    if dtype.numpy.kind in "iu":
        info = np.iinfo(dtype.numpy)
        return int(info.min), int(info.max)
    bits = int("".join(filter(str.isdigit, dtype.name)))  # int4 and the like, from ml_dtypes
    return (0, 2**bits - 1) if dtype.kind == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def out_of_range_error(value: int, dtype: DType) -> UsageError:
    """The error of an integer that its type cannot hold."""
    low, high = integer_limits(dtype)
    return UsageError(f"{value} is out of range for {dtype} ({low} to {high})", code="CFG034")


MAX_RANK: Final = 32
_NON_FINITE: Final = re.compile(r"\b(nan|inf|infinity)\b", re.IGNORECASE)
_COMPLEX_WORD: Final = re.compile(r'"[^"]*"|[^\s\[\],"]+')


_TYPE_ALONE: Final = re.compile(r"[A-Za-z_]\w*\[[^\]]*\]\Z")
_WORD: Final = re.compile(r"([a-z]+)(?:\(.*\))?\Z")


def parse_literal(text: str, dtype: DType | None) -> Any:
    """The array of a JSON text, of type `dtype` or of the type that the text suggests.

    Raises UsageError where the text is no JSON, the lists are ragged or a value does not fit.
    """
    flat, sizes = _flatten(_parse(text, dtype))
    dtype = dtype or _inferred_dtype(flat)
    return _pack(flat, dtype).reshape(sizes)


def _parse(text: str, dtype: DType | None) -> Any:
    if dtype is not None and dtype.is_complex:
        text = _COMPLEX_WORD.sub(lambda word: json.dumps(word[0].strip('"')), text)
    try:
        return json.loads(text, parse_float=_finite)
    except RecursionError:
        raise UsageError("the lists are nested too deeply", code="CFG033") from None
    except json.JSONDecodeError as error:
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        message = f"cannot read the value {shown!r}: {error.msg.lower()} at character {error.pos}"
        hint = "write JSON, as in 3.5, true or [[1,2],[3,4]]; or @x.npy; or f32[2,3]:zeros"
        if _NON_FINITE.search(text):
            hint = "write NaN, Infinity or -Infinity"
        elif typed := _TYPE_ALONE.match(text):
            hint = f"say what it holds, as in {typed[0]}:zeros"
        elif word := _WORD.match(text):
            hint = did_you_mean(word[1], GENERATORS) or f"{hint}, {', '.join(GENERATORS[1:])}"
        if dtype is dtypes.string:
            hint = f"quote a string: {json.dumps(text)}"
        raise UsageError(message, hint=hint, code="CFG033") from None
    except ValueError as error:
        raise UsageError(f"cannot read the value: {error}", code="CFG033") from None


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        message = f"{text} is beyond the range of float64"
        raise ValueError(message)
    return value


def _flatten(value: Any) -> tuple[list[Any], tuple[int, ...]]:
    """All elements in order, and the sizes of the nested lists."""
    level: list[Any] = [value]
    sizes: list[int] = []
    while isinstance(level[0], list):
        if len(sizes) == MAX_RANK:
            message = f"the lists are nested more than {MAX_RANK} deep"
            raise UsageError(message, code="CFG033")
        lengths = {len(item) if isinstance(item, list) else -1 for item in level}
        if len(lengths) > 1:
            raise _ragged(len(sizes), lengths)
        sizes.append(len(level[0]))
        level = list(chain.from_iterable(level))
        if not level:
            break
    if any(isinstance(item, list) for item in level):
        raise _ragged(len(sizes), {-1, -2})
    return level, tuple(sizes)


def _ragged(depth: int, lengths: set[int]) -> UsageError:
    if min(lengths) < 0:
        what = "lists and single values are mixed"
    else:
        what = f"lists of {' and '.join(str(length) for length in sorted(lengths)[:2])} elements"
    return UsageError(f"the value is ragged: {what} at depth {depth}", code="CFG033")


def _inferred_dtype(flat: list[Any]) -> DType:
    """The type that TensorFlow gives to such Python values."""
    kinds = {type(item) for item in flat}
    if kinds <= {bool} and kinds:
        return dtypes.bool_
    if kinds <= {str} and kinds:
        return dtypes.string
    if kinds <= {int} and kinds:
        small = all(-(2**31) <= item < 2**31 for item in flat)
        return dtypes.int32 if small else dtypes.int64
    return dtypes.float32


def _pack(flat: list[Any], dtype: DType) -> Any:
    kinds = {type(item) for item in flat}
    wanted = _ACCEPTED_TYPES.get(dtype.kind)
    if wanted is None:
        raise UsageError(f"tensors of type {dtype} cannot be written out", code="CFG034")
    if strange := kinds - wanted:
        odd = next(item for item in flat if type(item) in strange)
        raise UsageError(f"{_show(odd)} is no {dtype}", hint=_HINTS.get(dtype.kind), code="CFG034")
    if dtype.kind == "string":
        return _strings(flat)
    if dtype.kind == "bool":
        return np.array(flat, np.bool_)
    if dtype.is_complex:
        return fit_dtype(np.array([_complex(item) for item in flat], np.complex128), dtype)
    if dtype.is_integer:
        return _integers(flat, dtype)
    try:
        return fit_dtype(np.array([float(item) for item in flat], np.float64), dtype)
    except OverflowError:
        raise UsageError(f"a value is beyond the range of {dtype}", code="CFG034") from None


_NUMBERS: Final[set[type]] = {int, float}
_ACCEPTED_TYPES: Final[dict[str, set[type]]] = {
    "bool": {bool},
    "string": {str},
    "int": _NUMBERS,
    "uint": _NUMBERS,
    "float": _NUMBERS,
    "complex": {str},
}
_HINTS: Final = {"bool": "write true or false", "string": 'write strings in quotes: "text"'}


def _show(value: Any) -> str:
    return json.dumps(value) if not isinstance(value, dict) else "an object"


def _strings(flat: list[str]) -> Any:
    array = np.empty(len(flat), object)
    try:
        array[:] = [item.encode() for item in flat]
    except UnicodeEncodeError:
        raise UsageError("a string holds half a surrogate pair", code="CFG034") from None
    return array


def _complex(text: str) -> complex:
    try:
        return complex(_WORDS.get(text, text))
    except ValueError:
        raise UsageError(
            f"{text!r} is no complex number", hint="as in 1+2j", code="CFG034"
        ) from None


_WORDS: Final = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}


def _integers(flat: list[Any], dtype: DType) -> Any:
    low, high = integer_limits(dtype)
    for item in flat:
        if isinstance(item, float) and not item.is_integer():
            raise UsageError(f"{_show(item)} is no {dtype}", code="CFG034")
        if not low <= item <= high:
            raise out_of_range_error(int(item), dtype)
    return np.array([int(item) for item in flat], _wide(dtype)).astype(dtype.numpy)


def _wide(dtype: DType) -> Any:
    return np.uint64 if dtype.kind == "uint" else np.int64
