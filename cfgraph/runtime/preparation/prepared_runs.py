"""Prepared runs: what a session keeps of each fetch-set, with the choice of a faster tier."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cfgraph.errors import CfgraphError, UsageError
from cfgraph.extensions import TIER, extension, extension_names
from cfgraph.ir.files import dumps
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.traversal import named_devices
from cfgraph.limits import current_limits, limited
from cfgraph.runtime.blas_threads import auto_threads
from cfgraph.runtime.cluster_runner import ClusterRunner
from cfgraph.runtime.code_cache import CacheEntry, CodeCache
from cfgraph.runtime.engine.plan import RunSpec
from cfgraph.runtime.memory.accounting import DeviceMemory
from cfgraph.runtime.preparation.engines import Tier, TierRun, device_backends
from cfgraph.runtime.preparation.executors import Executors
from cfgraph.runtime.preparation.prepare import PlannedRun, plan_run
from cfgraph.runtime.preparation.run_config import ON_GPUS, RunConfig
from cfgraph.runtime.preparation.run_names import inline_partly_needed
from cfgraph.runtime.run_executor import ExecutorReport, RunExecutor
from cfgraph.runtime.trace.events import Observer

# the oldest prepared runs of a session are dropped above this
MAX_PREPARED_RUNS: Final = 32
# drivers that stay linked per fetch-set while no run uses them
MAX_IDLE_DRIVERS: Final = 8
TRACED: Final = "the run is traced"

# fetches, targets, feeds, values are omitted, the run is only traced
RunKey = tuple[tuple[Output, ...], tuple[Node, ...], tuple[Output, ...], bool, bool]


@dataclass(slots=True, eq=False)
class PreparedRun:
    """A fetch-set that is ready to run.

    `fed_fetches` are the indices of fetches that are fed, and of their feeds.
    `guard` is held during a run. If it is a lock, runs wait for each other, and linking changes the
    plans: a second driver needs its own plans. `clusters` runs its clusters, and `entry` has its
    code in a cache. A run that may move to a faster tier is planned from `tier_spec`; its second
    run makes the `tier`.
    """

    run: PlannedRun
    executors: Executors
    fed_fetches: Mapping[int, int]
    guard: AbstractContextManager[object]
    clusters: ClusterRunner
    blas_threads: int | None = None
    entry: CacheEntry | None = None
    tier_spec: RunSpec | None = None
    tier: Tier | None = None
    has_run: bool = False
    upper: PreparedRun | None = None
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

    def repeated_run(self, feeds: Iterable[Any]) -> TierRun | None:
        """The times of this run with feeds of these shapes, if it may move to a tier.

        A run with limits stays, since code of a tier looks at them less often.
        """
        tier, spec = self.tier, self.tier_spec  # other threads may set them meanwhile
        if spec is None or current_limits().bounds_loops:
            return None
        if not self.has_run:
            self.has_run = True
            return None
        if tier is None:
            tier = self.tier = self._make_tier(spec)
            if tier is None:
                self.tier_spec = None
                return None
        repeated = tier.repeated_run(feeds)
        if self.upper is not None and not tier.may_run:
            self.upper = None  # its code, and constants in it, take memory
        return repeated

    def _make_tier(self, spec: RunSpec) -> Tier | None:
        """The first tier that is installed, or None."""
        for name in extension_names(TIER):
            tier: type[Tier] = extension(TIER, name)
            if tier.is_installed(self.run):
                executors, cache = self.executors, self.clusters.cache
                config, state = executors.config, executors.state
                return tier(spec, config, self.run, state, cache, self.entry)
        return None

    @property
    def tier_estimate(self) -> str:
        """A description of the time to compile this run, if it may move to a tier."""
        tier = None if self.tier_spec is None else self._make_tier(self.tier_spec)
        return "" if tier is None else tier.estimate_text

    def on_tier(self, repeated: TierRun) -> PreparedRun | None:
        """The same run on its tier, planned once; None if that is impossible."""
        assert self.tier is not None
        upper = self.upper
        if upper is None:
            try:
                run, clusters = self.tier.plan()
            except CfgraphError as error:
                repeated.reject(error.message)
                return None
            upper = PreparedRun(
                run, self.executors, self.fed_fetches, self.guard, clusters, self.blas_threads
            )
            self.upper = upper
        return upper

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
        del self.idle[MAX_IDLE_DRIVERS:]

    def end(
        self,
        executor: RunExecutor,
        repeated: TierRun | None,
        values: list[Any],
        stopped_at: int | None,
        *,
        traced: bool,
    ) -> RunResult:
        """The result of a run, whose executor is released."""
        planned = "" if executor.is_generated else self.run.fallback
        result = RunResult(
            self,
            repeated,
            values,
            executor.elapsed,
            stopped_at,
            planned or executor.fallback or (TRACED if traced else ""),
            executor.is_interpreted,
            executor.reports(),
        )
        if self.executors.meter is not None:
            executor.clear()
        if not traced:
            self.release(executor)
        return result


@dataclass(slots=True, eq=False)
class RunResult:
    """A run that ended, also with an error: its values in fetch order, and how it ran.

    `repeated` has the times of a run that may move to a tier. `elapsed` is the final time of a
    virtual clock in seconds, and `stopped_at` the iteration at which it stopped early. `fallback`
    is the reason why the token executor ran it, or empty. `reports` are those of its engine.
    """

    prepared: PreparedRun
    repeated: TierRun | None
    values: list[Any]
    elapsed: float | None
    stopped_at: int | None
    fallback: str
    is_interpreted: bool
    reports: list[ExecutorReport]

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
    def tier_choice(self) -> str:
        """The times that decide whether a tier runs it, or empty if it has no choice."""
        return str(self.repeated or self.prepared.tier_estimate or "")

    def report(self, member: str) -> Any:
        """The report that the engine adds under the name of a JSON member.

        Raises UsageError without it.
        """
        reports = {report.member: report for report in self.reports}
        if member not in reports:
            hint = f"it has {', '.join(reports)}" if reports else "GPUs and workers add one each"
            raise UsageError(f"the run has no report {member!r}", hint=hint)
        return reports[member]


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
        engine = executors.engine
        self._token_reason = config.token_executor_reason(engine.token_reason)
        self._may_use_tier = (
            config.is_auto and config.jit is None and len(config.devices) < 2 and engine.is_local
        )
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
                    tier_spec=None,
                    tier=None,
                    upper=None,
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
        engine = self._executors.engine
        run = plan_run(
            spec,
            config,
            self.clusters,
            token_reason,
            omit_values=engine.omit_values if key[3] else None,
            entry=entry,
            is_local=engine.is_local,
        )
        guard = self._lock if self._is_exclusive else nullcontext()
        threads = config.blas_threads
        if isinstance(threads, str):
            fed = dict(zip(run.spec.feeds, values, strict=True))
            threads = auto_threads(run.spec.graph, run.plans, fed)
        prepared = PreparedRun(
            run, self._executors, fed_fetches, guard, self.clusters, threads, entry
        )
        is_movable = run.compiled is not None or (run.fallback == ON_GPUS and self._is_on_device)
        if is_movable and self._may_use_tier and not spec.groups:
            prepared.tier_spec = spec
        return prepared

    @property
    def _is_exclusive(self) -> bool:
        """True if runs wait for each other: they count memory, or may use a real device."""
        engine, config = self._executors.engine, self._config
        return config.memory is not None or engine.is_exclusive or self._is_on_device

    @property
    def _is_on_device(self) -> bool:
        """True if runs may use a real device."""
        engine, config = self._executors.engine, self._config
        backends = device_backends(config.devices or named_devices(self._graph))
        return not engine.simulates and any(backend.is_real(config) for backend in backends)

    def _cache_entry(self, spec: RunSpec, config: RunConfig) -> CacheEntry | None:
        """The entry of a run in the cache of generated code, if the session has a cache."""
        if self._cache is None:
            return None
        if self._digest[0] != self._planned:
            self._digest = self._planned, hashlib.sha256(dumps(self._graph)).hexdigest()
        return self._cache.entry(self._digest[1], *spec.names, config.planning_options)
