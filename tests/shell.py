"""Runs of programs and shell lines with `cfgraph` and `python` on the PATH."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests import warm


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
