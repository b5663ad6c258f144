"""Milliseconds until a command ends, compared with the import of its dependencies."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

from benchmarks.measurement import Row, alternating_times
from benchmarks.running import GRAPHS


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """`--help` against `import typer`; looking at a small graph and running it."""
    repeats = 1 if tiny else 10
    floor = [sys.executable, "-c", "import typer"]
    helped, typer = alternating_times(_run("--help"), lambda: _call(floor), repeats)
    yield Row("cfgraph --help", helped * 1e3, "ms", (typer or 0) * 1e3, 2)
    counter = str(GRAPHS / "counter.pb")
    shown, _ = alternating_times(_run("show", counter), None, repeats)
    yield Row("cfgraph show counter.pb", shown * 1e3, "ms")
    feeds = ["--feed", "n=3", "--fetch", "count:0"]
    ran, _ = alternating_times(_run("run", counter, *feeds), None, repeats)
    yield Row("cfgraph run counter.pb, 3 iterations", ran * 1e3, "ms")


def _run(*arguments: str) -> Callable[[], None]:
    command = [sys.executable, "-m", "cfgraph", *arguments]
    return lambda: _call(command)


def _call(command: list[str]) -> None:
    subprocess.run(command, capture_output=True, check=True)
