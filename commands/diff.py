"""Compare two graphs node by node, or with --run by the values they compute."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph import options, run_options

First = Annotated[
    str,
    typer.Argument(
        metavar="A",
        help="First graph: a file, a folder, or - for standard input.",
        show_default=False,
    ),
]
Second = Annotated[
    str,
    typer.Argument(metavar="B", help="Second graph.", show_default=False),
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
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed", metavar="N", help="Seed of random inputs.", rich_help_panel=options.ADVANCED
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format", metavar="FORMAT", help="Output format: text, json, github, sarif or junit."
    ),
]


def main(
    a: First,
    b: Second,
    by: By = "name",
    ignore: Ignore = "",
    run: Run = False,
    fetch: options.Fetch = [],
    target: options.Target = [],
    feed: options.Feed = [],
    feeds: options.Feeds = [],
    init: options.Init = [],
    signature: options.Signature = None,
    variables: options.Variables = None,
    allow_io: run_options.AllowIo = False,
    size: options.Size = [],
    cases: options.Cases = None,
    seed: Seed = None,
    rtol: options.Rtol = None,
    atol: options.Atol = None,
    max_iterations: run_options.MaxIterations = None,
    html: options.Html = None,
    format: Format = "text",
    full: options.Full = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    color: options.ColorChoice = options.Color.auto,
) -> None:
    """Compare two graphs node by node, or with --run by the values they compute."""
    from cfgraph.console.comparison_inputs import RunInputs
    from cfgraph.console.diff import DiffOptions, compare_nodes, diff_files

    format = "json" if json else format
    runs = RunInputs(
        fetch,
        target,
        feed,
        feeds,
        init,
        size,
        cases,
        seed,
        rtol,
        atol,
        max_iterations,
        variables,
        allow_io,
        signature,
    )
    write_page = None
    if html:
        from cfgraph.console.picture.difference import DifferencePage

        write_page = DifferencePage(html).write
    ignored = options.split_list(ignore)
    request = DiffOptions(by, ignored, run, runs, format, full, quiet, color, write_page)
    compare = compare_nodes
    if run:
        from cfgraph.console.diff_run import compare_by_run as compare
    raise options.Exit(diff_files(a, b, request, compare))
