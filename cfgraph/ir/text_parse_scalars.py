"""Numbers and bytes read from the readable form."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from typing import Final

from cfgraph.ir.text_lex import Line

INT64: Final = range(-(1 << 63), 1 << 63)
_MAX_DIGITS: Final = 20
_FLOAT: Final = r"(?:inf|nan|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
INT_TEXT: Final = re.compile(r"[+-]?\d+").fullmatch
FLOAT_TEXT: Final = re.compile(rf"[+-]?{_FLOAT}").fullmatch
COMPLEX_TEXT: Final = re.compile(rf"([+-]?{_FLOAT})(?:([+-]{_FLOAT})j)?").fullmatch


def parse_int(line: Line, allowed: range) -> int:
    """Read an integer of a range."""
    token = line.token
    if not INT_TEXT(token):
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


def single(value: float) -> float:
    """The nearest number of single precision, which is what a file holds."""
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded
