"""Tables of sorted keys, as LevelDB writes them: the index of a checkpoint is one.

A footer of 48 bytes leads to a block that lists the other blocks. A block holds entries, of which
each says how much of its key it shares with the one before; then come a byte for the compression
and a checksum.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cfgraph.errors import InvalidInput, Unsupported
from cfgraph.ir.varint import LONGEST, varint

_FOOTER: Final = 48
_MAGIC: Final = bytes.fromhex("57fb808b247547db")
# bytes of keys, for each byte of a block, that no table of names needs
_MAX_RATIO: Final = 100
_MAX_TRUSTED: Final = 1 << 20


def entries(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a table, in order.

    Raises InvalidInput for what is no table, Unsupported for a compressed one.
    """
    if len(data) < _FOOTER or data[-len(_MAGIC) :] != _MAGIC:
        raise _broken("it does not end as a table does")
    footer = _Reader(data, len(data) - _FOOTER, len(data))
    footer.handle()  # of statistics that nobody reads
    left = len(data)
    for _, where in _block(data, *footer.handle()):
        start, size = _Reader(where, 0, len(where)).handle()
        left -= size
        if left < 0:
            raise _broken("its blocks are more than the file")
        yield from _block(data, start, size)


def _block(data: bytes, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    end = start + size
    if end + 5 > len(data) or size < 4:
        raise _broken("a block lies outside of the file")
    if data[end]:
        raise Unsupported("the table is compressed", code="CFG038")
    restarts = 4 * int.from_bytes(data[end - 4 : end], "little") + 4
    if restarts > size:
        raise _broken("a block is shorter than it says")
    reader, key = _Reader(data, start, end - restarts), b""
    most = max(_MAX_TRUSTED, _MAX_RATIO * size)
    while reader.place < reader.end:
        shared, added, length = reader.varint(), reader.varint(), reader.varint()
        if shared > len(key):
            raise _broken("a key shares more than there is")
        key = key[:shared] + reader.take(added)
        most -= len(key)
        if most < 0:
            raise _broken("its keys are too long")
        yield key, reader.take(length)


class _Reader:
    """Reads numbers and bytes, and never beyond its end."""

    def __init__(self, data: bytes, place: int, end: int) -> None:
        self.data, self.place, self.end = data, place, end

    def varint(self) -> int:
        """A number of seven bits a byte, the lowest first."""
        try:
            value, self.place = varint(self.data, self.place, self.end)
        except ValueError as error:
            short = self.end - self.place < LONGEST
            raise _broken("it breaks off" if short else str(error)) from None
        return value

    def handle(self) -> tuple[int, int]:
        """Where a block is, and its size."""
        return self.varint(), self.varint()

    def take(self, size: int) -> bytes:
        """Some bytes."""
        if self.place + size > self.end:
            raise _broken("it breaks off")
        found = self.data[self.place : self.place + size]
        self.place += size
        return found


def _broken(reason: str) -> InvalidInput:
    hint = "the file may be truncated, or not the index of a checkpoint"
    return InvalidInput(f"this is no table: {reason}", hint=hint, code="CFG038")
