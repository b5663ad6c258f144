"""Attribute values read from the readable form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cfgraph.errors import InvalidInput
from cfgraph.ir.attrs import Func, Placeholder, Tensor
from cfgraph.ir.dtypes import DType
from cfgraph.ir.serde_attrs import attr_from_data
from cfgraph.ir.shapes import Shape
from cfgraph.ir.text_lex import Line
from cfgraph.ir.text_parse_scalars import (
    FLOAT_TEXT,
    INT64,
    INT_TEXT,
    parse_int,
    parse_raw,
    single,
)
from cfgraph.ir.text_parse_tensors import is_shape_of_tensor, parse_tensor

# a file nests messages a hundred deep, three for each function in a function's attributes
_MAX_DEPTH: Final = 32
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
    if INT_TEXT(token):
        return parse_int(line, INT64)
    if FLOAT_TEXT(token):
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
        if line.token[:1].isalpha():
            raise line.error("the size of a shape was expected (a list is written (int32, int64))")
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
    if line.token != "[":
        return dtype
    start = line.place
    shape = _shape(line, 0)
    if not is_shape_of_tensor(shape):
        line.place = start
        raise line.error("the known shape of a tensor was expected")
    return parse_tensor(line, dtype, shape)


_CONSTANTS: Final[dict[str, bool]] = {"true": True, "false": False}
_SPECIAL: Final[dict[str, Callable[[Line, int], Any]]] = {
    '"': _string,
    "(": _list,
    "[": _shape,
    "?": _unknown_shape,
    "@": _func,
    "$": _placeholder,
}
