"""Runs of programs and shell lines with `cfgraph` and `python` on the PATH."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from cfgraph.cli import command_line as cli
from tests import warm

# what a line has that bash does more with than to split it into words
_SHELL = set("|&;<>$`*?[~#(){}\\\n")


def run(
    command: Sequence[str],
    folder: Path,
    env: Mapping[str, str] | None = None,
    *,
    cold: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder; how it ended is for the caller to judge.

    `cfgraph` and `python` are forked from a process that has all of cfgraph, unless `cold` is set.
    """
    first = Path(sys.executable).parent if cold else warm.programs()
    path = os.pathsep.join([str(first), str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, **(env or {})},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def run_line(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of bash, which fails where any part of a pipe does."""
    return run(["bash", "-o", "pipefail", "-c", line], folder)


def run_alone(line: str, folder: Path) -> tuple[str, int]:
    """Run a line in a folder; returns the output of both streams, and the exit status.

    A command of cfgraph is run in this process, and all else by bash.
    """
    words = [] if set(line) & _SHELL else shlex.split(line)
    if words[:1] != ["cfgraph"]:
        done = run(["bash", "-o", "pipefail", "-c", f"({line}) 2>&1"], folder)
        return done.stdout, done.returncode
    with tempfile.NamedTemporaryFile() as both:
        # buffered as in a process whose output goes to a file or a pipe
        with (
            open(both.name, "a") as out,
            open(both.name, "a", buffering=1) as err,
            contextlib.chdir(folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            status = cli.run(words[1:])
        return both.read().decode(), status
