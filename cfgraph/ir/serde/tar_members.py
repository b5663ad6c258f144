"""Members of a tar archive, read as a stream and in linear time.

A member is a header of 512 bytes, and its content in blocks. Extension headers before it are
members themselves, with a name or a size that has no room in a header, in the form of GNU (types L
and K) or of POSIX (x and g). `tarfile` reads those of any length, some in quadratic time, so that
only its reader of one header is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from cfgraph.errors import InvalidInput
from cfgraph.limits import check_deadline

if TYPE_CHECKING:
    from tarfile import TarInfo

_BLOCK_BYTES: Final = 512
_CHUNK_BYTES: Final = 1 << 20
_MAX_EXTENSION_BYTES: Final = 64 << 10
_LONG_NAME: Final = b"L"
_POSIX_EXTENSIONS: Final = (b"x", b"X")
# with those of names of links and of all members, which nothing here needs
_EXTENSIONS: Final = (_LONG_NAME, b"K", *_POSIX_EXTENSIONS, b"g")
_MAX_LENGTH_DIGITS: Final = 8
_SPARSE_TYPE: Final = b"S"
_SPARSE_KEYWORD: Final = b"GNU.sparse."


class TarMember:
    """A header, and the content that follows it in the stream."""

    def __init__(self, header: TarInfo, stream: Any) -> None:
        if header.size < 0:
            raise ValueError("a negative size")
        self.header, self._stream = header, stream
        self._left = 0 if header.isdir() else header.size
        self._padding = -self._left % _BLOCK_BYTES

    def read(self, size: int = _CHUNK_BYTES) -> bytes:
        """The next bytes of the content, none at its end. Raises EOFError in a cut archive."""
        size = min(size, self._left)
        data: bytes = self._stream.read(size)
        if len(data) < size:
            raise EOFError("unexpected end of data")
        self._left -= size
        return data

    def skip(self) -> None:
        """Read the rest of the content, and the padding after it."""
        while self.read():
            check_deadline()
        self._stream.read(self._padding)

    def __enter__(self) -> TarMember:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: the rest is skipped before the next member."""


def tar_members(stream: Any) -> Iterator[TarMember]:
    """The members of an archive, each to be read before the next one, or not at all.

    Raises InvalidInput for what is too large, else tarfile.TarError, EOFError, or ValueError.
    """
    from tarfile import TarInfo

    extensions: dict[bytes, bytes] = {}
    while (block := stream.read(_BLOCK_BYTES)).strip(b"\0"):
        check_deadline()
        header = TarInfo.frombuf(block, "utf-8", "surrogateescape")
        if header.type not in _EXTENSIONS:
            _extend(header, extensions)
            extensions = {}
        member = TarMember(header, stream)
        if header.type in _EXTENSIONS:
            extensions.update(_extension(member))
        else:
            yield member
        member.skip()


def _extend(header: TarInfo, extensions: dict[bytes, bytes]) -> None:
    """Set what the extension headers before a header say about it."""
    is_sparse = header.type == _SPARSE_TYPE
    if is_sparse or any(keyword.startswith(_SPARSE_KEYWORD) for keyword in extensions):
        raise InvalidInput(
            f"the archive contains a sparse file, {header.name!r}",
            hint="pack it without --sparse",
            code="CFG003",
        )
    if path := extensions.get(b"path"):
        header.name = path.decode(errors="surrogateescape").rstrip("/")
    if size := extensions.get(b"size"):
        header.size = int(size)


def _extension(member: TarMember) -> dict[bytes, bytes]:
    """The records of an extension header that describe the next member."""
    header = member.header
    if header.size > _MAX_EXTENSION_BYTES:
        message = f"an extension header of {header.size} bytes; the limit is {_MAX_EXTENSION_BYTES}"
        raise InvalidInput(
            message, hint="unpack the archive yourself if you trust it", code="CFG002"
        )
    data = member.read(header.size)
    if header.type == _LONG_NAME:
        return {b"path": data.partition(b"\0")[0]}
    return _records(data) if header.type in _POSIX_EXTENSIONS else {}


def _records(data: bytes) -> dict[bytes, bytes]:
    """The records of a POSIX header, each `LENGTH KEYWORD=VALUE` and the end of a line."""
    records, start = {}, 0
    while start < len(data):
        digits, _, _ = data[start : start + _MAX_LENGTH_DIGITS].partition(b" ")
        end = start + int(digits)
        keyword, equals, value = data[start + len(digits) + 1 : end - 1].partition(b"=")
        if not equals or not start < end <= len(data):
            raise ValueError("an invalid record of an extension header")
        records[keyword] = value
        start = end
    return records
