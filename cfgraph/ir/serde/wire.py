"""Parsing and deterministic serialization of protobuf messages, and unknown fields."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from cfgraph.errors import InvalidInput
from cfgraph.ir.serde.position import explain


def parse_message(message: Any, data: bytes, what: str) -> Any:
    """Decode bytes into an empty message. Raises InvalidInput where they are no such message."""
    try:
        message.ParseFromString(data)
    except (DecodeError, RecursionError):
        hint = "the file may be truncated, or not a graph"
        text = f"{len(data)} bytes are no {what}: {explain(data, type(message)())}"
        raise InvalidInput(text, hint=hint, code="CFG003") from None
    return message


def message_bytes(message: Any) -> bytes:
    """The bytes of a message; equal messages give equal bytes.

    Raises InvalidInput for one that is nested too deeply to be read again.
    """
    try:
        data: bytes = message.SerializeToString(deterministic=True)
    except (EncodeError, ValueError) as error:
        raise InvalidInput(f"the graph cannot be written: {error}", code="CFG111") from None
    return data


def has_unknown_fields(message: Any) -> bool:
    """True if a message itself has fields that nobody knows."""
    return len(UnknownFieldSet(message)) > 0


def extra_field_bytes(message: Any, known: tuple[str, ...]) -> bytes:
    """What a message holds beyond the `known` fields, unknown ones included; encoded."""
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
    """The unknown fields of a message itself, encoded."""
    if not has_unknown_fields(message):
        return b""
    return extra_field_bytes(message, tuple(field.name for field, _ in message.ListFields()))
