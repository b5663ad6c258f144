"""Report versions, extras, devices, and caches, or make a bundle for a bug report."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli.options import Color, ColorChoice, Exit, Json
from cfgraph.errors import UsageError


def main(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND...]",
            help="With --bundle: the command line that failed; it runs again.",
            show_default=False,
        ),
    ] = None,
    bundle: Annotated[
        str | None,
        typer.Option(
            "--bundle",
            metavar="FILE.zip",
            help="Write versions, the command, its messages and trace, and its graphs to a file.",
        ),
    ] = None,
    with_constants: Annotated[
        bool,
        typer.Option("--with-constants", help="Leave constants in the graphs of the bundle."),
    ] = False,
    json: Json = False,
    color: ColorChoice = Color.auto,
) -> None:
    """Report versions, extras, devices, and caches, or make a bundle for a bug report."""
    if bundle is None:
        from cfgraph.console.installation.doctor import run_doctor

        if command or with_constants:
            raise UsageError("a command is for a bundle", hint="add --bundle FILE.zip")
        raise Exit(run_doctor(json=json, color=color))
    from cfgraph.console.installation.bug_report import write_bundle

    raise Exit(
        write_bundle(
            bundle,
            command or [],
            with_constants=with_constants,
            json_output=json,
        )
    )
