"""Protobuf wire format: parsing, deterministic serialization, unknown fields, and varints."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from cfgraph.errors import InvalidInput


def parse_message(message: Any, data: bytes, what: str) -> Any:
    """Decode bytes into an empty message. Raises InvalidInput for truncated or corrupt data."""
    try:
        message.ParseFromString(data)
    except (DecodeError, RecursionError):
        text = f"the data is not a valid {what}: it is truncated or corrupt"
        hint = "copy the file again, or check that it contains a graph"
        raise InvalidInput(text, hint=hint, code="CFG003") from None
    return message


def message_bytes(message: Any) -> bytes:
    """Serialize a message; equal messages give equal bytes.

    Raises InvalidInput for a message nested too deeply to be parsed again.
    """
    try:
        data: bytes = message.SerializeToString(deterministic=True)
    except (EncodeError, ValueError) as error:
        raise InvalidInput(f"the graph cannot be written: {error}", code="CFG111") from None
    return data


def has_unknown_fields(message: Any) -> bool:
    """True if the message has unknown fields, not counting submessages."""
    return len(UnknownFieldSet(message)) > 0


def extra_field_bytes(message: Any, known: tuple[str, ...]) -> bytes:
    """Encoded content of a message beyond the `known` fields, including unknown fields."""
    if all(field.name in known for field, _ in message.ListFields()) and not has_unknown_fields(
        message
    ):
        return b""
    shell = type(message)()
    shell.CopyFrom(message)
    for name in known:
        shell.ClearField(name)
    return message_bytes(shell)


def unknown_field_bytes(message: Any) -> bytes:
    """Encoded unknown fields of a message, not counting submessages."""
    if not has_unknown_fields(message):
        return b""
    return extra_field_bytes(message, tuple(field.name for field, _ in message.ListFields()))


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


def write_varint(number: int) -> bytes:
    """The bytes of a number from 0: seven bits each, the lowest first."""
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)
