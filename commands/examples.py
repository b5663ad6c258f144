"""Write example graphs and a README with commands to try."""

from __future__ import annotations

from typing import Annotated

import typer


def main(
    folder: Annotated[
        str, typer.Argument(metavar="DIR", help="Folder; created if it does not exist.")
    ],
) -> None:
    """Write example graphs and a README with commands to try."""
    from cfgraph.console.examples import write_examples

    write_examples(folder)
