"""Print the completion script for a shell."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    """Shells with a completion script."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def main(
    shell: Annotated[
        Shell, typer.Argument(metavar="bash|zsh|fish", help="Shell.", show_default=False)
    ],
) -> None:
    """Print the completion script for a shell."""
    from cfgraph.console.completion import completion_script

    typer.echo(completion_script(shell.value))
