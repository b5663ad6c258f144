"""Name the nodes that a converter refuses and commands that mend it, and try a conversion."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli import options
from cfgraph.cli.transform_options import (
    ComparedRuns,
    FetchOptions,
    SeededInputs,
    ToleranceOptions,
)


def main(
    graph: options.Graph,
    fetches: FetchOptions,
    inputs: SeededInputs,
    cases: ToleranceOptions,
    converter: Annotated[
        str,
        typer.Option("--for", metavar="lite|onnx", help="Converter: TensorFlow Lite, or tf2onnx."),
    ],
    no_run: Annotated[
        bool,
        typer.Option("--no-run", help="Do not run the converter, even if it is installed."),
    ] = False,
    run_timeout: options.ModeTimeout = None,
    full: options.Full = False,
    json: options.Json = False,
    color: options.ColorChoice = options.Color.auto,
) -> None:
    """Name the nodes that a converter refuses and commands that mend it, and try a conversion."""
    from cfgraph.integrations.converters.convert_check import check_conversion, report_conversion

    runs = ComparedRuns(inputs, cases, fetches)
    checked = check_conversion(graph, converter, runs, run=not no_run, seconds=run_timeout)
    raise options.Exit(report_conversion(checked, color, full, json))
