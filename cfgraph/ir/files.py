"""Loading and saving of graphs: formats are detected from the content, writes are atomic.

A partitioned graph is a folder: one file per device, and `manifest.json`, which lists them.

{"format": "cfgraph partitions", "version": 1,
 "parts": [{"device": "/job:…/device:CPU:0", "file": "….pb", "nodes": 12}, …]}
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.file_io import StagedFiles, decompress, read_file
from cfgraph.ir.graph import Graph, Node, require_graph
from cfgraph.ir.library import called_functions, copy_graph
from cfgraph.ir.serde import containers, graph_def
from cfgraph.ir.serde.containers import Saver, find_saver
from cfgraph.ir.serde.functions import function_to_bytes
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


def load(path: str | os.PathLike[str]) -> Graph:
    """Read a graph from a file, or from the folder of a SavedModel or of a partitioned graph.

    Raises InvalidInput if the file is missing, unreadable, or contains no graph.
    """
    return open_graph(path).graph


def loads(data: bytes, format: str | None = None) -> Graph:
    """Read a graph from bytes; the format is detected unless specified.

    Raises InvalidInput if they contain no graph.
    """
    return decode_graph(data, format).graph


def open_graph(path: str | os.PathLike[str], format: str | None = None) -> LoadedGraph:
    """Read a graph together with the format of its file. Raises like `load`."""
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
    """Read a graph from bytes together with their format. Raises like `loads`."""
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
    """`pbtxt` or `graph` for text data, else None."""
    if data[:_HEAD_BYTES].translate(None, _TEXT_BYTES):
        return None
    for start in range(0, len(data), _CHUNK_BYTES):
        if data[start : start + _CHUNK_BYTES].translate(None, _TEXT_BYTES):
            return None
    return "pbtxt" if _PBTXT_START.match(data) else "graph"


def _graph_from_text(data: bytes, kind: str) -> Graph:
    if kind == "graph":
        return parse_graph(data)
    return graph_def.graph_from_proto(containers.from_pbtxt(data))


def _check_format(format: str | None) -> None:
    if format is not None and format not in FORMATS:
        message = f"unknown format {format!r}"
        raise UsageError(message, hint=f"one of {', '.join(FORMATS)}")


def format_for_path(path: str | os.PathLike[str]) -> str:
    """The format that a file name implies for writing; `pb` by default."""
    name = str(path).removesuffix(".gz")
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
    if format == "pb":
        return graph_def.graph_to_bytes(graph)
    if format == "pbtxt":
        return containers.to_pbtxt(graph_def.graph_to_proto(graph))
    return print_graph(graph).encode() or b"versions\n"  # an empty file is not a graph


def dropped_field_bytes(graph: Graph, format: str) -> int:
    """The size of the unknown fields that a format drops: `pbtxt` has no form for them."""
    return containers.unknown_bytes(graph_def.graph_to_proto(graph)) if format == "pbtxt" else 0


def save(graph: Graph, path: str | os.PathLike[str], format: str | None = None) -> None:
    """Write a graph atomically; the suffix implies the format, `.gz` compresses.

    For a path that ends in `/`, or the folder of a partitioned graph, one file per device is
    written. Raises UsageError if the file cannot be written or the graph is not partitioned.
    """
    with StagedFiles() as files:
        stage_graph(graph, path, files, format)


def stage_graph(
    graph: Graph, path: str | os.PathLike[str], files: StagedFiles, format: str | None = None
) -> None:
    """Write a graph, as `save` does, when `files` are committed."""
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
    """Paths of a graph and of its variables' values, and the nodes that restore them."""

    path: str
    prefix: str
    saver: Saver


def saved_variables(path: str | os.PathLike[str], data: bytes) -> SavedVariables | None:
    """Variables stored with the SavedModel whose graph has the bytes `data`, or None."""
    folder = Path(path) if os.path.isdir(path) else Path(path).parent
    if not (folder / VARIABLES_PREFIX).with_suffix(".index").exists():
        return None
    saver = find_saver(decompress(data).removeprefix(_UTF8_BOM))
    return (
        None if saver is None else SavedVariables(str(path), str(folder / VARIABLES_PREFIX), saver)
    )


MANIFEST: Final = "manifest.json"
_FORMAT: Final = "cfgraph partitions"
_VERSION: Final = 1
_PLAIN_NAME: Final = re.compile(r"[\w.-]+").fullmatch


def is_partition_folder(path: str | os.PathLike[str]) -> bool:
    """True for a folder that contains a partitioned graph."""
    return os.path.isfile(os.path.join(path, MANIFEST))


def _split_by_device(graph: Graph) -> dict[str, Graph]:
    """One graph per device, with the functions that its nodes call; uncalled ones go to the first.

    Raises UsageError for a node without a device and for an edge between devices.
    """
    parts: dict[str, list[Node]] = {}
    for node in graph:
        _require_local_inputs(node)
        parts.setdefault(node.device, []).append(node)
    called = {device: called_functions(graph, (), nodes) for device, nodes in parts.items()}
    uncalled = set(graph.functions).difference(*called.values())
    if called:
        called[next(iter(called))].update(uncalled)
    return {device: _device_graph(graph, nodes, called[device]) for device, nodes in parts.items()}


def _device_graph(graph: Graph, nodes: list[Node], called: set[str]) -> Graph:
    partition = copy_graph(graph, nodes)
    for name in graph.functions:
        if name not in called:
            del partition.functions[name]
            partition.gradient_functions.pop(name, None)
    return partition


def _require_local_inputs(node: Node) -> None:
    hint = "partition the graph first"
    if not node.device:
        message = "the node has no device; each file stores one device"
        raise UsageError(message, node=node, hint=hint)
    for source in (*(item.node for item in node.inputs), *node.controls):
        if source.device != node.device:
            message = f"the input {source.name!r} is on another device; each file stores one device"
            raise UsageError(message, node=node, hint=hint)


def stage_partitions(
    graph: Graph,
    folder: str | os.PathLike[str],
    dumps: Callable[[Graph, str], bytes],
    files: StagedFiles,
    format: str = "pb",
) -> None:
    """Write a partitioned graph to a folder when `files` are committed.

    Files of an earlier graph in the folder are removed. Raises UsageError if the graph is not
    partitioned or a file cannot be written.
    """
    partitions, target = _split_by_device(graph), Path(folder)
    rows = [
        {"device": device, "file": f"{_file_name(device)}.{format}", "nodes": len(partition)}
        for device, partition in partitions.items()
    ]
    manifest = {"format": _FORMAT, "version": _VERSION, "parts": rows}
    stale = _existing_graph_files(target) - {str(row["file"]) for row in rows}
    files.make_folder(target)
    for name in (MANIFEST, *(str(row["file"]) for row in rows)):
        _require_no_link(target, name)
    for row, partition in zip(rows, partitions.values(), strict=True):
        files.write(target / str(row["file"]), dumps(partition, format))
    files.write(target / MANIFEST, json.dumps(manifest, indent=1).encode() + b"\n")
    for name in stale:
        files.remove(target / name)


def _require_no_link(folder: Path, name: str) -> None:
    """Raise UsageError if a file to write is a link out of the folder."""
    if not (folder / name).resolve().is_relative_to(folder.resolve()):
        message = f"{name!r} is a link to a file outside of the folder"
        raise UsageError(message, path=folder, hint="write to a new folder")


def _file_name(device: str) -> str:
    return re.sub(r"\W+", "_", device).strip("_")


def _existing_graph_files(folder: Path) -> set[str]:
    """Graph files listed in the manifest of an existing folder."""
    if not is_partition_folder(folder):
        return set()
    try:
        return set(_manifest_files(folder))
    except InvalidInput:
        return set()


def load_partitions(folder: str | os.PathLike[str], load: Callable[[bytes], Graph]) -> Graph:
    """Load the parts in a folder as one graph.

    Raises InvalidInput if the manifest or a file is invalid, or parts contradict each other.
    """
    source = Path(folder)
    whole = Graph()
    for number, name in enumerate(_manifest_files(source)):
        partition = load(read_file(source / name))
        if not number:
            whole.versions, whole.origin = partition.versions, partition.origin
        try:
            _merge_partition(whole, partition)
        except InvalidInput as error:
            error.path = error.path or str(source / name)
            raise
    return whole


def merge_partitions(parts: Iterable[Graph]) -> Graph:
    """Merge parts into one graph; their nodes move. Raises like `load_partitions`."""
    whole = Graph()
    for number, partition in enumerate(parts):
        if not number:
            whole.versions, whole.origin = partition.versions, partition.origin
        _merge_partition(whole, partition)
    return whole


def _manifest_files(folder: Path) -> Iterator[str]:
    """Files that a manifest lists. Raises InvalidInput for an invalid manifest."""
    path = folder / MANIFEST
    try:
        manifest: Any = json.loads(read_file(path))
        names = [name["file"] for name in manifest["parts"]]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise InvalidInput(
            "the manifest is not valid JSON with a list of parts", path=path, code="CFG004"
        ) from None
    if manifest.get("format") != _FORMAT or manifest.get("version") != _VERSION:
        message = f"the manifest does not have the format {_FORMAT!r}, version {_VERSION}"
        raise InvalidInput(message, path=path, code="CFG004")
    for name in names:
        # a manifest must not refer to files outside of its folder
        if not isinstance(name, str) or not _PLAIN_NAME(name) or name in (".", ".."):
            message = f"the manifest lists {name!r}, which is not the name of a file in the folder"
            raise InvalidInput(message, path=path, code="CFG004")
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            message = f"the part {name!r} is a link to a file outside of the folder"
            raise InvalidInput(message, path=path, code="CFG004")
    return iter(names)


def _merge_partition(whole: Graph, partition: Graph) -> None:
    """Move the nodes and functions of a part into the whole."""
    if partition.versions != whole.versions:
        message = f"the parts have different versions: {partition.versions} and {whole.versions}"
        raise InvalidInput(message, code="CFG120")
    for name, function in partition.functions.items():
        known = whole.functions.setdefault(name, function)
        if known is not function and function_to_bytes(known) != function_to_bytes(function):
            message = f"two different functions have the name {name!r}"
            raise InvalidInput(message, code="CFG104")
    whole.gradient_functions.update(partition.gradient_functions)
    whole.absorb(partition)
