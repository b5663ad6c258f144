"""Drawings by Graphviz, where its program `dot` is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from typing import Final

from cfgraph.errors import ExecutionError, Unsupported

PROGRAM: Final = "dot"


def svg_bytes(lines: Iterable[str]) -> bytes:
    """A digraph as SVG.

    Raises Unsupported where Graphviz is not installed, ExecutionError where it fails.
    """
    program = shutil.which(PROGRAM)
    if program is None:
        message = f"Graphviz is not installed: there is no program {PROGRAM!r}"
        raise Unsupported(message, hint="install graphviz, or use --html, which does without")
    text = "\n".join(lines).encode("utf-8", "backslashreplace")
    done = subprocess.run([program, "-Tsvg"], input=text, capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip() or f"code {done.returncode}"
        raise ExecutionError(f"Graphviz failed: {said}", hint="--html does without it")
    return done.stdout
