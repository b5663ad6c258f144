"""Write graphs to try, with a README of what to type."""

from __future__ import annotations

from typing import Annotated

import typer


def main(
    folder: Annotated[
        str, typer.Argument(metavar="DIR", help="The folder; made if it is not there.")
    ],
) -> None:
    """Write graphs to try, with a README of what to type."""
    from cfgraph.console.examples import write_examples

    write_examples(folder)
