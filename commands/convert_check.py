"""Name the nodes that a converter refuses, and the commands that mend it."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli import options
from cfgraph.cli.transform_options import FetchOptions


def main(
    graph: options.Graph,
    fetches: FetchOptions,
    converter: Annotated[
        str,
        typer.Option("--for", metavar="lite|onnx", help="Converter: TensorFlow Lite, or tf2onnx."),
    ],
    signature: options.Signature = None,
    full: options.Full = False,
    json: options.Json = False,
    color: options.ColorChoice = options.Color.auto,
) -> None:
    """Name the nodes that a converter refuses, and the commands that mend it."""
    from cfgraph.integrations.converters.convert_check import check_conversion, report_conversion

    checked = check_conversion(graph, converter, fetches, signature)
    raise options.Exit(report_conversion(checked, color, full, json))
