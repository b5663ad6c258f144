"""A partitioned graph as a folder: one file per device, and `manifest.json`, which lists them.

{"format": "cfgraph partitions", "version": 1,
 "parts": [{"device": "/job:…/device:CPU:0", "file": "….pb", "nodes": 12}, …]}
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.file_io import MANIFEST, StagedFiles, read_file
from cfgraph.ir.graph import Graph, Node, Versions
from cfgraph.ir.library import called_functions, copy_graph
from cfgraph.ir.nested_text import parse_json
from cfgraph.ir.serde.functions import function_to_bytes

# late imports: few graphs are folders

_FORMAT: Final = "cfgraph partitions"
_VERSION: Final = 1
_ONE_DEVICE: Final = "each file of a folder stores one device"
_ALL_PARTS: Final = "copy all files that one `cfgraph partition` wrote, or write the folder again"
_PLAIN_NAME: Final = re.compile(r"[\w.-]+").fullmatch


def is_partition_folder(path: str | os.PathLike[str]) -> bool:
    """True for a folder that contains a partitioned graph."""
    return os.path.isfile(os.path.join(path, MANIFEST))


def _split_by_device(graph: Graph, folder: Path) -> dict[str, Graph]:
    """One graph per device, with the functions that its nodes call; uncalled ones go to the first.

    Raises UsageError for a node without a device and for an edge between devices.
    """
    parts: dict[str, list[Node]] = {}
    for node in graph:
        _require_local_inputs(node, folder)
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


def _require_local_inputs(node: Node, folder: Path) -> None:
    hint = (
        f"write one file, such as {folder}.pb, or partition the graph first;"
        " only `grad` and `functionalize` write a SavedModel, from one"
    )
    if not node.device:
        message = f"the node has no device; {_ONE_DEVICE}"
        raise UsageError(message, node=node, hint=hint)
    for source in node.predecessors:
        if source.device != node.device:
            message = f"the input {source.name!r} is on another device; {_ONE_DEVICE}"
            raise UsageError(message, node=node, hint=hint)


def stage_partitions(
    graph: Graph,
    folder: str | os.PathLike[str],
    pieces_of: Callable[[Graph, str], Iterable[bytes]],
    files: StagedFiles,
    format: str = "pb",
) -> None:
    """Write a partitioned graph to a folder when `files` are committed.

    Files of an earlier graph in the folder are removed. Raises UsageError if the graph is not
    partitioned or a file cannot be written.
    """
    import json

    target = Path(folder)
    partitions = _split_by_device(graph, target)
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
        files.write(target / str(row["file"]), pieces_of(partition, format))
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
        partition = load(_read_part(source, name))
        if not number:
            whole.versions, whole.origin = partition.versions, partition.origin
        try:
            _merge_partition(whole, partition)
        except InvalidInput as error:
            error.path = error.path or str(source / name)
            raise
    return whole


def _read_part(folder: Path, name: str) -> bytes:
    """The bytes of a part. Raises InvalidInput for a file that is missing or unreadable."""
    try:
        return read_file(folder / name)
    except InvalidInput as error:
        if not (folder / name).exists():
            error.hint = f"{MANIFEST} lists it; {_ALL_PARTS}, or name another part alone"
        raise


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
        manifest: Any = parse_json(read_file(path).decode())
        names = [name["file"] for name in manifest["parts"]]
    except (ValueError, LookupError, TypeError):
        raise InvalidInput(
            "the manifest is not valid JSON with a list of parts",
            path=path,
            hint="write the folder again with `cfgraph partition`, or name one of its graphs",
            code="CFG004",
        ) from None
    if manifest.get("format") != _FORMAT or manifest.get("version") != _VERSION:
        message = f"the manifest does not have the format {_FORMAT!r}, version {_VERSION}"
        hint = "another version of cfgraph wrote it: use that one, or name one of its graphs"
        raise InvalidInput(message, path=path, hint=hint, code="CFG004")
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
        texts = [_version_text(graph.versions) for graph in (partition, whole)]
        message = f"the parts have different versions: {' and '.join(texts)}"
        raise InvalidInput(message, hint=_ALL_PARTS, code="CFG120")
    for name, function in partition.functions.items():
        known = whole.functions.setdefault(name, function)
        if known is not function and function_to_bytes(known) != function_to_bytes(function):
            message = f"two different functions have the name {name!r}"
            raise InvalidInput(message, hint=_ALL_PARTS, code="CFG104")
    whole.gradient_functions.update(partition.gradient_functions)
    whole.absorb(partition)


def _version_text(versions: Versions) -> str:
    bad = ", ".join(map(str, versions.bad_consumers))
    text = f"producer {versions.producer}, consumer {versions.min_consumer} or newer"
    return f"{text}, but not {bad}" if bad else text
