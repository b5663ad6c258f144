"""Choose nodes of a graph by glob, op, device or frame."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from cfgraph.analysis.frames import Frames
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.names import did_you_mean

FIELDS: Final = ("op", "device", "frame")


def select(graph: Graph, found: Frames, filters: Iterable[str]) -> list[Node]:
    """The nodes, in graph order, that pass every filter: `GLOB`, `op:X`, `device:X` or `frame:X`.

    Raises UsageError for a filter by something else.
    """
    chosen = list(graph)
    for text in filters:
        kind, pattern = _split(text)
        if kind == "op":
            chosen = [node for node in chosen if fnmatchcase(node.op, pattern)]
        elif kind == "device":
            chosen = [node for node in chosen if fnmatchcase(node.device, pattern)]
        elif kind == "frame":
            chosen = [node for node in chosen if _in_frame(found, node, pattern)]
        else:
            chosen = [node for node in chosen if fnmatchcase(node.name, pattern)]
    return chosen


def _split(text: str) -> tuple[str, str]:
    kind, colon, pattern = text.partition(":")
    if not colon:
        return "", text
    if kind not in FIELDS:
        hint = did_you_mean(kind, FIELDS) or "filter by GLOB, op:X, device:X or frame:X"
        raise UsageError(f"there is no filter by {kind!r}", hint=hint)
    return kind, pattern


def _in_frame(found: Frames, node: Node, pattern: str) -> bool:
    frame = found.of[node]
    return fnmatchcase(frame.path, pattern) or fnmatchcase(frame.name, pattern)
