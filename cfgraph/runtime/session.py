"""Sessions: runs of one graph that share variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from threading import RLock
from traceback import clear_frames
from typing import Any, Final, Self

import numpy as np

from cfgraph.errors import CfgraphError, ExecutionError, UsageError
from cfgraph.extensions import AUTO, COMPILED, DEVICE, extension
from cfgraph.ir.devices import parse_devices, short_device_names
from cfgraph.ir.graph import Graph, require_graph
from cfgraph.ir.names import name_list
from cfgraph.ir.traversal import named_devices
from cfgraph.limits import current_limits, limited, memory_errors_reported
from cfgraph.passes.place.rules import PlacementRules, PlacementRulesLike
from cfgraph.runtime.blas_threads import checked_threads, limited_threads
from cfgraph.runtime.cluster_runner import NUMPY, ClusterRunner
from cfgraph.runtime.code_cache import CodeCache
from cfgraph.runtime.cost_model import CostModel
from cfgraph.runtime.engine.executor import MISSING
from cfgraph.runtime.engine.plan import RunSpec
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.io_policy import IoPolicy
from cfgraph.runtime.memory.accounting import DeviceMemory, MemoryMeter, MemoryTrace
from cfgraph.runtime.memory.swapping import DEFAULT_SWAP_ABOVE
from cfgraph.runtime.preparation.engines import Engine, TierRun
from cfgraph.runtime.preparation.executors import Executors, fetched_values
from cfgraph.runtime.preparation.prepare import DEFAULT_DEVICE
from cfgraph.runtime.preparation.prepared_runs import PreparedRun, PreparedRuns, RunResult
from cfgraph.runtime.preparation.run_config import (
    RunConfig,
    StepOptions,
    current_options,
    require_cache,
    require_state,
    require_step_types,
)
from cfgraph.runtime.preparation.run_names import NameResolver, fetch_names
from cfgraph.runtime.preparation.taps import Taps
from cfgraph.runtime.run_executor import RunExecutor
from cfgraph.runtime.trace.events import Observer, Tee
from cfgraph.runtime.trace.recording import RunTimeline

_DEFAULTS: Final = StepOptions()
# of a run that is repeated for the state of its loop
_EXPLANATION_SECONDS: Final = 10.0


def requested_gpu(kind: Any, *, is_virtual: bool) -> Any:
    """The GPU that a session requests. Raises as its backend does."""
    return extension(DEVICE, "gpu").requested(kind, is_virtual=is_virtual)


class Session:
    """Runs of a graph. `state` holds the variables; another session continues with them.

    `schedule` is `fifo`, or `random` with `schedule_seed`; the values of a graph with races, which
    `check` looks for, may depend on it. Stateful random ops draw from `seed` and their own seeds.

    A partitioned graph runs on the devices that it names. On several `devices` any other graph is
    lowered, placed, and partitioned in a copy of the part that a run needs. A device request that
    cannot be satisfied is an error unless `soft_placement`; `rules` (as for `cfgraph.place`)
    override requests. On one device, all nodes run there whatever they request.

    With the engines `auto` and `compiled`, a run is compiled to straight-line Python, with the same
    values and errors, where possible and if nothing observes it; otherwise, and with `tokens`, the
    token executor runs it. `fallback` is the reason for which it ran the last run, or empty. With
    `auto`, the first run of a graph without control flow is interpreted (`is_interpreted`). With
    `xla`, XLA compiles clusters of nodes, also whole loops and conditionals, per input signature
    (with `lazy` when a signature is seen a second time); floats agree within the tolerance of the
    dtype. With `auto` and jax, a run that the session repeats for longer than XLA would compile
    moves to XLA if that is faster, also one on a GPU with jax for CUDA; limited and observed runs
    do not. `tier_choice` has the times.
    `compiled` computes the same bits in each run. Clusters in the graph run by XLA with `xla`, by
    NumPy with `compiled`, else by XLA if large. `jit` and `regions` are deprecated.

    With `costs` the run uses a virtual clock: `elapsed` is its final time in seconds, and the trace
    has its times. `ran` is the graph of the last run: the needed part of the graph after lowering,
    placement, partitioning, and clustering.

    With `memory`, the memory of each device is counted, and limited to the bytes that the mapping
    has for the device, if any; the attribute `memory` has the counts of the last run by device.
    Pushes that are marked `swap_memory` move values to the host while a device uses more than
    `swap_above` of its limit.

    With `gpu="real"` the gpus are on a real GPU, with `simulated` NumPy computes their values. The
    default is a real GPU if there is one, except with a virtual clock. `report("gpu")` describes
    those of the last run.

    Several threads may call `run` at once: each run has its own values, limits, and trace. They
    share the variables, and their stateful ops interleave node by node, as in TensorFlow. Runs that
    count memory or use a real GPU wait for each other. `elapsed`, `stopped_at`, `ran`, `memory`,
    and `report` then describe the run that ended last.

    `blas_threads` sets the number of threads of the BLAS library during each run, `auto` by the
    size of the products in it. The default leaves it unchanged, but for one less while XLA compiles
    beside a run. It is restored after the run.

    With `workers`, a `Processes` or a `Ray`, the devices are divided among worker processes, which
    hold the variables. They start with the first run, and end with `close` or at the end of a
    `with` block.

    With `cache`, generated code and executables of XLA are stored in a folder of the user, and a
    later session with the same graph and run makes neither again. It is off by default.

    A graph prints to stderr, and touches nothing else on the machine unless `allow_io`.

    Raises UsageError for an unknown schedule, device, or engine, Unsupported for XLA without jax
    and for a real GPU where none can be used.
    """

    # of the run that ended last
    elapsed: float | None = None
    _last: RunResult | None = None
    _timeline: RunTimeline | None = None

    def __init__(
        self,
        graph: Graph,
        devices: str | Sequence[str] | None = None,
        state: State | None = None,
        soft_placement: bool = False,
        schedule: str = "fifo",
        schedule_seed: int = 0,
        seed: int = 0,
        costs: CostModel | None = None,
        jit: str | None = None,
        engine: str | Engine | None = None,
        lazy: bool = False,
        regions: bool = False,
        rules: PlacementRulesLike | None = None,
        memory: Mapping[str, int | None] | None = None,
        swap_above: float = DEFAULT_SWAP_ABOVE,
        gpu: Any = None,
        allow_io: bool | IoPolicy = False,
        blas_threads: int | str | None = None,
        workers: Any = None,
        cache: bool | CodeCache = False,
    ) -> None:
        require_graph(graph)
        engine, jit, regions = current_options(engine, jit, regions=regions)
        self.graph = graph
        self.config = RunConfig(
            devices=() if devices is None else parse_devices(devices),
            soft_placement=soft_placement,
            rules=PlacementRules.parse(rules),
            schedule=schedule,
            schedule_seed=schedule_seed,
            seed=seed,
            costs=costs,
            jit=jit,
            engine=engine,
            lazy=lazy,
            regions=regions,
            memory=memory,
            swap_above=swap_above,
            gpu=None if gpu is None else requested_gpu(gpu, is_virtual=costs is not None),
            io=IoPolicy.parse(allow_io),
            blas_threads=checked_threads(blas_threads),
            workers=workers,
        )
        require_state(state)
        require_cache(cache)
        self._meter = None if memory is None else MemoryMeter(memory, swap_above)
        if self._meter is not None:
            self._meter.require(self.config.devices or named_devices(graph) or [DEFAULT_DEVICE])
        self._executors = Executors(self.config, state, self._meter)
        self.state, self._engine = self._executors.state, self._executors.engine
        self._lock = RLock()  # held to prepare a run, and during runs that wait for each other
        code_cache = CodeCache() if cache is True else cache or None
        self.cluster_runner = ClusterRunner(
            jit or (NUMPY if engine == COMPILED else None), lazy=lazy, cache=code_cache
        )
        self._prepared = PreparedRuns(
            graph,
            self._executors,
            self.cluster_runner,
            self._lock,
            code_cache,
        )
        self._names = NameResolver(graph, self._lock)

    def __repr__(self) -> str:
        devices = short_device_names(self.config.devices or [DEFAULT_DEVICE])
        engine = self.config.engine or AUTO
        name = type(engine).__name__ if isinstance(engine, Engine) else engine
        parts = [f"{len(self.graph)} nodes on {devices}", f"engine {name}"]
        # workers hold those of their runs
        variables = sum(1 for _ in self.state.variables()) if self._engine.is_local else 0
        parts += [self._engine.description] * bool(self._engine.description)
        parts += [f"{variables} variable{'s' * (variables != 1)}"] * (variables > 0)
        return f"<Session of {', '.join(parts)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers of the session, if it has any; their variables are lost."""
        self._engine.close()

    def recover(self, variables: State | None = None) -> None:
        """Replace all workers after one was lost, and set the variables, as `restore` returns them.

        Without `variables` they must be initialized again. The next run starts the workers. Random
        numbers are those of a new session with these variables.
        """
        with self._lock:
            self._executors.recover(variables)
            self._prepared.clear()

    def reuse_plans(self, other: Session) -> None:
        """Reuse the plans of another session on the same graph with the same options."""
        self._prepared.reuse(other._prepared)
        self.cluster_runner = other.cluster_runner

    @property
    def rules(self) -> PlacementRules:
        """The placement rules."""
        return self.config.rules

    @property
    def ran(self) -> Graph | None:
        """The graph of the last run as the token executor executes it."""
        return None if self._last is None else self._last.graph

    @property
    def fallback(self) -> str:
        """The reason why the token executor ran the last run, or empty."""
        return "" if self._last is None else self._last.fallback

    @property
    def is_interpreted(self) -> bool:
        """True if the last run needed no generated code."""
        return self._last is not None and self._last.is_interpreted

    @property
    def stopped_at(self) -> int | None:
        """The iteration at which the last run stopped early, or None."""
        return None if self._last is None else self._last.stopped_at

    def report(self, member: str) -> Any:
        """The report of the last run that an engine adds, such as `gpu`.

        Raises UsageError without it.
        """
        if self._last is None:
            raise UsageError("no run has ended", hint="session.run(...) first")
        return self._last.report(member)

    @property
    def tier_choice(self) -> str:
        """The times that decide whether XLA runs the last run, or empty if it has no choice."""
        return "" if self._last is None else self._last.tier_choice

    def timeline(self) -> RunTimeline:
        """The last run with `trace=True`, as a page. Raises UsageError without such a run."""
        if self._timeline is None:
            raise UsageError("no run was traced", hint="session.run(..., trace=True)")
        return self._timeline

    @property
    def memory(self) -> dict[str, DeviceMemory]:
        """Memory use and copies of each device in the last run, empty unless memory is counted."""
        return {} if self._meter is None else self._meter.memories

    def run(
        self,
        fetches: str | Iterable[str] = (),
        feeds: Mapping[str, Any] | None = None,
        targets: str | Iterable[str] = (),
        *,
        trace: Observer | bool | None = None,
        max_iterations: int | None = None,
        timeout: float | None = None,
        allow_dead: bool = False,
        until_iteration: int | None = None,
        without_values: bool = False,
        allow_missing: bool = False,
        taps: Taps | None = None,
    ) -> list[Any]:
        """Compute fetched tensors, and run targets for their effects.

        A fetch is a tensor's name (`y`, `y:1`), a target a node's; a fetch `^y` is a target.
        `feeds` maps tensor names to arrays. `trace` receives an event per token; True
        records them for `timeline()`. `taps` collects arrays of nodes per iteration. Returns a
        value for each fetch that is a tensor, in their order: NumPy arrays, or scalars of rank 0;
        with `allow_dead` None for a dead one, with `allow_missing` for one that no token reached.
        With a virtual clock the run may end as soon as its loops have started `until_iteration`,
        which is then `stopped_at`, and a missing value None. It may also run `without_values`: only
        values that affect control flow are computed, and a fetched value may be an AbstractTensor.

        Raises UsageError for unknown names and feeds that do not fit, InvalidInput for a graph that
        cannot run, Unsupported for ops without a kernel and for files without permission,
        ExecutionError when the run fails (also when a fetch is dead or gets no value), RunTimeout
        after `timeout` seconds, which include the preparation of the run.
        """
        target_names = name_list(targets) if targets else []
        require_step_types(feeds, trace, max_iterations, timeout)
        spec, values = self._names.resolve(fetch_names(fetches), target_names, feeds or {})
        options = StepOptions(
            trace,
            max_iterations,
            timeout,
            allow_dead,
            until_iteration,
            without_values,
            allow_missing,
            taps,
        )
        if taps is not None:
            taps.start(self.graph)
        result = self.execute(spec, values, options)
        # the session retains the result, but not the values
        values, result.values = result.values, []
        return values

    @memory_errors_reported
    @np.errstate(all="ignore")
    def execute(
        self, spec: RunSpec, feeds: list[Any], options: StepOptions = _DEFAULTS
    ) -> RunResult:
        """Execute a run whose names are resolved and whose feeds are converted, as `run` does."""
        trace, max_iterations, timeout, allow_dead, until_iteration, without_values, *_ = options
        if without_values or until_iteration is not None:
            self._require_virtual_clock()
        timeline, trace = self._observers(trace)
        if options.taps is not None:
            trace = options.taps if trace is None else Tee([options.taps, trace])
        prepared, seconds = self._prepared.get(
            spec, feeds, trace, timeout, without_values=without_values
        )
        repeated = upper = None
        if trace is None and timeout is None and max_iterations is None:
            repeated, upper = self._repeated_run(prepared, feeds)
            prepared = upper or prepared
        with (
            prepared.guard,
            # time spent waiting for another run does not count
            limited(
                timeout=None if timeout is None else max(0.0, timeout - seconds),
                max_iterations=max_iterations,
            ) as limits,
            limited_threads(prepared.blas_threads) if prepared.blas_threads else nullcontext(),
        ):
            executor = prepared.acquire(trace)
            self._executors.start(executor, trace, limits.max_iterations, until_iteration)
            executor.allow_dead = allow_dead
            values: list[Any] = []
            completed, stopped_at = False, None
            try:
                self._compute(executor, feeds, repeated, upper)
                completed = True
                if executor.stopped:
                    stopped_at = until_iteration
                    values = [None if value is MISSING else value for value in executor.results]
                else:
                    missing = options.allow_missing
                    values = fetched_values(executor, feeds, prepared.fed_fetches, missing)
                    if timeline is not None:
                        timeline.values = dict(zip(spec.fetches, values, strict=True))
            except BaseException as error:
                self._note_failure(error, timeline)
                if isinstance(error, ExecutionError) and error.exceeded_loop and not error.loop:
                    number = executor.step.run
                    self._describe_exceeded_loop(error, prepared, spec, feeds, number)
                raise
            finally:
                if timeline is not None:
                    timeline.graph, self._timeline = prepared.graph, timeline
                traced = trace is not None
                result = prepared.end(executor, repeated, values, stopped_at, traced=traced)
                self._last = result
                if completed:
                    self.elapsed = result.elapsed
            return result

    def _require_virtual_clock(self) -> None:
        """Raise UsageError if the clock is real."""
        if self.config.costs is None:
            message = "only a run with a virtual clock can omit values and iterations"
            raise UsageError(message, hint="costs=CostModel()")

    def _observers(
        self, trace: Observer | bool | None
    ) -> tuple[RunTimeline | None, Observer | None]:
        """The timeline of a run, if it is requested, and the observer of its events."""
        timeline = RunTimeline(is_virtual=self.config.costs is not None) if trace is True else None
        observer = timeline if isinstance(trace, bool) else trace
        if observer is not None and self._meter is not None:
            observer = MemoryTrace(observer, self._meter)
        return timeline, observer

    def _note_failure(self, error: BaseException, timeline: RunTimeline | None) -> None:
        """Store the error of a run in its timeline."""
        if timeline is not None:
            timeline.error = error
        if self._meter is not None and isinstance(error, CfgraphError):
            # so that a retained exception does not keep tensors alive
            clear_frames(error.__traceback__)

    def _describe_exceeded_loop(
        self,
        error: ExecutionError,
        prepared: PreparedRun,
        spec: RunSpec,
        feeds: list[Any],
        number: int,
    ) -> None:
        """Add what the condition of a loop read to its error, which only generated code knows.

        A run without lasting effects is repeated as such code, with the same random numbers by its
        `number`, for some seconds at most.
        Raises the error of the repeated run if it names the loop differently, as a cluster does.
        """
        config, limit = self.config, current_limits().max_iterations
        if config.engine == COMPILED and prepared.run.compiled is not None:
            return
        session = Session(
            self.graph, state=self.state, seed=config.seed, engine=COMPILED, allow_io=config.io
        )
        session._executors.number_runs(number)
        options = StepOptions(max_iterations=limit, timeout=_EXPLANATION_SECONDS, allow_dead=True)
        try:
            code = session._prepared.get(spec, feeds, None, None, without_values=False)[0].run
            if code.compiled is not None and code.compiled.is_repeatable:
                session.execute(spec, feeds, options)
        except ExecutionError as repeated:
            if repeated.loop is not None and repeated.exceeded_loop != error.exceeded_loop:
                raise repeated from None
            error.loop = repeated.loop
        except CfgraphError:  # the limit is not reached in time, or the code cannot be made
            return

    def _repeated_run(
        self, prepared: PreparedRun, feeds: Iterable[Any]
    ) -> tuple[TierRun | None, PreparedRun | None]:
        """The times of a run that may move to a tier, and the run of the tier if that is used."""
        repeated = prepared.repeated_run(feeds)
        if repeated is None or not repeated.uses_tier:
            return repeated, None
        with self._lock:
            return repeated, prepared.on_tier(repeated)

    def _compute(
        self,
        executor: RunExecutor,
        feeds: list[Any],
        repeated: TierRun | None,
        upper: PreparedRun | None,
    ) -> None:
        """Run an executor; measure a run that may move to a tier, where it is `upper`."""
        if repeated is None or repeated.is_rejected:
            executor.run(feeds, self._executors.random)
        else:
            work = partial(executor.run, feeds, None)
            repeated.run(work, None if upper is None else upper.clusters)
