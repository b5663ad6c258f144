"""The `diff --run --with tensorflow` command: one graph in cfgraph and in modes of TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cfgraph.cli.output import Page, page
from cfgraph.comparison.differences import RunDiff, run_findings
from cfgraph.console.comparisons.diff import (
    Comparison,
    DiffOptions,
    DiffResult,
    ModeComparison,
    print_diff_result,
    require_diff_options,
)
from cfgraph.console.comparisons.diff_run import (
    print_runs,
    run_side_text,
    runs_report,
    runs_summary,
)
from cfgraph.console.comparisons.run_options import comparison_options, require_no_second_graph
from cfgraph.console.graph_files import Source, read_graph, require_single_stdin
from cfgraph.errors import Unsupported, UsageError
from cfgraph.integrations.tensorflow.mode_comparison import compare_modes
from cfgraph.integrations.tensorflow.modes import ENGINE, Mode, parse_modes
from cfgraph.integrations.tensorflow.processes import ModePool

_CFGRAPH: Final = "cfgraph"


@dataclass(frozen=True, slots=True)
class ModeOptions:
    """The modes of `--with`, and that of `--against`; None for cfgraph."""

    modes: tuple[Mode, ...]
    against: Mode | None = None
    seconds: float | None = None

    @staticmethod
    def parse(text: str, against: str | None, seconds: float | None) -> ModeOptions:
        """Read the options. Raises UsageError for an invalid one."""
        modes = parse_modes(text, "--with")
        if against is None:
            return ModeOptions(modes, None, seconds)
        others = parse_modes(against, "--against")
        if len(others) > 1:
            message = "--against names one mode"
            raise UsageError(message, hint=f"write --against {ENGINE}:graph")
        remaining = tuple(mode for mode in modes if mode is not others[0])
        if not remaining:
            message = f"--with and --against name the same mode, {others[0].name}"
            raise UsageError(message, hint=f"write --against {ENGINE}:graph")
        return ModeOptions(remaining, others[0], seconds)

    def pool(self) -> ModePool:
        """Return the processes that run the modes."""
        return ModePool() if self.seconds is None else ModePool(seconds=self.seconds)


def diff_modes(path: str, second: str | None, modes: ModeOptions, options: DiffOptions) -> int:
    """Compare runs of a graph in modes of TensorFlow. Returns the exit code, 1 if they differ."""
    require_diff_options(options)
    if second is not None:
        message = "--with runs one graph, and there are two"
        raise UsageError(message, hint=f"remove {second}, or --with")
    if not options.run:
        raise UsageError("--with compares runs", hint="add --run")
    source = read_graph(path)
    require_single_stdin(source, options.runs.inputs.feed)
    require_no_second_graph(options.runs)
    run_options = comparison_options(options.runs, source)
    deltas: dict[Mode, RunDiff] = {}
    unsupported: dict[Mode, Unsupported] = {}
    with modes.pool() as pool:
        for mode in modes.modes:
            try:
                deltas[mode] = compare_modes(pool, source.graph, mode, modes.against, run_options)
            except Unsupported as error:
                if len(modes.modes) == 1 or not pool.version:
                    raise
                unsupported[mode] = error
        report = ModeReport(source, modes, deltas, unsupported, pool.version, options.full)
    if not deltas:
        raise next(reversed(unsupported.values()))
    first = next((delta for delta in deltas.values() if delta), next(iter(deltas.values())))
    return print_diff_result(
        (source, source),
        options,
        Comparison(
            differs=any(deltas.values()),
            findings=[
                finding
                for delta in deltas.values()
                for finding in run_findings(delta, run_side_text)
            ],
            document=lambda: (DiffResult(modes=report.comparisons()), runs_summary(first)),
            text=lambda: report.print(page(options.color)),
        ),
    )


@dataclass(frozen=True, slots=True)
class ModeReport:
    """The comparison of a graph in several modes."""

    source: Source
    modes: ModeOptions
    deltas: dict[Mode, RunDiff]
    unsupported: dict[Mode, Unsupported]
    version: str
    full: bool

    @property
    def reference(self) -> str:
        """The first side."""
        return self.modes.against.text if self.modes.against else _CFGRAPH

    def print(self, out: Page) -> None:
        """Print a line per mode, and the first difference in detail."""
        graphs = (self.source.graph, self.source.graph)
        differing = [mode for mode, delta in self.deltas.items() if delta]
        if len(self.modes.modes) > 1:
            for mode in self.modes.modes:
                style = (
                    "dim" if mode in self.unsupported else "red" if self.deltas[mode] else "green"
                )
                out.line(out.wrapped(f"{mode.text:<20}  {self.verdict(mode)}"), style)
        for mode in differing[:1] or [*self.deltas][: len(self.modes.modes) == 1]:
            out.line(f"A: {self.reference}, B: {mode.text} {self.version}", "bold")
            print_runs(out, self.deltas[mode], graphs, self.full)

    def verdict(self, mode: Mode) -> str:
        """Describe the comparison of a mode in one line."""
        if mode in self.unsupported:
            return f"not compared: {self.unsupported[mode].message}"
        delta = self.deltas[mode]
        if delta.failure is not None:
            return delta.failure.message
        if delta.gaps:
            return f"differs from {self.reference}: {delta.gaps[0].what}: {delta.gaps[0].message}"
        rounded = next((item for item in delta.notices if item.code == "CFG809"), None)
        if rounded is not None:
            return f"agrees with {self.reference} within rounding: {rounded.message}"
        return f"agrees with {self.reference}"

    def comparisons(self) -> list[ModeComparison]:
        """Return the modes as members of a document."""
        graphs, reports = (self.source.graph, self.source.graph), []
        for mode in self.modes.modes:
            delta, error = self.deltas.get(mode), self.unsupported.get(mode)
            runs = None if delta is None else runs_report(delta, graphs, self.full)
            reason = None if error is None else error.message
            reports.append(ModeComparison(mode.text, self.reference, self.version, reason, runs))
        return reports
