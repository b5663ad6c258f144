"""Print the one JSON document that a command answers with."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

from cfgraph.document import document, render

# what the command has read and written so far, should its answer be an error
_DONE: Final[ContextVar[dict[str, list[Any]] | None]] = ContextVar("done", default=None)


def print_document(command: str, **members: Any) -> None:
    """Print the document of a command; the members are those of `cfgraph.document.document`."""
    print(render(document(command, **members)))


def begin() -> None:
    """Begin a command, which has read and written nothing."""
    _DONE.set({"inputs": [], "artifacts": []})


def remember(kind: str, member: Any) -> None:
    """Note what the command has read (`inputs`) or written (`artifacts`)."""
    done = _DONE.get()
    if done is not None:
        done[kind].append(member)


def done_so_far() -> dict[str, list[Any]]:
    """The members of a document that tell what was noted."""
    return _DONE.get() or {}
