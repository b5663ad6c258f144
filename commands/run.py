"""Run a graph and print what it computes."""

from dataclasses import replace

from cfgraph import options as given


def main(
    graph: given.Graph,
    feed: given.Feed = [],
    feeds: given.Feeds = [],
    fetch: given.Fetch = [],
    target: given.Target = [],
    init: given.Init = [],
    variables: given.Variables = None,
    out: given.Out = [],
    out_dir: given.OutDir = None,
    expect: given.Expect = [],
    rtol: given.Rtol = None,
    atol: given.Atol = None,
    devices: given.Devices = [],
    place: given.PlaceRules = [],
    rules: given.RulesFile = None,
    soft: given.Soft = False,
    memory: given.Memory = [],
    swap_above: given.SwapAbove = None,
    gpu: given.Gpu = None,
    jit: given.Jit = False,
    engine: given.Engine = "auto",
    regions: given.Regions = False,
    lazy: given.Lazy = False,
    tap: given.Tap = [],
    trace: given.Trace = False,
    trace_out: given.TraceOut = None,
    timeline: given.Timeline = False,
    html: given.Html = None,
    clock: given.Clock = "real",
    costs: given.Costs = None,
    until_iteration: given.UntilIteration = None,
    no_values: given.NoValues = False,
    calibrate: given.Calibrate = None,
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
    from cfgraph.console import run_request as of
    from cfgraph.console.run import run

    wanted = of.FeedFetchOptions(feed, feeds, fetch, target, init, out, out_dir, variables)
    expected = of.ExpectedValues(expect, rtol, atol)
    watched = of.ObserverOptions(tap, trace, trace_out, timeline, html)
    if html is not None:
        from cfgraph.console.picture.run_page import RunPage

        watched = replace(watched, page=RunPage)
    limits = of.RunLimits(timeout, max_iterations, seed, schedule, schedule_seed)
    places = of.DeviceOptions(devices, soft, rules, place, memory, swap_above, gpu)
    style = of.PrintOptions(json, full, quiet, color)
    timing = of.ClockOptions(clock, costs, until_iteration, no_values, calibrate)
    clusters = of.ClusteringOptions(jit, engine, lazy, regions)
    asked = of.RunOptions(wanted, expected, watched, limits, places, style, timing, clusters)
    raise given.Exit(run(graph, asked))
