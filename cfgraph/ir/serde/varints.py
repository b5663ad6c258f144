"""Numbers in seven-bit groups, as protobuf encodes them."""

from __future__ import annotations

from typing import Final

# the longest varint encodes 64 bits
_MAX_VARINT_BYTES: Final = 10


def read_varint(data: bytes | bytearray, start: int, end: int) -> tuple[int, int]:
    """A number in seven-bit groups, lowest group first, and the offset after it.

    Raises ValueError if it does not end before `end`.
    """
    value = shift = 0
    for byte in data[start : min(start + _MAX_VARINT_BYTES, end)]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, start + shift // 7
    message = "a number is incomplete"
    raise ValueError(message)


def read_varints(data: bytes | bytearray, count: int) -> tuple[list[int], int]:
    """The first `count` numbers and the offset after them. Raises ValueError as `read_varint`."""
    numbers, offset = [], 0
    for _ in range(count):
        number, offset = read_varint(data, offset, len(data))
        numbers.append(number)
    return numbers, offset


def field_end(data: bytes, start: int) -> tuple[int, int]:
    """The tag of a field and the offset after it, which may be beyond the data.

    Raises ValueError if it is incomplete or of an unknown kind.
    """
    tag, offset = read_varint(data, start, len(data))
    kind = tag & 7
    if kind in (0, 2):
        value, offset = read_varint(data, offset, len(data))
        return tag, offset + value if kind == 2 else offset
    if kind in (1, 5):
        return tag, offset + (8 if kind == 1 else 4)
    message = "an unknown kind of field"
    raise ValueError(message)


def write_varint(number: int) -> bytes:
    """The bytes of a number from 0: seven bits each, the lowest first."""
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)
