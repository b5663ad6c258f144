"""Serve the commands that read graphs as tools of the Model Context Protocol."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli.options import reject_nan, repeatable


def main(
    root: Annotated[
        list[str],
        repeatable("--root", "DIR", "Read files only below this folder; links out are refused."),
    ] = [],
    call_timeout: Annotated[
        float,
        typer.Option(
            "--call-timeout",
            metavar="SECONDS",
            callback=reject_nan,
            help="End a call after this time.",
        ),
    ] = 60,
    call_memory: Annotated[
        str,
        typer.Option(
            "--call-memory", metavar="SIZE", help="Memory of a call, as --max-memory of a command."
        ),
    ] = "2GiB",
    max_answer: Annotated[
        str,
        typer.Option("--max-answer", metavar="SIZE", help="Cut lists and texts of larger answers."),
    ] = "64KiB",
) -> None:
    """Serve the commands that read graphs as tools of the Model Context Protocol."""
    from cfgraph.integrations.mcp.server import serve

    serve(root, call_timeout, call_memory, max_answer)
