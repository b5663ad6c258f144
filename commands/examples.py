"""Write example graphs and a README with commands to try."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from cfgraph.cli.options import Json


class ExampleSet(StrEnum):
    """Values of `--set`."""

    tour = "tour"
    paper = "paper"


def main(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="DIR",
            help="Folder to write to, as in `cfgraph examples .`; created if it does not exist.",
        ),
    ],
    example_set: Annotated[
        ExampleSet,
        typer.Option(
            "--set",
            metavar="tour|paper",
            help="Small graphs to try commands on, or the experiments of the paper on dynamic"
            " control flow with a script that runs them.",
        ),
    ] = ExampleSet.tour,
    json: Json = False,
) -> None:
    """Write example graphs and a README with commands to try."""
    from cfgraph.console.examples import write_examples

    write_examples(folder, example_set.value, json=json)
