"""Reduce a graph to the smallest one for which a command fails."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli import options
from cfgraph.cli.transform_options import (
    ComparedRuns,
    FetchOptions,
    LimitedInputs,
    ReducedOutput,
    SizeOptions,
)

CommandLine = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- COMMAND...]",
        help="Command that fails; {} stands for the file of a graph.",
        show_default=False,
    ),
]
Status = Annotated[
    int | None,
    typer.Option(
        "--status",
        metavar="N",
        min=0,
        max=255,
        help="Exit status of the command for a graph that fails; 0 for scripts that succeed then. "
        "Default: the status for GRAPH.",
    ),
]
Match = Annotated[
    str | None,
    typer.Option(
        "--match",
        metavar="REGEX",
        help="Require that the output of the command, or its messages, match REGEX, too.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        min=1,
        help="Run the command on N graphs at a time. Default: the number of processors.",
    ),
]
RunTimeout = Annotated[
    float | None,
    typer.Option(
        "--run-timeout",
        metavar="SECONDS",
        min=0,
        callback=options.reject_nan,
        help="End the command after this time; its graph does not count then. Default: 10 s, and "
        "10 times the time for GRAPH.",
        rich_help_panel=options.ADVANCED,
    ),
]


def main(
    graph: options.Graph,
    outputs: ReducedOutput,
    fetches: FetchOptions,
    inputs: LimitedInputs,
    cases: SizeOptions,
    command: CommandLine = None,
    status: Status = None,
    match: Match = None,
    jobs: Jobs = None,
    run_timeout: RunTimeout = None,
) -> None:
    """Reduce a graph to the smallest one for which a command fails.

    The command fails for a graph if it exits with the same status as for GRAPH.
    """
    from cfgraph.console.comparisons.failing_command import CommandOptions
    from cfgraph.console.comparisons.reduce import reduce_command

    runs = ComparedRuns(inputs, cases, fetches)
    tested = CommandOptions(command or [], status, match, run_timeout)
    raise options.Exit(reduce_command(graph, tested, runs, outputs, jobs))
