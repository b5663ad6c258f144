"""Format graphs that are written as text, in place."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli.options import Exit, Json


def main(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Files in the text format (.graph), or - for standard input.",
            show_default=False,
        ),
    ],
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Write nothing; exit with status 1 if a file would be changed."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Format graphs that are written as text, in place."""
    from cfgraph.console.fmt import format_files

    raise Exit(format_files(files, check, json))
