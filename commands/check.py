"""Find faults in graphs, each with a code and a hint."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli.options import Color, ColorChoice, Full, Graphs, Json, repeatable, split_list


def main(
    graphs: Graphs,
    fetch: Annotated[
        list[str],
        repeatable(
            "--fetch",
            "NAME",
            "Warn if this fetch may be dead, or races with another one in a run of all of them. "
            "Default: each output alone.",
        ),
    ] = [],
    target: Annotated[
        list[str],
        repeatable("--target", "NODE", "Check for races of this node in the run of the fetches."),
    ] = [],
    fail_level: Annotated[
        str,
        typer.Option(
            "--fail-level",
            metavar="error|warning|note",
            help="Exit with status 1 for findings of at least this level.",
        ),
    ] = "error",
    select: Annotated[
        str,
        typer.Option(
            "--select", metavar="CODES", help="Report only these codes, such as CFG201,CFG3*."
        ),
    ] = "",
    ignore: Annotated[
        str, typer.Option("--ignore", metavar="CODES", help="Do not report these codes.")
    ] = "",
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Always exit with status 0.")
    ] = False,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Output format: text, json, tsv, github, sarif, junit or markdown.",
        ),
    ] = "text",
    full: Full = False,
    json: Json = False,
    color: ColorChoice = Color.auto,
) -> None:
    """Find faults in graphs, each with a code and a hint."""
    from cfgraph.console.check import CheckOptions, check_graphs

    format = "json" if json else format
    codes = (split_list(select), split_list(ignore))
    endpoints = (*fetch, *(f"^{name}" for name in target))
    options = CheckOptions(fail_level, *codes, format, exit_zero, full, color, endpoints)
    raise typer.Exit(check_graphs(graphs, options))
