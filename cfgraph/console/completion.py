"""Shell completion: the script for a shell, and the answers to its requests."""

from __future__ import annotations

from typing import Any, Final

from typer._completion_classes import completion_init
from typer._completion_shared import get_completion_script
from typer.completion import shell_complete

# set by the shell that wants completions
COMPLETION_VARIABLE: Final = "_CFGRAPH_COMPLETE"


def completion_script(shell: str) -> str:
    """What a shell is to run so that it completes command lines."""
    return get_completion_script(prog_name="cfgraph", complete_var=COMPLETION_VARIABLE, shell=shell)


def complete(group: Any, instruction: str) -> int:
    """Answer the shell, which tells by other variables where it is."""
    completion_init()
    return shell_complete(group, {}, "cfgraph", COMPLETION_VARIABLE, instruction)
