"""The folders below which a server reads files; links that lead out of them are refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cfgraph.errors import UsageError

_MAX_ENTRIES: Final = 20_000
# of a SavedModel: a run reads them next to its graph
_MODEL_FOLDERS: Final = ("variables", "assets")
_JSON_STARTS: Final = ('"', "[")


class Roots:
    """Folders that may be read. Raises UsageError for one that is none."""

    def __init__(self, folders: list[str]) -> None:
        if not folders:
            raise UsageError("no folder is named", hint="name the folder of the graphs: --root DIR")
        for folder in folders:
            if not os.path.isdir(folder):
                raise UsageError("--root is not a folder", path=folder)
        self.folders = tuple(Path(os.path.realpath(folder)) for folder in folders)

    def resolve(self, text: str) -> str:
        """The path of a file or folder below a root; a relative one is below the first.

        Raises UsageError for another path, and for a folder with a link that leads out.
        """
        if not text or "\0" in text:
            raise UsageError("the name of the file is empty or invalid")
        path = Path(os.path.realpath(self.folders[0] / text))
        self._require_inside(path, text)
        try:
            for file in _files_of_model(path):
                if file.is_symlink():
                    self._require_inside(Path(os.path.realpath(file)), text)
        except OSError as error:
            raise UsageError(f"the file cannot be read: {error.strerror}") from None
        return str(path)

    def _require_inside(self, path: Path, text: str) -> None:
        if not any(path.is_relative_to(folder) for folder in self.folders):
            names = ", ".join(map(str, self.folders))
            message = f"{text!r} is outside of the folders of this server"
            raise UsageError(message, hint=f"name a file below {names}")

    def require_no_file(self, text: str) -> str:
        """A feed whose value is written out. Raises UsageError for one that names a file."""
        value = text.partition("=")[2].strip()
        names_file = "@" in value and not value.startswith(_JSON_STARTS)
        if names_file or text.lstrip().startswith("@"):
            message = f"the feed {text!r} names a file"
            raise UsageError(message, hint="pass an .npz or .json file with the parameter feeds")
        return text


def _files_of_model(path: Path) -> Iterator[Path]:
    """The files that a command may read for a path: those of a folder, or next to a file.

    Raises UsageError for too many of them. A folder comes before what is in it, so that a link can
    be refused before it is followed.
    """
    if path.is_dir():
        yield from _tree(path)
    else:
        yield from path.parent.glob(f"{_escaped(path.name)}.*")
        for name in _MODEL_FOLDERS:
            yield from _tree(path.parent / name)
    for parent in {path, path.parent}:
        if parent.name in _MODEL_FOLDERS:  # a checkpoint of a SavedModel, which is read too
            yield from _tree(parent.parent)


def _tree(folder: Path) -> Iterator[Path]:
    """A folder and all below it, also through links."""
    yield folder
    count = 0
    for parent, folders, files in os.walk(folder, followlinks=True):
        for name in (*folders, *files):
            count += 1
            if count > _MAX_ENTRIES:
                message = f"the folder has more than {_MAX_ENTRIES} files"
                raise UsageError(message, path=folder, hint="name the folder of one model")
            yield Path(parent, name)


def _escaped(name: str) -> str:
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in name)
