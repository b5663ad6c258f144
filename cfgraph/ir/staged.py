"""Write files that appear whole and together, or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from cfgraph.errors import UsageError


class StagedFiles:
    """Files written beside their places, and moved there when the `with` block succeeds.

    What is no regular file (a pipe, a device) is written in the end. Raises UsageError where a
    file cannot be written, is named twice, or is `-`, which commands call standard output.
    """

    def __init__(self) -> None:
        self._staged: dict[Path, tuple[str, str, IO[bytes]]] = {}
        self._folders: list[Path] = []
        self._stale: list[Path] = []

    def make_folder(self, path: str | os.PathLike[str]) -> None:
        """Make a folder, and those around it, that is not there; it goes if the block fails."""
        folder = Path(path)
        missing = [place for place in (folder, *folder.parents) if not place.exists()]
        try:
            for place in reversed(missing):
                place.mkdir()
                self._folders.append(place)
            folder.mkdir(exist_ok=True)
        except OSError as error:
            message = f"the folder cannot be made: {error.strerror}"
            raise UsageError(message, path=path) from None

    def open(self, path: str | os.PathLike[str]) -> IO[bytes]:
        """A binary file that will be at `path`."""
        if str(path) == "-":
            message = "standard output takes the graph or the answer, and no other file"
            raise UsageError(message, hint="name a file; one that is called so is ./-")
        try:
            target, folder = Path(path), None
            if target.is_dir():
                raise IsADirectoryError(0, "it is a folder")
            if target.is_file() or not target.exists():
                target = Path(os.path.realpath(path))  # what a link leads to is replaced
                folder = target.parent
            descriptor, name = tempfile.mkstemp(prefix=".cfgraph-", dir=folder)
        except (OSError, ValueError) as error:
            raise _cannot_write(path, error) from None
        file = os.fdopen(descriptor, "wb")
        if target in self._staged:
            file.close()
            os.unlink(name)
            raise UsageError("the file is to be written twice", path=path)
        self._staged[target] = (str(path), name, file)
        return file

    def write(self, path: str | os.PathLike[str], data: bytes) -> None:
        """Have these bytes at `path`."""
        file = self.open(path)
        try:
            file.write(data)
        except OSError as error:
            raise _cannot_write(path, error) from None

    def remove(self, path: Path) -> None:
        """Let a file go in the end, unless another comes to its place."""
        self._stale.append(path)

    def drop(self, file: IO[bytes]) -> None:
        """Give up one file; nothing will be at its path."""
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
        """Close all files first, so that a full disk shows before anything is replaced."""
        for path, _, file in self._staged.values():
            try:
                file.close()
            except OSError as error:
                raise _cannot_write(path, error) from None
        for target, (path, name, _) in self._staged.items():
            try:
                _place(name, target)
            except OSError as error:
                raise _cannot_write(path, error) from None
        for stale in self._stale:
            if Path(os.path.realpath(stale)) not in self._staged:
                with suppress(OSError):
                    stale.unlink()

    def discard(self) -> None:
        """Remove what is staged and not yet in its place."""
        for _, name, file in self._staged.values():
            with suppress(OSError):
                file.close()
            with suppress(FileNotFoundError):
                os.unlink(name)
        self._staged.clear()
        self._stale.clear()
        for folder in reversed(self._folders):
            with suppress(OSError):
                folder.rmdir()
        self._folders.clear()


def _place(name: str, target: Path) -> None:
    if target.exists() and not target.is_file():
        target.write_bytes(Path(name).read_bytes())
        return
    os.chmod(name, _mode(target))
    os.replace(name, target)


def _cannot_write(path: object, error: Exception) -> UsageError:
    reason = error.strerror if isinstance(error, OSError) else error
    return UsageError(f"the file cannot be written: {reason}", path=path)


def _mode(target: Path) -> int:
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
