"""Planned runs: for generated code where that is possible, otherwise for the token executor.

Generated code merges the devices of a run, so that its graph is placed and not partitioned:

    lower ─▶ place ─▶ plan ─▶ generate               (partition ─▶ plan, once the token executor
                                                      explains an error, or a run is traced)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol

from cfgraph.ir.devices import is_gpu
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import copy_graph
from cfgraph.ir.traversal import is_partitioned
from cfgraph.runtime.engine.plan import ClusterKernels, Plan, RunSpec
from cfgraph.runtime.engine.step import RunStep
from cfgraph.runtime.gpu.plan import GpuPlan
from cfgraph.runtime.prepare import (
    DEFAULT_DEVICE,
    RunConfig,
    lowered_run,
    place_run,
    prepare_lowered,
    runnable_plans,
)
from cfgraph.runtime.quiescent_state import QuiescentState
from cfgraph.runtime.run_names import InlinedClusters
from cfgraph.runtime.trace.events import Observer

if TYPE_CHECKING:
    from cfgraph.runtime.compiled.engine import CompiledRun


class ExecutorPlans:
    """The run as the token executor executes it, and its plans; made when first used."""

    def __init__(self, make: Callable[[], tuple[RunSpec, Sequence[Plan]]]) -> None:
        self._make = make
        self._made: tuple[RunSpec, Sequence[Plan]] | None = None
        self._lock = Lock()

    def get(self) -> tuple[RunSpec, Sequence[Plan]]:
        """The spec and the plans."""
        with self._lock:
            if self._made is None:
                with paused_gc():
                    self._made = self._make()
            return self._made


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A planned run: its generated function, or None and the reason, and its token executor.

    `spec` and `plans` are those of the engine that runs it.
    """

    spec: RunSpec
    plans: Sequence[Plan]
    executor: ExecutorPlans
    compiled: CompiledRun | None
    fallback: str


def plan_run(
    spec: RunSpec,
    opened: InlinedClusters,
    config: RunConfig,
    clusters: ClusterKernels,
    observed: str,
    *,
    without_values: bool = False,
) -> PlannedRun:
    """Plan a run for generated code where that is possible, else for the token executor.

    A run that is `observed`, for a reason that is not empty, uses the token executor. Generated
    code merges the devices of a run: a graph that is not partitioned is only placed for it.
    """
    spec = lowered_run(spec, opened)
    if not observed and len(config.devices) > 1 and not is_partitioned(spec.graph):
        return _plan_placed(spec, config, clusters)
    spec, plans = prepare_lowered(spec, config, clusters, without_values=without_values)
    executor = ExecutorPlans(lambda: (spec, plans))
    if not observed and any(is_gpu(plan.device) for plan in plans):
        observed = "devices are GPUs"
    if observed:
        return PlannedRun(spec, plans, executor, None, observed)
    compiled, reason = _compiled(spec, plans)
    return PlannedRun(spec, plans, executor, compiled, reason)


def _plan_placed(spec: RunSpec, config: RunConfig, clusters: ClusterKernels) -> PlannedRun:
    """Plan a run on several devices without partitioning its graph, if it compiles."""
    from cfgraph.passes.partition.partition import partition, partition_devices

    spec = place_run(spec, config)
    device_of = partition_devices(spec.graph)
    plans: Sequence[Plan] = runnable_plans(spec, DEFAULT_DEVICE, config, clusters)

    def partitioned() -> tuple[RunSpec, Sequence[Plan]]:
        run = spec.on(copy_graph(spec.graph))
        partition(run.graph)
        return run, runnable_plans(run, None, config, clusters)

    executor = ExecutorPlans(partitioned)
    compiled, reason = _compiled(spec, plans, device_of)
    if compiled is None:
        spec, plans = executor.get()
    return PlannedRun(spec, plans, executor, compiled, reason)


def _compiled(
    spec: RunSpec, plans: Sequence[Plan], device_of: Mapping[Node, str] | None = None
) -> tuple[CompiledRun | None, str]:
    """The generated function of a run, or None and the reason why the token executor runs it."""
    from cfgraph.runtime.compiled.engine import compile_run
    from cfgraph.runtime.compiled.program import NotCompiled

    try:
        return compile_run(spec, plans, device_of), ""
    except NotCompiled as error:
        return None, error.text


# simulators that stay linked per fetch-set while no run uses them
MAX_IDLE_SIMULATORS: Final = 8


class RunExecutor(Protocol):
    """An engine with the state of one run: a simulator, or generated code."""

    results: list[Any]
    step: RunStep
    run_start: int
    gpus: tuple[str, ...]
    elapsed: float | None
    allow_dead: bool  # a dead fetch is no error of this run
    fallback: str  # the reason why generated code was not used in this run, or empty

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


SimulatorMaker = Callable[[PlannedRun, Observer | None], RunExecutor]


@dataclass(slots=True, eq=False)
class PreparedRun:
    """A fetch-set that is ready to run.

    `guard` is held during a run. If it is a lock, runs wait for each other, and linking changes the
    plans: a second simulator needs its own plans.
    """

    run: PlannedRun
    make: SimulatorMaker
    guard: AbstractContextManager[object]
    blas_threads: int | None = None
    idle: list[RunExecutor] = field(default_factory=list)

    @property
    def graph(self) -> Graph:
        """The graph as the token executor executes it."""
        return self.run.executor.get()[0].graph

    @property
    def is_shared(self) -> bool:
        """True if several simulators may be linked from the plans."""
        return isinstance(self.guard, nullcontext)

    def acquire(self, observer: Observer | None) -> RunExecutor:
        """A simulator for one run; an observed run has a new one."""
        if observer is None or not self.is_shared:
            try:
                return self.idle.pop()
            except IndexError:
                pass
        with self.run.spec.graph.paused_gc():
            return self.make(self.run, observer)

    def release(self, simulator: RunExecutor) -> None:
        """Make a simulator available to later runs. Only one keeps the values of its last run."""
        if self.idle:
            simulator.clear()
        self.idle.append(simulator)
        # after the append, so that the bound holds for concurrent calls
        del self.idle[MAX_IDLE_SIMULATORS:]
