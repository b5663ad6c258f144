"""List the ops with a kernel, and what each supports."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli.options import Color, ColorChoice, Json


def main(
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="[PATTERN]",
            help="Op name with * and ?, in any case, such as Stateless* or conv2d.",
            show_default=False,
        ),
    ] = "*",
    every: Annotated[
        bool, typer.Option("--all", help="Also list the ops of TensorFlow without a kernel.")
    ] = False,
    json: Json = False,
    color: ColorChoice = Color.auto,
) -> None:
    """List the ops with a kernel, and what each supports."""
    from cfgraph.console.ops import print_ops

    print_ops(pattern, every=every, json=json, color=color)
