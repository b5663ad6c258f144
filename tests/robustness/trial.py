"""One command line under limits of time and memory, and the judgment of how it ended."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from cfgraph.cli import command_files
from cfgraph.cli import command_line as cli
from tests.integrations.python_export.generated_python import source_fault
from tests.robustness.cases import Case

MIB = 1 << 20
DOCUMENTED_STATUSES = frozenset({0, 1, 2, 3, 4, 5, 6})
# for commands that have these options
_TIMEOUT = 1.0
_MAX_MEMORY = 256 * MIB
_MAX_ITERATIONS = 64
# CPU seconds and bytes for those that have not, and a margin of both for all
_SECONDS = 4.0
_BYTES = 1024 * MIB
_GRACE_SECONDS = 1.0
_GRACE_BYTES = 64 * MIB
_FRAME = re.compile(r'File "[^"]*?/(cfgraph|commands)/([^"]+)", line \d+, in (\S+)')


class OutOfTime(BaseException):
    """Raised in the main thread when a command line has used up its CPU time."""


@dataclass(frozen=True)
class Finding:
    """A command line that did not end as documented."""

    kind: str  # bug, exception, hang, memory, status, or promise
    place: str
    line: tuple[str, ...]
    details: str = ""

    @property
    def key(self) -> str:
        return f"{self.kind} {self.place}"


@functools.cache
def warm_commands() -> None:
    """Make the command group and its commands once per process: they do not depend on a line."""
    group = cli.get_command(cli.app)
    commands = {name: group.files[name] for name in group.files}
    cli.get_command = lambda app: group
    command_files.CommandFiles.__getitem__ = lambda files, name: commands[name]


@functools.cache
def _options(command: str) -> frozenset[str]:
    """Limits that a command has options for."""
    group: Any = cli.get_command(cli.app)
    if command not in group.files:
        return frozenset()
    names = {name for param in group.files[command].params for name in param.opts}
    return frozenset(names & {"--timeout", "--max-memory", "--max-iterations"})


def write_files(case: Case, folder: Path) -> None:
    """Empty a folder and write the files of a case to it."""
    for entry in os.scandir(folder):
        if entry.is_dir():
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
    for name, data in case.files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)


def run_case(case: Case, folder: Path) -> Iterator[tuple[int, Finding | None]]:
    """Run the lines of a case in a folder; yield the status and a finding of each."""
    write_files(case, folder)
    size = max((len(data) for data in case.files.values()), default=0)
    with contextlib.chdir(folder):
        for line in case.lines:
            yield run_line(line, size)


def run_line(line: Sequence[str], size: int = 0) -> tuple[int, Finding | None]:
    """Run a command line that reads `size` bytes."""
    words = list(line)
    options = _options(words[0]) if words else frozenset()
    limits = {"--timeout": _TIMEOUT, "--max-memory": _MAX_MEMORY // MIB}
    limits["--max-iterations"] = _MAX_ITERATIONS
    for option in sorted(options - set(words)):
        unit = "MiB" * (option == "--max-memory")
        words += [option, f"{limits[option]}{unit}"]
    seconds = (_TIMEOUT if "--timeout" in options else _SECONDS) + _GRACE_SECONDS
    memory = 4 * size + _GRACE_BYTES
    memory += _MAX_MEMORY if "--max-memory" in options else _BYTES
    before = _memory_now()
    with _cpu_limit(seconds):
        status, output, failure = _captured(words)
    if isinstance(failure, OutOfTime):
        place = _place(traceback.format_tb(failure.__traceback__))
        return status, Finding("hang", place, tuple(words), _tail(failure))
    if failure is not None:
        place = f"{type(failure).__name__} {_place(traceback.format_tb(failure.__traceback__))}"
        return status, Finding("exception", place, tuple(words), _tail(failure))
    if status == 70:
        return status, _bug(words, seconds)
    if status not in DOCUMENTED_STATUSES:
        return status, Finding("status", str(status), tuple(words), output[-2000:])
    if (grown := _memory()[1] - before) > memory:
        return status, Finding("memory", words[0], tuple(words), f"{grown // MIB} MiB")
    if status == 1 and _must_agree(words):
        return status, Finding("promise", words[0], tuple(words), output[-2000:])
    if status == 0 and words[0] == "convert" and Path("out.py").exists():
        try:
            fault = source_fault(Path("out.py"))
        except Exception as error:
            fault = f"{type(error).__name__} in the file"
        if fault:
            return status, Finding("promise", "out.py", tuple(words), fault)
    return status, None


def _must_agree(words: Sequence[str]) -> bool:
    """True for lines that compare a graph with itself."""
    same = words[:3] == ["diff", "g.pb", "g.pb"]
    return same or (words[0] == "convert" and "--verify" in words)


def _bug(words: list[str], seconds: float) -> Finding:
    """Run a line that ended with status 70 again, for its traceback."""
    with _cpu_limit(2 * seconds):
        status, output, _ = _captured(["--debug", *words])
    if status != 70:
        return Finding("bug", "does not repeat", tuple(words), output[-2000:])
    text, _, message = output.rpartition("error: this is a bug in cfgraph: ")
    error = message.partition(":")[0].strip()
    return Finding("bug", f"{error} {_place([text])}", tuple(words), text[-3000:])


def _place(lines: list[str]) -> str:
    """The innermost function of cfgraph in a traceback."""
    frames = _FRAME.findall("".join(lines))
    return f"{frames[-1][1]}:{frames[-1][2]}" if frames else "outside"


def _tail(failure: BaseException) -> str:
    return "".join(traceback.format_exception(failure))[-3000:]


def _captured(words: Sequence[str]) -> tuple[int, str, BaseException | None]:
    """The exit status of a line, its output on both streams, and an exception that it raised."""
    before = sys.stdin, sys.stdout, sys.stderr
    out, err = io.BytesIO(), io.BytesIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(stream, encoding="utf-8", errors="backslashreplace", write_through=True)
        for stream in (out, err)
    )
    status, failure = -1, None
    try:
        status = cli.run(words)
    except (Exception, OutOfTime, SystemExit) as raised:
        failure = raised
    finally:
        streams = sys.stdout, sys.stderr
        sys.stdin, sys.stdout, sys.stderr = before
    with contextlib.suppress(OSError, ValueError):
        for stream in streams:
            stream.flush()
    text = b"".join(stream.getvalue()[-20000:] for stream in (out, err) if not stream.closed)
    return status, text.decode("utf-8", "replace"), failure


@contextlib.contextmanager
def _cpu_limit(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGPROF, stop)
    # once more each second, in case that something swallows the first
    signal.setitimer(signal.ITIMER_PROF, seconds, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _memory_now() -> int:
    """The bytes that this process has now; a higher peak of the past is forgotten."""
    now, peak = _memory()
    if peak - now > _GRACE_BYTES // 2:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return now


def _memory() -> tuple[int, int]:
    """The bytes that this process has now, and had at most."""
    text = _STATUS.read_text(encoding="ascii")
    return tuple(int(size) << 10 for size in reversed(_SIZES.findall(text)))


_STATUS = Path("/proc/self/status")
_SIZES = re.compile(r"^Vm(?:HWM|RSS):\s+(\d+) kB$", re.MULTILINE)
