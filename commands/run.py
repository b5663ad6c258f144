"""Run a graph and print the fetched values."""

from dataclasses import replace
from typing import Annotated

import typer

from cfgraph import options

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
    devices: options.Devices = [],
    place: options.PlaceRules = [],
    rules: options.RulesFile = None,
    soft: options.Soft = False,
    memory: options.Memory = [],
    swap_above: options.SwapAbove = None,
    gpu: options.Gpu = None,
    workers: options.Workers = None,
    ray: options.RayAddress = None,
    lost_after: options.LostAfter = None,
    spread: options.Spread = None,
    jit: options.Jit = False,
    engine: options.Engine = "auto",
    explain_engine: options.ExplainEngine = False,
    regions: options.Regions = False,
    lazy: options.Lazy = False,
    blas_threads: options.BlasThreads = "auto",
    no_cache: options.NoCache = False,
    tap: options.Tap = [],
    tap_nonfinite: options.TapNonfinite = False,
    trace: options.Trace = False,
    trace_out: options.TraceOut = None,
    timeline: options.Timeline = False,
    html: options.Html = None,
    clock: options.Clock = "real",
    costs: options.Costs = None,
    until_iteration: options.UntilIteration = None,
    no_values: options.NoValues = False,
    calibrate: options.Calibrate = None,
    max_iterations: options.MaxIterations = None,
    seed: options.Seed = 0,
    schedule: options.Schedule = "fifo",
    schedule_seed: options.ScheduleSeed = 0,
    full: options.Full = False,
    format: Format = "text",
    json: options.Json = False,
    quiet: options.Quiet = False,
    color: options.ColorChoice = options.Color.auto,
) -> None:
    """Run a graph and print the fetched values."""
    from cfgraph.console import run_request
    from cfgraph.console.run import run

    report = None
    if format not in ("text", "json"):
        from cfgraph.console.ci_formats import ci_report

        report = ci_report("run", format)
    json = json or format == "json"
    observers = run_request.ObserverOptions(
        tap, trace, trace_out, timeline, html, nonfinite=tap_nonfinite
    )
    if html is not None:
        from cfgraph.console.picture.pages import RunPage

        observers = replace(observers, page=RunPage)
    request = run_request.RunOptions(
        run_request.FeedFetchOptions(
            feed,
            feeds,
            fetch,
            target,
            init,
            out,
            out_dir,
            variables,
            signature,
            save_variables,
        ),
        run_request.ExpectedValues(expect, rtol, atol),
        observers,
        run_request.RunLimits(max_iterations, seed, schedule, schedule_seed, allow_io),
        run_request.DeviceOptions(devices, soft, rules, place, memory, swap_above, gpu),
        run_request.PrintOptions(json, full, quiet, color, report),
        run_request.ClockOptions(clock, costs, until_iteration, no_values, calibrate),
        run_request.ClusteringOptions(jit, engine, lazy, regions, explain_engine),
        blas_threads,
        run_request.RemoteOptions(workers, ray, lost_after, spread),
        not no_cache,
    )
    raise options.Exit(run(graph, request))
