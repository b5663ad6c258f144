"""The tier above generated code: a run that a session repeats moves to XLA where that pays.

    generated code ──its time exceeds twice what compiling takes──▶ compiling ──▶ trial ──▶ XLA
                                                                        └───────────┴───▶ generated

As in a just-in-time compiler, time that was spent predicts time that will be: a single run never
pays for a compilation. Each combination of feed shapes is decided by itself. The time to compile is
estimated from the nodes of the run. Runs go on in generated code while a thread plans and a process
of its own compiles: only the run that has the inputs for it calls clusters on NumPy kernels. The
process times the clusters on these inputs; if they alone take longer than generated code, no run
ever uses them. The trial runs both in turn and compares their times: after a compilation the same
code of a process may take longer than before.

A session with a cache stores that a run moved to XLA, and how long it took to start: a later
process, which finds the executable there, moves as soon as that is paid once.

On a real GPU the token executor is in the place of generated code, and the run that begins the
trial compiles, since the streams of a GPU belong to a thread.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cfgraph.analysis.resource_handles import is_variable, variable_key
from cfgraph.backends.xla.background import BACKGROUND, Job
from cfgraph.backends.xla.jax_library import has_jax, has_jax_cuda
from cfgraph.errors import CfgraphError, Unsupported
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Node
from cfgraph.ir.traversal import is_partitioned
from cfgraph.ir.units import format_duration
from cfgraph.ops.families.constants import Const
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.opdef.op import is_product, lookup
from cfgraph.runtime.blas_threads import leave_a_core
from cfgraph.runtime.cluster_runner import ClusterRunner, SignatureCounts
from cfgraph.runtime.engine.plan import RunSpec
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.preparation.prepare import PlannedRun, plan_run
from cfgraph.runtime.preparation.run_config import RunConfig

if TYPE_CHECKING:
    from cfgraph.runtime.code_cache import CacheEntry, CodeCache

# seconds of a compilation, fitted to recorded models: 0.3 to 4 times the time that it takes
_COMPILE_BASE: Final = 0.2
_COMPILE_PER_NODE: Final = 0.0025
_COMPILE_PER_PRODUCT: Final = 0.04
_COMPILE_PER_DRAW: Final = 0.025
# seconds in which the process that compiles starts
_START_PROCESS: Final = 0.8
# the share of a compilation that remains where a cache has the executable: tracing and reading
_STORED_SHARE: Final = 0.5
# seconds of generated code per estimated second of compiling, before XLA compiles
PAYMENT: Final = 2.0
# the share of it for a run that has moved to XLA in an earlier process
_MOVED_BEFORE_SHARE: Final = 0.5
# runs that are compared, of both engines
_TRIAL_RUNS: Final = 5
# XLA must take at most this fraction of the time of generated code
_WORTH: Final = 0.9
# the same for times that another process measured while this one used a processor
_WORTH_DISTURBED: Final = 2.0
# runs that may compile, and later runs that may meet a signature that is not compiled
_MAX_COMPILING_RUNS: Final = 3
_MAX_MISSES: Final = 3
# fraction of the nodes of a run that may remain outside of clusters
MOST_REMAINING: Final = 0.5
# what runs before XLA, on the host and on GPUs
GENERATED_CODE: Final = "generated code"
ON_CUPY: Final = "CuPy"
# combinations of feed shapes of a run that may move to XLA
_MAX_SHAPES: Final = 8


def compile_seconds(nodes: Iterable[Node]) -> float:
    """The estimated seconds that XLA takes to compile the nodes of a run."""
    work = [node for node in nodes if _computes(node)]
    products = sum(map(is_product, work))
    draws = sum(_draws(node.op) for node in work)
    return (
        _COMPILE_BASE
        + _COMPILE_PER_NODE * len(work)
        + _COMPILE_PER_PRODUCT * products
        + _COMPILE_PER_DRAW * draws
    )


def _computes(node: Node) -> bool:
    op = lookup(node.op)
    return op is not None and not (op.aliasing.is_identity or op.role or issubclass(op, Const))


def _draws(name: str) -> bool:
    """True for an op that draws random numbers."""
    op = lookup(name)
    return op is not None and op.effects.random


class Phase(Enum):
    """The engine of a repeated run."""

    GENERATED = "generated code"
    COMPILING = "generated code, while XLA compiles"
    TRIAL = "XLA, compared with generated code"
    XLA = "XLA"
    REJECTED = "generated code, after XLA was rejected"


@dataclass(slots=True)
class RunTimes:
    """The number of runs, their total seconds, and the seconds of the last ones."""

    count: int = 0
    total: float = 0.0
    last: deque[float] = field(default_factory=lambda: deque(maxlen=_TRIAL_RUNS))

    def add(self, seconds: float) -> None:
        """Count a run."""
        self.count += 1
        self.total += seconds
        self.last.append(seconds)

    @property
    def least(self) -> float:
        """The least of the last times."""
        return min(self.last.copy())  # another thread may add one meanwhile


class RepeatedRun:
    """Times and phase of one run with feeds of the same shapes.

    `estimate` is the seconds that compiling takes, unless the `entry` of a cache has them.
    `start_plan` starts to plan it for XLA. The `alternative` runs it until then.
    """

    def __init__(
        self,
        estimate: float,
        entry: CacheEntry | None = None,
        start_plan: Callable[[], Job[Any]] | None = None,
        alternative: str = GENERATED_CODE,
    ) -> None:
        self._alternative = alternative
        self._entry, self._start_plan = entry, start_plan
        stored = None if entry is None else _stored_seconds(entry)
        self.has_moved_before = stored is not None
        self.estimate = estimate if stored is None else min(stored, estimate)
        self.phase = Phase.GENERATED
        self.generated, self.xla = RunTimes(), RunTimes()
        # runs that compile, and those of generated code in turn with runs of XLA
        self.compiling, self.compared = RunTimes(), RunTimes()
        # of a plan, or of compilations, while the phase is COMPILING
        self.pending: Sequence[Job[Any]] = ()
        self.compile_seconds = 0.0
        self._pending_since = 0.0
        self.misses = 0
        self.reason = ""

    def advance(self) -> None:
        """Begin the trial if what it needs is compiled, or reject it."""
        pending = self.pending
        if self.phase is not Phase.COMPILING or not all(item.is_done for item in pending):
            return
        self.compile_seconds += clock() - self._pending_since
        self.pending = ()
        for item in pending:
            if error := item.error:
                self.reject(error.message if isinstance(error, CfgraphError) else repr(error))
                return
        results = [item.result() for item in pending]
        compiled = [result for result in results if hasattr(result, "least_seconds")]
        refused = [result for result in results if result and isinstance(result, str)]
        if refused and not compiled:
            self.reject(refused[0])
            return
        least = sum(item.least_seconds or 0.0 for item in compiled)
        is_disturbed = any(item.is_disturbed for item in compiled)
        if least > (_WORTH_DISTURBED if is_disturbed else _WORTH) * self.generated.least:
            generated = _duration(self.generated.least)
            note = ", measured beside other runs" if is_disturbed else ""
            self.reject(f"clusters take {_duration(least)} a run{note}, generated code {generated}")
            return
        self.phase = Phase.TRIAL

    def _wait_for(self, pending: Sequence[Job[Any]]) -> None:
        """Run generated code until this work is done."""
        self.pending, self._pending_since, self.phase = pending, clock(), Phase.COMPILING

    @property
    def uses_tier(self) -> bool:
        """True if the next run is one of XLA: in a trial, every other run."""
        is_turn = self.phase is Phase.TRIAL and self.xla.count <= self.compared.count
        return is_turn or self.phase is Phase.XLA

    @property
    def may_use_xla(self) -> bool:
        """True if a later run may be one of XLA."""
        return self.phase in (Phase.COMPILING, Phase.TRIAL, Phase.XLA)

    @property
    def is_rejected(self) -> bool:
        """True if generated code runs from now on, and no times are needed."""
        return self.phase is Phase.REJECTED

    @property
    def may_compile(self) -> bool:
        """True if the next run may compile."""
        return self.phase is Phase.TRIAL and self.compiling.count < _MAX_COMPILING_RUNS

    @property
    def _leaves_a_core(self) -> bool:
        """True if something is planned or compiled, or the next run starts a compilation."""
        is_first = self.phase is Phase.TRIAL and not self.compiling.count
        return is_first or self.phase is Phase.COMPILING

    def run(self, work: Callable[[], None], clusters: ClusterRunner | None) -> None:
        """Run once, and count the run: one of XLA, with its clusters, or of generated code."""
        signatures = None if clusters is None else clusters.signatures
        if signatures is not None:
            signatures.start_run(may_compile=self.may_compile)
        start = clock()
        try:
            with leave_a_core() if self._leaves_a_core else nullcontext():
                work()
        finally:
            if signatures is not None and signatures.failed:
                self.reject(signatures.failed)
        seconds = clock() - start
        if self.phase is Phase.COMPILING:
            BACKGROUND.let_work(seconds)
        if signatures is None:
            self.add_generated(seconds)
        elif not signatures.failed:
            self.add_xla(seconds, signatures)

    def add_generated(self, seconds: float) -> None:
        """Count a run of generated code; the next may be the first of XLA."""
        if self.phase is Phase.TRIAL:
            self.compared.add(seconds)
            self._end_trial()
            return
        self.generated.add(seconds)
        needed = PAYMENT * (self.estimate + _START_PROCESS)
        if self.has_moved_before:
            needed *= _MOVED_BEFORE_SHARE
        is_paid = self.generated.total > needed and self.generated.count >= _TRIAL_RUNS
        if self.phase is Phase.GENERATED and is_paid and self._start_plan is not None:
            self._wait_for((self._start_plan(),))

    def add_xla(self, seconds: float, signatures: SignatureCounts) -> None:
        """Count a run of XLA, after which it may be rejected."""
        if signatures.missed:
            self.misses += 1
            if self.misses > _MAX_MISSES or self.phase is Phase.TRIAL:
                self.reject("shapes or constants in it change from run to run")
            return
        if signatures.compiled or signatures.pending:
            self.compiling.add(seconds)
            if signatures.pending:
                self._wait_for(signatures.pending)
            return
        self.xla.add(seconds)
        if self.phase is Phase.TRIAL:
            self._end_trial()

    def _end_trial(self) -> None:
        """Decide for an engine if both have run often enough."""
        if min(self.xla.count, self.compared.count) < _TRIAL_RUNS:
            return
        if self.xla.least > _WORTH * self.compared.least:
            self.reject(f"it takes {self._times}")
        else:
            self.phase = Phase.XLA
            share = 1.0 if self.has_moved_before else _STORED_SHARE
            self._store({"seconds": share * self.compile_seconds})

    def reject(self, reason: str) -> None:
        """Use generated code from now on."""
        self.phase, self.reason = Phase.REJECTED, reason
        if self.has_moved_before:
            self._store({})

    def _store(self, times: dict[str, float]) -> None:
        """Store what the next process has to know."""
        if self._entry is not None:
            self._entry.store(json.dumps(times).encode())

    @property
    def _times(self) -> str:
        other = _duration(self.compared.least)
        return f"{_duration(self.xla.least)} a run, {self._alternative} {other}"

    def __str__(self) -> str:
        compiled = f"compiled in {_duration(self.compile_seconds)}"
        match self.phase:
            case Phase.GENERATED:
                estimate = f"XLA would compile for about {_duration(self.estimate)}"
                if not self.generated.count:
                    return estimate
                runs = f"{self.generated.count} run{'s' * (self.generated.count != 1)} took"
                return f"{runs} {_duration(self.generated.total)}, {estimate}"
            case Phase.COMPILING:
                return "XLA compiles in a process of its own"
            case Phase.TRIAL:
                return f"XLA {compiled}, and is compared with {self._alternative}"
            case Phase.XLA:
                return f"XLA {compiled}, and takes {self._times}"
        return f"XLA is not used: {self.reason}"


def _duration(seconds: float) -> str:
    return format_duration(seconds * 1e9)


def _stored_seconds(entry: CacheEntry) -> float | None:
    """The seconds that an earlier process took to start XLA for a run that moved to it, or None."""
    try:
        seconds = float(json.loads(entry.load() or b"{}")["seconds"])
    except (ValueError, LookupError, TypeError, RecursionError):  # no entry, or not one of ours
        return None
    return seconds if 0 <= seconds < math.inf else None


def _fed_shape(value: Any) -> Any:
    """The shape of a fed value, or of the value of a fed variable."""
    return getattr(value.value if isinstance(value, Variable) else value, "shape", None)


class XlaTier:
    """The repeated runs of one fetch-set, by the shapes of the feeds; `entry` has its code."""

    @staticmethod
    def is_installed(run: PlannedRun) -> bool:
        """True if jax is installed; for a run on GPUs, with CUDA."""
        return has_jax() and (run.compiled is not None or has_jax_cuda())

    def __init__(
        self,
        spec: RunSpec,
        config: RunConfig,
        generated: PlannedRun,
        state: State,
        cache: CodeCache | None = None,
        entry: CacheEntry | None = None,
    ) -> None:
        self.estimate, self._entry = compile_seconds(generated.plans[0].nodes), entry
        self._state, self._cache = state, cache
        self._planned: Job[tuple[PlannedRun, ClusterRunner]] | None = None
        self._spec, self._config, self._generated = spec, config, generated
        self._runs: dict[tuple[Any, ...], RepeatedRun] = {}

    @property
    def estimate_text(self) -> str:
        """A description of the time to compile the run."""
        return str(RepeatedRun(self.estimate))

    @property
    def may_run(self) -> bool:
        """True if a run with feeds of some shapes may be one of XLA."""
        return any(run.may_use_xla for run in list(self._runs.values()))

    def repeated_run(self, feeds: Iterable[Any]) -> RepeatedRun | None:
        """The repeated run with feeds of these shapes; None if there are too many."""
        shapes = tuple(
            [value.shape if type(value) is np.ndarray else _fed_shape(value) for value in feeds]
        )
        run = self._runs.get(shapes)
        if not self.may_run:
            self._planned = None  # its code, and constants in it, take memory
        if run is not None:
            run.advance()
        elif len(self._runs) < _MAX_SHAPES:
            entry = self._entry
            if entry is not None:
                entry = replace(entry, parts=(*entry.parts, "xla", shapes))
            is_compiled = self._generated.compiled is not None
            alternative = GENERATED_CODE if is_compiled else ON_CUPY
            made = RepeatedRun(self.estimate, entry, self._start_plan, alternative)
            run = self._runs.setdefault(shapes, made)
        return run

    def _start_plan(self) -> Job[tuple[PlannedRun, ClusterRunner]]:
        """Start to plan beside the runs."""
        if self._planned is None:
            valued = self._state.initialized_variables()
            self._planned = BACKGROUND.start(partial(self._plan, valued))
        return self._planned

    def plan(self) -> tuple[PlannedRun, ClusterRunner]:
        """The run of generated code with clusters that XLA compiles, and their runner."""
        return (self._planned or self._start_plan()).result()

    def _plan(self, valued: Collection[Any]) -> tuple[PlannedRun, ClusterRunner]:
        """Plan the run again, with clusters, where variables have values.

        Its errors are explained by the same token executor. Raises Unsupported with the reason if
        XLA compiles too little of it, or a variable has no value: clusters may read it although the
        run does not.
        """
        spec, generated = self._spec, self._generated
        if is_partitioned(spec.graph):
            message = "the graph is partitioned"
            raise Unsupported(message)
        for node in filter(is_variable, generated.plans[0].nodes):
            if variable_key(node) not in valued:
                message = f"the variable {node.name} has no value"
                raise Unsupported(message)
        is_compiled = generated.compiled is not None  # else the streams of a GPU compile
        clusters = ClusterRunner(
            "xla", prefixes_errors=False, compiles_later=is_compiled, cache=self._cache
        )
        with paused_gc():  # a full collection would stop the runs beside it
            config = replace(self._config, jit="xla", regions=True)
            run = plan_run(spec, config, clusters, generated.fallback)
        remaining, count = len(run.plans[0].nodes), len(generated.plans[0].nodes)
        compiled, original = run.compiled, generated.compiled
        if compiled is None and is_compiled:
            raise Unsupported(run.fallback)
        if remaining > MOST_REMAINING * count:
            message = f"{remaining} of {count} nodes remain outside of clusters"
            raise Unsupported(message)
        if compiled is None or original is None:
            return run, clusters
        repeatable = original.is_repeatable
        needs_tokens = compiled.code.may_be_dead and not repeatable
        compiled = replace(compiled, is_repeatable=repeatable, needs_tokens_for_dead=needs_tokens)
        return replace(run, compiled=compiled, token_plans=generated.token_plans), clusters
