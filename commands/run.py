"""Run a graph and print the fetched values."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cfgraph.cli import options
from cfgraph.cli.run_options import (
    ClockOptions,
    DeviceOptions,
    EngineOptions,
    FeedOptions,
    LimitOptions,
    ModelOptions,
    ObserverOptions,
    PrintOptions,
    RemoteOptions,
    ResultOptions,
)
from cfgraph.cli.transform_options import FetchOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from cfgraph.console.ci_formats import CiReport
    from cfgraph.console.picture.pages import RunPage
    from cfgraph.console.signatures import SignatureNames

# the options that most users need
FIRST = ("feed", "fetch", "expect", "out", "tap", "trace", "html", "json")


def main(
    graph: options.Graph,
    feeds: FeedOptions,
    fetches: FetchOptions,
    model: ModelOptions,
    results: ResultOptions,
    observers: ObserverOptions,
    limits: LimitOptions,
    devices: DeviceOptions,
    engine: EngineOptions,
    clock: ClockOptions,
    remote: RemoteOptions,
    printing: PrintOptions,
) -> None:
    """Run a graph and print the fetched values."""
    from cfgraph.console.graph_files import read_graph
    from cfgraph.console.runs.run import execute, make_session, single_device_sessions
    from cfgraph.console.runs.run_observers import Observers, requested_taps
    from cfgraph.console.runs.run_report import print_outcome
    from cfgraph.console.runs.run_request import resolve_request
    from cfgraph.ir.file_io import StagedFiles

    page_type, ci_report = _page_type(observers), _ci_report(printing, results)
    source = read_graph(graph)
    request = resolve_request(source, feeds, fetches, model, results, limits, clock)
    taps = requested_taps(request, observers, printing, _loop_states(observers))
    with StagedFiles() as files:
        opened = request.open_files(files)
        state = request.state(source)
        session = make_session(source, request, state, limits, devices, engine, clock, remote)
        observed = Observers(source, request, taps, observers, clock, printing, page_type)
        alone = single_device_sessions(source, request, limits, devices, engine, clock, remote)
        outcome = execute(session, state, request, observed, remote.retries, alone)
        outcome.write(files, opened)
    explained = engine.explain_engine
    print_outcome(source, outcome, observed, printing, ci_report, explains_engine=explained)
    raise options.Exit(outcome.exit_code)


def _loop_states(
    observers: ObserverOptions,
) -> Callable[[SignatureNames], list[dict[str, str]]] | None:
    """The finder of the variables that --tap-state prints, or None without the option."""
    if not observers.tap_state:
        return None
    from cfgraph.console.views.loop_views import loop_states

    return partial(loop_states, loops=observers.tap_state)


def _page_type(observers: ObserverOptions) -> type[RunPage] | None:
    """The page that --html writes, or None without the option."""
    if observers.html is None:
        return None
    from cfgraph.console.picture.pages import RunPage

    return RunPage


def _ci_report(printing: PrintOptions, results: ResultOptions) -> CiReport | None:
    """The report of --expect in a CI service's format; None for other formats."""
    format = printing.ci_format
    if format is None:
        return None
    from cfgraph.console.ci_formats import ci_report
    from cfgraph.errors import UsageError

    report = ci_report("run", format)
    if not results.expect:
        message = f"--format {format} reports comparisons, and nothing is compared"
        raise UsageError(message, hint="add --expect NAME=VALUE, or use --format json")
    return report
