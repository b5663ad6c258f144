"""The `run` command: make a session, and run a graph in it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from itertools import count

from cfgraph.analysis.resource_handles import is_variable
from cfgraph.cli.output import warn
from cfgraph.cli.run_options import (
    ClockOptions,
    DeviceOptions,
    EngineOptions,
    LimitOptions,
    RemoteOptions,
)
from cfgraph.console.graph_files import Source
from cfgraph.console.runs.prediction import predict
from cfgraph.console.runs.run_observers import Observers
from cfgraph.console.runs.run_report import Outcome
from cfgraph.console.runs.run_request import RunRequest
from cfgraph.console.runs.run_times import RunDurations
from cfgraph.errors import UsageError, WorkerLost
from cfgraph.extensions import COMPILER, ENGINE, extension_names
from cfgraph.ir.traversal import ancestors, is_partitioned
from cfgraph.passes.place.rules import RuleMatches
from cfgraph.runtime.code_cache import CodeCache
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.memory.swapping import DEFAULT_SWAP_ABOVE
from cfgraph.runtime.preparation.prepared_runs import RunResult
from cfgraph.runtime.preparation.run_config import StepOptions
from cfgraph.runtime.session import Session


def make_session(
    source: Source,
    request: RunRequest,
    state: State | None,
    limits: LimitOptions,
    devices: DeviceOptions,
    engine: EngineOptions,
    clock: ClockOptions,
    remote: RemoteOptions,
) -> Session:
    """Create the session that the options describe. Raises UsageError if they do not fit."""
    chosen, starter = f"--engine {engine.engine}", remote.starter
    is_added = engine.engine in extension_names(ENGINE)
    for name, is_set, other in (
        ("--clock virtual", clock.virtual, starter),
        ("--clock virtual", clock.virtual and is_added, chosen),
        ("--memory", devices.memory, starter),
        ("--schedule random", limits.schedule == "random", starter),
        (chosen, is_added or engine.engine in extension_names(COMPILER), starter),
    ):
        if other and is_set:
            message = f"{name} cannot be combined with {other}"
            raise UsageError(message, hint=f"remove {name} or {other}")
    if remote.retries:
        _require_restorable(source, request, state)
    return Session(
        source.graph,
        state=state,
        devices=devices.devices or None,
        soft_placement=devices.soft,
        rules=devices.placement_rules(),
        schedule=limits.schedule,
        schedule_seed=limits.schedule_seed,
        seed=request.seed,
        costs=clock.cost_model(),
        engine=engine.requested,
        lazy=engine.lazy,
        memory=devices.memory_limits(),
        swap_above=DEFAULT_SWAP_ABOVE if devices.swap_above is None else devices.swap_above,
        gpu=devices.gpu,
        allow_io=request.variables.io_policy(source),
        blas_threads=engine.threads,
        workers=remote.make(),
        cache=not engine.no_cache and CodeCache(source.sha256()),
    )


def single_device_sessions(
    source: Source,
    request: RunRequest,
    limits: LimitOptions,
    devices: DeviceOptions,
    engine: EngineOptions,
    clock: ClockOptions,
    remote: RemoteOptions,
) -> Callable[[str], Session] | None:
    """A function that makes a session on one device; None for parts, and with `--allow-io`."""
    if is_partitioned(source.graph) or limits.allow_io:
        return None

    def on_device(name: str) -> Session:
        alone = devices.replace(
            devices=[name], place=[], rules=None, soft=True, memory=[], swap_above=None
        )
        state = request.state(source)
        return make_session(source, request, state, limits, alone, engine, clock, remote)

    return on_device


def _require_restorable(source: Source, request: RunRequest, state: State | None) -> None:
    """Raise UsageError for a run with variables that a retry could not restore."""
    variable = next(filter(is_variable, ancestors(source.graph, request.nodes)), None)
    if variable is not None and state is None:
        message = f"--retries needs a checkpoint: the run has the variable {variable.name!r}"
        raise UsageError(message, hint="restore it with --variables, or remove --retries")


def execute(
    session: Session,
    state: State | None,
    request: RunRequest,
    observers: Observers,
    retries: int | None,
    on_device: Callable[[str], Session] | None = None,
) -> Outcome:
    """Run the graph with its observers; output of the graph itself goes to stderr.

    The trace is written also for a failed run, where it is needed most. `on_device` makes the
    session with which a prediction is compared.
    """
    try:
        with redirect_stdout(sys.stderr), session:
            result = _with_retries(session, state, request, observers, retries or 0)
            # workers take their variables with them when the session ends
            variables = None if request.saved_to is None else session.state.copy()
    except BaseException as error:
        observers.flush_partial(session, error)
        raise
    finally:
        observers.close_views()
    observers.write(result)
    values = dict(zip(request.spec.fetches, result.values, strict=True))
    differences = request.expected.differences(values)
    prediction = None
    if observers.work is not None:
        prediction = predict(session.graph, result, observers.work, on_device, request)
    return Outcome(
        request, result, values, differences, variables, _unused_rules(result), prediction
    )


def _unused_rules(result: RunResult) -> list[str]:
    """Warnings of placement rules that match no node of a run."""
    rules = result.config.rules
    warnings = RuleMatches(result.graph, rules).warnings if rules.rules else ()
    return [f"in this run {warning}" for warning in warnings]


def _with_retries(
    session: Session,
    state: State | None,
    request: RunRequest,
    observers: Observers,
    retries: int,
) -> RunResult:
    """The result of a run, repeated on new workers with the same variables if one is lost."""
    request = request.with_tables(state)
    limit, step = request.step.max_iterations, request.step._replace(trace=observers.observer)
    for attempt in count(1):
        try:
            for init in request.inits:
                session.execute(init, request.feeds(), StepOptions(max_iterations=limit))
            return _repeated(session, request, step, observers.times)
        except WorkerLost as error:
            if attempt > retries:
                raise
            restored = "" if state is None else ", with the variables of the checkpoint"
            lost = f"worker {error.worker} ({error.host}) was lost"
            warn(f"{lost}; retry {attempt} of {retries} on new workers{restored}")
            session.recover(state)
    raise AssertionError


def _repeated(
    session: Session, request: RunRequest, step: StepOptions, times: RunDurations | None
) -> RunResult:
    """The result of the last of several runs, whose times are measured."""
    for _ in range(0 if times is None else times.runs - 1):
        _measured(session, request, step, times)
    return _measured(session, request, step, times)


def _measured(
    session: Session, request: RunRequest, step: StepOptions, times: RunDurations | None
) -> RunResult:
    feeds, start = request.feeds(), time.perf_counter()
    result = session.execute(request.spec, feeds, step)
    if times is not None:
        times.seconds.append(time.perf_counter() - start)
    return result
