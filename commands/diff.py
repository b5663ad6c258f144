"""Compare two graphs: node by node, and with --run what they compute."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph import options as given

First = Annotated[
    str,
    typer.Argument(metavar="A", help="A graph, as for other commands.", show_default=False),
]
Second = Annotated[
    str,
    typer.Argument(metavar="B", help="The one to compare it with.", show_default=False),
]
By = Annotated[
    str, typer.Option("--by", metavar="HOW", help="Pair nodes by name, or by structure.")
]
Ignore = Annotated[
    str,
    typer.Option("--ignore", metavar="LIST", help="What does not count: notes, order, devices."),
]
Run = Annotated[
    bool,
    typer.Option(
        "--run", help="Run both at the same inputs, and name the first node that differs."
    ),
]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", help="The seed of what is drawn.")]
Format = Annotated[
    str,
    typer.Option("--format", metavar="FORMAT", help="text, json, github, sarif or junit."),
]


def main(
    a: First,
    b: Second,
    by: By = "name",
    ignore: Ignore = "",
    run: Run = False,
    fetch: given.Fetch = [],
    target: given.Target = [],
    feed: given.Feed = [],
    feeds: given.Feeds = [],
    init: given.Init = [],
    variables: given.Variables = None,
    size: given.Size = [],
    cases: given.Cases = None,
    seed: Seed = None,
    rtol: given.Rtol = None,
    atol: given.Atol = None,
    timeout: given.Timeout = None,
    max_iterations: given.MaxIterations = None,
    format: Format = "text",
    full: given.Full = False,
    json: given.Json = False,
    quiet: given.Quiet = False,
    color: given.ColorChoice = given.Color.auto,
) -> None:
    """Compare two graphs: node by node, and with --run what they compute."""
    from cfgraph.console.diff import DiffOptions, compare_nodes, diff_files
    from cfgraph.console.verify_options import RunInputs

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
        timeout,
        max_iterations,
        variables,
    )
    ignored = given.split_list(ignore)
    options = DiffOptions(by, ignored, run, runs, format, full, quiet, color)
    compare = compare_nodes
    if run:
        from cfgraph.console.diff_run import compare_by_run as compare
    raise given.Exit(diff_files(a, b, options, compare))
