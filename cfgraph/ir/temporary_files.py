"""Temporary files next to the files that they will replace, and removal of those left over.

A process that is killed leaves its temporary files behind. The next one that writes to the folder
removes them: those of the same user whose process does not run any more. A file is locked while its
process uses it, because the number of a process means nothing on another machine.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

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
    descriptor, name = tempfile.mkstemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=folder)
    _lock(descriptor)
    return descriptor, name


def _lock(descriptor: int) -> bool:
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
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        return
    process = _PROCESS(path.name)
    is_old = status.st_mtime < max(_STARTED, time.time() - _MIN_AGE_SECONDS)
    if process is None or not is_old or _is_running(int(process[1])):
        return
    descriptor = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    try:
        if _lock(descriptor):
            path.unlink()
    finally:
        os.close(descriptor)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
