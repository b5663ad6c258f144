"""The `run` command: run a graph and print the fetched values."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import Any

from cfgraph.compare.value_difference import ValueDifference, value_difference
from cfgraph.console.graph_files import Source, read_graph
from cfgraph.console.output import note
from cfgraph.console.run_memory import memory_limits, swap_threshold
from cfgraph.console.run_observers import RunObservers
from cfgraph.console.run_report import RunOutcome, print_outcome
from cfgraph.console.run_request import (
    ClockOptions,
    ExpectedValues,
    RunOptions,
    RunRequest,
    resolve_request,
    write_array,
)
from cfgraph.console.taps import Taps
from cfgraph.console.variable_source import VariableSource
from cfgraph.errors import UsageError
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.graph import Output
from cfgraph.passes.place.rules import RuleMatches, combined_rules
from cfgraph.runtime.cost_model import CostModel, read_costs
from cfgraph.runtime.session import Session
from cfgraph.runtime.state import State


def run(path: str, options: RunOptions) -> int:
    """Run a graph and print what it computes; returns the exit code, 1 for another value than
    the expected one.

    Arrays are written only when it is 0, the trace whenever the run has begun: that of a run which
    fails is wanted most.
    """
    source = read_graph(path, quiet=options.style.quiet)
    job = resolve_request(source, options)
    if options.timing.no_values and (job.places or job.expected):
        message = "--no-values computes no values to write or compare"
        raise UsageError(message, hint="remove --no-values, or --out and --expect")
    taps = _make_taps(source, options)
    with StagedFiles() as files:
        if options.wanted.out_dir is not None:
            files.make_folder(options.wanted.out_dir)
        opened = {item: files.open(path) for item, path in job.places.items()}
        values, session = _execute(source, job, options, taps)
        differences = _differences(values, job.expected, options.expected)
        if differences:
            files.discard()
        for item, file in {} if differences else opened.items():
            if values[item] is None:
                files.drop(file)
            else:
                write_array(file, item, values[item])
    _note_unused_rules(session, options)
    kept = {} if differences else job.places
    written = {item: place for item, place in kept.items() if values[item] is not None}
    trace, html = options.watched.trace_out, options.watched.html
    outcome = RunOutcome(
        values,
        differences,
        written,
        trace,
        taps,
        len(job.expected),
        job.notes,
        session.elapsed,
        session.cluster_runner,
        html,
        session.memory,
        session,
    )
    print_outcome(source, outcome, options)
    return outcome.exit_code


def _note_unused_rules(session: Session, options: RunOptions) -> None:
    """Note the rules for placing that no node of the run matches."""
    if session.rules.rules and session.ran is not None:
        for warning in RuleMatches(session.ran, session.rules).warnings:
            note(f"warning: in this run {warning}", options.style.quiet)


def _make_taps(source: Source, options: RunOptions) -> Taps | None:
    if not options.watched.taps:
        return None
    stream = None if options.style.json else sys.stdout
    return Taps(source.graph, options.watched.taps, stream, options.style.full)


def _execute(
    source: Source, job: RunRequest, options: RunOptions, taps: Taps | None
) -> tuple[dict[Output, Any], Session]:
    """Run the graph, observers listening; what the graph itself prints goes to stderr.

    Returns the values, and the session that computed them.
    """
    limits, timing = options.limits, options.timing
    options.clusters.require_jit()
    stop: Any = {"max_iterations": limits.max_iterations, "timeout": limits.timeout}
    wanted = [*(item.node for item in job.fetches), *job.targets, *job.inits]
    restoring = VariableSource(options.wanted.variables, options.style.quiet)
    session = _make_session(source, options, restoring.state(source, wanted))
    watching = RunObservers(source, job, options, taps)
    try:
        with redirect_stdout(sys.stderr):
            for node in job.inits:
                session.run([], job.feeds, [node.name], **stop)
            values = session.run(
                [item.name for item in job.fetches],
                job.feeds,
                [node.name for node in job.targets],
                trace=watching.observer,
                allow_dead=job.allow_dead,
                until_iteration=timing.until_iteration,
                without_values=timing.no_values,
                **stop,
            )
    except BaseException as error:
        watching.flush_partial(session, error)
        raise
    finally:
        watching.close_views()
    fetched = dict(zip(job.fetches, values, strict=True))
    watching.write(session, fetched)
    return fetched, session


def _make_session(source: Source, options: RunOptions, state: State | None) -> Session:
    """The session that is asked for."""
    limits, memory = options.limits, memory_limits(options.place.memory)
    return Session(
        source.graph,
        state=state,
        devices=options.place.devices or None,
        soft_placement=options.place.soft,
        rules=combined_rules(options.place.rules_file, options.place.rules),
        schedule=limits.schedule,
        schedule_seed=limits.schedule_seed,
        seed=limits.seed,
        costs=_cost_model(options.timing),
        jit=options.clusters.engine if options.clusters.jit else None,
        engine=options.clusters.engine,
        lazy=options.clusters.lazy,
        regions=options.clusters.regions,
        memory=memory,
        swap_above=swap_threshold(options.place.swap_above, memory),
        gpu=options.place.gpu,
    )


def _cost_model(timing: ClockOptions) -> CostModel | None:
    """What the virtual clock goes by; None for the real one."""
    if not timing.virtual:
        return None
    return read_costs(timing.costs) if timing.costs else CostModel()


def _differences(
    values: dict[Output, Any], expected: dict[Output, Any], options: ExpectedValues
) -> dict[Output, ValueDifference]:
    found = {
        item: value_difference(values[item], want, options.rtol, options.atol)
        for item, want in expected.items()
    }
    return {item: gap for item, gap in found.items() if gap}
