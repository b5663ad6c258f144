"""Run several passes in one process, and print or save the graph between them."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli import options
from cfgraph.cli.transform_options import (
    CaseOptions,
    ComparedRuns,
    FedInputs,
    FolderOutput,
    PipelineOptions,
)

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


def main(
    graph: options.Graph,
    passes: Passes,
    outputs: FolderOutput,
    cases: CaseOptions,
    inputs: FedInputs,
    request: PipelineOptions,
) -> None:
    """Run several passes in one process, and print or save the graph between them."""
    from cfgraph.console.transforms.pipeline import pipeline_file

    raise options.Exit(pipeline_file(graph, passes, request, ComparedRuns(inputs, cases), outputs))
