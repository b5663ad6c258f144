"""The byte position at which binary data stop being a valid message."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from cfgraph.ir.serde.varint import read_varint

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH: Final = 2
_FIXED32: Final = 5
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}
_MAX_DEPTH: Final = 20
# a graph of a million nodes; what is longer is not searched to its end
_MAX_FIELDS: Final = 1_000_000


class _Field(NamedTuple):
    """One field on the wire: where it begins, its number and type, and where its value lies."""

    start: int
    number: int
    wire: int
    value: int
    end: int


class _WireError(Exception):
    """The wire format itself is broken at a byte."""

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(reason)
        self.place = place
        self.reason = reason


def explain(data: bytes, message: Any) -> str:
    """Say at which byte, and in which field, data fail to be a message of this class.

    `message` is an empty one; the data are known not to parse as it.
    """
    path: list[str] = []
    start, end = 0, len(data)
    for _ in range(_MAX_DEPTH):
        found = _find_error(data, start, end, message)
        if isinstance(found, str):
            return _describe_position(path, found)
        word, field, message = found
        path.append(word)
        start, end = field.value, field.end
        if message is None:
            return _describe_position(path, f"at byte {start} is not UTF-8")
    return _describe_position(path, f"at byte {start} is nested too deeply")


def _describe_position(path: list[str], what: str) -> str:
    return f"{'.'.join(path)} {what}" if path else what


def _find_error(data: bytes, start: int, end: int, message: Any) -> Any:
    """What is broken: a text, or the word, place and class of the part in which it lies."""
    known = message.DESCRIPTOR.fields_by_number
    counts: dict[int, int] = {}
    try:
        for field in islice(_fields(data, start, end), _MAX_FIELDS):
            descriptor = known.get(field.number)
            if descriptor is None or field.wire != _LENGTH:
                continue
            count = counts[field.number] = counts.get(field.number, -1) + 1
            repeated = not isinstance(getattr(message, descriptor.name), Message | str)
            word = f"{descriptor.name}[{count}]" if repeated else descriptor.name
            if descriptor.type == FieldDescriptor.TYPE_STRING:
                if not _is_utf8(data[field.value : field.end]):
                    return word, field, None
            elif descriptor.type == FieldDescriptor.TYPE_MESSAGE:
                part = descriptor.message_type._concrete_class()
                if not _parses(part, data[field.value : field.end]):
                    return word, field, part
    except _WireError as broken:
        return f"breaks off at byte {broken.place}: {broken.reason}"
    return f"at byte {start} is nested too deeply, or malformed"


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parses(message: Any, data: bytes) -> bool:
    try:
        message.ParseFromString(data)
    except (DecodeError, RecursionError):
        return False
    return True


def _fields(data: bytes, start: int, end: int) -> Iterator[_Field]:
    place = start
    while place < end:
        tag, value = _read_varint_at(data, place, end)
        number, wire = tag >> 3, tag & 7
        if number == 0 or wire not in (_VARINT, _FIXED64, _LENGTH, _FIXED32):
            raise _WireError(place, f"{data[place]:#04x} begins no field")
        if wire == _LENGTH:
            length, value = _read_varint_at(data, value, end)
            stop = value + length
        elif wire == _VARINT:
            stop = _read_varint_at(data, value, end)[1]
        else:
            stop = value + _FIXED[wire]
        if stop > end:
            reason = f"field {number} wants {stop - value} bytes, {end - value} are left"
            raise _WireError(place, reason)
        yield _Field(place, number, wire, value, stop)
        place = stop


def _read_varint_at(data: bytes, start: int, end: int) -> tuple[int, int]:
    """A varint and where it ends."""
    try:
        return read_varint(data, start, end)
    except ValueError as error:
        raise _WireError(start, str(error)) from None
