"""A command as the test of a reduction: graphs for which it fails as for the original one."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import IO, Final

from cfgraph.comparison.reduce.subject import Subject
from cfgraph.errors import UsageError
from cfgraph.ir.files import dumps
from cfgraph.limits import current_limits

GRAPH_MARK: Final = "{}"
# a command may take this many times its time for the original graph, and seconds
_PATIENCE, _MIN_SECONDS = 10.0, 10.0
# of the output of a command
_MAX_OUTPUT_BYTES: Final = 16 << 20
_MAX_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """The command line, and what counts as a failure; fields are named as options."""

    command: Sequence[str] = ()
    status: int | None = None
    match: str | None = None
    run_timeout: float | None = None

    def pattern(self) -> re.Pattern[str] | None:
        """Return the pattern of the output. Raises UsageError for an invalid one."""
        if self.match is None:
            return None
        try:
            return re.compile(self.match, re.MULTILINE)
        except re.error as error:
            message = f"invalid --match {self.match!r}: {error}"
            raise UsageError(message, hint="write a regular expression of Python") from None

    def require_command(self) -> None:
        """Raise UsageError if there is no command, or no place for the graph in it."""
        if not self.command:
            message = "no command to test graphs with"
            raise UsageError(message, hint="add -- COMMAND {}, with {} for the file of a graph")
        if not any(GRAPH_MARK in word for word in self.command):
            message = "the command does not read a graph"
            raise UsageError(message, hint="write {} in place of the path of the graph")


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The exit status of a command, negative for a signal, None for a timeout, and its output."""

    status: int | None
    output: str


class CommandOracle:
    """Test that runs a command on each candidate, `width` of them at a time.

    The candidates are files of the same name in temporary folders.
    """

    def __init__(self, options: CommandOptions, format: str, name: str, width: int) -> None:
        self.options = options
        self.format = format
        self.name = name
        self.width = width
        self.pattern = options.pattern()
        self.status: int | None = options.status
        self.seconds: float | None = options.run_timeout

    def require_failure(self, subject: Subject) -> CommandResult:
        """Run the command on the original graph. Raises UsageError if it does not fail."""
        start = monotonic()
        with self._running([subject]) as runs:
            result = runs[0].result(self.seconds)
        if self.seconds is None:
            self.seconds = _MIN_SECONDS + _PATIENCE * (monotonic() - start)
        if result.status is None:
            message = f"the command does not end within {self.options.run_timeout} s"
            raise UsageError(message, hint="if it hangs: -- timeout 10 COMMAND {}")
        if self.status is None and result.status == 0:
            message = "the command succeeds for the graph: there is nothing to reduce"
            hint = "pass --status 0 if it succeeds for graphs that show the failure"
            raise UsageError(message, hint=hint)
        if self.status is not None and result.status != self.status:
            message = f"the command exits with {result.status} for the graph, not {self.status}"
            raise UsageError(message, hint=_last_line(result.output))
        self.status = result.status
        if self.pattern is not None and not self.pattern.search(result.output):
            message = f"the output for the graph does not match {self.options.match!r}"
            raise UsageError(message, hint=_last_line(result.output))
        return result

    def first_interesting(self, candidates: Sequence[Subject]) -> int | None:
        """Return the index of the first candidate for which the command fails."""
        with self._running(candidates) as runs:
            for index, run in enumerate(runs):
                result = run.result(self.seconds)
                is_match = self.pattern is None or self.pattern.search(result.output)
                if result.status == self.status and is_match:
                    return index
        return None

    @contextmanager
    def _running(self, candidates: Sequence[Subject]) -> Iterator[list[_CommandRun]]:
        """Start the command on each candidate; all processes have ended afterwards."""
        with tempfile.TemporaryDirectory(prefix="cfgraph-reduce-") as folder:
            runs: list[_CommandRun] = []
            try:
                for number, candidate in enumerate(candidates):
                    path = Path(folder, str(number), self.name)
                    path.parent.mkdir()
                    path.write_bytes(dumps(candidate.graphs[0], self.format))
                    runs.append(_CommandRun(self.options.command, path))
                yield runs
            finally:
                for run in runs:
                    run.end()


class _CommandRun:
    """A process of the command, in a group of its own, with its output in a file."""

    def __init__(self, command: Sequence[str], path: Path) -> None:
        self.start = monotonic()
        words = [word.replace(GRAPH_MARK, str(path)) for word in command]
        self.output: IO[bytes] = (path.parent / "output").open("w+b")
        try:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            self.output.close()
            message = f"the command cannot be run: {words[0]}: {error.strerror}"
            raise UsageError(
                message, hint="for a script of the shell: -- sh script.sh {}"
            ) from None

    def result(self, seconds: float | None) -> CommandResult:
        """Wait for the end of the process, at most `seconds` after its start."""
        limit = current_limits().deadline
        if seconds is not None:
            limit = min(limit, self.start + seconds)
        try:
            status = self.process.wait(None if limit == float("inf") else limit - monotonic())
        except subprocess.TimeoutExpired:
            current_limits().check_deadline()
            return CommandResult(None, "")
        self.output.seek(0)
        text = self.output.read(_MAX_OUTPUT_BYTES).decode("utf-8", "replace")
        return CommandResult(status, text)

    def end(self) -> None:
        """End the process, and those that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.output.close()


def _last_line(output: str) -> str | None:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return f"its output ends with: {lines[-1][:_MAX_SHOWN]}" if lines else None


def command_text(command: Sequence[str]) -> str:
    """Return a command line to paste."""
    return shlex.join(command).replace("'{}'", "{}")
