"""Shell completion: the script for a shell, and replies to its requests."""

from __future__ import annotations

from typing import Any, Final

from typer._completion_classes import completion_init
from typer._completion_shared import get_completion_script
from typer.completion import shell_complete

# the environment variable of a completion request
COMPLETION_VARIABLE: Final = "_CFGRAPH_COMPLETE"


def completion_script(shell: str) -> str:
    """Return the script that enables completion in a shell."""
    return get_completion_script(prog_name="cfgraph", complete_var=COMPLETION_VARIABLE, shell=shell)


def complete(group: Any, instruction: str) -> int:
    """Reply to a completion request, which is passed in environment variables."""
    completion_init()
    return shell_complete(group, {}, "cfgraph", COMPLETION_VARIABLE, instruction)
