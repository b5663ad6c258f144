"""Load and save graphs: the format is found from the content, and writes are atomic."""

from __future__ import annotations

import gzip
import os
import re
from dataclasses import dataclass
from typing import Final

from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir import serde, serde_formats, text
from cfgraph.ir.file_bytes import read_file, unpack
from cfgraph.ir.graph import Graph, require_graph
from cfgraph.ir.parts import is_folder_of_parts, load_parts, stage_parts
from cfgraph.ir.staged import StagedFiles

FORMATS: Final = ("pb", "pbtxt", "graph")
BOM: Final = b"\xef\xbb\xbf"
_TEXT: Final = bytes(range(32, 256)) + b"\t\n\r\f"
_HEAD: Final = 4096
_PBTXT: Final = re.compile(rb"\s*(#[^\n]*\n\s*)*[A-Za-z_]\w*\s*[:{<]")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A graph with what its file was: `pb`, `pbtxt`, `graph`, `meta` or `saved_model`.

    The folder of a partitioned graph is `parts`.
    """

    graph: Graph
    format: str
    size: int


def load(path: str | os.PathLike[str]) -> Graph:
    """Read a graph from a file, or from the folder of a SavedModel or of a partitioned graph.

    Raises InvalidInput where the file is missing, unreadable or holds no graph.
    """
    return open_graph(path).graph


def loads(data: bytes, format: str | None = None) -> Graph:
    """Read a graph from bytes; the format is found from them unless it is given.

    Raises InvalidInput where they hold no graph.
    """
    return decode(data, format).graph


def open_graph(path: str | os.PathLike[str], format: str | None = None) -> Loaded:
    """Read a graph, and say what kind of file it was. Raises like `load`."""
    try:
        if is_folder_of_parts(path):
            return _open_parts(path, format)
        return decode(read_file(path), format)
    except InvalidInput as error:
        error.path = error.path or str(path)
        raise


def _open_parts(path: str | os.PathLike[str], format: str | None) -> Loaded:
    sizes: list[int] = []

    def part(data: bytes) -> Graph:
        loaded = decode(data, format)
        sizes.append(loaded.size)
        return loaded.graph

    graph = load_parts(path, part)
    return Loaded(graph, "parts", sum(sizes))


def decode(data: bytes, format: str | None = None) -> Loaded:
    """Read a graph from bytes, and say what kind they were. Raises like `loads`."""
    _check_format(format)
    size = len(data)
    data = unpack(data).removeprefix(BOM)
    if not data:
        raise InvalidInput("the file is empty", code="CFG002")
    kind = format or _text_format(data)
    if kind in ("pbtxt", "graph"):
        return Loaded(_from_text(data, kind), kind, size)
    proto, kind = serde_formats.from_binary(data)
    return Loaded(serde.graph_from_proto(proto), kind, size)


def _text_format(data: bytes) -> str | None:
    """`pbtxt` or `graph` where the data are text, else None."""
    if data[:_HEAD].translate(None, _TEXT) or data.translate(None, _TEXT):
        return None
    return "pbtxt" if _PBTXT.match(data) else "graph"


def _from_text(data: bytes, kind: str) -> Graph:
    try:
        content = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"line {line} is not UTF-8: it has the byte {data[error.start]:#04x}"
        raise InvalidInput(message, code="CFG004") from None
    if kind == "graph":
        return text.parse_graph(content)
    return serde.graph_from_proto(serde_formats.from_pbtxt(content))


def _check_format(format: str | None) -> None:
    if format is not None and format not in FORMATS:
        message = f"unknown format {format!r}"
        raise UsageError(message, hint=f"one of {', '.join(FORMATS)}")


def format_of(path: str | os.PathLike[str]) -> str:
    """The format that a file's name asks for when it is written: `pb` unless it says otherwise."""
    name = str(path).removesuffix(".gz")
    if name.endswith((".pbtxt", ".pb.txt")):
        return "pbtxt"
    return "graph" if name.endswith(".graph") else "pb"


def suffix_without_format(path: str | os.PathLike[str]) -> str | None:
    """The suffix of a file's name that says nothing of the format it is written in, or None."""
    name = str(path)
    suffix = "" if name.endswith(os.sep) else os.path.splitext(name.removesuffix(".gz"))[1]
    return None if suffix in ("", ".pb") or format_of(path) != "pb" else suffix


def dumps(graph: Graph, format: str = "pb") -> bytes:
    """The bytes of a graph as `pb`, `pbtxt` or `graph`. Raises UsageError for another format."""
    require_graph(graph)
    _check_format(format)
    if format == "pb":
        return serde.graph_to_bytes(graph)
    if format == "pbtxt":
        return serde_formats.to_pbtxt(serde.graph_to_proto(graph))
    return text.print_graph(graph).encode()


def save(graph: Graph, path: str | os.PathLike[str], format: str | None = None) -> None:
    """Write a graph; the suffix says the format, `.gz` compresses. The file is whole or not there.

    A path that ends in `/`, or the folder of a partitioned graph, takes a file for each device.
    Raises UsageError where the file cannot be written, or the graph is not partitioned.
    """
    with StagedFiles() as files:
        stage(graph, path, files, format)


def stage(
    graph: Graph, path: str | os.PathLike[str], files: StagedFiles, format: str | None = None
) -> None:
    """Let a graph be at `path`, as `save` writes it, once `files` are in their places."""
    if str(path).endswith(("/", os.sep)) or is_folder_of_parts(path):
        stage_parts(graph, path, dumps, files, format or "pb")
        return
    data = dumps(graph, format or format_of(path))
    if str(path).endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    files.write(path, data)
