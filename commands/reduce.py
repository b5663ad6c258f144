"""Reduce a graph to the smallest one for which a command fails, or that differs from another."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli import options
from cfgraph.cli.transform_options import (
    ComparedRuns,
    FetchOptions,
    ReducedOutput,
    ReduceInputs,
    ToleranceOptions,
)
from cfgraph.errors import UsageError

CommandLine = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- COMMAND...]",
        help="Command that fails; {} stands for the file of a graph.",
        show_default=False,
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="B",
        help="Reduce GRAPH and B together, while runs of both differ; instead of a command. "
        "With --with, a mode of TensorFlow to compare with instead of cfgraph.",
    ),
]
With = Annotated[
    str | None,
    typer.Option(
        "--with",
        metavar="tensorflow:MODE",
        help="Reduce GRAPH while TensorFlow runs it wrongly in a MODE: graph, grappler, autojit, "
        "jit, or lite.",
    ),
]
Report = Annotated[
    str | None,
    typer.Option(
        "--report",
        metavar="DIR",
        help="With --with, write a report to DIR: repro.py, which shows the fault with TensorFlow "
        "alone, issue.md, graph.pb, and graph.graph.",
    ),
]
AgainstOut = Annotated[
    str | None,
    typer.Option(
        "--against-out",
        metavar="FILE",
        help="Write the reduced B to FILE. Default: next to the graph, as in small.against.pb.",
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
        help="End the test of a graph after this time. A graph whose command is ended does not "
        "count; default: 10 s, and 10 times the time for GRAPH. A run of TensorFlow that is ended "
        "counts as hanging; default: 60 s.",
        rich_help_panel=options.ADVANCED,
    ),
]


def main(
    graph: options.Graph,
    outputs: ReducedOutput,
    fetches: FetchOptions,
    inputs: ReduceInputs,
    cases: ToleranceOptions,
    command: CommandLine = None,
    against: Against = None,
    with_: With = None,
    report: Report = None,
    against_out: AgainstOut = None,
    status: Status = None,
    match: Match = None,
    jobs: Jobs = None,
    run_timeout: RunTimeout = None,
) -> None:
    """Reduce a graph to the smallest one for which a command fails, or that differs from another.

    The command fails for a graph if it exits with the same status as for GRAPH.
    """
    from cfgraph.console.comparisons.failing_command import CommandOptions
    from cfgraph.console.comparisons.reduce import reduce_against, reduce_command

    runs = ComparedRuns(inputs, cases, fetches)
    tested = CommandOptions(command or [], status, match, run_timeout)
    if with_ is not None:
        from cfgraph.integrations.tensorflow.diff_modes import ModeOptions
        from cfgraph.integrations.tensorflow.reduce_modes import reduce_in_mode

        if command or any(value is not None for value in (status, match, jobs, against_out)):
            message = "--with compares runs of TensorFlow, and a command is not needed"
            hint = "remove --with, or the command, --status, --match, --jobs, and --against-out"
            raise UsageError(message, hint=hint)
        modes = ModeOptions.parse(with_, against, run_timeout)
        raise options.Exit(reduce_in_mode(graph, modes, runs, outputs, report))
    if report is not None:
        message = "--report describes a fault of TensorFlow"
        raise UsageError(message, hint="add --with tensorflow:MODE")
    if against is None:
        raise options.Exit(reduce_command(graph, tested, runs, outputs, against_out, jobs))
    raise options.Exit(reduce_against(graph, against, tested, runs, outputs, against_out, jobs))
