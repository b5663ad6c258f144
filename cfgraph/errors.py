"""Errors of the public API: message, location, hint, and exit code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

# a hostile file has names of megabytes; what nobody can read is not shown
_MAX_SHOWN: Final = 10_000
# the name of what pip installs; the package that one imports, and the command, are `cfgraph`
DISTRIBUTION: Final = "cfgraph-tools"


def install_hint(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


class CfgraphError(Exception):
    """A failure that is no bug of ours: a message, the place it concerns, and a hint."""

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        message: str,
        *,
        node: object = None,
        frame: object = None,
        device: object = None,
        hint: str | None = None,
        code: str | None = None,
        path: object = None,
        findings: Iterable[Any] = (),
    ) -> None:
        message = _clipped(message)
        super().__init__(message)
        self.message = message
        self.node = None if node is None else _clipped(str(getattr(node, "name", node)))
        self.frame = None if frame is None else str(frame)
        self.device = None if device is None else str(device)
        self.path = None if path is None else str(path)
        self.hint = hint
        self.code = code
        self.findings = tuple(findings)

    def __str__(self) -> str:
        lines = [self.message]
        if where := self.where():
            lines.append(f"  at {where}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def where(self) -> str:
        """Name the file, node, frame and device that the error concerns."""
        named = (
            ("", self.path),
            ("node ", self.node and f"'{self.node}'"),
            ("frame ", self.frame and f"'{self.frame}'"),
            ("device ", self.device),
        )
        return ", ".join(f"{word}{value}" for word, value in named if value)

    def to_json(self) -> dict[str, Any]:
        """Return the error as the `error` member of a command's JSON document."""
        where = {
            "path": self.path,
            "node": self.node,
            "frame": self.frame,
            "device": self.device,
        }
        return {
            "code": self.code,
            "kind": type(self).__name__,
            "message": self.message,
            "hint": self.hint,
            "where": {name: value for name, value in where.items() if value is not None},
        }


def _clipped(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"


class UsageError(CfgraphError):
    """The command or the call was wrong: an unknown name, a malformed or missing feed."""

    exit_code = 2


class InvalidInput(CfgraphError):
    """A file is missing, unreadable, or no valid graph or tensor."""

    exit_code = 3


class Unsupported(CfgraphError):
    """A valid graph asks for what we do not have: a kernel, a gradient, an extra."""

    exit_code = 4


class ExecutionError(CfgraphError):
    """A run failed: a kernel's error, a starved or dead fetch, a run-away loop."""

    exit_code = 5


class RunTimeout(CfgraphError):
    """A run took longer than it was allowed to."""

    exit_code = 6
