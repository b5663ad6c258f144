"""Protobuf's wire format by hand, for messages that no binding would write."""

from __future__ import annotations

import struct


def varint(value: int) -> bytes:
    """A varint; negative numbers take ten bytes."""
    value &= (1 << 64) - 1
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def wire_field(number: int, value: bytes | str | int | float) -> bytes:
    """A field: bytes and text with a length, integers as varints, floats in four bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def wire_message(*fields: tuple[int, bytes | str | int | float]) -> bytes:
    """The fields of a message, in this order."""
    return b"".join(wire_field(number, value) for number, value in fields)


def map_entry(key: str, value: bytes) -> bytes:
    """An entry of a map of messages."""
    return wire_message((1, key), (2, value))


def node_def(
    name: str = "x", op: str = "Thing", *more: tuple[int, bytes | str | int | float]
) -> bytes:
    """A NodeDef."""
    return wire_message((1, name), (2, op), *more)
