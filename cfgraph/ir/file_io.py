"""Bounded reads of files and streams, decompression, and atomic writes through temporary files.

A process that is killed leaves its temporary files behind. The next one that writes to the folder
removes them: those of the same user whose process does not run any more. A file is locked while its
process uses it, because the number of a process means nothing on another machine.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import time
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.names import closest_name
from cfgraph.limits import check_deadline, reserve

# late imports: a command that only reads makes no temporary files

_can_lock = True
try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows: nothing is locked, and nothing removed
    _can_lock = False

_PREFIX: Final = ".cfgraph-"
# the number of a process, and eight characters by `mkstemp`
_PROCESS: Final = re.compile(re.escape(_PREFIX) + r"(\d{1,10})-[a-z0-9_]{8}").fullmatch
_STARTED: Final = time.time()
# a younger file may belong to a process that has not yet locked it
_MIN_AGE_SECONDS: Final = 60


def create_temporary_file(folder: str | os.PathLike[str] | None) -> tuple[int, str]:
    """The descriptor and the path of a new, locked file in a folder, by default of the system."""
    import tempfile

    descriptor, name = tempfile.mkstemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=folder)
    lock_file(descriptor)
    return descriptor, name


def lock_file(descriptor: int) -> bool:
    """True if no other process has locked the file; the lock ends with the last descriptor."""
    if not _can_lock:
        return False
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except OSError:
        return False
    return True


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files in a folder that processes of this user left behind."""
    if not _can_lock:
        return
    try:
        names = [name for name in os.listdir(folder) if name.startswith(_PREFIX)]
    except OSError:
        return
    for name in names:
        with suppress(OSError):
            _remove_if_left(folder / name)


def _remove_if_left(path: Path) -> None:
    if not _is_leftover(path):
        return
    descriptor = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    try:
        if lock_file(descriptor):
            path.unlink()
    finally:
        os.close(descriptor)


def _is_leftover(path: Path) -> bool:
    """True for a temporary file of this user whose process does not run any more."""
    process = _PROCESS(path.name)
    if process is None or not _can_lock:
        return False
    try:
        status = path.lstat()
    except OSError:
        return False
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        return False
    is_old = status.st_mtime < max(_STARTED, time.time() - _MIN_AGE_SECONDS)
    return is_old and not _is_running(int(process[1]))


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


class StagedFiles:
    """Files written under temporary names, and moved to their paths when the `with` block succeeds.

    A target that is not a regular file (a pipe, a device) is written last. Raises UsageError if a
    file cannot be written, is opened twice, or is `-`, which means standard output in commands.
    """

    def __init__(self) -> None:
        self._staged: dict[Path, tuple[str, str, IO[bytes]]] = {}
        self._folders: list[Path] = []
        self._stale: list[Path] = []
        self._cleared: set[Path] = set()
        self._locks: list[int] = []

    def make_folder(self, path: str | os.PathLike[str]) -> None:
        """Create a folder and its missing parents; they are removed if the block fails."""
        folder = Path(path)
        missing = [directory for directory in (folder, *folder.parents) if not directory.exists()]
        try:
            for directory in reversed(missing):
                directory.mkdir()
                self._folders.append(directory)
            folder.mkdir(exist_ok=True)
        except OSError as error:
            message = f"the folder cannot be created: {error.strerror}"
            raise UsageError(message, path=path) from None

    def open(self, path: str | os.PathLike[str]) -> IO[bytes]:
        """Open a binary file that will replace `path`."""
        if str(path) == "-":
            message = "standard output is reserved for the graph or the result"
            raise UsageError(message, hint="name a file; write ./- for a file called -")
        try:
            target, folder = Path(path), None
            if target.is_dir():
                raise IsADirectoryError(0, "it is a folder")
            if target.is_file() or not target.exists():
                target = Path(os.path.realpath(path))  # a link's target is replaced, not the link
                folder = target.parent
            if folder is not None and folder not in self._cleared:
                self._cleared.add(folder)
                remove_leftovers(folder)
            descriptor, name = create_temporary_file(folder)
        except (OSError, ValueError) as error:
            raise _write_error(path, error) from None
        file = os.fdopen(descriptor, "wb")
        try:
            # a second descriptor keeps the file locked after it is closed, until it is moved
            self._locks.append(os.dup(descriptor))
        except OSError as error:
            file.close()
            os.unlink(name)
            raise _write_error(path, error) from None
        if target in self._staged:
            file.close()
            os.unlink(name)
            raise UsageError("two outputs have the same path", path=path)
        self._staged[target] = (str(path), name, file)
        return file

    def write(self, path: str | os.PathLike[str], data: bytes | Iterable[bytes]) -> None:
        """Write `data`, or its pieces, to `path`."""
        file = self.open(path)
        try:
            for piece in (data,) if isinstance(data, bytes) else data:
                file.write(piece)
        except OSError as error:
            raise _write_error(path, error) from None

    def remove(self, path: Path) -> None:
        """Delete a file at the end, unless it has been rewritten."""
        self._stale.append(path)

    def drop(self, file: IO[bytes]) -> None:
        """Discard one staged file; nothing is written to its path."""
        for target, (_, name, staged) in self._staged.items():
            if staged is file:
                file.close()
                os.unlink(name)
                del self._staged[target]
                return

    def __enter__(self) -> StagedFiles:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._move()
                self._folders.clear()
        finally:
            self.discard()

    def _move(self) -> None:
        """Close all files first, so that a full disk is detected before anything is replaced."""
        for path, _, file in self._staged.values():
            try:
                file.close()
            except OSError as error:
                raise _write_error(path, error) from None
        for target, (path, name, _) in self._staged.items():
            try:
                _install_file(name, target)
            except OSError as error:
                raise _write_error(path, error) from None
        for stale in self._stale:
            if Path(os.path.realpath(stale)) not in self._staged:
                with suppress(OSError):
                    stale.unlink()

    def discard(self) -> None:
        """Remove all staged files that have not been moved."""
        for _, name, file in self._staged.values():
            with suppress(OSError):
                file.close()
            with suppress(FileNotFoundError):
                os.unlink(name)
        for descriptor in self._locks:
            os.close(descriptor)
        self._locks.clear()
        self._staged.clear()
        self._stale.clear()
        for folder in reversed(self._folders):
            with suppress(OSError):
                folder.rmdir()
        self._folders.clear()


def _install_file(name: str, target: Path) -> None:
    if target.exists() and not target.is_file():
        target.write_bytes(Path(name).read_bytes())
        return
    os.chmod(name, _file_mode(target))
    os.replace(name, target)


def _write_error(path: object, error: Exception) -> UsageError:
    reason = error.strerror if isinstance(error, OSError) else error
    return UsageError(f"the file cannot be written: {reason}", path=path)


def _file_mode(target: Path) -> int:
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


# the largest message that protobuf parses
MAX_BYTES: Final = 2 << 30
# above this size, a file with a higher compression ratio is rejected as a zip bomb
MAX_TRUSTED_BYTES: Final = 16 << 20
MAX_COMPRESSION_RATIO: Final = 100
_CHUNK_BYTES: Final = 1 << 20
_GZIP_MAGIC: Final = b"\x1f\x8b"
MANIFEST: Final = "manifest.json"
SAVED_MODELS: Final = ("saved_model.pb", "saved_model.pbtxt")
_INDEX_SUFFIX: Final = ".index"
GRAPH_SUFFIXES: Final = (".pb", ".pbtxt", ".graph", ".meta")


def require_path(path: object, hint_for_bytes: str | None = None) -> None:
    """Raise UsageError for anything but a path."""
    if not isinstance(path, str | os.PathLike):
        message = f"a path is expected, as a string, got {type(path).__name__}"
        raise UsageError(message, hint=hint_for_bytes if isinstance(path, bytes) else None)


def read_file(
    path: str | os.PathLike[str], read_part: Callable[[Path], bytes | None] | None = None
) -> bytes:
    """The bytes of a file, or of the graph in a SavedModel folder, without decompression.

    `read_part` may return a part of the file that stands for the whole. Raises InvalidInput if the
    file is missing, unreadable, or too large.
    """
    file = Path(path)
    try:
        mode = file.stat().st_mode
        if stat.S_ISDIR(mode):
            file = _graph_file_in_folder(file)
            mode = file.stat().st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise InvalidInput(
                "the path is a device, expected a file or folder", path=path, code="CFG001"
            )
        part = read_part(file) if read_part else None
        return read_path(file) if part is None else part
    except FileNotFoundError:
        if Path(f"{file}{_INDEX_SUFFIX}").is_file():
            message = "this is the prefix of a checkpoint, not a graph"
            hint = _checkpoint_hint(str(file))
            raise InvalidInput(message, path=path, hint=hint, code="CFG001") from None
        raise InvalidInput(
            "no such file", path=path, hint=similar_file_hint(file), code="CFG001"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        message = f"the file cannot be read: {reason}"
        raise InvalidInput(message, path=path, code="CFG001") from None
    except InvalidInput as error:
        error.path = error.path or str(path)
        raise


def _graph_file_in_folder(folder: Path) -> Path:
    names = sorted(os.listdir(folder))
    for name in SAVED_MODELS:
        if name in names:
            return folder / name
    graphs = [name for name in names if name.removesuffix(".gz").endswith(GRAPH_SUFFIXES)]
    hint = f"name a file in it, such as {folder / graphs[0]}" if graphs else None
    message = f"the folder contains no {SAVED_MODELS[0]}"
    if len(graphs) > 1:
        message = f"{message}, and no {MANIFEST} that lists the parts of a partitioned graph"
    indices = [name for name in names if name.endswith(_INDEX_SUFFIX)]
    models = [
        name for name in names if any((folder / name / file).is_file() for file in SAVED_MODELS)
    ]
    if models:
        others = f", or another of its {len(models)} SavedModels" if len(models) > 1 else ""
        hint = f"name the folder of a SavedModel in it: {folder / models[-1]}{others}"
    if hint is None and any((folder.parent / name).is_file() for name in SAVED_MODELS):
        hint = f"did you mean the parent folder, {folder.parent}?"
    elif hint is None and indices:
        message = "the folder contains a checkpoint, not a graph"
        hint = _checkpoint_hint(str(folder / indices[0].removesuffix(_INDEX_SUFFIX)))
    raise InvalidInput(message, path=folder, hint=hint, code="CFG001")


def _checkpoint_hint(prefix: str) -> str:
    return f"name the graph of these values, and pass them with --variables {prefix}"


def similar_file_hint(path: Path) -> str | None:
    """Hint with a file of a similar name, ignoring the suffix."""
    try:
        names = sorted(os.listdir(path.parent))
    except OSError:
        return None
    expected = _stem(path.name)
    stems = {_stem(name): name for name in reversed(names) if not name.startswith(".")}
    close = closest_name(expected, stems, _MIN_SIMILARITY)
    if close is None and len(expected) >= _MIN_PREFIX:
        close = next((stem for stem in reversed(stems) if stem.startswith(expected)), None)
    return f"did you mean {stems[close]!r}?" if close is not None else None


def _stem(name: str) -> str:
    return name.partition(".")[0].lower()


# minimum similarity of two names, and minimum length of a common prefix
_MIN_SIMILARITY: Final = 0.75
_MIN_PREFIX: Final = 4


def read_path(path: Path) -> bytes:
    """All bytes of a file. Raises InvalidInput if it exceeds `MAX_BYTES`, OSError as `open`."""
    with path.open("rb", buffering=0) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > MAX_BYTES:
            raise _size_error()
        # a file that does not grow is read at once, without a second copy
        data = stream.read(size) or b"" if size else b""
        rest = read_stream(stream, MAX_BYTES - len(data))
        return data + rest if rest else data


def read_stream(stream: IO[bytes], limit: int | None = None) -> bytes:
    """All bytes of a stream. Raises InvalidInput if it exceeds `limit`, by default `MAX_BYTES`."""
    limit, buffer = MAX_BYTES if limit is None else limit, io.BytesIO()
    while chunk := stream.read(_CHUNK_BYTES):
        buffer.write(chunk)
        if buffer.tell() > limit:
            raise _size_error()
    return buffer.getvalue()


def _size_error() -> InvalidInput:
    return InvalidInput(f"the input exceeds {MAX_BYTES} bytes", code="CFG002")


def require_readable_size(size: int) -> None:
    """Raise InvalidInput for a graph of more bytes than are read again, or protobuf allows."""
    if size > MAX_BYTES:
        message = f"the graph cannot be written: it has {size} bytes, at most {MAX_BYTES} are read"
        hint = "keep large weights in variables of a checkpoint"
        raise InvalidInput(message, hint=hint, code="CFG111")


def decompress(data: bytes) -> bytes:
    """Decompress gzip data; other data is returned unchanged.

    Raises InvalidInput if the gzip data is corrupt or expands too much.
    """
    if data[:2] != _GZIP_MAGIC:
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            return _read_unpacked(file, len(data))
    except (OSError, EOFError, zlib.error) as error:
        message = f"the gzip data is truncated or corrupt: {error}"
        hint = "copy the file again"
        raise InvalidInput(message, hint=hint, code="CFG003") from None


def _read_unpacked(file: gzip.GzipFile, packed: int) -> bytes:
    """All bytes that `packed` bytes of compressed data unpack to.

    Raises InvalidInput if they are too many, ExecutionError beyond the limit of memory.
    """
    allowance, buffer = max(MAX_TRUSTED_BYTES, MAX_COMPRESSION_RATIO * packed), io.BytesIO()
    limit = min(MAX_BYTES, allowance)
    while chunk := file.read(_CHUNK_BYTES):
        check_deadline()
        reserve(buffer.tell() + len(chunk), f"the content of {packed} bytes of gzip")
        buffer.write(chunk)
        if buffer.tell() > limit:
            message = f"{packed} bytes of gzip unpack to more than {limit}"
            hint = "unpack the file yourself if you trust it"
            raise InvalidInput(message, hint=hint, code="CFG002")
    return buffer.getvalue()


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file completely or not at all. Raises UsageError if that is not possible."""
    with StagedFiles() as files:
        files.write(path, data)
