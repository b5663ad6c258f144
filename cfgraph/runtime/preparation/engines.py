"""Protocols of what runs the plans of a session: engines, devices, and tiers.

The core runs plans as generated code or on the token executor. A backend adds an engine by a class
that derives from `Engine` and a line of its `PROVIDES` (`extensions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, NamedTuple, Protocol

from cfgraph.errors import UsageError
from cfgraph.extensions import (
    DEVICE,
    ENGINE,
    SESSION_OPTION,
    engine_names,
    extension,
    extension_names,
)
from cfgraph.ir.devices import DeviceName
from cfgraph.ir.graph import Graph, Output
from cfgraph.runtime.cluster_runner import ClusterRunner
from cfgraph.runtime.code_cache import CacheEntry, CodeCache
from cfgraph.runtime.engine.plan import Plan, RunSpec
from cfgraph.runtime.engine.step import RunStep, State
from cfgraph.runtime.memory.accounting import MemoryMeter
from cfgraph.runtime.preparation.prepare import PlannedRun
from cfgraph.runtime.preparation.run_config import RunConfig
from cfgraph.runtime.run_executor import RunExecutor
from cfgraph.runtime.trace.events import Observer


class Engine:
    """The engine of a session, which runs plans as generated code or on the token executor.

    It is requested by name (`Session(engine="toy")`), as an object that has its options
    (`Session(engine=Toy(3))`), or by the option of a session that has its name (`workers`).
    """

    # the reason why it runs plans of the token executor, or empty for generated code
    token_reason = ""
    # true if runs of a session wait for each other
    is_exclusive = False
    # true if this process places the nodes of a graph, and runs it
    is_local = True
    # true if it computes what devices would, on the host
    simulates = False
    # true if the events of a run are measured by the driver itself, not by the step
    times_events = False

    def start_session(self, config: RunConfig, state: State | None) -> State:
        """Begin a session; returns its variables. Raises UsageError for options it refuses."""
        self.config = config
        return State() if state is None else state

    def driver(
        self, run: PlannedRun, step: RunStep, observer: Observer | None, meter: MemoryMeter | None
    ) -> RunExecutor | None:
        """The executor of one run at a time; None for generated code, or the token executor."""
        return None

    def start_run(self, executor: RunExecutor, until_iteration: int | None) -> None:
        """Prepare an executor for the next run."""

    def omit_values(self, graph: Graph, plans: Sequence[Plan]) -> None:
        """Change plans so that only values that affect control flow are computed.

        Raises UsageError if the engine cannot.
        """
        message = "only a run with a virtual clock can omit values and iterations"
        raise UsageError(message, hint="costs=CostModel()")

    def recover(self, variables: State | None) -> None:
        """Restart what was lost. Raises UsageError if nothing can be."""
        raise UsageError("a session without workers has nothing to recover")

    def close(self) -> None:
        """End what the session has started."""

    @property
    def description(self) -> str:
        """The engine in the `repr` of a session, or empty."""
        return ""


def make_engine(config: RunConfig) -> Engine:
    """The engine that a session requests: an object, or by its name or its option.

    Raises UsageError for an object that is none, and for requests of two engines.
    """
    options = [x for x in extension_names(SESSION_OPTION) if getattr(config, x) is not None]
    option, named = options[0] if options else None, config.engine
    if len(options) > 1:
        message = f"{option} cannot be combined with {options[1]}"
        raise UsageError(message, hint=f"omit {option}")
    if not isinstance(named, str | Engine | None):
        hint = f"one of {', '.join(engine_names())}"
        raise UsageError(f"engine is {named!r}, expected a name or an Engine", hint=hint)
    is_added = isinstance(named, Engine) or named in extension_names(ENGINE)
    if is_added and option is not None:
        name = type(named).__name__ if isinstance(named, Engine) else named
        message = f"the engine {name} cannot be combined with {option}"
        raise UsageError(message, hint=f"omit {option}")
    engine: type[Engine] = Engine
    if option is not None:
        engine = extension(SESSION_OPTION, option)
    elif isinstance(named, Engine):
        return copy(named)  # another session may have it, too
    elif named is not None and is_added:
        engine = extension(ENGINE, named)
    return engine()


class DeviceFacts(NamedTuple):
    """A real device: the library that runs kernels on it, its memory in bytes, and its name."""

    library: str
    memory: int
    name: str


class DeviceBackend(Protocol):
    """Devices of one type with kernels and memory of their own; otherwise NumPy simulates them."""

    @staticmethod
    def requested(kind: Any, *, is_virtual: bool) -> Any:
        """The device that a session requests, which may have a virtual clock.

        Raises UsageError for one that is unknown, Unsupported for one that cannot be used.
        """

    @staticmethod
    def facts() -> DeviceFacts | str:
        """The real device of this machine, or the reason why NumPy simulates it."""

    @staticmethod
    def is_real(config: RunConfig) -> bool:
        """True if runs use a real device, and so wait for each other."""

    @staticmethod
    def driver(
        graph: Graph,
        plans: Sequence[Plan],
        step: RunStep,
        fetches: Sequence[Output],
        config: RunConfig,
        observer: Observer | None,
        meter: MemoryMeter | None,
    ) -> RunExecutor | None:
        """The executor of plans with such devices, None if NumPy simulates them."""


def device_backends(devices: Iterable[str]) -> list[type[DeviceBackend]]:
    """The backends of the types of these devices."""
    parsed = [name for device in devices if (name := DeviceName.parse(device)) is not None]
    kinds = {(name.kind or "").lower() for name in parsed}
    return [extension(DEVICE, name) for name in extension_names(DEVICE) if name in kinds]


class TierRun(Protocol):
    """A run that a session repeats with feeds of the same shapes, and may move to a tier."""

    @property
    def is_rejected(self) -> bool:
        """True if generated code runs from now on, and no times are needed."""

    @property
    def uses_tier(self) -> bool:
        """True if the next run is one of the tier."""

    def reject(self, reason: str) -> None:
        """Use generated code from now on."""

    def run(self, work: Callable[[], None], clusters: ClusterRunner | None) -> None:
        """Run once, and count the run: one of the tier, with its clusters, or of generated code."""


class Tier(Protocol):
    """A faster engine of one fetch-set, to which a run that is repeated may move.

    `generated` is the run as generated code, or on GPUs as tokens run it, and `entry` has its code
    in a `cache`. The session has the variables in `state`.
    """

    def __init__(
        self,
        spec: RunSpec,
        config: RunConfig,
        generated: PlannedRun,
        state: State,
        cache: CodeCache | None,
        entry: CacheEntry | None,
    ) -> None: ...

    @staticmethod
    def is_installed(run: PlannedRun) -> bool:
        """True if its library is installed, for the devices of a run."""

    @property
    def may_run(self) -> bool:
        """True if a run with feeds of some shapes may be one of the tier."""

    @property
    def estimate_text(self) -> str:
        """A description of the time to compile the run."""

    def repeated_run(self, feeds: Iterable[Any]) -> TierRun | None:
        """The repeated run with feeds of these shapes; None if there are too many."""

    def plan(self) -> tuple[PlannedRun, ClusterRunner]:
        """The plan of the run for the tier. Raises CfgraphError with the reason if it has none."""
