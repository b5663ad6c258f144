"""Executors: the engine and the state of one run at a time, which a session makes and reuses."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from cfgraph.ir.attrs import array_copy
from cfgraph.limits import reserve
from cfgraph.ops.opdef.resources import Resource
from cfgraph.runtime.engine.deadlock import explain_dead_fetch, explain_missing_fetch
from cfgraph.runtime.engine.executor import MISSING
from cfgraph.runtime.engine.references import fetched_value
from cfgraph.runtime.engine.step import RunStep, State
from cfgraph.runtime.memory.accounting import MemoryMeter
from cfgraph.runtime.preparation.engines import device_backends, make_engine
from cfgraph.runtime.preparation.prepare import PlannedRun
from cfgraph.runtime.preparation.run_config import RunConfig
from cfgraph.runtime.run_executor import RunExecutor
from cfgraph.runtime.token_driver import TokenDriver
from cfgraph.runtime.trace.events import Observer

# late imports: a run on the token executor starts without generated code


def fetched_values(
    driver: RunExecutor,
    feeds: Sequence[Any],
    fed: Mapping[int, int],
    allow_missing: bool = False,
) -> list[Any]:
    """The values of the fetches of a run that has ended; `fed` are the feeds of those that are fed.

    Raises ExecutionError for a fetch without a value, unless it is allowed.
    """
    return [
        _caller_copy(feeds[fed[index]])
        if index in fed
        else _fetched_value(driver, index, allow_missing)
        for index in range(len(driver.results))
    ]


def _fetched_value(driver: RunExecutor, index: int, allow_missing: bool) -> Any:
    """The value of a fetch. Raises ExecutionError if it is dead or missing."""
    value = driver.results[index]
    if (value is None and driver.allow_dead) or (value is MISSING and allow_missing):
        return None
    if value is None or value is MISSING:
        explain = explain_dead_fetch if value is None else explain_missing_fetch
        state = driver.quiescent_state()
        raise explain(state, driver.fetches[index])
    if isinstance(value, Resource):
        value = fetched_value(driver.fetches[index], value)
    return _caller_copy(driver.fetched_to_host(index, value))


def _caller_copy(value: Any) -> Any:
    """A value that the caller may write to, since no variable or constant shares it."""
    if not isinstance(value, np.ndarray):
        return value
    reserve(value.nbytes, "a fetched value")
    return array_copy(value)


class Executors:
    """The maker of the executors of a session, and what they share.

    These are its engine, the variables, the memory meter, the random order of a schedule, and the
    numbers of runs.
    """

    def __init__(self, config: RunConfig, state: State | None, meter: MemoryMeter | None) -> None:
        self.config, self.meter = config, meter
        self.engine = make_engine(config)
        self.state = self.engine.start_session(config, state)
        is_random = config.schedule == "random"
        self.random = random.Random(config.schedule_seed) if is_random else None
        self.number_runs(1)

    def number_runs(self, first: int) -> None:
        """Number the next runs, on which their random numbers depend, from `first` on."""
        self._run_numbers = count(first)

    def make(self, run: PlannedRun, trace: Observer | None) -> RunExecutor:
        """The executor of one run at a time: of the engine, generated code, devices, or tokens."""
        config, meter = self.config, self.meter
        step = RunStep(self.state, config.seed, config.io)
        driver = self.engine.driver(run, step, trace, meter)
        if driver is not None:
            return driver
        if run.compiled is not None and trace is None:
            from cfgraph.runtime.compiled.engine import CompiledDriver

            tokens = partial(_token_driver, run, step)
            return CompiledDriver(run.compiled, run.spec, step, tokens)
        spec, plans = run.token_plans.get()
        graph, fetches = spec.graph, spec.fetches
        for backend in device_backends(plan.device for plan in plans):
            driver = backend.driver(graph, plans, step, fetches, config, trace, meter)
            if driver is not None:
                return driver
        return TokenDriver(graph, plans, step, fetches, trace, meter)

    def start(
        self,
        executor: RunExecutor,
        trace: Observer | None,
        max_iterations: int | None,
        until_iteration: int | None,
    ) -> None:
        """Make the step of an executor the next run."""
        self.engine.start_run(executor, until_iteration)
        observer = None if self.engine.times_events else trace
        number = next(self._run_numbers)
        executor.step.start_run(number, executor.run_start, max_iterations, observer)

    def recover(self, variables: State | None) -> None:
        """Restart what was lost, and number the runs as in a new session with these variables."""
        self.engine.recover(variables)
        self.number_runs(1)


def _token_driver(run: PlannedRun, step: RunStep) -> TokenDriver:
    """The token executor of a run that generated code runs otherwise."""
    spec, plans = run.token_plans.get()
    return TokenDriver(spec.graph, plans, step, spec.fetches)
