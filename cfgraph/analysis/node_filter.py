"""Node filters by name glob, op, device, or frame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from cfgraph.analysis.loops.frame import Frames
from cfgraph.errors import UsageError
from cfgraph.ir.devices import LOCAL_TASK, merge_device_names, short_device_name
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.names import did_you_mean

_FILTER_FIELDS: Final = ("op", "device", "frame")


def select_nodes(graph: Graph, graph_frames: Frames, filters: Iterable[str]) -> list[Node]:
    """The nodes, in graph order, that match every filter: `GLOB`, `op:X`, `device:X`, or `frame:X`.

    Raises UsageError for an unknown kind of filter.
    """
    chosen = list(graph)
    for text in filters:
        kind, pattern = split_filter(text)
        chosen = [node for node in chosen if matches_filter(node, graph_frames, kind, pattern)]
    return chosen


def matches_filter(node: Node, graph_frames: Frames | None, kind: str, pattern: str) -> bool:
    """True if a node matches a filter by name (kind ``), op, device, or frame (which needs
    frames).
    """
    if kind == "frame":
        return graph_frames is not None and _in_frame(graph_frames, node, pattern)
    if kind == "device":
        return any(fnmatchcase(text, pattern) for text in _device_names(node.device))
    return fnmatchcase(node.op if kind == "op" else node.name, pattern)


def split_filter(text: str, fields: Sequence[str] = _FILTER_FIELDS) -> tuple[str, str]:
    """The kind and the pattern of a filter. Raises UsageError for an unknown kind."""
    kind, colon, pattern = text.partition(":")
    if not colon:
        return "", text
    if kind not in fields:
        names = ", ".join(f"{field}:X" for field in fields)
        hint = did_you_mean(kind, fields) or f"filter by GLOB or {names}"
        raise UsageError(f"unknown filter {kind!r}", hint=hint)
    return kind, pattern


def _device_names(device: str) -> tuple[str, ...]:
    """The names of a device: as written, and as `cpu:0` if that is equivalent."""
    return (
        (device, short_device_name(merge_device_names(device, str(LOCAL_TASK))))
        if device
        else ("",)
    )


def _in_frame(graph_frames: Frames, node: Node, pattern: str) -> bool:
    frame = graph_frames.of[node]
    matches = fnmatchcase(frame.path, pattern) or fnmatchcase(frame.name, pattern)
    return matches or frame.has_name(pattern)
