"""Errors of the public API: message, location, hint, and exit code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

from cfgraph.reports import Column, Keywords, Maybe, Positive, Record

# hostile files contain names of megabytes
_MAX_SHOWN: Final = 10_000
# the name of the distribution on the index; the import package and the command are `cfgraph`
DISTRIBUTION: Final = "cfgraph-tools"
# the address of the documentation; $CFGRAPH_DOCS is that of a copy
DOCUMENTATION: Final = "https://cfgraph-tools.readthedocs.io/"


def install_hint(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


class Location(Record):
    """The place of an error or a finding."""

    path: Maybe[str] = None
    node: Maybe[str] = None
    frame: Maybe[str] = None  #: The path of a loop.
    device: Maybe[str] = None
    tensor: Maybe[str] = None
    line: Maybe[Positive] = None  #: Of a text, such as a pipeline.
    column: Maybe[Positive] = None  #: Of the line.


class ConditionInput(Record):
    """A tensor that a condition reads, and its values in the listed iterations."""

    tensor: str
    values: tuple[str, ...]
    changes: bool


class LoopState(Record):
    """Values that the condition of a loop read in its last iterations."""

    loop: Annotated[str, Column("name")]
    condition: str  #: The node of the condition.
    iterations: tuple[int, ...]  #: The iterations of `values`, the last one last.
    inputs: tuple[ConditionInput, ...]

    def lines(self) -> Iterator[str]:
        """The state as lines of a message."""
        numbers = ", ".join(map(str, self.iterations))
        yield f"condition '{self.condition}' of loop '{self.loop}', in iterations {numbers}, reads"
        for item in self.inputs:
            text = ", ".join(item.values) if item.changes else f"{item.values[-1]}, unchanged"
            yield f"  '{item.tensor}': {text}"


class ErrorReport(Record):
    """An error in a document."""

    code: str | None
    kind: str  #: The class of the error, as in InvalidInput; Bug for a bug of cfgraph.
    message: str
    hint: str | None
    where: Location
    #: The loop that exceeded a limit, and what its condition read last.
    loop: Maybe[LoopState] = None


FindingCode = Annotated[str | None, "As in CFG201."]
Level = Annotated[str, Keywords(enum=["error", "warning", "note"])]


class FindingReport(Record):
    """A finding in a document."""

    code: FindingCode
    level: Level
    message: str
    hint: str | None  #: What to do.
    where: Location
    related: Maybe[Sequence[str]] = None  #: Other nodes that it concerns.


class CfgraphError(Exception):
    """A failure that is not a bug in cfgraph: message, location, and hint."""

    exit_code: ClassVar[int] = 1
    # the state of the loop that exceeded a limit (`runtime/compiled/loop_watch.py`)
    loop: LoopState | None = None

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
        if self.loop is not None:
            lines += [f"  {line}" for line in self.loop.lines()]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def where(self) -> str:
        """Name the file, node, frame and device that the error concerns."""
        parts = (
            ("", self.path),
            ("node ", self.node and f"'{self.node}'"),
            ("frame ", self.frame and f"'{self.frame}'"),
            ("device ", self.device),
        )
        return ", ".join(f"{word}{value}" for word, value in parts if value)

    def location(self) -> Location:
        """Return the file, node, frame and device that the error concerns."""
        return Location(self.path, self.node, self.frame, self.device)

    def report(self) -> ErrorReport:
        """Return the error as a member of a command's JSON document."""
        kind = type(self).__name__
        return ErrorReport.from_attributes(self, kind=kind, where=self.location())

    def to_json(self) -> dict[str, Any]:
        """Return the error as a JSON object."""
        return self.report().to_json()


def _clipped(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"


class UsageError(CfgraphError):
    """A wrong command or call: an unknown name, or an invalid or missing feed."""

    exit_code = 2


class InvalidInput(CfgraphError):
    """A file that is missing, unreadable, or not a valid graph or tensor."""

    exit_code = 3

    @classmethod
    def of_faults(cls, faults: Sequence[Any], count: int | None = None) -> InvalidInput:
        """The first of the faults (errors or findings) as an error that has all as findings.

        `count` is the number of faults if `faults` lists only the first ones.
        """
        first, others = faults[0], (count or len(faults)) - 1
        more = f" (and {others} more fault{'s' * (others > 1)})" if others else ""
        return cls(
            first.message + more,
            node=first.node,
            frame=first.frame,
            hint=first.hint,
            code=first.code,
            findings=faults,
        )


class InvalidResult(RuntimeError):
    """A pass made an invalid graph from a valid one, which is a bug; `findings` are its errors."""

    def __init__(self, pass_name: str, findings: Sequence[Any]) -> None:
        first = findings[0]
        at = f" at node {first.node!r}" if first.node else ""
        text = f"{first.code}{at}: {first.message}"
        super().__init__(_clipped(f"{pass_name} made an invalid graph; this is a bug: {text}"))
        self.findings = tuple(findings)


class Unsupported(CfgraphError):
    """A valid graph that needs something cfgraph lacks: a kernel, a gradient, an extra."""

    exit_code = 4


class ExecutionError(CfgraphError):
    """A failed run: a kernel error, a starved or dead fetch, or a runaway loop.

    `waits` are the reasons for which nodes still wait, by node, in a run that hangs.
    `exceeded_loop` is the name of the loop that started too many iterations.
    """

    exit_code = 5
    waits: Mapping[str, str] = {}
    exceeded_loop: str = ""


class ProcessLost(ExecutionError):
    """A child process that ended, or gave no answer, while it worked on a part of a graph.

    One that `is_silent` would be no sooner done a second time. `failed_check` is what one printed
    that a check of a C++ library ended: the check, and the calls around it.
    """

    is_silent: bool = False
    failed_check: str = ""


class WorkerLost(ExecutionError):
    """A worker that ended, or cannot be reached, during a run on several workers.

    `worker` is its index, `host` and `devices` are its own, `waiting` the nodes that wait for it,
    and `variables` the names of the variables that are lost with it.
    """

    worker: int = 0
    host: str = ""
    devices: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


class RunTimeout(CfgraphError):
    """A run that exceeded its time limit."""

    exit_code = 6
