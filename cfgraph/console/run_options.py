"""What `run` is asked to do, by theme."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cfgraph.errors import UsageError
from cfgraph.options import Color

if TYPE_CHECKING:  # a run without a page does not load what makes one
    from cfgraph.console.picture.run_file import RunPage

CLOCKS: Final = ("real", "virtual")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to feed and to fetch, and the files that fetched arrays go to."""

    feeds: Sequence[str] = ()
    archives: Sequence[str] = ()
    fetches: Sequence[str] = ()
    targets: Sequence[str] = ()
    inits: Sequence[str] = ()
    outputs: Sequence[str] = ()
    out_dir: str | None = None
    variables: str | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """What values should be, and how close is close enough."""

    values: Sequence[str] = ()
    rtol: float | None = None
    atol: float | None = None


@dataclass(frozen=True, slots=True)
class Watched:
    """What to show of the run itself; with `html`, `page` makes the page."""

    taps: Sequence[str] = ()
    trace: bool = False
    trace_out: str | None = None
    timeline: bool = False
    html: str | None = None
    page: Callable[[str, str, Sequence[str], bool], RunPage] | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop, and what chance depends on."""

    timeout: float | None = None
    max_iterations: int | None = None
    seed: int = 0
    schedule: str = "fifo"
    schedule_seed: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """The devices to run on, whether requests that cannot be met are let go of, and rules; the
    limits of their memory, above which share of them stacks swap, and what a gpu is.
    """

    devices: Sequence[str] = ()
    soft: bool = False
    rules_file: str | None = None
    rules: Sequence[str] = ()
    memory: Sequence[str] = ()
    swap_above: float | None = None
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Which clock, what it goes by, when it stops, and the file that gets the times of kernels."""

    clock: str = "real"
    costs: str | None = None
    until_iteration: int | None = None
    no_values: bool = False
    calibrate: str | None = None

    @property
    def virtual(self) -> bool:
        """True for the virtual clock. Raises UsageError for options that need the other one."""
        if self.clock not in CLOCKS:
            message = f"unknown clock {self.clock!r}"
            raise UsageError(message, hint=f"one of {', '.join(CLOCKS)}")
        virtual = self.clock == "virtual"
        for option, given, wanted in (
            ("--costs", self.costs, True),
            ("--until-iteration", self.until_iteration, True),
            ("--no-values", self.no_values or None, True),
            ("--calibrate", self.calibrate, False),
        ):
            if given is not None and virtual is not wanted:
                hint = f"add --clock {CLOCKS[wanted]}"
                raise UsageError(f"{option} goes with the {CLOCKS[wanted]} clock", hint=hint)
        return virtual


@dataclass(frozen=True, slots=True)
class Clusters:
    """Whether to cluster on the way, with whole regions or not, and what runs clusters how."""

    jit: bool = False
    engine: str = "auto"
    lazy: bool = False
    regions: bool = False

    def require_sense(self) -> None:
        """Raise UsageError for regions where nothing is clustered."""
        if self.regions and not self.jit:
            raise UsageError("--regions says what --jit clusters", hint="add --jit")


@dataclass(frozen=True, slots=True)
class Style:
    """How to print."""

    json: bool = False
    full: bool = False
    quiet: bool = False
    color: Color = Color.auto


@dataclass(frozen=True, slots=True)
class RunOptions:
    """All of it."""

    wanted: Wanted = field(default_factory=Wanted)
    expected: Expected = field(default_factory=Expected)
    watched: Watched = field(default_factory=Watched)
    limits: Limits = field(default_factory=Limits)
    place: Place = field(default_factory=Place)
    style: Style = field(default_factory=Style)
    timing: Timing = field(default_factory=Timing)
    clusters: Clusters = field(default_factory=Clusters)
