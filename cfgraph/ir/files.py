"""Loading and saving of graphs: formats are detected from the content, writes are atomic."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.file_io import StagedFiles, decompress, require_path, require_readable_size
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, require_graph
from cfgraph.ir.partition_folder import is_partition_folder, load_partitions, stage_partitions
from cfgraph.ir.serde import containers, graph_def
from cfgraph.ir.serde.file_contents import FileSkeleton, file_size, read_graph_file
from cfgraph.ir.serde.foreign_formats import checkpoint_shard_error, foreign_format_error
from cfgraph.ir.serde.op_defs import declare_ops_of_file
from cfgraph.ir.text.parser import parse_graph
from cfgraph.ir.text.printer import print_graph

FORMATS: Final = ("pb", "pbtxt", "graph")
_UTF8_BOM: Final = b"\xef\xbb\xbf"
_TEXT_BYTES: Final = bytes(range(32, 256)) + b"\t\n\r\f"
_HEAD_BYTES: Final = 4096
_CHUNK_BYTES: Final = 1 << 20
_PBTXT_START: Final = re.compile(rb"\s*+(?:#[^\n]*+\n\s*+)*+[A-Za-z_]\w*+\s*+[:{<]")


@dataclass(frozen=True, slots=True)
class LoadedGraph:
    """A graph and the format of its file: `pb`, `pbtxt`, `graph`, `meta` or `saved_model`.

    The format of a folder with a partitioned graph is `parts`.
    """

    graph: Graph
    format: str
    size: int


def load(path: str | os.PathLike[str], *, op_defs: Iterable[str | os.PathLike[str]] = ()) -> Graph:
    """Read a graph from a file, or from the folder of a SavedModel or of a partitioned graph.

    `op_defs` are files that declare ops: OpLists, text or binary, or SavedModels. Their ops are
    known to the process from then on; those that a SavedModel contains always are.

    Raises InvalidInput if a file is missing, unreadable, or contains no graph or no OpDefs.
    """
    require_path(path, "cfgraph.loads reads a graph from bytes")
    for name in op_defs:
        declare_ops_of_file(name)
    return open_graph(path).graph


def loads(data: bytes, format: str | None = None) -> Graph:
    """Read a graph from bytes; the format is detected unless specified.

    Raises InvalidInput if they contain no graph, UsageError for anything but bytes.
    """
    _require_bytes(data)
    return decode_graph(data, format).graph


def _require_bytes(data: object) -> None:
    if not isinstance(data, bytes | bytearray | memoryview):
        hint = "pass text.encode()" if isinstance(data, str) else None
        raise UsageError(f"the graph is a {type(data).__name__}, expected bytes", hint=hint)


def open_graph(path: str | os.PathLike[str], format: str | None = None) -> LoadedGraph:
    """Read a graph together with the format of its file. Raises like `load`."""
    try:
        if is_partition_folder(path):
            return _open_partition_folder(path, format)
        return decode_graph(read_graph_file(path), format)
    except InvalidInput as error:
        raise located_error(error, str(path)) from None


def located_error(error: InvalidInput, path: str) -> InvalidInput:
    """The error with its path, or a better one for a path that names data of a checkpoint."""
    if error.path is None:
        error = checkpoint_shard_error(path) or error
        error.path = path
    return error


def _open_partition_folder(path: str | os.PathLike[str], format: str | None) -> LoadedGraph:
    sizes: list[int] = []

    def decode(data: bytes) -> Graph:
        loaded = decode_graph(data, format)
        sizes.append(loaded.size)
        return loaded.graph

    graph = load_partitions(path, decode)
    return LoadedGraph(graph, "parts", sum(sizes))


def decode_graph(data: bytes, format: str | None = None) -> LoadedGraph:
    """Read a graph from bytes together with their format. Raises like `loads`."""
    _check_format(format)
    size = file_size(data)
    # `data` holds the file open to which a graph without its contents refers
    content = decompress(data).removeprefix(_UTF8_BOM)
    if not content:
        raise InvalidInput("the file is empty", code="CFG002")
    kind = format or text_format(content)
    if kind in ("pbtxt", "graph"):
        return LoadedGraph(_graph_from_text(content, kind), kind, size)
    with paused_gc():
        parts, kind = containers.from_binary(content)
        if not isinstance(data, FileSkeleton):
            data = content = b""  # otherwise the file is in memory beside its graph
        return LoadedGraph(graph_def.graph_from_parts(parts), kind, size)


def text_format(data: bytes) -> str | None:
    """`pbtxt` or `graph` for text data, else None."""
    if data[:_HEAD_BYTES].translate(None, _TEXT_BYTES):
        return None
    for start in range(0, len(data), _CHUNK_BYTES):
        if data[start : start + _CHUNK_BYTES].translate(None, _TEXT_BYTES):
            return None
    return "pbtxt" if _PBTXT_START.match(data) else "graph"


def _graph_from_text(data: bytes, kind: str) -> Graph:
    try:
        if kind == "graph":
            return parse_graph(data)
        parts = containers.from_pbtxt(data)
    except InvalidInput as error:
        raise foreign_format_error(data) or error from None
    return graph_def.graph_from_parts(parts)


def _check_format(format: str | None) -> None:
    if format is not None and format not in FORMATS:
        message = f"unknown format {format!r}"
        raise UsageError(message, hint=f"one of {', '.join(FORMATS)}")


_FOREIGN_SUFFIXES: Final = (".h5", ".keras", ".mlir", ".onnx", ".pt", ".pth", ".tflite")


def format_for_path(path: str | os.PathLike[str]) -> str:
    """The format that a file name implies for writing; `pb` by default.

    Raises UsageError for the suffix of another program's models.
    """
    name = str(path).removesuffix(".gz")
    stem, suffix = os.path.splitext(name)
    if suffix.lower() in _FOREIGN_SUFFIXES:
        hint = f"write {stem}.pb, and convert that with the other program"
        raise UsageError(f"{suffix} is not a format of graphs", path=path, hint=hint)
    if name.endswith((".pbtxt", ".pb.txt")):
        return "pbtxt"
    return "graph" if name.endswith(".graph") else "pb"


def unknown_suffix(path: str | os.PathLike[str]) -> str | None:
    """The suffix of a file name if it does not imply a format, else None."""
    name = str(path)
    suffix = "" if name.endswith(os.sep) else os.path.splitext(name.removesuffix(".gz"))[1]
    return None if suffix in ("", ".pb") or format_for_path(path) != "pb" else suffix


def dumps(graph: Graph, format: str = "pb") -> bytes:
    """Serialize a graph as `pb`, `pbtxt` or `graph`; `pbtxt` drops unknown fields.

    Raises UsageError for another format.
    """
    require_graph(graph)
    _check_format(format)
    return b"".join(_graph_pieces(graph, format))


def _graph_pieces(graph: Graph, format: str) -> Iterable[bytes]:
    """A graph in a format; large contents that are left in a file come in pieces."""
    if format == "pb":
        return graph_def.graph_pieces(graph)
    if format == "pbtxt":
        text = containers.to_pbtxt(graph_def.graph_to_proto(graph))
    else:
        text = print_graph(graph).encode() or b"versions\n"  # an empty file is not a graph
    require_readable_size(len(text))
    return (text,)


def pbtxt_lines(graph: Graph) -> list[str]:
    """Return a graph as protobuf text, with one line per node and function."""
    return containers.to_pbtxt_lines(graph_def.graph_to_proto(graph))


def dropped_field_bytes(graph: Graph, format: str) -> int:
    """The size of the unknown fields that a format drops: `pbtxt` has no form for them."""
    return containers.unknown_bytes(graph_def.graph_to_proto(graph)) if format == "pbtxt" else 0


def save(graph: Graph, path: str | os.PathLike[str], format: str | None = None) -> None:
    """Write a graph atomically; the suffix implies the format, `.gz` compresses.

    For a path that ends in `/`, or the folder of a partitioned graph, one file per device is
    written. Raises UsageError if the file cannot be written or the graph is not partitioned.
    """
    require_path(path)
    with StagedFiles() as files:
        stage_graph(graph, path, files, format)


def stage_graph(
    graph: Graph, path: str | os.PathLike[str], files: StagedFiles, format: str | None = None
) -> None:
    """Write a graph, as `save` does, when `files` are committed."""
    if str(path).endswith(("/", os.sep)) or is_partition_folder(path):
        stage_partitions(graph, path, _graph_pieces, files, format or "pb")
        return
    pieces = _graph_pieces(graph, format or format_for_path(path))
    if str(path).endswith(".gz"):
        pieces = (gzip.compress(b"".join(pieces), mtime=0),)
    files.write(path, pieces)
