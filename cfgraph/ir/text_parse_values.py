"""Attribute values read from the readable form."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Callable
from math import prod
from typing import Any, Final

import numpy as np

from cfgraph.errors import InvalidInput
from cfgraph.ir.attrs import Func, Placeholder, Tensor
from cfgraph.ir.dtypes import DType, string
from cfgraph.ir.serde_attrs import attr_from_data
from cfgraph.ir.serde_layout import Layout, tensor_of
from cfgraph.ir.serde_tensor import MAX_ELEMENTS
from cfgraph.ir.shapes import Shape
from cfgraph.ir.text_lex import Line

# a file nests messages a hundred deep, three for each function in a function's attributes
_MAX_DEPTH: Final = 32
_MAX_RANK: Final = 64
_INT64: Final = range(-(1 << 63), 1 << 63)
_MAX_DIGITS: Final = 20
_FLOAT: Final = r"[+-]?(?:inf|nan|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
_INT_TEXT: Final = re.compile(r"[+-]?\d+").fullmatch
_FLOAT_TEXT: Final = re.compile(_FLOAT).fullmatch
_COMPLEX_TEXT: Final = re.compile(
    rf"({_FLOAT})(?:([+-]{_FLOAT.removeprefix('[+-]?')})j)?"
).fullmatch
_DTYPE_NUMBERS: Final = range(1 << 31)


def parse_attrs(line: Line, depth: int = 0) -> dict[str, Any]:
    """Read attributes in braces."""
    line.expect("{")
    attrs: dict[str, Any] = {}
    while not line.take("}"):
        if attrs and not line.take(","):
            raise line.error("',' or '}' was expected")
        key = line.name("the name of an attribute")
        if key in attrs:
            raise line.error(f"the attribute {key!r} is given twice")
        line.expect("=")
        attrs[key] = parse_value(line, depth)
    return attrs


def parse_value(line: Line, depth: int = 0) -> Any:
    """Read one value."""
    if depth > _MAX_DEPTH:
        raise line.error(f"no more than {_MAX_DEPTH} levels of nesting")
    token = line.token
    special = _SPECIAL.get(token[:1])
    if special is not None:
        return special(line, depth)
    if token in _CONSTANTS:
        line.next()
        return _CONSTANTS[token]
    if token == "raw":
        return _raw_value(line)
    if _INT_TEXT(token):
        return parse_int(line, _INT64)
    if _FLOAT_TEXT(token):
        line.next()
        return single(float(token))
    return _dtype_or_tensor(line)


def _raw_value(line: Line) -> Any:
    start = line.place
    try:
        return attr_from_data(parse_raw(line))
    except InvalidInput as error:
        if error.code == "CFG004":
            raise
        line.place = start
        raise line.error(f"an attribute that can be decoded was expected ({error})") from None


def single(value: float) -> float:
    """The nearest number of single precision, which is what a file holds."""
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded


def parse_int(line: Line, allowed: range) -> int:
    """Read an integer of a range."""
    token = line.token
    if not _INT_TEXT(token):
        raise line.error("an integer was expected")
    if len(token) > _MAX_DIGITS or int(token) not in allowed:
        raise line.error(f"an integer from {allowed.start} to {allowed.stop - 1} was expected")
    line.next()
    return int(token)


def parse_raw(line: Line) -> bytes:
    """Read bytes in base64: `raw"…"`."""
    line.expect("raw")
    try:
        data = base64.b64decode(line.data("base64 in quotes"), validate=True)
    except binascii.Error:
        line.place -= 1
        raise line.error("base64 was expected") from None
    return data


def parse_dtype(line: Line) -> DType:
    """Read the name of an element type."""
    token = line.token
    name = f"Ref({line.tokens[line.place + 2]})" if token == "Ref" else token
    try:
        dtype = DType.named(name)
    except (KeyError, ValueError):
        raise line.error("a value was expected") from None
    if dtype.number not in _DTYPE_NUMBERS:
        raise line.error("the number of a type was expected")
    line.next()
    if token == "Ref":
        line.expect("(")
        line.next()
        line.expect(")")
    return dtype


def _string(line: Line, depth: int) -> bytes:
    return line.data("a string")


def _list(line: Line, depth: int) -> tuple[Any, ...]:
    line.expect("(")
    items: list[Any] = []
    while not line.take(")"):
        if items and not line.take(","):
            raise line.error("',' or ')' was expected")
        if items and line.take(")"):
            break
        if line.token[:1] in ("$", "(") or line.token == "raw":
            raise line.error("an element of a list was expected")
        items.append(parse_value(line, depth))
        if type(items[-1]) is not type(items[0]):
            line.place -= 1
            raise line.error("elements of one kind were expected")
    return tuple(items)


def _shape(line: Line, depth: int) -> Shape:
    line.expect("[")
    sizes: list[int | None] = []
    names: list[str] = []
    while not line.take("]"):
        if sizes and not line.take(","):
            raise line.error("',' or ']' was expected")
        named = line.tokens[line.place + 1 : line.place + 2] == ["="]
        names.append(line.name("the name of a dimension") if named else "")
        if named:
            line.expect("=")
        sizes.append(None if line.take("?") else parse_int(line, range(1 << 63)))
    return Shape(sizes, names) if any(names) else Shape(sizes)


def _unknown_shape(line: Line, depth: int) -> Shape:
    line.expect("?")
    return Shape(None)


def _func(line: Line, depth: int) -> Func:
    line.expect("@")
    name = line.name("the name of a function")
    return Func(name, parse_attrs(line, depth + 1) if line.token == "{" else {})


def _placeholder(line: Line, depth: int) -> Placeholder:
    line.expect("$")
    return Placeholder(line.name("the name of an attribute"))


def _dtype_or_tensor(line: Line) -> DType | Tensor:
    dtype = parse_dtype(line)
    return _tensor(line, dtype) if line.token == "[" else dtype


def _tensor(line: Line, dtype: DType) -> Tensor:
    if dtype.is_object and dtype is not string:
        raise line.error(f"no elements were expected, for a {dtype} cannot be written")
    start = line.place
    shape = _shape(line, 0)
    if not shape.is_full or shape.dims is None or shape.names or len(shape.dims) > _MAX_RANK:
        line.place = start
        raise line.error("the known shape of a tensor was expected")
    line.expect(":")
    dims = tuple(int(dim) for dim in shape.dims if dim is not None)
    start = line.place
    try:
        layout = _layout(line, dtype, dims)
        tensor = tensor_of(layout)
        tensor.check()
    except (InvalidInput, OverflowError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInput) and error.code == "CFG004":
            raise
        line.place = start
        raise line.error(f"the elements of a {dtype}{shape} were expected ({error})") from None
    return tensor


def _layout(line: Line, dtype: DType, dims: tuple[int, ...]) -> Layout:
    if line.token == "raw":
        data = parse_raw(line)
        return Layout(dtype, dims, "content", data)
    read = _element_reader(line, dtype)
    if line.token == "(":
        return Layout(dtype, dims, "list", _array(_flat(line, read), dtype))
    if prod(dims) > MAX_ELEMENTS:
        raise line.error("a tensor with fewer elements was expected")
    items: list[Any] = []
    _nested(line, dims, read, items)
    return Layout(dtype, dims, "dense", _array(items, dtype).reshape(dims))


def _flat(line: Line, read: Callable[[], Any]) -> list[Any]:
    line.expect("(")
    items: list[Any] = []
    while not line.take(")"):
        if items and not line.take(","):
            raise line.error("',' or ')' was expected")
        items.append(read())
    return items


def _nested(line: Line, dims: tuple[int, ...], read: Callable[[], Any], items: list[Any]) -> None:
    if not dims:
        items.append(read())
        return
    line.expect("[")
    for place in range(dims[0]):
        if place:
            line.expect(",")
        _nested(line, dims[1:], read, items)
    line.expect("]")


def _element_reader(line: Line, dtype: DType) -> Callable[[], Any]:
    kind = dtype.kind
    if kind == "string":
        return lambda: line.data("a string")
    if kind == "bool":
        return lambda: _bool(line)
    if kind in ("int", "uint"):
        return lambda: parse_int(line, range(-(1 << 63), 1 << 64))
    if kind == "complex":
        return lambda: _complex(line)
    return lambda: _float(line)


def _bool(line: Line) -> bool:
    if line.token not in ("true", "false"):
        raise line.error("true or false was expected")
    return line.next() == "true"


def _float(line: Line) -> float:
    if not _FLOAT_TEXT(line.token):
        raise line.error("a number was expected")
    return float(line.next())


def _complex(line: Line) -> tuple[float, float]:
    match = _COMPLEX_TEXT(line.token)
    if match is None:
        raise line.error("a number such as 1.0+2.0j was expected")
    line.next()
    return float(match[1]), float(match[2] or 0)


def _array(items: list[Any], dtype: DType) -> Any:
    if dtype.is_object:
        flat = np.empty(len(items), object)
        flat[:] = items
        return flat
    if dtype.kind == "bool":
        return np.array(items, bool)
    if dtype.kind in ("int", "uint"):
        return _ints(items, dtype)
    with np.errstate(all="ignore"):
        if dtype.is_complex:
            part = np.float32 if dtype.numpy.itemsize == 8 else np.float64
            return np.array(items, np.float64).reshape(-1).astype(part).view(dtype.numpy)
        return np.array(items, np.float64).astype(dtype.numpy)


def _ints(items: list[int], dtype: DType) -> Any:
    wide = np.array(items, np.int64 if dtype.kind == "int" else np.uint64)
    narrow = wide.astype(dtype.numpy)
    if narrow.astype(wide.dtype).tolist() != items:
        message = f"an element is out of the range of {dtype}"
        raise ValueError(message)
    return narrow


_CONSTANTS: Final[dict[str, bool]] = {"true": True, "false": False}
_SPECIAL: Final[dict[str, Callable[[Line, int], Any]]] = {
    '"': _string,
    "(": _list,
    "[": _shape,
    "?": _unknown_shape,
    "@": _func,
    "$": _placeholder,
}
