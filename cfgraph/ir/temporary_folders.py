"""Temporary folders of the process, which its end removes.

A process that is killed leaves its folders behind. The next one that needs a folder removes them:
those of the same user whose process does not run any more.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from cfgraph.errors import UsageError
from cfgraph.ir.file_io import create_temporary_file, is_leftover, lock_file, temporary_prefix

# folders, the process that owns each, and the descriptor of its locked file
_folders: Final[dict[Path, tuple[int, int]]] = {}


def create_temporary_folder() -> Path:
    """A new, empty folder that only this user can read; it is removed when the process ends.

    Raises UsageError on a full disk.
    """
    try:
        parent = Path(tempfile.gettempdir())
        for name in os.listdir(parent):
            if is_leftover(parent / name, is_folder=True):
                _remove_unlocked(parent / name)
        return _create_in(parent)
    except OSError as error:
        message = f"a temporary folder cannot be created: {error.strerror}"
        raise UsageError(message, hint="$TMPDIR names a folder with more space") from None


def _create_in(parent: Path) -> Path:
    if not _folders:
        atexit.register(remove_temporary_folders)
    outer = Path(tempfile.mkdtemp(prefix=temporary_prefix(), dir=parent))
    try:
        descriptor, _ = create_temporary_file(outer)
        _folders[outer] = os.getpid(), descriptor
        folder = outer / "content"
        folder.mkdir()
    except OSError:
        shutil.rmtree(outer, ignore_errors=True)
        raise
    return folder


def remove_temporary_folders() -> None:
    """Remove the folders of this process; for an end that skips the handlers of `atexit`."""
    for folder, (process, descriptor) in [*_folders.items()]:
        if process == os.getpid():
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)
            del _folders[folder]


def _remove_unlocked(folder: Path) -> None:
    """Remove a folder unless a process, maybe of another machine, has locked a file in it."""
    descriptors = []
    try:
        for path in [path for path in folder.iterdir() if path.is_file()]:
            descriptors.append(os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)))
            if not lock_file(descriptors[-1]):
                return
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        return
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
