"""How findings on liveness speak: values of predicates, and where a node is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cfgraph.analysis.frames import Frames
from cfgraph.ir.graph import Node

# what is said of a node that is no predicate, if it holds and if not
_MARKED: Final = {
    "live:": ("live", "dead"),
    "first:": ("reached by a live input first", "reached by a dead input first"),
    "arrives:": ("reached by all its inputs", "not reached by all its inputs"),
}


def assignment(values: Mapping[str, Any]) -> str:
    """Values of predicates as a text: `p` true, `i` 2, `while/Merge` live."""
    return ", ".join(_told(name, value) for name, value in values.items())


def _told(name: str, value: Any) -> str:
    if not isinstance(value, bool):
        return f"`{name}` {value}"
    for mark, (yes, no) in _MARKED.items():
        if name.startswith(mark):
            return f"`{name.removeprefix(mark)}` {yes if value else no}"
    return f"`{name}` {'true' if value else 'false'}"


def under(witness: Mapping[str, Any] | None) -> str:
    """The end of a sentence that says for which values of predicates something happens."""
    return f": with {assignment(witness)}" if witness else ""


def place_of(found: Frames, node: Node) -> str | None:
    """The frame that a node runs in; None for the root."""
    frame = found.of[node]
    return None if frame is found.root else str(frame)
