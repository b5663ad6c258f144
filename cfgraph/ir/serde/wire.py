"""Protobuf wire format: parsing, deterministic serialization, and unknown fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from cfgraph.errors import InvalidInput
from cfgraph.ir.serde.file_contents import has_references, message_pieces


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
    data = encoded_message(message)
    if has_references(data):
        return b"".join(message_pieces(data, message.DESCRIPTOR))
    return data


def pieces_of(message: Any) -> Iterator[bytes]:
    """The bytes of `message_bytes` in pieces, so that large contents are never all in memory."""
    return message_pieces(encoded_message(message), message.DESCRIPTOR)


def whole_message(message: Any) -> Any:
    """A message with all contents: itself, unless some are left in a file."""
    data = encoded_message(message)
    if has_references(data):
        return type(message).FromString(message_bytes(message))
    return message


def encoded_message(message: Any) -> bytes:
    """Serialize a message with references to contents that are left in a file.

    Raises like `message_bytes`.
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
