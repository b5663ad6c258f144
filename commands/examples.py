"""Write example graphs and a README with commands to try."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli.options import Json


def main(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="DIR",
            help="Folder to write to, as in `cfgraph examples .`; created if it does not exist.",
        ),
    ],
    json: Json = False,
) -> None:
    """Write example graphs and a README with commands to try."""
    from cfgraph.console.sample_graphs import write_examples

    write_examples(folder, json=json)
