"""Formatting and parsing of numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.names import decode_text
from cfgraph.ops.families.strings import ASCII_WHITESPACE, string_array
from cfgraph.ops.opdef.op import OpError, SameShape

_FILLS = b" +-0#"
_INTEGER = re.compile(rb"[+-]?[0-9]+")
_UNSIGNED = re.compile(rb"\+?[0-9]+")
_DECIMAL = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_HEXADECIMAL = re.compile(
    rb"[+-]?0x([0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(p[+-]?[0-9]+)?", re.IGNORECASE
)
_SPECIAL = re.compile(rb"([+-]?)(inf(?:inity)?|nan)(?:(?<=nan)\([0-9a-z_]*\))?", re.IGNORECASE)


def number_writer(node: Node) -> Callable[[Any], bytes]:
    """The function that formats one element. Raises OpError for invalid attributes."""
    dtype: DType = node.attr("T")
    check_number_format(node, dtype)
    if dtype.kind == "bool":
        return lambda value: b"true" if value else b"false"
    width, fill = max(node.attr("width"), 0), decode_text(node.attr("fill"))
    if dtype.kind == "string":
        if fill == "-":
            return lambda value: bytes(value).ljust(width)
        return lambda value: bytes(value).rjust(width)
    size = str(width) if width else ""
    if dtype.is_integer:
        return lambda value: (f"%{fill}{size}d" % value).encode()
    precision = f".{node.attr('precision')}" if node.attr("precision") >= 0 else ""
    letter = "e" if node.attr("scientific") else "g" if node.attr("shortest") else "f"
    spec = f"%{fill}{size}{precision}{letter}"
    if dtype.is_complex:
        return lambda value: (
            b"(%b,%b)"
            % (
                format_float(spec, fill, width, value.real),
                format_float(spec, fill, width, value.imag),
            )
        )
    return lambda value: format_float(spec, fill, width, value)


class AsString(SameShape):
    """Decimal representation of each element, as formatted by C's printf."""

    signature = "input: T -> output: string"
    attrs = (
        "T: {float32, float64, int32, uint8, int16, int8, int64, bfloat16, uint16, float16, "
        "uint32, uint64, complex64, complex128, bool, variant, string}, precision: int = -1, "
        "scientific: bool = false, shortest: bool = false, width: int = -1, fill: string = ''"
    )
    writer = number_writer

    @staticmethod
    def kernel(xp: ModuleType, writer: Any, /, values: Any) -> Any:
        elements = np.asarray(values)
        return string_array(map(writer, elements.ravel().tolist()), elements.shape)


def check_number_format(node: Node, dtype: DType) -> None:
    """Raise OpError for format attributes that do not fit the dtype."""
    fill, numeric = node.attr("fill"), dtype.is_floating or dtype.is_complex
    message = ""
    if node.attr("scientific") and node.attr("shortest"):
        message = "Cannot select both scientific and shortest notation"
    elif len(fill) > 1:
        message = "Fill string must be one or fewer characters"
    elif fill and fill not in _FILLS:
        message = f'Fill argument not supported: "{fill.decode(errors="replace")}"'
    elif dtype.kind == "variant":
        message = "variants cannot be written as strings"
    elif not numeric and dtype.kind != "string":
        if node.attr("precision") >= 0:
            message = f"precision not supported for datatype {dtype.name}"
        elif node.attr("scientific") or node.attr("shortest"):
            message = f"scientific and shortest format not supported for datatype {dtype.name}"
    if message:
        raise OpError(message)


def format_float(spec: str, fill: str, width: int, value: float) -> bytes:
    """Format one number as in C; Python would zero-pad infinities and drop the sign of NaN."""
    if math.isfinite(value):
        return (spec % value).encode()
    text = "nan" if math.isnan(value) else "inf"
    if math.copysign(1, value) < 0:
        text = "-" + text
    elif fill in ("+", " ") and fill:
        text = fill + text
    return (text.ljust(width) if fill == "-" else text.rjust(width)).encode()


class StringToNumber(SameShape):
    """Number parsed from each string."""

    signature = "string_tensor: string -> output: out_type"
    attrs = "out_type: {float32, float64, int32, int64, uint32, uint64} = float32"

    @staticmethod
    def kernel(xp: ModuleType, out_type: DType, /, texts: Any) -> Any:
        read = parse_float if out_type.is_floating else integer_parser(out_type)
        values = [parse_number(read, text) for text in texts.ravel().tolist()]
        return np.array(values, out_type.numpy).reshape(texts.shape)


def parse_number(read: Callable[[bytes], Any], text: bytes) -> Any:
    """Parse one string as a number. Raises OpError if it is invalid."""
    value = read(text.strip(ASCII_WHITESPACE))
    if value is None:
        shown = text.decode(errors="replace")
        raise OpError(f"StringToNumberOp could not correctly convert string: {shown}")
    return value


def parse_float(text: bytes) -> float | None:
    """Parse a floating-point number as C does, or return None if it is invalid."""
    if _DECIMAL.fullmatch(text):
        return float(text)
    if _HEXADECIMAL.fullmatch(text):
        return float.fromhex(text.decode())
    special = _SPECIAL.fullmatch(text)
    return float((special[1] + special[2]).decode()) if special else None


def integer_parser(dtype: DType) -> Callable[[bytes], int | None]:
    """A parser for integers of a dtype, which returns None for invalid or out-of-range text."""
    pattern = _INTEGER if dtype.kind == "int" else _UNSIGNED
    limits = np.iinfo(dtype.numpy)
    low, high = int(limits.min), int(limits.max)

    def read(text: bytes) -> int | None:
        if not pattern.fullmatch(text):
            return None
        value = int(text)
        return value if low <= value <= high else None

    return read
