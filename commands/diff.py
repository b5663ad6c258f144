"""Compare two graphs node by node, or with --run by the values they compute."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from cfgraph.cli import options
from cfgraph.cli.transform_options import (
    ComparedRuns,
    PairFetchOptions,
    PairInputs,
    ToleranceOptions,
)

Second = Annotated[
    str | None,
    typer.Argument(
        metavar="B",
        help="Second graph, or golden outputs (.npz) of `record`; without it, --with.",
        show_default=False,
    ),
]
By = Annotated[
    str, typer.Option("--by", metavar="name|structure", help="Match nodes by name or by structure.")
]
Ignore = Annotated[
    str,
    typer.Option(
        "--ignore", metavar="LIST", help="Ignore differences in notes, order, or devices."
    ),
]
Run = Annotated[
    bool,
    typer.Option(
        "--run", help="Run both with the same inputs and report the first node that diverges."
    ),
]
With = Annotated[
    str | None,
    typer.Option(
        "--with",
        metavar="tensorflow[:MODE]",
        help="Run A in TensorFlow instead of B, in a MODE: graph, grappler, autojit, jit, or lite. "
        "Default: all of them.",
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="Output format: text, json, github, sarif, junit or markdown.",
    ),
]


def main(
    a: options.First,
    fetches: PairFetchOptions,
    inputs: PairInputs,
    cases: ToleranceOptions,
    b: Second = None,
    by: By = "name",
    ignore: Ignore = "",
    run: Run = False,
    with_: With = None,
    against: options.AgainstMode = None,
    run_timeout: options.ModeTimeout = None,
    html: options.Html = None,
    node_data: Annotated[
        str | None,
        options.node_data_option("differences in B, or with a= in A"),
    ] = None,
    format: Format = "text",
    full: options.Full = False,
    json: options.Json = False,
    color: options.ColorChoice = options.Color.auto,
) -> None:
    """Compare two graphs node by node, or with --run by the values they compute."""
    from cfgraph.console.comparisons.diff import (
        DiffOptions,
        compare_nodes,
        diff_files,
        missing_side,
    )

    format = "json" if json else format
    write_page = None
    if html:
        from cfgraph.console.picture.difference import DifferencePage

        write_page = DifferencePage(html).write
    ignored = options.split_list(ignore)
    runs = ComparedRuns(inputs, cases, fetches)
    request = DiffOptions(by, ignored, run, runs, format, full, color, write_page)
    if node_data is not None:
        from cfgraph.integrations.model_explorer.diff_data import DiffData

        request = replace(request, node_data=DiffData(node_data, quiet=format != "text"))
    if with_ is not None:
        from cfgraph.integrations.tensorflow.diff_modes import ModeOptions, diff_modes

        modes = ModeOptions.parse(with_, against, run_timeout)
        raise options.Exit(diff_modes(a, b, modes, request))
    if against is not None or run_timeout is not None or b is None:
        raise missing_side(against is None and run_timeout is None)
    if b.endswith(".npz"):
        from cfgraph.console.comparisons.golden import compare_golden

        raise options.Exit(compare_golden(a, b, request))
    compare = compare_nodes
    if run:
        from cfgraph.console.comparisons.diff_run import compare_by_run as compare
    raise options.Exit(diff_files(a, b, request, compare))
