"""Run a graph and print what it computes."""

from __future__ import annotations

import typer

from cfgraph import options as given


def main(
    graph: given.Graph,
    feed: given.Feed = [],  # noqa: B006 - typer copies the lists
    feeds: given.Feeds = [],  # noqa: B006
    fetch: given.Fetch = [],  # noqa: B006
    target: given.Target = [],  # noqa: B006
    out: given.Out = [],  # noqa: B006
    out_dir: given.OutDir = None,
    expect: given.Expect = [],  # noqa: B006
    rtol: given.Rtol = None,
    atol: given.Atol = None,
    tap: given.Tap = [],  # noqa: B006
    trace: given.Trace = False,
    trace_out: given.TraceOut = None,
    timeout: given.Timeout = None,
    max_iterations: given.MaxIterations = None,
    seed: given.Seed = 0,
    schedule: given.Schedule = "fifo",
    schedule_seed: given.ScheduleSeed = 0,
    full: given.Full = False,
    json: given.Json = False,
    quiet: given.Quiet = False,
    color: given.ColorChoice = given.Color.auto,
) -> None:
    """Run a graph and print what it computes."""
    from cfgraph.console.run import RunOptions, run

    lists = (tuple(feed), tuple(feeds), tuple(fetch), tuple(target), tuple(out))
    checks = (out_dir, tuple(expect), rtol, atol, tuple(tap), trace, trace_out)
    limits = (timeout, max_iterations, seed, schedule, schedule_seed)
    raise typer.Exit(run(graph, RunOptions(*lists, *checks, *limits, json, full, quiet, color)))
