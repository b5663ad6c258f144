"""Reduce two graphs together to the smallest ones whose runs differ."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli import options
from cfgraph.cli.transform_options import (
    ComparedRuns,
    PairFetchOptions,
    ReducedOutput,
    ReduceInputs,
    ToleranceOptions,
)

Second = Annotated[str, typer.Argument(metavar="B", help="Second graph.", show_default=False)]
OutputOfB = Annotated[
    str | None,
    typer.Option(
        "--output-b",
        metavar="FILE",
        help="Write the reduced B to FILE. Default: next to the reduced A, as in small.b.pb.",
    ),
]


def main(
    a: options.First,
    b: Second,
    outputs: ReducedOutput,
    fetches: PairFetchOptions,
    inputs: ReduceInputs,
    cases: ToleranceOptions,
    output_b: OutputOfB = None,
) -> None:
    """Reduce two graphs together to the smallest ones whose runs differ."""
    from cfgraph.console.comparisons.reduce import reduce_pair_of_files

    runs = ComparedRuns(inputs, cases, fetches)
    raise options.Exit(reduce_pair_of_files(a, b, runs, outputs, output_b))
