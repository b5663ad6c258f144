"""Decoder of Snappy blocks, in which checkpoints of some writers have their index.

A block begins with the size of its contents, a varint. Elements follow: the low two bits of a tag
are its kind, the others a length, and for the short copy a part of the offset.

    00 literal     length - 1, or 60 to 63: in the next one to four bytes; then the bytes
    01 short copy  length - 4 in three bits, offset in three more bits and one byte
    10, 11 copy    length - 1, offset in two or four bytes

A copy starts `offset` bytes before the end of the contents so far, and may go beyond it.
"""

from __future__ import annotations

from typing import Final

from cfgraph.ir.serde.varints import read_varint
from cfgraph.limits import check_deadline, reserve

# of a copy of 64 bytes, which takes three
_MAX_RATIO: Final = 22
_LONG_LITERAL: Final = 60
_CHECKED_TAGS: Final = 1 << 14


def decompress(data: bytes) -> bytes:
    """The contents of a block. Raises ValueError for one that is damaged."""
    size, offset = read_varint(data, 0, len(data))
    if size > _MAX_RATIO * len(data):
        raise ValueError("a compressed block declares more than it can contain")
    reserve(size, "a compressed block of the checkpoint index")
    contents, tags = bytearray(), 0
    while offset < len(data):
        tags += 1
        if tags % _CHECKED_TAGS == 0:
            check_deadline()
        tag = data[offset]
        append = _append_copy if tag & 3 else _append_literal
        offset = append(contents, data, offset + 1, tag)
        if len(contents) > size:
            break
    if len(contents) != size:
        raise ValueError("a compressed block has another size than it declares")
    return bytes(contents)


def _append_literal(contents: bytearray, data: bytes, offset: int, tag: int) -> int:
    """Append the bytes of a literal; return the offset after it."""
    length = tag >> 2
    if length >= _LONG_LITERAL:
        width = length - _LONG_LITERAL + 1
        length, offset = _number(data, offset, width), offset + width
    end = offset + length + 1
    if end > len(data):
        raise ValueError("a compressed block is incomplete")
    contents += data[offset:end]
    return end


def _append_copy(contents: bytearray, data: bytes, offset: int, tag: int) -> int:
    """Append earlier contents; return the offset after the copy."""
    width = (0, 1, 2, 4)[tag & 3]
    distance, length = _number(data, offset, width), (tag >> 2) + 1
    if width == 1:
        distance, length = distance | (tag >> 5) << 8, (tag >> 2 & 7) + 4
    if not 0 < distance <= len(contents):
        raise ValueError("a compressed block copies what is not there")
    start = len(contents) - distance
    repeated = bytes(contents[start : start + length])
    contents += (repeated * (length // len(repeated) + 1))[:length]
    return offset + width


def _number(data: bytes, offset: int, width: int) -> int:
    if offset + width > len(data):
        raise ValueError("a compressed block is incomplete")
    return int.from_bytes(data[offset : offset + width], "little")
