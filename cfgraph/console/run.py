"""The `run` command: run a graph and print the fetched values."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection
from contextlib import redirect_stdout
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from cfgraph.analysis.resource_handles import is_variable
from cfgraph.cli.output import note, remark
from cfgraph.cli.run_options import ExpectedValues, RunOptions
from cfgraph.compare.value_difference import ValueDifference, value_difference
from cfgraph.console.comparison_inputs import VariableSource
from cfgraph.console.graph_files import Source, read_graph
from cfgraph.console.run_observers import RunObservers
from cfgraph.console.run_report import RunOutcome, print_outcome
from cfgraph.console.run_request import RunRequest, resolve_request, write_array
from cfgraph.console.run_session import make_session
from cfgraph.console.taps import NonfiniteTap, Taps
from cfgraph.errors import UsageError, WorkerLost
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.traversal import ancestors
from cfgraph.passes.place.rules import RuleMatches
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.prepared_runs import RunResult
from cfgraph.runtime.restore import save_variables
from cfgraph.runtime.session import Session

if TYPE_CHECKING:
    from cfgraph.console.ci_formats import CiReport
    from cfgraph.console.picture.pages import RunPage

# of a checkpoint in the folder of --save-variables
VARIABLES_NAME: Final = "variables"


def run(
    path: str,
    options: RunOptions,
    page_type: type[RunPage] | None = None,
    ci_report: CiReport | None = None,
) -> int:
    """Run a graph and print the values; returns the exit code, 1 for an unexpected value.

    Arrays are written only if it is 0. The trace is written also for a failed run, where it is
    needed most.
    """
    source = read_graph(path)
    wanted, expected = options.values, options.expected
    request = resolve_request(source, wanted, expected.expect, options.session.limits.seed)
    if options.session.clock.no_values and (request.output_files or request.expected):
        message = "--no-values computes no values to write or compare"
        raise UsageError(message, hint="remove --no-values, or --out and --expect")
    taps, nonfinite = _make_taps(source, request, options), _nonfinite_tap(options)
    with StagedFiles() as files:
        if wanted.out_dir is not None:
            files.make_folder(wanted.out_dir)
        opened = {item: files.open(path) for item, path in request.output_files.items()}
        result, variables = _execute(source, request, options, taps, nonfinite, page_type)
        values = dict(zip(request.spec.fetches, result.values, strict=True))
        differences = _differences(values, request.expected, expected)
        if differences:
            files.discard()
        for item, file in {} if differences else opened.items():
            if values[item] is None:
                files.drop(file)
            else:
                write_array(file, item, values[item])
        saved_to = wanted.save_variables
        if variables is not None and saved_to is not None and not differences:
            files.make_folder(saved_to)
            save_variables(variables, os.path.join(saved_to, VARIABLES_NAME), files)
            if not any(variables.variables()):
                warning = "warning: the run has no variables, so the checkpoint is empty"
                note(warning)
    _note_unused_rules(result)
    saved = {} if differences else request.output_files
    written = {item: path for item, path in saved.items() if values[item] is not None}
    outcome = RunOutcome(request, result, values, differences, written, taps, nonfinite)
    print_outcome(source, outcome, options, ci_report)
    return outcome.exit_code


def _note_unused_rules(result: RunResult) -> None:
    """Report placement rules that match no node of the run."""
    if result.config.rules.rules:
        for warning in RuleMatches(result.graph, result.config.rules).warnings:
            note(f"warning: in this run {warning}")


def _make_taps(source: Source, request: RunRequest, options: RunOptions) -> Taps | None:
    if not options.observers.tap:
        return None
    silent = options.printing.is_json or options.printing.ci_format is not None
    stream = None if silent else sys.stdout
    full, fed = options.printing.full, request.spec.feeds
    return Taps(source.graph, options.observers.tap, stream, full, fed)


def _nonfinite_tap(options: RunOptions) -> NonfiniteTap | None:
    if not options.observers.tap_nonfinite:
        return None
    silent = options.printing.is_json or options.printing.ci_format is not None
    return NonfiniteTap(None if silent else sys.stdout)


def _execute(
    source: Source,
    request: RunRequest,
    options: RunOptions,
    taps: Taps | None,
    nonfinite: NonfiniteTap | None,
    page_type: type[RunPage] | None,
) -> tuple[RunResult, State | None]:
    """Run the graph with its observers; output of the graph itself goes to stderr.

    Also returns the variables if they are saved.
    """
    limits, timing, needed = options.session.limits, options.session.clock, request.nodes
    variables = VariableSource(options.values.variables, limits.allow_io)
    io = variables.io_policy(source)
    is_saved = options.values.save_variables is not None
    # a checkpoint without the variables that this run does not need could not replace its source
    state = variables.state(source, needed, with_other_variables=is_saved)
    session = make_session(source, options.session, state, io)
    observers = RunObservers(source, request, options, taps, nonfinite, page_type)

    def compute() -> RunResult:
        for init in request.inits:
            session.execute(init, request.feeds(), max_iterations=limits.max_iterations)
        return session.execute(
            request.spec,
            request.feeds(),
            trace=observers.observer,
            max_iterations=limits.max_iterations,
            allow_dead=request.allow_dead,
            until_iteration=timing.until_iteration,
            without_values=timing.no_values,
        )

    retries = options.session.remote.retries or 0
    if retries:
        _require_restorable(source, needed, state)
    try:
        with redirect_stdout(sys.stderr), session:
            result = _with_retries(compute, session, state, retries)
            # workers take their variables with them when the session ends
            saved = session.state.copy() if is_saved else None
    except BaseException as error:
        observers.flush_partial(session, error)
        raise
    finally:
        observers.close_views()
    observers.write(result)
    return result, saved


def _require_restorable(source: Source, needed: Collection[Node], state: State | None) -> None:
    """Raise UsageError for a run with variables that a retry could not restore."""
    variable = next(filter(is_variable, ancestors(source.graph, needed)), None)
    if variable is not None and state is None:
        message = f"--retries needs a checkpoint: the run has the variable {variable.name!r}"
        raise UsageError(message, hint="restore it with --variables, or remove --retries")


def _with_retries(
    compute: Callable[[], RunResult], session: Session, state: State | None, retries: int
) -> RunResult:
    """The result of a run, repeated on new workers with the same variables if one is lost."""
    for attempt in count(1):
        try:
            return compute()
        except WorkerLost as error:
            if attempt > retries:
                raise
            restored = "" if state is None else ", with the variables of the checkpoint"
            lost = f"worker {error.worker} ({error.host}) was lost"
            remark(f"warning: {lost}; retry {attempt} of {retries} on new workers{restored}")
            session.recover(state)
    raise AssertionError


def _differences(
    values: dict[Output, Any], expected: dict[Output, Any], options: ExpectedValues
) -> dict[Output, ValueDifference]:
    gaps = {
        item: value_difference(values[item], want, options.rtol, options.atol)
        for item, want in expected.items()
    }
    return {item: gap for item, gap in gaps.items() if gap}
