"""Executors: the engine and the state of one run at a time, which a session makes and reuses."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cfgraph.backends.gpu.context import available_gpu
from cfgraph.backends.gpu.driver import GpuDriver
from cfgraph.backends.gpu.plan import GpuPlan
from cfgraph.backends.simulation.virtual_time import VirtualClockDriver
from cfgraph.ir.attrs import array_copy
from cfgraph.ir.devices import is_gpu
from cfgraph.ir.graph import Output
from cfgraph.limits import reserve
from cfgraph.ops.opdef.resources import Resource
from cfgraph.runtime.engine.deadlock import explain_dead_fetch, explain_missing_fetch
from cfgraph.runtime.engine.executor import MISSING
from cfgraph.runtime.engine.quiescent_state import QuiescentState
from cfgraph.runtime.engine.references import fetched_value
from cfgraph.runtime.engine.step import RunStep, State
from cfgraph.runtime.memory.accounting import MemoryMeter
from cfgraph.runtime.preparation.prepare import PlannedRun
from cfgraph.runtime.preparation.run_config import RunConfig
from cfgraph.runtime.token_driver import TokenDriver
from cfgraph.runtime.trace.events import Observer

if TYPE_CHECKING:
    from cfgraph.backends.workers.workers import Workers


class RunExecutor(Protocol):
    """An engine with the state of one run: a driver, or generated code."""

    results: list[Any]
    step: RunStep
    run_start: int
    gpus: tuple[str, ...]
    elapsed: float | None
    allow_dead: bool  # a dead fetch is no error of this run
    fallback: str  # the reason why generated code was not used in this run, or empty
    is_interpreted: bool  # the run needed no generated code

    @property
    def fetches(self) -> tuple[Output, ...]:
        """The fetched tensors, in the graph of `quiescent_state`."""

    @property
    def gpu_plan(self) -> GpuPlan | None:
        """The plan on a real GPU, or None without one."""

    def run(self, feeds: Sequence[Any], pick: random.Random | None) -> None:
        """Run until nothing is ready."""

    def clear(self) -> None:
        """Drop the values of the run."""

    def quiescent_state(self) -> QuiescentState:
        """The state of the run for explanations."""

    def fetched_to_host(self, index: int, value: Any) -> Any:
        """The value of a fetch in host memory."""


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

    These are the variables, the memory meter, the workers, the random order of a schedule, and the
    numbers of runs.
    """

    def __init__(self, config: RunConfig, state: State | None, meter: MemoryMeter | None) -> None:
        self.config, self.meter = config, meter
        self.state = State() if state is None else state
        self.workers: Workers | None = None
        if config.workers is not None:
            from cfgraph.backends.workers.workers import Workers

            self.workers = Workers(config.workers, state)
            self.state = self.workers.state
        is_random = config.schedule == "random"
        self.random = random.Random(config.schedule_seed) if is_random else None
        self._run_numbers = count(1)

    def make(self, run: PlannedRun, trace: Observer | None) -> RunExecutor:
        """The executor of one run at a time: generated code, tokens, a clock, a GPU, or workers."""
        config = self.config
        step = RunStep(self.state, config.seed, config.io)
        if self.workers is not None:
            return self._remote_run(self.workers, run, step, trace)
        if run.compiled is not None and trace is None:
            from cfgraph.runtime.compiled.engine import CompiledDriver

            tokens = partial(_token_driver, run, step)
            return CompiledDriver(run.compiled, run.spec, step, tokens)
        spec, plans = run.token_plans.get()
        graph, fetches = spec.graph, spec.fetches
        if config.costs is not None:
            return VirtualClockDriver(graph, plans, step, fetches, config.costs, trace, self.meter)
        if any(is_gpu(plan.device) for plan in plans):
            gpu = available_gpu(config.gpu)
            if gpu is not None:
                return GpuDriver(gpu, graph, plans, step, fetches, trace, self.meter)
        return TokenDriver(graph, plans, step, fetches, trace, self.meter)

    def _remote_run(
        self, workers: Workers, run: PlannedRun, step: RunStep, trace: Observer | None
    ) -> RunExecutor:
        """The executor of a run on workers."""
        from cfgraph.backends.workers.driver import RemoteRun

        compiles = not run.fallback and trace is None
        planned, devices = run.token_plans.get(), self.config.devices
        is_auto = self.config.engine in (None, "auto")
        return RemoteRun(
            workers, *planned, step, trace, devices, compiles=compiles, is_auto=is_auto
        )

    def start(
        self,
        executor: RunExecutor,
        trace: Observer | None,
        max_iterations: int | None,
        until_iteration: int | None,
    ) -> None:
        """Make the step of an executor the next run."""
        if isinstance(executor, VirtualClockDriver):
            executor.until = until_iteration
        observer = trace if self.config.costs is None else None
        number = next(self._run_numbers)
        executor.step.start_run(number, executor.run_start, max_iterations, observer)

    def recover(self, workers: Workers, variables: State | None) -> None:
        """Replace the workers, and number the runs as in a new session with these variables."""
        workers.reset()
        workers.state.replace(variables)
        self._run_numbers = count(1)


def _token_driver(run: PlannedRun, step: RunStep) -> TokenDriver:
    """The token executor of a run that generated code runs otherwise."""
    spec, plans = run.token_plans.get()
    return TokenDriver(spec.graph, plans, step, spec.fetches)
