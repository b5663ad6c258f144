"""The I/O policy: the files that a graph may use.

A graph comes from an untrusted file, so it touches nothing on the machine without permission. It
prints, and it reads inside the folders that the user names: the SavedModel and `--variables`.
Everything else needs `--allow-io` or `Session(allow_io=True)`. Ops reach files only through their
`Step`, which consults the policy before it opens one.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cfgraph.errors import Unsupported, UsageError

ALLOW_IO_HINT: Final = "allow it with --allow-io, or Session(allow_io=True), if you trust the graph"
FORBIDDEN_FILE_CODE: Final = "CFG712"
_CHECKPOINT_SUFFIX: Final = re.compile(r"\.index|\.data-\d+-of-\d+")


@dataclass(frozen=True, slots=True)
class IoPolicy:
    """Permission of a graph to use files: all of them, or reading below some roots.

    A root is a folder, or the prefix of a checkpoint's files. Symbolic links are resolved.
    """

    allow_all: bool = False
    roots: tuple[Path, ...] = ()

    @classmethod
    def parse(cls, allow_io: object) -> IoPolicy:
        """The policy of an `allow_io` argument, a bool or a policy. Raises UsageError otherwise."""
        if isinstance(allow_io, IoPolicy):
            return allow_io
        if not isinstance(allow_io, bool):
            message = f"allow_io must be True or False, got {allow_io!r}"
            raise UsageError(message)
        return cls(allow_all=allow_io)

    def with_roots(self, *paths: str | os.PathLike[str]) -> IoPolicy:
        """The policy with more roots."""
        roots = (*self.roots, *(Path(os.path.realpath(path)) for path in paths))
        return IoPolicy(self.allow_all, tuple(dict.fromkeys(roots)))

    def require_readable(self, path: str) -> None:
        """Raise Unsupported for a file outside of the roots."""
        if "\0" in path:
            return  # no file has such a name: opening it fails
        if not self.allow_all and not self._is_below_root(path):
            message = f"the graph reads {path!r}, outside of the folders named for this run"
            raise Unsupported(message, hint=ALLOW_IO_HINT, code=FORBIDDEN_FILE_CODE)

    def require_writable(self, path: str) -> None:
        """Raise Unsupported for any file unless all I/O is allowed."""
        if not self.allow_all:
            message = f"the graph writes {path!r}, which it may not do by itself"
            raise Unsupported(message, hint=ALLOW_IO_HINT, code=FORBIDDEN_FILE_CODE)

    def _is_below_root(self, path: str) -> bool:
        file = Path(os.path.realpath(path))
        return any(root in file.parents or _is_part_of(root, file) for root in self.roots)


NO_IO: Final = IoPolicy()


def _is_part_of(prefix: Path, file: Path) -> bool:
    """True for the index or a shard of the checkpoint with this prefix."""
    suffix = file.name.removeprefix(prefix.name)
    return (
        file.parent == prefix.parent
        and file.name != suffix
        and _CHECKPOINT_SUFFIX.fullmatch(suffix) is not None
        and not prefix.is_dir()
    )
