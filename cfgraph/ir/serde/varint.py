"""Varints: numbers in seven-bit groups, the lowest group first."""

from __future__ import annotations

from typing import Final

# bytes of the longest one: 64 bits
MAX_VARINT_BYTES: Final = 10


def read_varint(data: bytes, start: int, end: int) -> tuple[int, int]:
    """A number and where it ends. Raises ValueError where it does not before `end`."""
    value = shift = 0
    for byte in data[start : min(start + MAX_VARINT_BYTES, end)]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, start + shift // 7
    message = "a number has no end"
    raise ValueError(message)


def read_varints(data: bytes, count: int) -> tuple[list[int], int]:
    """So many numbers from the beginning, and where they end. Raises ValueError as `varint`."""
    found, place = [], 0
    for _ in range(count):
        number, place = read_varint(data, place, len(data))
        found.append(number)
    return found, place
