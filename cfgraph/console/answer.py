"""Print the one JSON document that a command answers with."""

from __future__ import annotations

from typing import Any

from cfgraph.document import document, render


def print_document(command: str, **members: Any) -> None:
    """Print the document of a command; the members are those of `cfgraph.document.document`."""
    print(render(document(command, **members)))
