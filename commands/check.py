"""Find faults in graphs, each with a code and a hint."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.options import Color, ColorChoice, Full, Graphs, Json, split_list


def main(
    graphs: Graphs,
    fetch: Annotated[
        list[str],
        typer.Option("--fetch", metavar="NAME", help="Warn if this fetch may be dead; repeats."),
    ] = [],
    fail_level: Annotated[
        str, typer.Option("--fail-level", metavar="LEVEL", help="Leave with 1 from this level on.")
    ] = "error",
    select: Annotated[
        str, typer.Option("--select", metavar="CODES", help="Only these codes: CFG201,CFG3*.")
    ] = "",
    ignore: Annotated[str, typer.Option("--ignore", metavar="CODES", help="Not these codes.")] = "",
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Leave with 0 whatever is found.")
    ] = False,
    format: Annotated[
        str,
        typer.Option("--format", metavar="FORMAT", help="text, json, tsv, github, sarif or junit."),
    ] = "text",
    full: Full = False,
    json: Json = False,
    color: ColorChoice = Color.auto,
) -> None:
    """Find faults in graphs, each with a code and a hint."""
    from cfgraph.console.check import CheckOptions, check_graphs

    format = "json" if json else format
    codes = (split_list(select), split_list(ignore))
    options = CheckOptions(fail_level, *codes, format, exit_zero, full, color, tuple(fetch))
    raise typer.Exit(check_graphs(graphs, options))
