"""Parser of attribute values, constant tensors, and full types in the text format."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np

from cfgraph.ir.attrs import AttrPlaceholder, Func, TensorValue
from cfgraph.ir.dtypes import DType, string
from cfgraph.ir.serde.attrs import FullType, attr_from_bytes, encode_full_type
from cfgraph.ir.serde.tensor import MAX_ELEMENTS, MAX_RANK, TensorLayout, tensor_from_layout
from cfgraph.ir.shapes import Shape
from cfgraph.ir.text.lexer import INT64_RANGE, INT_LITERAL, LineReader

# the range of the widest types; the tensor's own range is checked afterwards
_INT_LITERAL_RANGE: Final = range(-(1 << 63), 1 << 64)
_DTYPE_NUMBER_RANGE: Final = range(1 << 31)
# protobuf parses 100 levels of messages, three per function in a function's attributes
_MAX_DEPTH: Final = 32
# more than a file can contain
_MAX_TYPE_DEPTH: Final = 100

_FLOAT_PATTERN: Final = r"(?:inf|nan|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
_FLOAT_LITERAL: Final = re.compile(rf"[+-]?{_FLOAT_PATTERN}").fullmatch
_COMPLEX_LITERAL: Final = re.compile(
    rf"([+-]?{_FLOAT_PATTERN})(?:([+-]{_FLOAT_PATTERN})j)?"
).fullmatch
_BOOL_LITERALS: Final = {"true": True, "false": False}


def parse_attrs(line: LineReader, depth: int = 0) -> dict[str, Any]:
    """Read attributes in braces."""
    attrs: dict[str, Any] = {}
    for _ in line.items("{", "}"):
        key = line.name("the name of an attribute")
        if key in attrs:
            raise line.error(f"the attribute {key!r} is set twice")
        line.expect("=")
        attrs[key] = parse_value(line, depth)
    return attrs


def parse_value(line: LineReader, depth: int = 0) -> Any:
    """Read one value."""
    if depth > _MAX_DEPTH:
        raise line.error(f"no more than {_MAX_DEPTH} levels of nesting were expected")
    token = line.token
    special = _VALUE_PARSERS.get(token[:1])
    if special is not None:
        return special(line, depth)
    if token == "raw":
        with line.expecting("an attribute that can be decoded was", line.index):
            return attr_from_bytes(line.raw())
    if INT_LITERAL(token):
        return line.integer(INT64_RANGE)
    if token in _BOOL_LITERALS:
        line.index += 1
        return _BOOL_LITERALS[token]
    if _FLOAT_LITERAL(token):
        line.index += 1
        return _round_to_float32(float(token))
    dtype = parse_dtype(line)
    return _parse_tensor(line, dtype) if line.token == "[" else dtype


def _round_to_float32(value: float) -> float:
    """Round to single precision, as stored in a file."""
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded


def parse_dtype(line: LineReader) -> DType:
    """Read the name of an element type."""
    start, is_ref = line.index, line.token == "Ref" and line.following == "("
    line.index += 2 * is_ref
    try:
        dtype = DType.from_name(line.token)
    except (KeyError, ValueError):
        line.index = start
        raise line.error("a value was expected") from None
    if dtype.number not in _DTYPE_NUMBER_RANGE:
        line.index = start
        raise line.error("the number of a type was expected")
    line.index += 1
    if is_ref:
        line.expect(")")
    return dtype.ref if is_ref else dtype


def _parse_string(line: LineReader, depth: int) -> bytes:
    return line.data("a string")


def _parse_list(line: LineReader, depth: int) -> tuple[Any, ...]:
    line.expect("(")
    items: list[Any] = []
    while not line.accept(")"):
        if items and not line.accept(","):
            raise line.error("',' or ')' was expected")
        if items and line.accept(")"):
            break
        if line.token[:1] in ("$", "(") or line.token == "raw":
            raise line.error("an element of a list was expected")
        items.append(parse_value(line, depth))
        if type(items[-1]) is not type(items[0]):
            line.index -= 1
            raise line.error("an element of the same kind was expected")
    return tuple(items)


def _parse_shape(line: LineReader, depth: int = 0) -> Shape:
    sizes: list[int | None] = []
    names: list[str] = []
    for _ in line.items("[", "]"):
        named = line.following == "="
        names.append(line.name("the name of a dimension") if named else "")
        if named:
            line.expect("=")
        if line.token[:1].isalpha():
            raise line.error("the size of a shape was expected (a list is written (int32, int64))")
        sizes.append(None if line.accept("?") else line.integer(range(1 << 63)))
    return Shape(sizes, names) if any(names) else Shape(sizes)


def _parse_unknown_shape(line: LineReader, depth: int) -> Shape:
    line.expect("?")
    return Shape(None)


def _parse_func(line: LineReader, depth: int) -> Func:
    line.expect("@")
    name = line.name("the name of a function")
    return Func(name, parse_attrs(line, depth + 1) if line.token == "{" else {})


def _parse_placeholder(line: LineReader, depth: int) -> AttrPlaceholder:
    line.expect("$")
    return AttrPlaceholder(line.name("the name of an attribute"))


_VALUE_PARSERS: Final[dict[str, Callable[[LineReader, int], Any]]] = {
    '"': _parse_string,
    "(": _parse_list,
    "[": _parse_shape,
    "?": _parse_unknown_shape,
    "@": _parse_func,
    "$": _parse_placeholder,
}


def _parse_tensor(line: LineReader, dtype: DType) -> TensorValue:
    """Read the shape and the elements of a tensor, after its type."""
    start, shape = line.index, _parse_shape(line)
    if not shape.is_full or shape.names or len(tuple(shape)) > MAX_RANK:
        line.index = start
        raise line.error("the known shape of a tensor was expected")
    if dtype.is_object and dtype is not string:
        raise line.error(f"no elements were expected: a {dtype} has no text form")
    line.expect(":")
    dims = tuple(int(dim) for dim in shape if dim is not None)
    with line.expecting("the elements of a {}{} were", line.index, dtype, shape):
        return tensor_from_layout(_parse_layout(line, dtype, dims))


def _parse_layout(line: LineReader, dtype: DType, dims: tuple[int, ...]) -> TensorLayout:
    if line.token == "raw":
        return TensorLayout(dtype, dims, "content", line.raw())
    read = partial(_ELEMENT_PARSERS.get(dtype.kind, _parse_float), line)
    if line.token == "(":
        items = [read() for _ in line.items("(", ")")]
        return TensorLayout(dtype, dims, "list", _array_from_items(items, dtype))
    if prod(dims) > MAX_ELEMENTS:
        raise line.error("a tensor with fewer elements was expected")
    items = []
    _parse_nested(line, dims, read, items)
    return TensorLayout(dtype, dims, "dense", _array_from_items(items, dtype).reshape(dims))


def _parse_nested(
    line: LineReader, dims: tuple[int, ...], read: Callable[[], Any], items: list[Any]
) -> None:
    if not dims:
        items.append(read())
        return
    line.expect("[")
    for index in range(dims[0]):
        if index:
            line.expect(",")
        _parse_nested(line, dims[1:], read, items)
    line.expect("]")


def _parse_bool(line: LineReader) -> bool:
    token = line.token
    if token not in _BOOL_LITERALS:
        raise line.error("true or false was expected")
    line.index += 1
    return _BOOL_LITERALS[token]


def _parse_float(line: LineReader) -> float:
    token = line.token
    if not _FLOAT_LITERAL(token):
        raise line.error("a number was expected")
    line.index += 1
    return float(token)


def _parse_complex(line: LineReader) -> tuple[float, float]:
    match = _COMPLEX_LITERAL(line.token)
    if match is None:
        raise line.error("a number such as 1.0+2.0j was expected")
    line.index += 1
    return float(match[1]), float(match[2] or 0)


_parse_int: Final = partial(LineReader.integer, allowed=_INT_LITERAL_RANGE)
_ELEMENT_PARSERS: Final[dict[str, Callable[[LineReader], Any]]] = {
    "string": partial(LineReader.data, what="a string"),
    "bool": _parse_bool,
    "int": _parse_int,
    "uint": _parse_int,
    "complex": _parse_complex,
}


def _array_from_items(items: list[Any], dtype: DType) -> Any:
    if dtype.is_object:
        flat = np.empty(len(items), object)
        flat[:] = items
        return flat
    if dtype.kind == "bool":
        return np.array(items, bool)
    if dtype.kind in ("int", "uint"):
        return _array_from_ints(items, dtype)
    with np.errstate(all="ignore"):
        if dtype.is_complex:
            component = np.float32 if dtype.numpy.itemsize == 8 else np.float64
            return np.array(items, np.float64).reshape(-1).astype(component).view(dtype.numpy)
        return np.array(items, np.float64).astype(dtype.numpy)


def _array_from_ints(items: list[int], dtype: DType) -> Any:
    wide = np.array(items, np.int64 if dtype.kind == "int" else np.uint64)
    narrow = wide.astype(dtype.numpy)
    if narrow.astype(wide.dtype).tolist() != items:
        message = f"an element is out of the range of {dtype}"
        raise ValueError(message)
    return narrow


def parse_full_type(line: LineReader) -> FullType:
    """Read a full type."""
    start = line.index
    full = _parse_type_tree(line, 0)
    try:
        encode_full_type(full)
    except ValueError:
        line.index = start
        raise line.error("a full type such as product[tensor[float]] was expected") from None
    return full


def _parse_type_tree(line: LineReader, depth: int) -> FullType:
    if depth > _MAX_TYPE_DEPTH:
        raise line.error(f"no more than {_MAX_TYPE_DEPTH} levels of nesting were expected")
    kind = line.name("the kind of a full type")
    value: str | int | None = None
    if line.token[:1] == '"':
        value = line.string("the name in a full type")
    elif line.accept("="):
        value = line.integer(INT64_RANGE)
    args: list[FullType] = []
    if line.token == "[":
        args = [_parse_type_tree(line, depth + 1) for _ in line.items("[", "]")]
        if not args:
            raise line.error("the kind of a full type was expected")
    return FullType(kind, tuple(args), value)
