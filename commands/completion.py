"""Print or install the completion script for a shell."""

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
        Shell | None,
        typer.Argument(
            metavar="[bash|zsh|fish]",
            help="Shell. Default with --install: the one that $SHELL names.",
            show_default=False,
        ),
    ] = None,
    install: Annotated[
        bool,
        typer.Option("--install", help="Install the script for this user, instead of printing it."),
    ] = False,
) -> None:
    """Print or install the completion script for a shell."""
    from cfgraph.cli.output import note
    from cfgraph.console.completion import completion_script
    from cfgraph.console.completion_install import install_completion, user_shell
    from cfgraph.errors import UsageError

    if shell is None and not install:
        raise UsageError("no shell is named", hint="cfgraph completion bash|zsh|fish, or --install")
    name = shell.value if shell is not None else user_shell()
    if not install:
        typer.echo(completion_script(name))
        return
    changed = install_completion(name)
    for path in changed:
        typer.echo(path)
    note(f"start a new {name} to use it" if changed else f"{name} completion is up to date")
