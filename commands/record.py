"""Record inputs and outputs of a model, for `diff MODEL golden.npz`."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli import options
from cfgraph.cli.transform_options import CaseOptions, ComparedRuns, FetchOptions, SeededInputs


def main(
    graph: options.Graph,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE.npz", help="File with inputs and outputs."),
    ],
    fetches: FetchOptions,
    inputs: SeededInputs,
    cases: CaseOptions,
    json: options.Json = False,
) -> None:
    """Record inputs and outputs of a model, for `diff MODEL golden.npz`.

    Inputs that are not fed are random, and differ in each case. The names are those of the
    signature, so that a new export of the model has them, too.
    """
    from cfgraph.console.comparisons.golden import record

    record(graph, output, ComparedRuns(inputs, cases, fetches), json=json)
