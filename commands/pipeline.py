"""Run several passes in one process, and print or save the graph between them."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli import options
from cfgraph.cli.transform_options import FolderOutput, PipelineInputs

Passes = Annotated[
    str,
    typer.Option(
        "--passes",
        "-p",
        metavar="TEXT",
        help="Passes and their options, as in 'lower, grad{ys=loss xs=w}': a space separates "
        "options, a comma inside braces separates values.",
    ),
]
PrintAfter = Annotated[
    list[str],
    options.repeatable(
        "--print-after",
        "all|PASS",
        "Print the graph as text on stderr after each pass, or after one.",
    ),
]
DumpDir = Annotated[
    str | None,
    typer.Option(
        "--dump-dir",
        metavar="FOLDER",
        help="Save the input, and the graph after each pass, as NN-PASS.graph.",
    ),
]
TimePasses = Annotated[
    bool, typer.Option("--time-passes", help="Report the time that each pass takes.")
]
VerifyEach = Annotated[
    bool,
    typer.Option(
        "--verify-each",
        help="Run the graph before and after each pass, and compare; exit with status 1 and write "
        "nothing if a pass changes a value.",
    ),
]


def main(
    graph: options.Graph,
    passes: Passes,
    outputs: FolderOutput,
    inputs: PipelineInputs,
    print_after: PrintAfter = [],
    dump_dir: DumpDir = None,
    time_passes: TimePasses = False,
    verify_each: VerifyEach = False,
) -> None:
    """Run several passes in one process, and print or save the graph between them."""
    from cfgraph.console.pipeline import PipelineOptions, pipeline_file

    request = PipelineOptions(passes, print_after, dump_dir, time_passes, verify_each)
    raise options.Exit(pipeline_file(graph, request, inputs, outputs))
