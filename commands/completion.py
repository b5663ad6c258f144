"""Print what makes a shell complete commands and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    """The shells that can be taught."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def main(
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", show_default=False)],
) -> None:
    """Print what makes a shell complete commands and options."""
    from cfgraph.console.completion import completion_script

    typer.echo(completion_script(shell.value))
