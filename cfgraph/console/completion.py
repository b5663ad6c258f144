"""Completion of command lines: the script that a shell runs, and the answers that it asks for."""

from __future__ import annotations

from typing import Any, Final

from typer._completion_classes import completion_init
from typer._completion_shared import get_completion_script
from typer.completion import shell_complete

# set by the shell that wants completions
VARIABLE: Final = "_CFGRAPH_COMPLETE"


def completion_script(shell: str) -> str:
    """What a shell is to run so that it completes command lines."""
    return get_completion_script(prog_name="cfgraph", complete_var=VARIABLE, shell=shell)


def complete(group: Any, instruction: str) -> int:
    """Answer the shell, which tells by other variables where it is."""
    completion_init()
    return shell_complete(group, {}, "cfgraph", VARIABLE, instruction)
