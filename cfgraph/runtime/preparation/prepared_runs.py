"""Prepared runs: what a session keeps of each fetch-set, with the choice between NumPy and XLA."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from cfgraph.analysis.resource_handles import is_variable, variable_key
from cfgraph.backends.gpu.context import available_gpu
from cfgraph.backends.gpu.plan import GpuPlan
from cfgraph.backends.xla.cluster_runner import ClusterRunner
from cfgraph.backends.xla.tier import RepeatedRun, XlaTier
from cfgraph.errors import CfgraphError, Unsupported
from cfgraph.ir.devices import is_gpu
from cfgraph.ir.files import dumps
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.traversal import is_partitioned, named_devices
from cfgraph.limits import current_limits, limited
from cfgraph.ops.opdef.jax_library import has_jax
from cfgraph.runtime.blas_threads import auto_threads
from cfgraph.runtime.code_cache import CacheEntry, CodeCache
from cfgraph.runtime.engine.plan import RunSpec
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.memory.accounting import DeviceMemory
from cfgraph.runtime.preparation.executors import Executors, RunExecutor
from cfgraph.runtime.preparation.prepare import PlannedRun, plan_run
from cfgraph.runtime.preparation.run_config import RunConfig
from cfgraph.runtime.preparation.run_names import inline_partly_needed
from cfgraph.runtime.trace.events import Observer

# the oldest prepared runs of a session are dropped above this
MAX_PREPARED_RUNS: Final = 32
# drivers that stay linked per fetch-set while no run uses them
MAX_IDLE_SIMULATORS: Final = 8
# fraction of the nodes of a run that may remain outside of clusters for XLA
MOST_REMAINING: Final = 0.5
TRACED: Final = "the run is traced"

# fetches, targets, feeds, values are omitted, the run is only traced
RunKey = tuple[tuple[Output, ...], tuple[Node, ...], tuple[Output, ...], bool, bool]


@dataclass(slots=True, eq=False)
class PreparedRun:
    """A fetch-set that is ready to run.

    `fed_fetches` are the indices of fetches that are fed, and of their feeds.
    `guard` is held during a run. If it is a lock, runs wait for each other, and linking changes the
    plans: a second driver needs its own plans. `clusters` runs its clusters, and `entry` has its
    code in a cache. `plan_xla` plans a run that may move to XLA; the second run makes its `tier`.
    """

    run: PlannedRun
    executors: Executors
    fed_fetches: Mapping[int, int]
    guard: AbstractContextManager[object]
    clusters: ClusterRunner
    blas_threads: int | None = None
    entry: CacheEntry | None = None
    plan_xla: Callable[[State], tuple[PlannedRun, ClusterRunner]] | None = None
    tier: XlaTier | None = None
    has_run: bool = False
    xla: PreparedRun | None = None
    without_early_reads: PreparedRun | None = None
    idle: list[RunExecutor] = field(default_factory=list)

    @property
    def graph(self) -> Graph:
        """The graph as the token executor executes it."""
        return self.run.token_plans.get()[0].graph

    @property
    def is_shared(self) -> bool:
        """True if several drivers may be linked from the plans."""
        return isinstance(self.guard, nullcontext)

    def repeated_run(self, feeds: Iterable[Any]) -> RepeatedRun | None:
        """The times of this run with feeds of these shapes, if it may move to XLA.

        A run with limits stays, since code of XLA looks at them less often.
        """
        if self.plan_xla is None or current_limits().bounds_loops:
            return None
        if not self.has_run:
            self.has_run = True
            return None
        if self.tier is None:
            if not has_jax():
                self.plan_xla = None
                return None
            self.tier = XlaTier(self.run.plans[0].nodes, self.entry)
        repeated = self.tier.repeated_run(feeds)
        if self.xla is not None and not self.tier.may_use_xla:
            self.xla = None  # its code, and constants in it, take memory
        return repeated

    @property
    def xla_estimate(self) -> str:
        """A description of the time to compile this run, if it may move to XLA."""
        if self.plan_xla is None or not has_jax():
            return ""
        return str(RepeatedRun(XlaTier(self.run.plans[0].nodes).estimate))

    def by_xla(self, repeated: RepeatedRun) -> PreparedRun | None:
        """The same run by XLA, planned once; None if that is impossible."""
        assert self.plan_xla is not None
        xla = self.xla
        if xla is None:
            try:
                run, clusters = self.plan_xla(self.executors.state)
            except CfgraphError as error:
                repeated.reject(error.message)
                return None
            xla = PreparedRun(
                run, self.executors, self.fed_fetches, self.guard, clusters, self.blas_threads
            )
            self.xla = xla
        return xla

    def acquire(self, observer: Observer | None) -> RunExecutor:
        """A driver for one run; an observed run has a new one."""
        if observer is None or not self.is_shared:
            try:
                return self.idle.pop()
            except IndexError:
                pass
        with self.run.spec.graph.paused_gc():
            return self.executors.make(self.run, observer)

    def release(self, driver: RunExecutor) -> None:
        """Make a driver available to later runs. Only one keeps the values of its last run."""
        if self.idle:
            driver.clear()
        self.idle.append(driver)
        # after the append, so that the bound holds for concurrent calls
        del self.idle[MAX_IDLE_SIMULATORS:]

    def end(
        self,
        executor: RunExecutor,
        repeated: RepeatedRun | None,
        values: list[Any],
        stopped_at: int | None,
        *,
        traced: bool,
    ) -> RunResult:
        """The result of a run, whose executor is released."""
        result = RunResult(
            self,
            repeated,
            values,
            executor.elapsed,
            stopped_at,
            self.run.fallback or executor.fallback or (TRACED if traced else ""),
            executor.is_interpreted,
            executor.gpus,
            executor.gpu_plan,
        )
        if self.executors.meter is not None:
            executor.clear()
        if not traced:
            self.release(executor)
        return result


@dataclass(slots=True, eq=False)
class RunResult:
    """A run that ended, also with an error: its values in fetch order, and how it ran.

    `repeated` has the times of a run that may move to XLA. `elapsed` is the final time of a virtual
    clock in seconds, and `stopped_at` the iteration at which it stopped early. `fallback` is the
    reason why the token executor ran it, or empty.
    """

    prepared: PreparedRun
    repeated: RepeatedRun | None
    values: list[Any]
    elapsed: float | None
    stopped_at: int | None
    fallback: str
    is_interpreted: bool
    gpus: tuple[str, ...]
    gpu_plan: GpuPlan | None

    @property
    def graph(self) -> Graph:
        """The graph as the token executor executes it."""
        return self.prepared.graph

    @property
    def config(self) -> RunConfig:
        """The options of its session."""
        return self.prepared.executors.config

    @property
    def memory(self) -> dict[str, DeviceMemory]:
        """Memory use and copies of each device, empty unless memory is counted."""
        meter = self.prepared.executors.meter
        return {} if meter is None else meter.memories

    @property
    def clusters(self) -> ClusterRunner:
        """The runner of its clusters."""
        return self.prepared.clusters

    @property
    def xla_choice(self) -> str:
        """The times that decide whether XLA runs it, or empty if it has no choice."""
        return str(self.repeated or self.prepared.xla_estimate or "")

    @property
    def worker_devices(self) -> list[list[str]]:
        """The devices that each worker ran; empty without workers."""
        workers = self.prepared.executors.workers
        if workers is None:
            return []
        devices: list[list[str]] = [[] for _ in {*workers.worker_of.values()}]
        for device in sorted({node.device for node in self.graph}):
            devices[workers.worker_of[device]].append(device)
        return devices


class PreparedRuns:
    """The prepared runs of a session by fetch-set, until its graph changes.

    `clusters` runs the clusters of all of them.
    """

    def __init__(
        self,
        graph: Graph,
        executors: Executors,
        clusters: ClusterRunner,
        lock: AbstractContextManager[object],
        cache: CodeCache | None,
    ) -> None:
        self.clusters = clusters
        self._graph, self._executors, self._lock = graph, executors, lock
        self._config = config = executors.config
        self._token_reason = config.token_executor_reason()
        self._may_use_xla = config.has_xla_choice
        self._prepared: dict[RunKey, PreparedRun] = {}
        self._planned: Any = None  # the version of the graph that the runs are prepared for
        self._cache = cache
        self._digest: tuple[Any, str] = None, ""  # a version of the graph, and its digest
        if cache is not None and cache.graph_digest:
            self._digest = self._version, cache.graph_digest

    def __len__(self) -> int:
        return len(self._prepared)

    def __iter__(self) -> Iterator[PreparedRun]:
        return iter(self._prepared.values())

    def clear(self) -> None:
        """Drop all prepared runs."""
        self._prepared = {}

    def reuse(self, other: PreparedRuns) -> None:
        """Reuse the plans of another session on the same graph with the same options."""
        self.clusters, self._planned = other.clusters, other._planned
        for key, prepared in dict(other._prepared).items():
            if prepared.is_shared:
                self._prepared[key] = replace(
                    prepared,
                    executors=self._executors,
                    plan_xla=None,
                    xla=None,
                    without_early_reads=None,
                    idle=[],
                )

    @property
    def _version(self) -> Any:
        """The state of the graph; equal states have equal runs."""
        return self._graph.edits, tuple(self._graph.functions.values())

    def get(
        self,
        spec: RunSpec,
        values: Sequence[Any],
        trace: Observer | None,
        timeout: float | None,
        *,
        without_values: bool,
    ) -> tuple[PreparedRun, float]:
        """The prepared run of a spec, made once, and the time this took.

        Its feeds first have the given values.

        If plans cannot be shared, a traced run has its own. A traced run compiles nothing. A run
        does not read a variable before a loop if it has no value.
        """
        key = spec.fetches, spec.targets, spec.feeds, without_values, False
        prepared, seconds = self._get(key, spec, values, trace, timeout)
        early = prepared.run.spec.early_reads
        if not early or early <= self._executors.state.initialized_variables():
            return prepared, seconds
        if prepared.without_early_reads is None:
            config = replace(self._config, regions=False)
            remaining = None if timeout is None else max(0.0, timeout - seconds)
            with self._lock, self._graph.paused_gc(), limited(timeout=remaining):
                start = time.monotonic()
                if prepared.without_early_reads is None:  # not prepared by another run meanwhile
                    reason = self._token_reason_of(key)
                    prepared.without_early_reads = self._prepare(key, spec, reason, values, config)
                seconds += time.monotonic() - start
        return prepared.without_early_reads, seconds

    def _get(
        self,
        key: RunKey,
        spec: RunSpec,
        values: Sequence[Any],
        trace: Observer | None,
        timeout: float | None,
    ) -> tuple[PreparedRun, float]:
        version = self._version
        if self._planned == version:
            prepared = self._known_run(key, trace)
            if prepared is not None:
                return prepared, 0.0
        with self._lock, self._graph.paused_gc(), limited(timeout=timeout):
            start = time.monotonic()
            if self._planned != version:
                self._prepared, self._planned = {}, version
            prepared = self._known_run(key, trace)
            if prepared is not None:
                return prepared, 0.0
            reason = self._token_reason_of(key)
            if trace is not None and not reason:
                reason, key = TRACED, (*key[:4], True)
            prepared = self._prepare(key, spec, reason, values, self._config)
            if trace is None or not prepared.is_shared:
                prepared.idle.append(self._executors.make(prepared.run, trace))
            if trace is None or prepared.is_shared:
                while len(self._prepared) >= MAX_PREPARED_RUNS:
                    del self._prepared[next(iter(self._prepared))]
                self._prepared[key] = prepared
            return prepared, time.monotonic() - start

    def _token_reason_of(self, key: RunKey) -> str:
        """The reason why the token executor runs an untraced run with a key, or empty."""
        return self._token_reason or ("values are omitted" if key[3] else "")

    def _known_run(self, key: RunKey, trace: Observer | None) -> PreparedRun | None:
        """The prepared run of a key; for a traced run also one that is only traced, if shared."""
        prepared = self._prepared.get(key)
        if trace is None:
            return prepared
        if prepared is None:
            prepared = self._prepared.get((*key[:4], True))
        return None if prepared is None or not prepared.is_shared else prepared

    def _prepare(
        self,
        key: RunKey,
        spec: RunSpec,
        token_reason: str,
        values: Sequence[Any],
        config: RunConfig,
    ) -> PreparedRun:
        """Plan a run; with a `token_reason`, for the token executor."""
        feed_of = {tensor: index for index, tensor in enumerate(spec.feeds)}
        fed_fetches = {i: feed_of[x] for i, x in enumerate(spec.fetches) if x in feed_of}
        spec = inline_partly_needed(spec)
        entry = None if token_reason else self._cache_entry(spec, config)
        run = plan_run(
            spec, config, self.clusters, token_reason, without_values=key[3], entry=entry
        )
        guard = self._lock if _is_exclusive(config, self._graph) else nullcontext()
        threads = config.blas_threads
        if isinstance(threads, str):
            fed = dict(zip(run.spec.feeds, values, strict=True))
            threads = auto_threads(run.spec.graph, run.plans, fed)
        prepared = PreparedRun(
            run, self._executors, fed_fetches, guard, self.clusters, threads, entry
        )
        if run.compiled is not None and self._may_use_xla and not spec.groups:
            prepared.plan_xla = partial(_plan_xla_run, spec, config, run, self._cache)
        return prepared

    def _cache_entry(self, spec: RunSpec, config: RunConfig) -> CacheEntry | None:
        """The entry of a run in the cache of generated code, if the session has a cache."""
        if self._cache is None:
            return None
        if self._digest[0] != self._planned:
            self._digest = self._planned, hashlib.sha256(dumps(self._graph)).hexdigest()
        return self._cache.entry(self._digest[1], *spec.names, config.planning_options)


def _is_exclusive(config: RunConfig, graph: Graph) -> bool:
    """True if runs wait for each other: they count memory, or may use a real GPU."""
    if config.memory is not None or config.workers is not None:
        return True
    if config.costs is not None or config.gpu == "simulated":
        return False
    devices = config.devices or named_devices(graph)
    return any(map(is_gpu, devices)) and available_gpu(config.gpu) is not None


def _plan_xla_run(
    spec: RunSpec,
    config: RunConfig,
    generated: PlannedRun,
    cache: CodeCache | None,
    state: State,
) -> tuple[PlannedRun, ClusterRunner]:
    """Plan a run of generated code again, with clusters that XLA compiles, and their runner.

    Its errors are explained by the same token executor. Raises Unsupported with the reason if XLA
    compiles too little of it, or a variable has no value: clusters may read it although the run
    does not.
    """
    if is_partitioned(spec.graph):
        message = "the graph is partitioned"
        raise Unsupported(message)
    valued = state.initialized_variables()
    for node in filter(is_variable, generated.plans[0].nodes):
        if variable_key(node) not in valued:
            message = f"the variable {node.name} has no value"
            raise Unsupported(message)
    clusters = ClusterRunner("xla", prefixes_errors=False, cache=cache)
    run = plan_run(spec, replace(config, jit="xla", regions=True), clusters, "")
    remaining, count = len(run.plans[0].nodes), len(generated.plans[0].nodes)
    compiled, original = run.compiled, generated.compiled
    if compiled is None or original is None:
        raise Unsupported(run.fallback)
    if remaining > MOST_REMAINING * count:
        message = f"{remaining} of {count} nodes remain outside of clusters"
        raise Unsupported(message)
    repeatable = original.is_repeatable
    needs_tokens = compiled.code.may_be_dead and not repeatable
    compiled = replace(compiled, is_repeatable=repeatable, needs_tokens_for_dead=needs_tokens)
    return replace(run, compiled=compiled, token_plans=generated.token_plans), clusters
