"""Parser of attribute values and constant tensors in the text format."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final

import numpy as np

from cfgraph.ir.attrs import AttrPlaceholder, Func, TensorValue
from cfgraph.ir.dtypes import DType, string
from cfgraph.ir.serde.attrs import attr_from_bytes
from cfgraph.ir.serde.tensor import MAX_ELEMENTS, MAX_RANK, TensorLayout, tensor_from_layout
from cfgraph.ir.shapes import Shape
from cfgraph.ir.text.lexer import (
    COMPLEX_LITERAL,
    FLOAT_LITERAL,
    INT64_RANGE,
    INT_LITERAL,
    LineReader,
    parse_int,
    parse_raw,
    round_to_float32,
)

# the range of the widest types; the tensor's own range is checked afterwards
_INT_LITERAL_RANGE: Final = range(-(1 << 63), 1 << 64)


def _is_tensor_shape(shape: Shape) -> bool:
    """True if a tensor can have this shape."""
    return shape.is_full and not shape.names and len(tuple(shape)) <= MAX_RANK


def _parse_tensor_elements(line: LineReader, dtype: DType, shape: Shape) -> TensorValue:
    """Read the elements of a tensor, after its type and shape."""
    if dtype.is_object and dtype is not string:
        raise line.error(f"no elements were expected: a {dtype} has no text form")
    line.expect(":")
    dims = tuple(int(dim) for dim in shape if dim is not None)
    with line.expecting("the elements of a {}{} were", line.index, dtype, shape):
        tensor = tensor_from_layout(_parse_layout(line, dtype, dims))
        tensor.check()
    return tensor


def _parse_layout(line: LineReader, dtype: DType, dims: tuple[int, ...]) -> TensorLayout:
    if line.token == "raw":
        data = parse_raw(line)
        return TensorLayout(dtype, dims, "content", data)
    read = _element_reader(line, dtype)
    if line.token == "(":
        flat = [read() for _ in line.items("(", ")")]
        return TensorLayout(dtype, dims, "list", _array_from_items(flat, dtype))
    if prod(dims) > MAX_ELEMENTS:
        raise line.error("a tensor with fewer elements was expected")
    items: list[Any] = []
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


def _element_reader(line: LineReader, dtype: DType) -> Callable[[], Any]:
    kind = dtype.kind
    if kind == "string":
        return lambda: line.data("a string")
    if kind == "bool":
        return lambda: _parse_bool(line)
    if kind in ("int", "uint"):
        return lambda: parse_int(line, _INT_LITERAL_RANGE)
    if kind == "complex":
        return lambda: _parse_complex(line)
    return lambda: _parse_float(line)


def _parse_bool(line: LineReader) -> bool:
    if line.token not in ("true", "false"):
        raise line.error("true or false was expected")
    return line.next() == "true"


def _parse_float(line: LineReader) -> float:
    if not FLOAT_LITERAL(line.token):
        raise line.error("a number was expected")
    return float(line.next())


def _parse_complex(line: LineReader) -> tuple[float, float]:
    match = COMPLEX_LITERAL(line.token)
    if match is None:
        raise line.error("a number such as 1.0+2.0j was expected")
    line.next()
    return float(match[1]), float(match[2] or 0)


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


# protobuf parses 100 levels of messages, three per function in a function's attributes
_MAX_DEPTH: Final = 32
_DTYPE_NUMBER_RANGE: Final = range(1 << 31)


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
    if token in _BOOL_LITERALS:
        line.next()
        return _BOOL_LITERALS[token]
    if token == "raw":
        return _parse_raw_value(line)
    if INT_LITERAL(token):
        return parse_int(line, INT64_RANGE)
    if FLOAT_LITERAL(token):
        line.next()
        return round_to_float32(float(token))
    return _parse_dtype_or_tensor(line)


def _parse_raw_value(line: LineReader) -> Any:
    with line.expecting("an attribute that can be decoded was", line.index):
        return attr_from_bytes(parse_raw(line))


def parse_dtype(line: LineReader) -> DType:
    """Read the name of an element type."""
    token = line.token
    name = f"Ref({line.tokens[line.index + 2]})" if token == "Ref" else token
    try:
        dtype = DType.from_name(name)
    except (KeyError, ValueError):
        raise line.error("a value was expected") from None
    if dtype.number not in _DTYPE_NUMBER_RANGE:
        raise line.error("the number of a type was expected")
    line.next()
    if token == "Ref":
        line.expect("(")
        line.next()
        line.expect(")")
    return dtype


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


def _parse_shape(line: LineReader, depth: int) -> Shape:
    sizes: list[int | None] = []
    names: list[str] = []
    for _ in line.items("[", "]"):
        named = line.tokens[line.index + 1 : line.index + 2] == ["="]
        names.append(line.name("the name of a dimension") if named else "")
        if named:
            line.expect("=")
        if line.token[:1].isalpha():
            raise line.error("the size of a shape was expected (a list is written (int32, int64))")
        sizes.append(None if line.accept("?") else parse_int(line, range(1 << 63)))
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


def _parse_dtype_or_tensor(line: LineReader) -> DType | TensorValue:
    dtype = parse_dtype(line)
    if line.token != "[":
        return dtype
    start = line.index
    shape = _parse_shape(line, 0)
    if not _is_tensor_shape(shape):
        line.index = start
        raise line.error("the known shape of a tensor was expected")
    return _parse_tensor_elements(line, dtype, shape)


_BOOL_LITERALS: Final[dict[str, bool]] = {"true": True, "false": False}
_VALUE_PARSERS: Final[dict[str, Callable[[LineReader, int], Any]]] = {
    '"': _parse_string,
    "(": _parse_list,
    "[": _parse_shape,
    "?": _parse_unknown_shape,
    "@": _parse_func,
    "$": _parse_placeholder,
}
