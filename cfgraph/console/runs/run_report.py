"""Report of a run as text or JSON: values, differences, clusters, and GPUs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, ClassVar, Final

from cfgraph.analysis.findings import Finding
from cfgraph.cli.json_output import print_document
from cfgraph.cli.output import Page, note, pad, page, width
from cfgraph.cli.run_options import PrintOptions
from cfgraph.comparison.value_difference import ValueDifference
from cfgraph.console.documents import CompilationReport, ValueReport
from cfgraph.console.graph_files import Source, artifact
from cfgraph.console.runs.prediction import Prediction, print_prediction
from cfgraph.console.runs.run_memory import MemoryReport, memory_reports, print_memory
from cfgraph.console.runs.run_observers import Observers
from cfgraph.console.runs.run_request import RunRequest
from cfgraph.console.runs.run_times import print_times
from cfgraph.console.taps import NonfiniteValue, TappedValue
from cfgraph.console.values import statistics_text, type_text, value_report, value_text
from cfgraph.errors import FindingCode, Level, Location
from cfgraph.ir.devices import short_device_names
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.graph import Output
from cfgraph.ir.traversal import is_partitioned
from cfgraph.ir.units import format_count, format_duration
from cfgraph.reports import (
    Count,
    DocumentResult,
    Inline,
    Maybe,
    Positive,
    Real,
    Record,
    Unrequired,
)
from cfgraph.runtime.cluster_runner import Cluster, ClusterRunner
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.feeds.case_files import write_array
from cfgraph.runtime.preparation.prepared_runs import RunResult
from cfgraph.runtime.restore import save_variables
from cfgraph.runtime.run_executor import ExecutorReport

if TYPE_CHECKING:
    from cfgraph.console.ci_formats import CiReport

# of a checkpoint in the folder of --save-variables
VARIABLES_NAME: Final = "variables"
# listed recompilations per cluster
_MAX_COMPILATIONS: Final = 3


def called_clusters(launches: ClusterRunner) -> list[Cluster]:
    """Return the clusters that the run has called at least once."""
    return [cluster for cluster in launches.clusters.values() if cluster.calls]


def cluster_notes(launches: ClusterRunner) -> Iterator[str]:
    """Describe the engine of the clusters, their calls, and their recompilations."""
    clusters = called_clusters(launches)
    if not clusters:
        return
    calls, fused = (
        sum(cluster.calls for cluster in clusters),
        sum(cluster.fused for cluster in clusters),
    )
    by = "NumPy" if fused == calls else "XLA"
    parts = [f"{format_count(len(clusters), 'cluster')} run by {by}: {format_count(calls, 'call')}"]
    if fused and fused != calls:
        parts.append(f"{fused} of them by NumPy")
    times = sum(cluster.compiled_times for cluster in clusters)
    if times:
        seconds = sum(cluster.seconds for cluster in clusters)
        parts.append(f"{format_count(times, 'compilation')} in {format_duration(seconds * 1e9)}")
    yield ", ".join(parts)
    small = [cluster for cluster in clusters if cluster.small]
    if small:
        skipped = format_count(len(small), "cluster")
        yield f"{skipped} run by NumPy, too small to gain from XLA (--engine xla compiles all)"
    for cluster in clusters:
        yield from _compilation_notes(cluster)


def _compilation_notes(cluster: Cluster) -> Iterator[str]:
    """Describe compilations of a cluster that are not its only one, or not by another process."""
    if cluster.refused:
        yield f"{cluster.name} is run by NumPy: {cluster.refused}"
    notable = [
        item for item in cluster.compilations if item.changed or item.refused or item.local_reason
    ]
    for item in notable[:_MAX_COMPILATIONS]:
        yield str(item)
    if len(notable) > _MAX_COMPILATIONS:
        yield f"{cluster.name}: {len(notable) - _MAX_COMPILATIONS} more"


class ClusterCompilation(Record):
    """A compilation of a cluster."""

    node: str
    compilation: Inline[CompilationReport]


class ClusterRun(Record):
    """The calls and compilations of a cluster."""

    name: str
    calls: Count
    fused: Count
    small: bool
    refused: str | None
    compilations: Sequence[ClusterCompilation]


class ClusterRuns(Record):
    """The engine of the clusters, and their calls."""

    engine: str
    clusters: Sequence[ClusterRun]


def cluster_runs(launches: ClusterRunner) -> ClusterRuns | None:
    """Return the clusters that the run has called, for a document."""
    clusters = [_cluster_run(cluster) for cluster in called_clusters(launches)]
    return ClusterRuns(launches.engine, clusters) if clusters else None


def _cluster_run(cluster: Cluster) -> ClusterRun:
    compilations = [
        ClusterCompilation(
            item.node,
            CompilationReport(item.seconds, item.changed or None, item.refused or None),
        )
        for item in cluster.compilations
    ]
    refused = cluster.refused or None
    return ClusterRun.from_attributes(cluster, refused=refused, compilations=compilations)


# what executors add to the report of a run, by the names of the members
ExecutorMembers = Inline[Mapping[str, ExecutorReport]]


class EngineReport(Record):
    """The engine of a run."""

    explains: ClassVar[bool] = True
    engine: str  #: compiled, tokens, xla, or numpy.
    #: True for the first run of a graph without control flow, which needs no generated code.
    interpreted: Maybe[bool]
    reason: str | None  #: The reason why the token executor ran the graph.
    #: The times that decide whether XLA runs the graph when a session repeats it.
    xla: Unrequired[str | None]
    #: The loops, conditionals, and lists that XLA does not compile as a whole, and why.
    outside: Maybe[Mapping[str, str]] = None
    parts: ExecutorMembers = field(default_factory=dict)


def engine_report(result: RunResult) -> EngineReport:
    """Return the engine of the last run, and why tokens ran it."""
    if result.config.jit is not None:
        outside = result.prepared.run.spec.outside
        return EngineReport(result.clusters.engine, None, None, None, outside or None)
    reason = result.fallback or None
    engine = "tokens" if reason else "compiled"
    parts, xla = _parts(result, explains=True), result.tier_choice or None
    return EngineReport(engine, result.is_interpreted, reason, xla, parts=parts)


def _parts(result: RunResult, *, explains: bool) -> dict[str, ExecutorReport]:
    return {item.member: item for item in result.reports if item.explains is explains}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run that ended: values (None if dead), differences, variables, warnings, a prediction."""

    request: RunRequest
    result: RunResult
    values: dict[Output, Any]
    differences: dict[Output, ValueDifference]
    variables: State | None
    warnings: Sequence[str] = ()
    prediction: Prediction | None = None

    @property
    def expected(self) -> list[str]:
        """The names of the compared fetches."""
        return [item.name for item in self.request.expected.values]

    @property
    def files(self) -> dict[Output, str]:
        """The written arrays: none if a value differs."""
        files = {} if self.differences else self.request.output_files
        return {item: path for item, path in files.items() if self.values[item] is not None}

    def write(self, files: StagedFiles, opened: Mapping[Output, IO[bytes]]) -> None:
        """Write the arrays and the variables, or nothing if a value differs."""
        if self.differences:
            files.discard()
            return
        for item, file in opened.items():
            if self.values[item] is None:
                files.drop(file)
            else:
                write_array(file, item.name, self.values[item])
        saved_to = self.request.saved_to
        if self.variables is not None and saved_to is not None:
            files.make_folder(saved_to)
            save_variables(self.variables, os.path.join(saved_to, VARIABLES_NAME), files)
            if not any(self.variables.variables()):
                note("warning: the run has no variables, so the checkpoint is empty")

    def findings(self) -> list[Finding]:
        """Return one finding per unexpected value."""
        return [
            Finding("", "error", f"{item.name}: {gap.message}", item.node.name)
            for item, gap in self.differences.items()
        ]

    @property
    def exit_code(self) -> int:
        """Exit status 1 if a value differs from the expected one."""
        return 1 if self.differences else 0


def print_outcome(
    source: Source,
    outcome: Outcome,
    observers: Observers,
    printing: PrintOptions,
    ci_report: CiReport | None,
    *,
    explains_engine: bool,
) -> None:
    """Print fetched values, differences from expected values, and memory; or as JSON or for CI."""
    result = outcome.result
    for warning in outcome.warnings:
        note(f"warning: {warning}")
    if printing.is_json:
        _print_json(source, outcome, observers, printing.full, explains_engine)
        return
    if ci_report is not None:
        differing = {item.name for item in outcome.differences}
        passed = [name for name in outcome.expected if name not in differing]
        print(ci_report(source.path, outcome.findings(), passed), end="")
        return
    out = page(printing.color)
    absent = "dead" if result.stopped_at is None else "not computed yet"
    labels = outcome.request.labels
    print_values(out, outcome.values, outcome.files, printing.full, absent, labels)
    for item, gap in outcome.differences.items():
        _print_difference(out, item, gap)
    if outcome.prediction is not None:
        until = outcome.request.step.until_iteration
        print_prediction(out, outcome.prediction, until, result.stopped_at)
    if observers.times is not None:
        print_times(out, observers.times)
    if result.memory:
        print_memory(page(printing.color, sys.stderr), result.memory)
    for text in _notes(outcome, observers, explains_engine):
        note(text)


def print_values(
    out: Page,
    values: Mapping[Output, Any],
    files: Mapping[Output, str],
    full: bool,
    absent: str = "dead",
    labels: Mapping[Output, str] | None = None,
) -> None:
    """Print `name  type  = value` per fetched tensor, or the file that it was written to.

    Names that a signature gives to tensors, their `labels`, come first.
    """
    titles = {item: item.name for item in values}
    titles.update((item, f"{label} ({item.name})") for item, label in (labels or {}).items())
    kinds = {item: _value_type(item, value) for item, value in values.items()}
    names = max((width(titles[item]) for item in values), default=0)
    types = max(map(width, kinds.values()), default=0)
    for item, value in values.items():
        head = [(pad(titles[item], names), "cyan"), ("  " + pad(kinds[item], types) + "  ", "dim")]
        if value is None:
            out.spans([*head, (absent, "dim")])
        elif item in files:
            out.spans([*head, ("-> ", "dim"), (files[item], "")])
        else:
            text = value_text(value, full)
            out.spans([*head, ("=\n" if "\n" in text else "= ", "dim"), (text, "")])
            if statistics := statistics_text(value, full):
                out.line(f"  {statistics}", "dim")


def _value_type(item: Output, value: Any) -> str:
    return str(item.dtype or "") if value is None else type_text(value)


def _print_difference(out: Page, item: Output, gap: ValueDifference) -> None:
    out.line(f"{item.name}: {gap.message}", "red")
    if gap.index is None:
        return
    out.line(f"  expected {value_text(gap.expected)}, got {value_text(gap.actual)}")
    if gap.max_abs is not None:
        limits = f"rtol {gap.rtol:g}, atol {gap.atol:g}"
        out.line(f"  largest difference {gap.max_abs:g}, relative {gap.max_rel:g} ({limits})")


def _notes(outcome: Outcome, observers: Observers, explains_engine: bool) -> Iterator[str]:
    request, result = outcome.request, outcome.result
    yield from request.notes
    if explains_engine:
        yield _engine_note(result)
        for name, reason in (engine_report(result).outside or {}).items():
            yield f"outside of XLA: {name}: {reason}"
    yield from cluster_notes(result.clusters)
    for report in result.reports:
        if not report.explains:
            yield from report.notes()
    if observers.html_page:
        yield f"wrote {observers.html_page.path}"
    if outcome.expected and not outcome.differences:
        yield "all values as expected"
    if outcome.differences and request.output_files:
        yield "no array was written because a value differs"
    yield from observers.notes(result)


def _engine_note(result: RunResult) -> str:
    """The engine of the last run, and the reason for the token executor."""
    chosen = engine_report(result)
    placed = [note for item in result.reports if item.explains for note in item.notes()]
    if chosen.engine != "compiled":
        reason = f", since {chosen.reason}" if chosen.reason else ""
        choice = f"; {chosen.xla}" if chosen.xla else ""
        return f"engine: {chosen.engine}{' '.join(['', *placed[:1]])}{reason}{choice}"
    if placed:
        return f"engine: compiled {placed[0]}, {'; '.join(placed[1:])}"
    if not is_partitioned(result.graph):
        interpreted = ", interpreted in the first run" if chosen.interpreted else ""
        return f"engine: compiled{interpreted}{': ' if chosen.xla else ''}{chosen.xla or ''}"
    devices = sorted({node.device for node in result.graph})
    return f"engine: compiled, one function for {short_device_names(devices)}"


class RunSummary(Record):
    """The numbers of compared values, and of those that differ."""

    compared: Count
    different: Count
    virtual_seconds: Maybe[Real]
    stopped_at: Maybe[Positive]


class FetchedValue(Record):
    """The value of a fetch."""

    tensor: str
    output: Maybe[str]  #: Its name in the signature of a SavedModel.
    value: Inline[ValueReport | None]
    dead: Maybe[bool]  #: True for a dead tensor, which has no value.
    path: Maybe[str]  #: The file that it went to.


class RunReport(DocumentResult, command="run", summary=RunSummary):
    """Values, and what observers and engines say."""

    explains: ClassVar[bool] = False
    values: Sequence[FetchedValue]
    taps: Maybe[Sequence[TappedValue]]
    #: The first values with NaN or Inf, in the order of the run.
    nonfinite: Maybe[Sequence[NonfiniteValue]]
    jit: Maybe[ClusterRuns]
    engine: Maybe[EngineReport]  #: With --explain-engine, the engine of the run.
    parts: ExecutorMembers
    memory: Maybe[Sequence[MemoryReport]]
    prediction: Maybe[Prediction]  #: With --clock virtual.
    times: Maybe[Sequence[Real]]  #: With --repeat, the seconds of each run.


def _print_json(
    source: Source, outcome: Outcome, observers: Observers, full: bool, explains_engine: bool
) -> None:
    run = outcome.result
    values = [_fetched(item, value, outcome, full) for item, value in outcome.values.items()]
    artifacts = [artifact("array", path) for path in outcome.files.values()]
    compared, different = len(outcome.expected), len(outcome.differences)
    print_document(
        RunReport(
            values,
            observers.taps.values if observers.taps else None,
            observers.nonfinite.values if observers.nonfinite else None,
            cluster_runs(run.clusters),
            engine_report(run) if explains_engine else None,
            _parts(run, explains=False),
            memory_reports(run.memory) if run.memory else None,
            outcome.prediction,
            None if observers.times is None else observers.times.seconds,
        ),
        inputs=[source],
        summary=RunSummary(compared, different, run.elapsed, run.stopped_at),
        findings=[_difference_finding(item, gap) for item, gap in outcome.differences.items()],
        artifacts=[*artifacts, *observers.artifacts()],
        exit_code=outcome.exit_code,
    )


def _fetched(item: Output, value: Any, outcome: Outcome, full: bool) -> FetchedValue:
    label, path = outcome.request.labels.get(item), outcome.files.get(item)
    if value is None:
        return FetchedValue(item.name, label, None, True, None)
    return FetchedValue(item.name, label, value_report(value, full), None, path)


class DifferenceFinding(Record):
    """A value that differs from the expected one."""

    code: FindingCode
    level: Level
    where: Location
    difference: Inline[ValueDifference]


def _difference_finding(item: Output, gap: ValueDifference) -> DifferenceFinding:
    where = Location(node=item.node.name, tensor=item.name)
    return DifferenceFinding(None, "error", where, gap)
