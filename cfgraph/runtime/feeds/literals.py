"""Arrays from text: JSON literals, and generators, whose arrays are equal in every run."""

from __future__ import annotations

import json
import math
import re
from itertools import chain
from typing import Any, Final
from zlib import crc32

import numpy as np

from cfgraph.errors import UsageError
from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType
from cfgraph.ir.names import did_you_mean
from cfgraph.ir.nested_text import parse_json
from cfgraph.ir.units import format_byte_size
from cfgraph.runtime.feeds.conversion import fit_dtype, integer_limits, out_of_range_error

GENERATORS: Final = ("zeros", "ones", "full", "arange", "uniform", "normal")

MAX_RANK: Final = 32
# characters of a text that an error shows
_MAX_SHOWN: Final = 40
_NON_FINITE: Final = re.compile(r"\b(nan|inf|infinity)\b", re.IGNORECASE)
_COMPLEX_WORD: Final = re.compile(r'"[^"]*"|[^\s\[\],"]+')
_ELEMENT: Final = re.compile(r'("(?:[^"\\]|\\.)*")|[^\s\[\],][^\[\],]*')
_TYPE_ALONE: Final = re.compile(r"[A-Za-z_]\w*\[[^\]]*\]\Z")
_WORD: Final = re.compile(r"([a-z]+)(?:\(.*\))?\Z")


def parse_literal(text: str, dtype: DType | None) -> Any:
    """The array of a JSON text, of `dtype` or of the type that the text suggests.

    Raises UsageError for invalid JSON, ragged lists, and values that do not fit.
    """
    flat, sizes = _flatten(_parse(text, dtype))
    dtype = dtype or _inferred_dtype(flat)
    return _pack(flat, dtype).reshape(sizes)


def _parse(text: str, dtype: DType | None) -> Any:
    if dtype is not None and dtype.is_complex:
        text = _COMPLEX_WORD.sub(lambda word: json.dumps(word[0].strip('"')), text)
    try:
        return parse_json(_strict_json(text), parse_float=_finite)
    except json.JSONDecodeError as error:
        message = (
            f"cannot read the value {_shown(text)!r}: {error.msg.lower()} at character {error.pos}"
        )
        hint = "write JSON, as in 3.5, true or [[1,2],[3,4]]; or @x.npy; or f32[2,3]:zeros"
        if _NON_FINITE.search(text):
            hint = "write NaN, Infinity or -Infinity"
        elif typed := _TYPE_ALONE.match(text):
            hint = f"add a value, as in {typed[0]}:zeros"
        elif word := _WORD.match(text):
            hint = did_you_mean(word[1], GENERATORS) or f"{hint}, {', '.join(GENERATORS[1:])}"
        if dtype is dtypes.string:
            hint = f"quote a string: {_quoted(text)}"
        raise UsageError(message, hint=hint, code="CFG033") from None
    except ValueError as error:
        raise UsageError(f"cannot read the value: {error}", code="CFG033") from None


def _quoted(text: str) -> str:
    """JSON for a string that lacks its quotes, or for a list of some that do."""
    if not (text.startswith("[") and text.endswith("]")):
        return json.dumps(text)
    return _ELEMENT.sub(lambda word: word[1] or json.dumps(word[0].strip("' ")), text)


# how Python and C write numbers and truth, and JSON does not
_LOOSE_FORMS: Final = (
    (re.compile(r"(?<![\w.])\+(?=[\d.])"), ""),  # +1
    (re.compile(r"(?<![\w.])(-?)\.(?=\d)"), r"\g<1>0."),  # .5
    (re.compile(r"(?<=\d)\.(?!\d)"), ".0"),  # 5.
    (re.compile(r"\bTrue\b"), "true"),
    (re.compile(r"\bFalse\b"), "false"),
)
_LOOSE: Final = re.compile("|".join(form.pattern for form, _ in _LOOSE_FORMS))


def _strict_json(text: str) -> str:
    """JSON for numbers or truth values that may be in another notation."""
    if '"' in text or not _LOOSE.search(text):
        return text
    for form, replacement in _LOOSE_FORMS:
        text = form.sub(replacement, text)
    return text


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
        lengths = {len(element) if isinstance(element, list) else -1 for element in level}
        if len(lengths) > 1:
            raise _ragged(len(sizes), lengths)
        sizes.append(len(level[0]))
        level = list(chain.from_iterable(level))
        if not level:
            break
    if any(isinstance(element, list) for element in level):
        raise _ragged(len(sizes), {-1, -2})
    return level, tuple(sizes)


def _ragged(depth: int, lengths: set[int]) -> UsageError:
    if min(lengths) < 0:
        what = "lists and single values are mixed"
    else:
        what = f"lists of {' and '.join(str(length) for length in sorted(lengths)[:2])} elements"
    return UsageError(f"the value is ragged: {what} at depth {depth}", code="CFG033")


def _inferred_dtype(flat: list[Any]) -> DType:
    """The dtype that TensorFlow infers for such Python values."""
    kinds = {type(element) for element in flat}
    if kinds <= {bool} and kinds:
        return dtypes.bool_
    if kinds <= {str} and kinds:
        return dtypes.string
    if kinds <= {int} and kinds:
        small = all(-(2**31) <= element < 2**31 for element in flat)
        return dtypes.int32 if small else dtypes.int64
    return dtypes.float32


def _pack(flat: list[Any], dtype: DType) -> Any:
    kinds = {type(element) for element in flat}
    accepted = _ACCEPTED_TYPES.get(dtype.kind)
    if accepted is None:
        raise UsageError(f"tensors of dtype {dtype} have no literals", code="CFG034")
    if unexpected := kinds - accepted:
        example = next(element for element in flat if type(element) in unexpected)
        raise UsageError(
            f"{_show(example)} is not a valid {dtype}", hint=_HINTS.get(dtype.kind), code="CFG034"
        )
    if dtype.kind == "string":
        return _strings(flat)
    if dtype.kind == "bool":
        return np.array(flat, np.bool_)
    if dtype.is_complex:
        return fit_dtype(np.array([_complex(element) for element in flat], np.complex128), dtype)
    if dtype.is_integer:
        return _integers(flat, dtype)
    try:
        return fit_dtype(np.array([float(element) for element in flat], np.float64), dtype)
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
        array[:] = [element.encode() for element in flat]
    except UnicodeEncodeError:
        raise UsageError("a string contains half of a surrogate pair", code="CFG034") from None
    return array


def _complex(text: str) -> complex:
    try:
        return complex(_WORDS.get(text, text))
    except ValueError:
        raise UsageError(
            f"{text!r} is not a complex number", hint="as in 1+2j", code="CFG034"
        ) from None


_WORDS: Final = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}


def _integers(flat: list[Any], dtype: DType) -> Any:
    low, high = integer_limits(dtype)
    for element in flat:
        if isinstance(element, float) and not element.is_integer():
            raise UsageError(f"{_show(element)} is not a valid {dtype}", code="CFG034")
        if not low <= element <= high:
            raise out_of_range_error(int(element), dtype)
    return np.array([int(element) for element in flat], _wide(dtype)).astype(dtype.numpy)


def _wide(dtype: DType) -> Any:
    return np.uint64 if dtype.kind == "uint" else np.int64


MAX_GENERATED_BYTES: Final = 2 << 30


def generate(
    name: str, arguments: str | None, dtype: DType, sizes: tuple[int, ...], key: str, seed: int
) -> Any:
    """Generate an array; random values depend only on `key` and `seed`.

    Raises UsageError for a dtype that the generator does not support, and for invalid arguments.
    """
    count = math.prod(sizes)
    # NumPy limits the product of all sizes but zeros, also of an array without elements
    space = math.prod(size for size in sizes if size) * dtype.numpy.itemsize
    if max(count * dtype.numpy.itemsize, space >> 32) > MAX_GENERATED_BYTES:
        limit = format_byte_size(MAX_GENERATED_BYTES)
        message = f"{dtype}{list(sizes)} takes more than {limit}, the limit of generated values"
        raise UsageError(message, hint="feed an array of a file: @x.npy", code="CFG033")
    if name == "full":
        return np.broadcast_to(_constant(arguments, dtype), sizes).copy()
    if name == "zeros" and dtype is dtypes.string:
        return np.full(sizes, b"", object)
    if dtype.is_object:
        raise _unsupported(name, dtype)
    numbers = _parse_arguments(name, arguments, dtype)
    bits = np.random.Philox(key=seed % 2**64 | crc32(key.encode()) << 64)
    values = _generate_values(name, numbers, dtype, count, np.random.Generator(bits))
    return values.reshape(sizes)


def _unsupported(name: str, dtype: DType) -> UsageError:
    return UsageError(f"{name} does not support dtype {dtype}", code="CFG034")


def _shown(text: str) -> str:
    """Return the beginning of a long text."""
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _constant(arguments: str | None, dtype: DType) -> Any:
    value = parse_literal(arguments, dtype) if arguments else None
    if value is None or value.ndim:
        takes = "full takes one argument" if value is None else "full takes a single value"
        raise UsageError(takes, hint="as in full(7)", code="CFG033")
    return value


def _parse_arguments(name: str, text: str | None, dtype: DType) -> list[float]:
    """The two numbers that describe random values, or none."""
    try:
        numbers: list[Any] = parse_json(_strict_json(f"[{text or ''}]"))
    except ValueError:
        numbers = [None]
    if any(type(element) not in (int, float) or not math.isfinite(element) for element in numbers):
        raise UsageError(f"{name}({_shown(text or '')}) needs numbers", code="CFG033")
    if name == "normal" and dtype.kind not in ("float", "complex"):
        raise _unsupported(name, dtype)
    if name not in ("uniform", "normal") or dtype.kind == "bool":
        if numbers:
            raise UsageError(f"{name} takes no arguments", code="CFG033")
        return []
    if dtype.is_integer and not numbers:
        hint = f"as in uniform(0,10), which stops before 10; for {dtype}"
        raise UsageError("uniform needs a range for integers", hint=hint, code="CFG033")
    if len(numbers) not in (0, 2):
        hint = f"write {name}(0,1)"
        raise UsageError(f"{name} takes two arguments", hint=hint, code="CFG033")
    return numbers or [0, 1]


def _generate_values(
    name: str, numbers: list[float], dtype: DType, count: int, source: np.random.Generator
) -> Any:
    if name == "zeros":
        return np.zeros(count, dtype.numpy)
    if name == "ones":
        return np.ones(count, np.int8).astype(dtype.numpy)
    if name == "arange":
        return _arange(dtype, count)
    if dtype.kind == "bool":
        return source.random(count) < 0.5
    low, high = numbers
    if name == "normal":
        return fit_dtype(low + high * source.standard_normal(count), dtype)
    if low > high:
        message = f"uniform({low},{high}) is an empty range"
        raise UsageError(message, hint=f"write uniform({high},{low})", code="CFG033")
    if not dtype.is_integer:
        return fit_dtype(low + (high - low) * source.random(count), dtype)
    least, greatest = integer_limits(dtype)
    if low != int(low) or high != int(high) or not least <= low < high <= greatest + 1:
        raise UsageError(f"uniform({low},{high}) is not a range of {dtype}", code="CFG034")
    return source.integers(int(low), int(high), count, _wide(dtype)).astype(dtype.numpy)


def _arange(dtype: DType, count: int) -> Any:
    if dtype.kind == "bool":
        raise _unsupported("arange", dtype)
    if count and dtype.is_integer and count - 1 > integer_limits(dtype)[1]:
        raise UsageError(f"{count - 1} is out of range for {dtype}", code="CFG034")
    return fit_dtype(np.arange(count, dtype=np.int64), dtype)
