"""The files that `run` writes: fetched arrays, and the trace."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, Final, Protocol

import numpy as np

from cfgraph.console.values import summary_text
from cfgraph.errors import UsageError
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.graph import Output
from cfgraph.runtime.feed_grammar import split_feed
from cfgraph.runtime.trace import TraceEvent
from cfgraph.runtime.trace_chrome import ChromeWriter
from cfgraph.runtime.trace_jsonl import JsonlWriter


class Writer(Protocol):
    """An observer with an end."""

    def event(self, event: TraceEvent) -> None:
        """Write one event."""

    def close(self) -> None:
        """Write what is left."""


_WRITERS: Final[dict[str, Callable[[IO[bytes], Callable[[Any], str]], Writer]]] = {
    ".json": ChromeWriter,
    ".jsonl": JsonlWriter,
}


class TraceFile:
    """A trace on its way into a file; the suffix says the form, `.gz` compresses.

    Raises UsageError for a name that says none, and for one that is `taken` by another file.
    """

    deferred = True

    def __init__(self, path: str, taken: Iterable[str] = ()) -> None:
        self.path = path
        kind = Path(path.removesuffix(".gz")).suffix
        if kind not in _WRITERS:
            hint = "write to FILE.json (Perfetto, Chrome) or FILE.jsonl, each also .gz"
            raise UsageError(f"{path!r} is no name for a trace", hint=hint)
        if os.path.realpath(path) in map(os.path.realpath, taken):
            raise UsageError("the file is to be written twice", path=path)
        self._files = StagedFiles()
        file = self._files.open(path)
        self._gzip: gzip.GzipFile | None = None
        target: Any = file
        if path.endswith(".gz"):
            self._gzip = target = gzip.GzipFile("", "wb", 6, file, mtime=0)
        self._writer = _WRITERS[kind](target, summary_text)
        self._target, self._head = target, target.tell()
        self.event = self._writer.event

    def close(self) -> None:
        """Write what is left, and let the file be seen."""
        with self._files:
            self._writer.close()
            if self._gzip is not None:
                self._gzip.close()

    def keep_what_there_is(self) -> bool:
        """Close it in the midst of a run; False, and no file, if nothing has happened yet."""
        if self._target.tell() == self._head:
            self._files.discard()
            return False
        self.close()
        return True


def output_places(outputs: Iterable[str], tensor: Callable[[str], Output]) -> dict[Output, str]:
    """Where `--out NAME=@FILE.npy` sends each tensor. Raises UsageError for what is not that."""
    places: dict[Output, str] = {}
    for text in outputs:
        name, value = split_feed(text)
        if not value.startswith("@") or not value.endswith(".npy"):
            raise UsageError(
                f"{text!r} is no place for an output", hint=f"write {name}=@{name}.npy"
            )
        places[tensor(name)] = value[1:]
    return places


def folder_places(folder: str, tensors: Iterable[Output]) -> dict[Output, str]:
    """A file in a folder for each tensor: `a/b:0` in `a_b.npy`, `a/b:1` in `a_b_1.npy`."""
    taken: dict[str, Output] = {}
    for item in tensors:
        # a name must not lead out of the folder, whatever the graph says
        name = base = item.node.name.replace("/", "_") + (f"_{item.port}" if item.port else "")
        number = 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        taken[name] = item
    return {item: str(Path(folder) / f"{name}.npy") for name, item in taken.items()}


def write_array(file: IO[bytes], item: Output, value: Any) -> None:
    """Write an array as .npy, strings as bytes. Raises UsageError for what is no array."""
    array = np.asarray(value)
    if array.dtype == object:
        if not all(isinstance(entry, bytes) for entry in array.flat):
            raise UsageError(f"{item.name} is no array that a file could hold")
        array = _bytes_array(array)
    elif array.dtype.kind == "V" or array.dtype.name.startswith("float8"):
        array = array.view(f"V{array.dtype.itemsize}")  # NumPy has no name for them in a file
    np.save(file, array, allow_pickle=False)


def _bytes_array(array: Any) -> Any:
    """Strings of one length each; NumPy drops zero bytes at the end, so these are refused."""
    fixed = array.astype(np.bytes_) if array.size else np.zeros(array.shape, "S1")
    if any(have != want for have, want in zip(fixed.flat, array.flat, strict=True)):
        message = "a string that ends in zero bytes cannot be kept in .npy"
        raise UsageError(message, hint="print it with --json")
    return fixed
