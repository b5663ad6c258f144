"""Reduce a graph to the smallest one that a mode of TensorFlow runs wrongly."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli import options
from cfgraph.cli.transform_options import (
    ComparedRuns,
    FetchOptions,
    LimitedInputs,
    ReducedOutput,
    ToleranceOptions,
)

With = Annotated[
    str,
    typer.Option(
        "--with",
        metavar="tensorflow:MODE",
        help="Mode that is wrong: graph, grappler, autojit, jit, or lite.",
    ),
]
Report = Annotated[
    str | None,
    typer.Option(
        "--report",
        metavar="DIR",
        help="Write a report to DIR: repro.py, which shows the fault with TensorFlow alone, "
        "issue.md, graph.pb, and graph.graph.",
    ),
]


def main(
    graph: options.Graph,
    with_: With,
    outputs: ReducedOutput,
    fetches: FetchOptions,
    inputs: LimitedInputs,
    cases: ToleranceOptions,
    against: options.AgainstMode = None,
    report: Report = None,
    run_timeout: options.ModeTimeout = None,
) -> None:
    """Reduce a graph to the smallest one that a mode of TensorFlow runs wrongly."""
    from cfgraph.integrations.tensorflow.diff_modes import ModeOptions
    from cfgraph.integrations.tensorflow.reduce_modes import reduce_in_mode

    runs = ComparedRuns(inputs, cases, fetches)
    modes = ModeOptions.parse(with_, against, run_timeout)
    raise options.Exit(reduce_in_mode(graph, modes, runs, outputs, report))
