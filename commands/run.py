"""Run a graph and print the fetched values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cfgraph.cli import options, run_options

if TYPE_CHECKING:
    from cfgraph.console.ci_formats import CiReport
    from cfgraph.console.picture.pages import RunPage

Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="Output format: text, json, or for --expect github, sarif or junit.",
    ),
]


def main(
    graph: options.Graph,
    feed: options.Feed = [],
    feeds: options.Feeds = [],
    fetch: options.Fetch = [],
    target: options.Target = [],
    init: options.Init = [],
    signature: options.Signature = None,
    variables: options.Variables = None,
    save_variables: options.SaveVariables = None,
    allow_io: options.AllowIo = False,
    out: options.Out = [],
    out_dir: options.OutDir = None,
    expect: options.Expect = [],
    rtol: options.Rtol = None,
    atol: options.Atol = None,
    devices: run_options.Devices = [],
    place: run_options.PlaceRules = [],
    rules: run_options.RulesFile = None,
    soft: run_options.Soft = False,
    memory: run_options.Memory = [],
    swap_above: run_options.SwapAbove = None,
    gpu: run_options.Gpu = None,
    workers: run_options.Workers = None,
    ray: run_options.RayAddress = None,
    lost_after: run_options.LostAfter = None,
    retries: run_options.Retries = None,
    spread: run_options.Spread = None,
    engine: run_options.Engine = "auto",
    explain_engine: run_options.ExplainEngine = False,
    lazy: run_options.Lazy = False,
    blas_threads: run_options.BlasThreads = "auto",
    no_cache: run_options.NoCache = False,
    tap: run_options.Tap = [],
    tap_nonfinite: run_options.TapNonfinite = False,
    trace: run_options.Trace = False,
    trace_out: run_options.TraceOut = None,
    timeline: run_options.Timeline = False,
    html: options.Html = None,
    clock: run_options.Clock = "real",
    costs: run_options.Costs = None,
    until_iteration: run_options.UntilIteration = None,
    no_values: run_options.NoValues = False,
    calibrate: run_options.Calibrate = None,
    max_iterations: options.MaxIterations = None,
    seed: run_options.Seed = 0,
    schedule: run_options.Schedule = "fifo",
    schedule_seed: run_options.ScheduleSeed = 0,
    full: options.Full = False,
    format: Format = "text",
    json: options.Json = False,
    quiet: options.Quiet = False,
    color: options.ColorChoice = options.Color.auto,
) -> None:
    """Run a graph and print the fetched values."""
    from cfgraph.console import run_request
    from cfgraph.console.run import run

    request = run_request.RunOptions(
        values=run_request.FeedFetchOptions(
            feed, feeds, fetch, target, init, out, out_dir, variables, signature, save_variables
        ),
        expected=run_request.ExpectedValues(expect, rtol, atol),
        observers=run_request.ObserverOptions(
            tap, trace, trace_out, timeline, html, _page_type(html), tap_nonfinite
        ),
        limits=run_request.RunLimits(max_iterations, seed, schedule, schedule_seed, allow_io),
        devices=run_request.DeviceOptions(devices, soft, rules, place, memory, swap_above, gpu),
        printing=run_request.PrintOptions(
            json or format == "json", full, quiet, color, _ci_report(format, expect)
        ),
        clock=run_request.ClockOptions(clock, costs, until_iteration, no_values, calibrate),
        engine=run_request.EngineOptions(engine, lazy, explain_engine),
        blas_threads=blas_threads,
        remote=run_request.RemoteOptions(workers, ray, lost_after, spread, retries),
        cache=not no_cache,
    )
    raise options.Exit(run(graph, request))


def _page_type(html: str | None) -> type[RunPage] | None:
    """The page that --html writes, or None without the option."""
    if html is None:
        return None
    from cfgraph.console.picture.pages import RunPage

    return RunPage


def _ci_report(format: str, expect: list[str]) -> CiReport | None:
    """The report of --expect in a CI service's format; None for other formats."""
    if format in ("text", "json"):
        return None
    from cfgraph.console.ci_formats import ci_report
    from cfgraph.errors import UsageError

    report = ci_report("run", format)
    if not expect:
        message = f"--format {format} reports comparisons, and nothing is compared"
        raise UsageError(message, hint="add --expect NAME=VALUE, or use --format json")
    return report
