"""Runs of programs and shell lines with `cfgraph` and `python` on the PATH."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def run(
    command: Sequence[str],
    folder: Path,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder; how it ended is for the caller to judge."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
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
