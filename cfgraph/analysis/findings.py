"""Findings of an analysis: a code, a message, and a location in the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cfgraph.errors import CfgraphError, InvalidInput

LEVELS = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Finding:
    """One error, warning, or note; `code` is in the catalog (`cfgraph.analysis.codes`)."""

    code: str
    level: str
    message: str
    node: str | None = None
    hint: str | None = None
    related: tuple[str, ...] = ()
    frame: str | None = None

    @classmethod
    def of_error(cls, error: CfgraphError) -> Finding:
        """The finding of an error that was raised."""
        return cls(
            error.code or "", "error", error.message, error.node, error.hint, (), error.frame
        )

    def __str__(self) -> str:
        where = f" at node '{self.node}'" if self.node else ""
        return f"{self.level}[{self.code}]: {self.message}{where}"

    def to_json(self) -> dict[str, Any]:
        """The finding as a member of a command's JSON document."""
        where = {"node": self.node, "frame": self.frame}
        return {
            "code": self.code,
            "level": self.level,
            "message": self.message,
            "hint": self.hint,
            "where": {name: value for name, value in where.items() if value is not None},
            "related": list(self.related),
        }


def require_no_findings(faults: Sequence[Finding]) -> None:
    """Raise InvalidInput for the first finding, carrying all of them, if there are any."""
    if not faults:
        return
    first = faults[0]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    raise InvalidInput(
        first.message + more,
        node=first.node,
        frame=first.frame,
        hint=first.hint,
        code=first.code,
        findings=faults,
    )
