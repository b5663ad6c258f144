"""How findings on liveness speak: values of predicates, and where a node is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfgraph.analysis.frames import Frames
from cfgraph.ir.graph import Node


def assignment(values: Mapping[str, Any]) -> str:
    """Values of predicates as a text: `p` true, `i` 2."""
    words = {True: "true", False: "false"}
    return ", ".join(
        f"`{name}` {words[value] if isinstance(value, bool) else value}"
        for name, value in values.items()
    )


def under(witness: Mapping[str, Any] | None) -> str:
    """The end of a sentence that says for which values of predicates something happens."""
    return f": with {assignment(witness)}" if witness else ""


def place_of(found: Frames, node: Node) -> str | None:
    """The frame that a node runs in; None for the root."""
    frame = found.of[node]
    return None if frame is found.root else str(frame)
