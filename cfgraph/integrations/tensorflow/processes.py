"""Answers of TensorFlow's modes, and how one fails: by an error, a signal, a hang, or garbage."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from types import TracebackType
from typing import Any, Final

from cfgraph.errors import ProcessLost, Unsupported, install_hint
from cfgraph.integrations.tensorflow.modes import Mode
from cfgraph.limits import current_limits
from cfgraph.processes.child_process import ChildProcess, ChildProgram
from cfgraph.processes.messages import ProcessMessage

PROGRAM: Final = ChildProgram(
    module="cfgraph.integrations.tensorflow.mode_program",
    task="imported TensorFlow",
    code=None,
    hint="the system may have no memory left: close other programs, or reduce the graph",
    is_confined=False,
    start_seconds=300.0,
    idle_seconds=inf,  # it waits for the processes of the modes
    environment={"PYTHONHASHSEED": "0"},  # tf2onnx iterates over sets of names
)
DEFAULT_SECONDS: Final = 60.0
DEFAULT_MEMORY: Final = 6 << 30
# beyond those of a mode, to fork its process and to pass the values on
_CONTROL_SECONDS: Final = 60.0
# lines of the log of a failure
_MAX_LINES: Final = 4
_OUT_OF_MEMORY: Final = re.compile(r"bad_alloc|MemoryError|[Oo]ut of memory|RESOURCE_EXHAUSTED")
_STAMP: Final = re.compile(r"^[IWEF]?\d{4} [\d:.]+ +\d+ |^\d{4}-\d\d-\d\d [\d:.]+: ")
_MISSING: Final = "No module named 'tensorflow'"
_UNSUPPORTED: Final = ("UnimplementedError", "ConverterError")
_UNCOMPILED: Final = re.compile(
    r"unsupported operations|not supported by this interpreter|explicitly marked illegal"
    r"|neither a custom op nor a flex op|Op type not registered"
    r"|No OpKernel was registered|No registered '[^']*' OpKernel"
    r"|requires a fixed tensor list size|Graph does not contain node"
)
# lines before the reason in a message of the executor
_TRACE: Final = re.compile(
    r"\s*$|Graph execution error:|Detected at node |<stack traces unavailable>|\s+File "
    r"|\d+ root error\(s\) found"
)
_NUMBERS: Final = re.compile(r"0x[0-9a-f]+|\d+")
_NAMES: Final = re.compile(r"\{\{[^}]*\}\}|'[^']*'|\"[^\"]*\"|\[[^\]]*\]")


@dataclass(frozen=True, slots=True)
class ModeFailure:
    """A failure of TensorFlow.

    `kind` is `error` for one that it reports, `unsupported` for a graph that the mode cannot
    run, else `signal`, `exit`, `timeout`, `garbage`, or
    `memory`. `log` has the last lines that the process printed.
    """

    kind: str
    message: str
    error: str = ""
    log: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """The first line of the message after the trace of a node."""
        lines = self.message.splitlines()
        return next((line.strip() for line in lines if not _TRACE.match(line)), self.kind)

    @property
    def signature(self) -> tuple[str, str, str]:
        """Kind, error class, and reason without names and numbers, equal for equal failures."""
        return self.kind, self.error, _NUMBERS.sub("#", _NAMES.sub("", self.reason)).strip()


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a mode to one request: a message, or a failure; and what was printed."""

    message: ProcessMessage | None = None
    failure: ModeFailure | None = None
    log: tuple[str, ...] = ()


def _answer(reply: ProcessMessage) -> Answer:
    """The answer of a mode, from the message of the process that imported TensorFlow."""
    log = tuple(_STAMP.sub("", line) for line in reply.header["log"])
    failure = reply.header.get("failure")
    if failure is None:
        return Answer(reply, log=log)
    return Answer(failure=_classified(ModeFailure(**failure, log=log[-_MAX_LINES:])), log=log)


def _classified(failure: ModeFailure) -> ModeFailure:
    """The failure with the kind that its message or log reveals."""
    kind, text = failure.kind, failure.message
    if kind == "error" and (failure.error in _UNSUPPORTED or _UNCOMPILED.search(text)):
        return replace(failure, kind="unsupported")
    if kind in ("exit", "signal") and any(map(_OUT_OF_MEMORY.search, failure.log)):
        return replace(failure, kind="memory", message=f"out of memory ({text})")
    return failure


class ModePool:
    """The modes of TensorFlow, behind one process that has imported it; starts on demand."""

    def __init__(
        self,
        program: ChildProgram = PROGRAM,
        seconds: float = DEFAULT_SECONDS,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        self.program = program
        self.seconds = seconds
        self.memory = memory
        self.version = ""
        self._process: ChildProcess | None = None

    def __enter__(self) -> ModePool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.close()

    def request(
        self, mode: Mode, message: ProcessMessage, environment: Mapping[str, str] | None = None
    ) -> Answer:
        """Return the answer of a mode; with `environment`, that of a process of its own.

        A request is repeated once if the process that imported TensorFlow ended. Raises Unsupported
        without TensorFlow, and ProcessLost if that process ends again, or is silent.
        """
        flags = {"TF_XLA_FLAGS": mode.flags} if mode.flags else {}
        header = {
            **message.header,
            "mode": mode.name,
            "seconds": self.seconds,
            "memory": self.memory,
            "environment": {**flags, **(environment or {})},
            "is_single": environment is not None,
        }
        try:
            return _answer(self._request("run", header, message.arrays))
        except ProcessLost as error:
            if error.is_silent:
                raise
            return _answer(self._request("run", header, message.arrays))

    def _request(
        self, kind: str, header: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> ProcessMessage:
        fields = {"kind": kind, "max_bytes": current_limits().max_bytes, **header}
        request, seconds = ProcessMessage(fields, arrays), self.seconds + _CONTROL_SECONDS
        return self._started().request(request, seconds=seconds)

    def _started(self) -> ChildProcess:
        """The process that has imported TensorFlow. Raises Unsupported if it cannot."""
        if self._process is not None:
            if self._process.is_usable:
                return self._process
            self._process.close()
        self._process = ChildProcess(self.program)
        try:
            self.version = str(self._request("version", {}, {}).header["version"])
        except ProcessLost as error:
            message = "TensorFlow cannot be started"
            if _MISSING not in error.message:
                message += f": {error.message}"
            raise Unsupported(message, hint=install_hint("interop")) from None
        return self._process
