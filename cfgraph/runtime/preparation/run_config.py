"""Options of a session, checked together, and of one of its runs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Final, NamedTuple

from cfgraph.errors import UsageError
from cfgraph.extensions import (
    AUTO,
    COMPILED,
    COMPILER,
    TOKENS,
    engine_names,
    extension_names,
)
from cfgraph.ir.devices import is_gpu
from cfgraph.passes.place.rules import PlacementRules
from cfgraph.runtime.code_cache import CodeCache
from cfgraph.runtime.cost_model import CostModel
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.io_policy import IoPolicy
from cfgraph.runtime.memory.swapping import DEFAULT_SWAP_ABOVE
from cfgraph.runtime.trace.events import Observer

SCHEDULES: Final = ("fifo", "random")
# a reason why the token executor runs a run, which may still move to a tier
ON_GPUS: Final = "devices are GPUs"


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Options of a session, which `Session` documents. Raises UsageError for conflicting ones."""

    devices: tuple[str, ...] = ()
    soft_placement: bool = False
    rules: PlacementRules = field(default_factory=PlacementRules)
    schedule: str = "fifo"
    schedule_seed: int = 0
    seed: int = 0
    costs: CostModel | None = None
    jit: str | None = None
    engine: Any = None
    lazy: bool = False
    regions: bool = False
    memory: Mapping[str, int | None] | None = None
    swap_above: float = DEFAULT_SWAP_ABOVE
    gpu: Any = None
    io: IoPolicy = field(default_factory=IoPolicy)
    blas_threads: int | str | None = None
    workers: Any = None

    def __post_init__(self) -> None:
        self._require_types()
        if self.schedule not in SCHEDULES:
            message = f"unknown schedule {self.schedule!r}"
            raise UsageError(message, hint=f"one of {', '.join(SCHEDULES)}")
        engines = engine_names()
        if isinstance(self.engine, str) and self.engine not in engines:
            message = f"unknown engine {self.engine!r}"
            raise UsageError(message, hint=f"one of {', '.join(engines)}")
        if self.rules != PlacementRules() and len(self.devices) < 2:
            message = "placement rules need more than one device"
            raise UsageError(message, hint="name several devices, such as cpu:0,gpu:0")

    def _require_types(self) -> None:
        """Raise UsageError for values of options of the command line."""
        options: tuple[Any, Any, Any] = self.costs, self.memory, self.workers
        costs, memory, workers = options
        if not isinstance(costs, CostModel | None):
            hint = "cfgraph.read_costs(path) reads one from a file"
            raise UsageError(f"costs is {costs!r}, expected a CostModel", hint=hint)
        if memory is not None and not (
            isinstance(memory, Mapping) and all(isinstance(x, Real | None) for x in memory.values())
        ):
            hint = "write the bytes of each device, such as memory={'gpu:0': 4 << 30}"
            raise UsageError(f"memory is {memory!r}, expected a mapping to numbers", hint=hint)
        if isinstance(workers, int | str):
            hint = "workers=cfgraph.Processes(2), or a cfgraph.Ray"
            raise UsageError(f"workers is {workers!r}, expected a Processes or a Ray", hint=hint)

    @property
    def is_auto(self) -> bool:
        """True if the session chooses the engine of a run."""
        return self.engine in (None, AUTO)

    @property
    def planning_options(self) -> tuple[object, ...]:
        """The options that generated code depends on."""
        return self.devices, self.soft_placement, self.rules, self.jit, self.regions

    @property
    def requested_tokens_reason(self) -> str:
        """The reason for which the options request the token executor, or an empty text."""
        if self.engine == TOKENS:
            return "the engine is tokens"
        return "the schedule is random" if self.schedule == "random" else ""

    def token_executor_reason(self, engine_reason: str) -> str:
        """The reason for which all runs use the token executor, or an empty text.

        `engine_reason` is that of the engine of the session.
        """
        reason = self.requested_tokens_reason or engine_reason
        if reason:
            return reason
        if self.memory is not None:
            return "memory is counted"
        return ON_GPUS if any(map(is_gpu, self.devices)) else ""


class StepOptions(NamedTuple):
    """Options of one run, which `Session.run` documents."""

    trace: Observer | bool | None = None
    max_iterations: int | None = None
    timeout: float | None = None
    allow_dead: bool = False
    until_iteration: int | None = None
    without_values: bool = False
    allow_missing: bool = False
    taps: Observer | None = None


def require_state(value: object) -> None:
    """Raise UsageError for a path or a session in place of variables."""
    if not isinstance(value, State | None):
        hint = "state=cfgraph.restore(path, graph)" if isinstance(value, str) else None
        hint = "use session.state" if hasattr(value, "state") else hint
        raise UsageError(f"state is {value!r}, expected a State", hint=hint)


def require_cache(value: object) -> None:
    """Raise UsageError for a folder in place of a cache."""
    if not isinstance(value, bool | CodeCache):
        hint = "cache=True; $CFGRAPH_CACHE is its folder"
        raise UsageError(f"cache is {value!r}, expected True, False, or a CodeCache", hint=hint)


def require_step_types(
    feeds: object, trace: object, max_iterations: object, timeout: object
) -> None:
    """Raise UsageError for options of one run that have wrong types."""
    if not isinstance(feeds, Mapping | None):
        hint = "write a mapping from names to values, such as {'x': 3.0}"
        raise UsageError(f"feeds is {feeds!r}, expected a mapping", hint=hint)
    if not (trace is None or isinstance(trace, bool) or callable(getattr(trace, "event", None))):
        hint = "trace=True records the events for session.timeline()"
        raise UsageError(f"trace is {trace!r}, expected True or an observer", hint=hint)
    if not isinstance(max_iterations, Integral | None):
        raise UsageError(f"max_iterations must be a whole number, got {max_iterations!r}")
    if not isinstance(timeout, Real | None):
        raise UsageError(f"timeout must be a number of seconds, got {timeout!r}")


def current_options(engine: Any, jit: str | None, *, regions: bool) -> tuple[Any, str | None, bool]:
    """The options that the deprecated ones of `Session` stand for; warns its caller about these."""
    compilers = extension_names(COMPILER)
    if jit is not None or regions:
        new = compilers[0] if jit in (AUTO, *compilers) else COMPILED if jit else AUTO
        message = f"jit and regions are deprecated; use engine={new!r}"
        warnings.warn(message, DeprecationWarning, stacklevel=3)
    if engine in compilers and jit is None:
        jit, regions = str(engine), True
    return engine, jit, regions
