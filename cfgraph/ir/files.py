"""Loading and saving of graphs: the format is detected from the content, and writes are atomic."""

from __future__ import annotations

import gzip
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.file_io import StagedFiles, decompress, read_file
from cfgraph.ir.graph import Graph, require_graph
from cfgraph.ir.partition_folder import is_partition_folder, load_partitions, stage_partitions
from cfgraph.ir.serde import containers, graph_def
from cfgraph.ir.serde.containers import Saver, find_saver
from cfgraph.ir.text.parser import parse_graph
from cfgraph.ir.text.printer import print_graph

FORMATS: Final = ("pb", "pbtxt", "graph")
_UTF8_BOM: Final = b"\xef\xbb\xbf"
_TEXT_BYTES: Final = bytes(range(32, 256)) + b"\t\n\r\f"
_HEAD_BYTES: Final = 4096
_PBTXT_START: Final = re.compile(rb"\s*(#[^\n]*\n\s*)*[A-Za-z_]\w*\s*[:{<]")


@dataclass(frozen=True, slots=True)
class LoadedGraph:
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
    return decode_graph(data, format).graph


def open_graph(path: str | os.PathLike[str], format: str | None = None) -> LoadedGraph:
    """Read a graph, and say what kind of file it was. Raises like `load`."""
    try:
        if is_partition_folder(path):
            return _open_partition_folder(path, format)
        return decode_graph(read_file(path), format)
    except InvalidInput as error:
        error.path = error.path or str(path)
        raise


def _open_partition_folder(path: str | os.PathLike[str], format: str | None) -> LoadedGraph:
    sizes: list[int] = []

    def decode(data: bytes) -> Graph:
        loaded = decode_graph(data, format)
        sizes.append(loaded.size)
        return loaded.graph

    graph = load_partitions(path, decode)
    return LoadedGraph(graph, "parts", sum(sizes))


def decode_graph(data: bytes, format: str | None = None) -> LoadedGraph:
    """Read a graph from bytes, and say what kind they were. Raises like `loads`."""
    _check_format(format)
    size = len(data)
    data = decompress(data).removeprefix(_UTF8_BOM)
    if not data:
        raise InvalidInput("the file is empty", code="CFG002")
    kind = format or _text_format(data)
    if kind in ("pbtxt", "graph"):
        return LoadedGraph(_graph_from_text(data, kind), kind, size)
    proto, kind = containers.from_binary(data)
    return LoadedGraph(graph_def.graph_from_proto(proto), kind, size)


def _text_format(data: bytes) -> str | None:
    """`pbtxt` or `graph` where the data are text, else None."""
    if data[:_HEAD_BYTES].translate(None, _TEXT_BYTES) or data.translate(None, _TEXT_BYTES):
        return None
    return "pbtxt" if _PBTXT_START.match(data) else "graph"


def _graph_from_text(data: bytes, kind: str) -> Graph:
    try:
        content = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"line {line} is not UTF-8: it has the byte {data[error.start]:#04x}"
        raise InvalidInput(message, code="CFG004") from None
    if kind == "graph":
        return parse_graph(content)
    return graph_def.graph_from_proto(containers.from_pbtxt(content))


def _check_format(format: str | None) -> None:
    if format is not None and format not in FORMATS:
        message = f"unknown format {format!r}"
        raise UsageError(message, hint=f"one of {', '.join(FORMATS)}")


def format_for_path(path: str | os.PathLike[str]) -> str:
    """The format that a file's name asks for when it is written: `pb` unless it says otherwise."""
    name = str(path).removesuffix(".gz")
    if name.endswith((".pbtxt", ".pb.txt")):
        return "pbtxt"
    return "graph" if name.endswith(".graph") else "pb"


def unknown_suffix(path: str | os.PathLike[str]) -> str | None:
    """The suffix of a file's name that says nothing of the format it is written in, or None."""
    name = str(path)
    suffix = "" if name.endswith(os.sep) else os.path.splitext(name.removesuffix(".gz"))[1]
    return None if suffix in ("", ".pb") or format_for_path(path) != "pb" else suffix


def dumps(graph: Graph, format: str = "pb") -> bytes:
    """The bytes of a graph as `pb`, `pbtxt` or `graph`. Raises UsageError for another format."""
    require_graph(graph)
    _check_format(format)
    if format == "pb":
        return graph_def.graph_to_bytes(graph)
    if format == "pbtxt":
        return containers.to_pbtxt(graph_def.graph_to_proto(graph))
    return print_graph(graph).encode()


def save(graph: Graph, path: str | os.PathLike[str], format: str | None = None) -> None:
    """Write a graph; the suffix says the format, `.gz` compresses. The file is whole or not there.

    A path that ends in `/`, or the folder of a partitioned graph, takes a file for each device.
    Raises UsageError where the file cannot be written, or the graph is not partitioned.
    """
    with StagedFiles() as files:
        stage_graph(graph, path, files, format)


def stage_graph(
    graph: Graph, path: str | os.PathLike[str], files: StagedFiles, format: str | None = None
) -> None:
    """Let a graph be at `path`, as `save` writes it, once `files` are in their places."""
    if str(path).endswith(("/", os.sep)) or is_partition_folder(path):
        stage_partitions(graph, path, dumps, files, format or "pb")
        return
    data = dumps(graph, format or format_for_path(path))
    if str(path).endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    files.write(path, data)


VARIABLES_PREFIX: Final = Path("variables", "variables")


@dataclass(frozen=True, slots=True)
class SavedVariables:
    """Where a graph and the values of its variables are, and what of the graph restores them."""

    path: str
    prefix: str
    saver: Saver


def saved_variables(path: str | os.PathLike[str], data: bytes) -> SavedVariables | None:
    """The variables beside the graph of a SavedModel, whose bytes are `data`; None without any."""
    folder = Path(path) if os.path.isdir(path) else Path(path).parent
    if not (folder / VARIABLES_PREFIX).with_suffix(".index").exists():
        return None
    saver = find_saver(decompress(data).removeprefix(_UTF8_BOM))
    return (
        None if saver is None else SavedVariables(str(path), str(folder / VARIABLES_PREFIX), saver)
    )
