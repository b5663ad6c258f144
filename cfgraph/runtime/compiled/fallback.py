"""Reasons for which a run uses the token executor instead of generated code."""

from __future__ import annotations

from cfgraph.ir.graph import Node


class NotCompiled(Exception):
    """Generated code cannot represent the run; `reason` says why, of which node."""

    def __init__(self, reason: str, node: Node | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node

    @property
    def text(self) -> str:
        """The reason with the name of the node."""
        return f"{self.reason} ({self.node.name!r})" if self.node is not None else self.reason
