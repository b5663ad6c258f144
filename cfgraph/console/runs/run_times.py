"""`--repeat`: the times of several runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from cfgraph.cli.output import Page
from cfgraph.cli.run_options import ObserverOptions
from cfgraph.errors import UsageError
from cfgraph.ir.units import format_count, format_duration

# late imports: most runs are not repeated

# quartiles say little of fewer runs
_LEAST_RUNS = 4


@dataclass(slots=True)
class RunDurations:
    """The requested number of runs, and the seconds of each that ended."""

    runs: int
    seconds: list[float] = field(default_factory=list)

    @property
    def later(self) -> list[float]:
        """The times of all runs but the first one, which may compile."""
        return self.seconds[1:]


def requested_times(observers: ObserverOptions, virtual: bool) -> RunDurations | None:
    """The times of `--repeat`, if used. Raises UsageError for options that change them."""
    if observers.repeat is None:
        return None
    slowing = [
        name
        for name, is_set in (
            ("--clock virtual", virtual),
            ("--trace", observers.trace),
            ("--trace-out", observers.trace_out),
            ("--timeline", observers.timeline),
            ("--tap", observers.tap),
            ("--tap-nonfinite", observers.tap_nonfinite),
            ("--html", observers.html),
            ("--node-data", observers.node_data),
        )
        if is_set
    ]
    if slowing:
        message = f"--repeat measures runs, which {slowing[0]} would change"
        raise UsageError(message, hint=f"remove --repeat or {slowing[0]}")
    return RunDurations(observers.repeat)


def print_times(out: Page, times: RunDurations) -> None:
    """Print the first time, and the median and spread of the others."""
    out.line()
    out.heading("times", format_count(len(times.seconds), "run"))
    for name, text in _rows(times):
        out.line(f"  {name:6}  {text}")


def _rows(times: RunDurations) -> Iterator[tuple[str, str]]:
    from statistics import median, quantiles

    first, later = times.seconds[0], times.later
    yield "first", _text(first)
    if len(later) == 1:
        yield "second", _text(later[0])
    elif later:
        yield "median", f"{_text(median(later))} of the {len(later)} others"
        spread = f"{_text(min(later))} to {_text(max(later))}"
        if len(later) >= _LEAST_RUNS:
            low, _, high = quantiles(later, n=4, method="inclusive")
            spread += f", half of them {_text(low)} to {_text(high)}"
        yield "spread", spread


def _text(seconds: float) -> str:
    return format_duration(seconds * 1e9)
