"""Archives of a SavedModel or a graph, zip, tar, or tar in gzip, read without being unpacked first.

    models.zip          the only SavedModel in the archive; without one, its only graph
    models.zip/encoder  the SavedModel in its folder `encoder`; a path may continue to any file

A graph is read in memory. Variables and assets must be files: `Archive.unpacked` is a temporary
folder with those of the SavedModel. Links, devices, and names outside of the archive are refused,
and contents are bounded like other compressed data.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, NamedTuple

from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.file_io import (
    GRAPH_SUFFIXES,
    SAVED_MODELS,
    max_unpacked_bytes,
    read_file,
    read_unpacked,
    unpacked_size_error,
)
from cfgraph.ir.names import first_names
from cfgraph.ir.serde.file_contents import read_skeleton
from cfgraph.ir.serde.foreign_formats import foreign_archive_error
from cfgraph.ir.serde.tar_members import tar_members
from cfgraph.ir.temporary_folders import create_temporary_folder
from cfgraph.limits import check_deadline

_ZIP_STARTS: Final = (b"PK\x03\x04", b"PK\x05\x06")
_ZIP_ENTRY: Final = b"PK\x01\x02"
_TAR_MAGIC: Final = (257, b"ustar")
_GZIP_MAGIC: Final = b"\x1f\x8b"
_HEAD_BYTES: Final = 512
_CHUNK_BYTES: Final = 1 << 20
_MAX_FILES: Final = 100_000
# the end of a zip archive that is searched for entries before all of them are read
_DIRECTORY_BYTES: Final = 16 << 20
_MAX_LISTED: Final = 4
# files that other systems add to archives
_SYSTEM_FILES: Final = ("._", "__MACOSX", ".DS_Store")
_UNPACK: Final = "unpack the archive, and name the file or folder of the graph"


class ArchivedFile(NamedTuple):
    """A regular file in an archive: its name, and a function that opens its content."""

    name: str
    open: Callable[[], Any]


class Archive:
    """An archive, and the file or folder in it that a path names; all of it by default."""

    def __init__(
        self, open_file: Callable[[], IO[bytes]], kind: str, path: str, inner: str = ""
    ) -> None:
        self._open_file = open_file
        self.kind = kind
        self.path = path
        self.inner = inner

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all files. Raises InvalidInput if there are too many, or links."""
        with self._files() as files:
            return tuple(file.name for file in files)

    @cached_property
    def graph_name(self) -> str:
        """The name of the file with the graph. Raises InvalidInput if there is none, or several."""
        if self.inner in self.names:
            return self.inner
        if error := foreign_archive_error(self.names):
            raise error
        names = [name for name in self.names if PurePosixPath(name).is_relative_to(self.inner)]
        if self.inner and not names:
            hint = f"it contains {first_names(sorted(_top_names(self.names)), _MAX_LISTED)}"
            raise InvalidInput(f"the archive has no {self.inner!r}", hint=hint, code="CFG001")
        models = {
            str(PurePosixPath(name).parent): name
            for file in reversed(SAVED_MODELS)
            for name in names
            if PurePosixPath(name).name == file
        }
        if models:
            return self._only([*models.values()], "SavedModels", [*models])
        graphs = [name for name in names if name.removesuffix(".gz").endswith(GRAPH_SUFFIXES)]
        if not graphs:
            message = f"this is a {self.kind} archive without a graph"
            hint = f"it has no {SAVED_MODELS[0]}, and no {', '.join(GRAPH_SUFFIXES)} file"
            raise InvalidInput(message, hint=hint, code="CFG003")
        return self._only(graphs, "graphs and no SavedModel", graphs)

    def _only(self, names: list[str], kind: str, titles: list[str]) -> str:
        """The only name. Raises InvalidInput, with the paths to choose from, for several."""
        if len(names) == 1:
            return names[0]
        titles = sorted(titles)
        message = f"the archive contains {len(titles)} {kind}: {first_names(titles, _MAX_LISTED)}"
        chosen = next(title for title in titles if title != ".")
        hint = f"choose one by its path: {self.path or 'ARCHIVE'}/{chosen}"
        raise InvalidInput(message, hint=hint, code="CFG003")

    @property
    def folder(self) -> str:
        """The folder of the graph within the archive; empty for the top."""
        parent = str(PurePosixPath(self.graph_name).parent)
        return "" if parent == "." else parent

    def read_graph(self) -> bytes:
        """The bytes of the graph. Raises InvalidInput for a damaged archive or none, or several."""
        name = self.graph_name
        with self._files() as files:
            for file in files:
                if file.name == name:
                    with file.open() as stream:
                        return read_unpacked(stream, self._size(), self.kind)
        raise AssertionError(name)

    def has_file(self, name: str) -> bool:
        """True if the folder of the graph has a file of this name."""
        return str(PurePosixPath(self.folder, name)) in self.names

    def shown_path(self, name: str) -> PurePosixPath:
        """The path, through the archive, of a file in the folder of the graph."""
        return PurePosixPath(self.path, self.folder, name)

    @cached_property
    def unpacked(self) -> Path:
        """The folder of the graph with all files in it, unpacked until the process ends."""
        target, inner = create_temporary_folder(), self.folder
        limit = max_unpacked_bytes(self._size())
        with self._files() as files:
            for file in files:
                name = PurePosixPath(file.name)
                if name.is_relative_to(inner):
                    path = target / name.relative_to(inner)
                    limit -= self._write(file, path, limit)
        return target

    def _write(self, file: ArchivedFile, path: Path, limit: int) -> int:
        """Write one file; returns its size."""
        size = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with file.open() as stream, path.open("xb") as output:
                while chunk := stream.read(_CHUNK_BYTES):
                    check_deadline()
                    size += len(chunk)
                    if size > limit:
                        raise unpacked_size_error(self._size(), self.kind, limit)
                    output.write(chunk)
        except FileExistsError:
            raise _damage_error(self.kind, f"{file.name!r} is in it twice") from None
        except gzip.BadGzipFile as error:
            raise _damage_error(self.kind, str(error)) from None
        except OSError as error:
            message = f"the archive cannot be unpacked to {path.parent}: {error.strerror or error}"
            raise UsageError(message, hint="$TMPDIR names a folder with more space") from None
        return size

    def _size(self) -> int:
        with self._open_file() as file:
            return file.seek(0, io.SEEK_END)

    @contextmanager
    def _files(self) -> Iterator[Iterator[ArchivedFile]]:
        """The files in the order of the archive; each can be opened until the next one is read."""
        import lzma
        import tarfile
        import zipfile

        formats = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error)
        python = (EOFError, OSError, OverflowError, RuntimeError, ValueError)
        try:
            with self._open_file() as file:
                read = _zip_files if self.kind == "zip" else _tar_files
                yield _checked(read(file, self.kind))
        except InvalidInput as error:
            error.path = error.path or self.path or None
            raise
        except NotImplementedError as error:
            raise InvalidInput(f"{error}", path=self.path, hint=_UNPACK, code="CFG003") from None
        except (*formats, *python) as error:
            raise _damage_error(self.kind, str(error)) from None


def _damage_error(kind: str, reason: str) -> InvalidInput:
    message = f"the {kind} archive is truncated or corrupt: {reason}"
    return InvalidInput(message, hint="copy or download the file again", code="CFG003")


def _top_names(names: tuple[str, ...]) -> set[str]:
    return {PurePosixPath(name).parts[0] for name in names}


def _checked(files: Iterator[ArchivedFile]) -> Iterator[ArchivedFile]:
    """Files with safe, normalized names, without those that other systems add."""
    for count, file in enumerate(files):
        check_deadline()
        if count >= _MAX_FILES:
            message = f"the archive contains more than {_MAX_FILES} files"
            raise InvalidInput(message, hint=_UNPACK, code="CFG002")
        path = PurePosixPath(file.name)
        is_inner = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
        if not is_inner or "\\" in file.name or "\0" in file.name:
            raise _unsafe_error(f"the archive names a file outside of it, {file.name!r}")
        if not any(part.startswith(_SYSTEM_FILES) for part in path.parts):
            yield ArchivedFile(str(path), file.open)


def _unsafe_error(message: str) -> InvalidInput:
    hint = "unpack it yourself if you trust it, and name the file or folder of the graph"
    return InvalidInput(message, hint=hint, code="CFG003")


def _zip_files(file: IO[bytes], kind: str) -> Iterator[ArchivedFile]:
    import zipfile

    _bound_zip_entries(file)
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            mode = info.external_attr >> 16
            if stat.S_ISLNK(mode):
                raise _unsafe_error(f"the archive contains a link, {info.filename!r}")
            if info.flag_bits & 1:
                message = "the archive is encrypted"
                raise InvalidInput(message, hint=_UNPACK, code="CFG003")
            if not info.is_dir():
                yield ArchivedFile(info.filename, lambda info=info: archive.open(info))  # type: ignore[misc]


def _bound_zip_entries(file: IO[bytes]) -> None:
    """Raise InvalidInput for a directory of far too many files, before it is read at once."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - _DIRECTORY_BYTES))
    count = file.read().count(_ZIP_ENTRY)
    if count > _MAX_FILES:
        message = f"the archive contains more than {_MAX_FILES} files"
        raise InvalidInput(message, hint=_UNPACK, code="CFG002")
    file.seek(0)


def _tar_files(file: IO[bytes], kind: str) -> Iterator[ArchivedFile]:
    """Files of a tar archive, which is read as a stream."""
    packed = file.seek(0, io.SEEK_END)
    file.seek(0)
    stream: Any = file
    if kind == "tar.gz":
        stream = _BoundedReader(gzip.GzipFile(fileobj=file), packed)
    for member in tar_members(stream):
        header = member.header
        if header.islnk() or header.issym():
            raise _unsafe_error(f"the archive contains a link, {header.name!r}")
        if not (header.isdir() or header.isfile()):
            raise _unsafe_error(f"the archive contains a device or pipe, {header.name!r}")
        if header.isfile():
            yield ArchivedFile(header.name, lambda member=member: member)  # type: ignore[misc]


class _BoundedReader:
    """Unpacked data that end with an error if they are too many."""

    def __init__(self, file: Any, packed: int) -> None:
        self._file, self._packed, self._read = file, packed, 0

    def read(self, size: int) -> bytes:
        check_deadline()
        data: bytes = self._file.read(size)
        self._read += len(data)
        limit = max_unpacked_bytes(self._packed)
        if self._read > limit:
            raise unpacked_size_error(self._packed, "tar.gz", limit)
        return data


def archive_kind(head: bytes, unpacked_head: Callable[[], bytes]) -> str | None:
    """`zip`, `tar`, or `tar.gz` by the first bytes of a file, or None for another format."""
    offset, magic = _TAR_MAGIC
    if head.startswith(_ZIP_STARTS):
        return "zip"
    if head.startswith(magic, offset):
        return "tar"
    if head.startswith(_GZIP_MAGIC) and unpacked_head().startswith(magic, offset):
        return "tar.gz"
    return None


def _kind_of(file: IO[bytes]) -> str | None:
    head = file.read(_HEAD_BYTES)

    def unpacked_head() -> bytes:
        file.seek(0)
        try:
            return gzip.GzipFile(fileobj=file).read(_HEAD_BYTES)
        except (OSError, EOFError, zlib.error):
            return b""

    return archive_kind(head, unpacked_head)


def archive_of_bytes(data: bytes) -> Archive | None:
    """The archive that data are, or None for data of another format."""
    kind = _kind_of(io.BytesIO(data))
    return None if kind is None else Archive(lambda: io.BytesIO(data), kind, "")


def open_archive(path: str | os.PathLike[str]) -> Archive | None:
    """The archive that a path names, or names something in; None for other paths."""
    outer, inner = Path(path), ""
    try:
        while not outer.exists() and outer.parent != outer:
            inner = f"{outer.name}/{inner}" if inner else outer.name
            outer = outer.parent
        status = outer.stat()
        if not stat.S_ISREG(status.st_mode):
            return None
        return _open_archive(str(outer), inner, status.st_size, status.st_mtime_ns)
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=8)
def _open_archive(path: str, inner: str, size: int, modified: int) -> Archive | None:
    with open(path, "rb") as file:
        kind = _kind_of(file)
    return None if kind is None else Archive(lambda: open(path, "rb"), kind, path, inner)


def read_graph_file(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file, or of the graph in an archive or in the folder of a SavedModel.

    Raises InvalidInput if there is none, or if it is unreadable or too large.
    """
    archive = open_archive(path)
    if archive is None:
        return read_file(path, read_skeleton)
    try:
        return archive.read_graph()
    except InvalidInput as error:
        error.path = error.path or str(path)
        raise
