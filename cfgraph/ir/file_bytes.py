"""Bytes of files and streams, of bounded size; and back to a file, whole or not at all."""

from __future__ import annotations

import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import BinaryIO, Final

from cfgraph.errors import InvalidInput
from cfgraph.ir.staged import StagedFiles

# the largest message that protobuf reads
MAX_BYTES: Final = 2 << 30
# beyond this size, a file that unpacks to a hundred times itself is taken for a trap
MAX_TRUSTED: Final = 256 << 20
MAX_RATIO: Final = 100
_CHUNK: Final = 1 << 20
_GZIP: Final = b"\x1f\x8b"
_SAVED_MODELS: Final = ("saved_model.pb", "saved_model.pbtxt")
_GRAPHS: Final = (".pb", ".pbtxt", ".graph", ".meta")


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file, or of the graph in a SavedModel's folder, as they are.

    Raises InvalidInput where the file is missing, unreadable or too large.
    """
    file = Path(path)
    try:
        mode = file.stat().st_mode
        if stat.S_ISDIR(mode):
            file = _in_folder(file)
            mode = file.stat().st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise InvalidInput("a device holds no graph", path=path, code="CFG001")
        with file.open("rb") as stream:
            return read_stream(stream)
    except FileNotFoundError:
        raise InvalidInput("no such file", path=path, hint=_similar(file), code="CFG001") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        message = f"the file cannot be read: {reason}"
        raise InvalidInput(message, path=path, code="CFG001") from None
    except InvalidInput as error:
        error.path = error.path or str(path)
        raise


def _in_folder(folder: Path) -> Path:
    names = sorted(os.listdir(folder))
    for name in _SAVED_MODELS:
        if name in names:
            return folder / name
    graphs = [name for name in names if name.removesuffix(".gz").endswith(_GRAPHS)]
    hint = f"name a file in it, such as {folder / graphs[0]}" if graphs else None
    message = f"the folder holds no {_SAVED_MODELS[0]}"
    if hint is None and any((folder.parent / name).is_file() for name in _SAVED_MODELS):
        hint = f"did you mean the folder around it, {folder.parent}?"
    raise InvalidInput(message, path=folder, hint=hint, code="CFG001")


def _similar(path: Path) -> str | None:
    """A hint with the file whose name, but for the suffix, is a slip of the pen or begins alike."""
    try:
        names = sorted(os.listdir(path.parent))
    except OSError:
        return None
    wanted = _stem(path.name)
    stems = {_stem(name): name for name in reversed(names) if not name.startswith(".")}
    longer = [stem for stem in stems if stem.startswith(wanted) and len(wanted) >= _TELLING]
    close = [*longer, *get_close_matches(wanted, stems, 1, _CLOSE)]
    return f"did you mean {stems[close[-1]]!r}?" if close else None


def _stem(name: str) -> str:
    return name.partition(".")[0].lower()


# how much of two names agrees at least; and how long a beginning tells something
_CLOSE: Final = 0.75
_TELLING: Final = 4


def read_stream(stream: BinaryIO) -> bytes:
    """All bytes of a stream. Raises InvalidInput where they do not end in reasonable time."""
    chunks, size = [], 0
    while chunk := stream.read(_CHUNK):
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_BYTES:
            raise InvalidInput(f"there are more than {MAX_BYTES} bytes to read", code="CFG002")
    return b"".join(chunks)


def unpack(data: bytes) -> bytes:
    """What gzip data unpacks to; other data as they are.

    Raises InvalidInput where gzip data are damaged or unpack to far too much.
    """
    if data[:2] != _GZIP:
        return data
    try:
        return b"".join(_unpacked(data))
    except (OSError, EOFError, zlib.error) as error:
        message = f"the gzip data are damaged: {error}"
        hint = "the file may be truncated"
        raise InvalidInput(message, hint=hint, code="CFG003") from None


def _unpacked(data: bytes) -> Iterator[bytes]:
    limit = min(MAX_BYTES, max(MAX_TRUSTED, MAX_RATIO * len(data)))
    size = 0
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        while chunk := file.read(_CHUNK):
            size += len(chunk)
            if size > limit:
                message = f"{len(data)} bytes of gzip unpack to more than {limit}"
                hint = "unpack the file yourself if you trust it"
                raise InvalidInput(message, hint=hint, code="CFG002")
            yield chunk


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file whole or not at all. Raises UsageError where that is not possible."""
    with StagedFiles() as files:
        files.write(path, data)
