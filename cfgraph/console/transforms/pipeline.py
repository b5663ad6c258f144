"""The `pipeline` command: run passes, print and save the graphs between them, and report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

from cfgraph.cli.json_output import Artifact, add_member, print_document
from cfgraph.cli.output import hidden_notes, is_quiet, message, note, page, report_table
from cfgraph.cli.transform_options import ComparedRuns, OutputOptions, PipelineOptions
from cfgraph.console.documents import OpChange, OpChanges, RunsReport, Warnings
from cfgraph.console.graph_files import (
    Source,
    artifact,
    output_artifacts,
    read_graph,
    write_graph,
)
from cfgraph.console.signatures import SignatureNames, signature_names
from cfgraph.console.transforms.pass_pipeline import PassOutcome, Pipeline, PipelineStep
from cfgraph.console.verify import PreparedComparison, VerificationResult, prepare_comparison
from cfgraph.errors import UsageError
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.files import dumps
from cfgraph.ir.names import did_you_mean
from cfgraph.passes.outcome import changed_counts
from cfgraph.reports import Column, Count, DocumentResult, Keywords, Record

_ALL = "all"
_INPUT = "input"


class PassedGraph(Record):
    """A pass that ran."""

    pass_: str
    before: Annotated[Count, Column(title="nodes before")]  #: Nodes before the pass.
    after: Count
    #: With --time-passes.
    ms: Annotated[float | None, Keywords(minimum=0), Column(right=True, optional=True)]
    #: Fraction of the time of all passes.
    share: Annotated[float | None, Keywords(minimum=0)]
    ops: OpChanges
    warnings: Warnings
    verify: RunsReport | None

    @property
    def percentage(self) -> Annotated[str | None, Column(title="share", right=True, optional=True)]:
        """The share of the time as text."""
        return None if self.share is None else f"{100 * self.share:.1f} %"


class PipelineSummary(Record):
    """The number of passes, and of nodes before and after them."""

    passes: Count  #: Passes of the pipeline; fewer ran if one changed a value.
    before: Count
    after: Count


class PipelineResult(DocumentResult, command="pipeline", summary=PipelineSummary):
    """The passes, and the one that changed a value."""

    passes: Sequence[PassedGraph]  #: The passes that ran, in order.
    changed_by: str | None  #: The pass that changed a value; with --verify-each.


class PassChangedResult(Exception):
    """A pass whose result computes other values than its input."""

    def __init__(self, name: str, verdict: VerificationResult) -> None:
        super().__init__(name)
        self.name = name
        self.verdict = verdict


@dataclass(slots=True)
class PipelineObserver:
    """Prints, saves, and verifies the graph after each pass."""

    request: PipelineOptions
    source: Source
    names: SignatureNames
    runs: ComparedRuns
    passes: int
    verdicts: list[VerificationResult]
    dumped: list[Artifact]
    _comparison: PreparedComparison | None = None

    def start(self) -> None:
        """Save the input."""
        if self.request.dump_dir is not None:
            self._dump(_INPUT)

    def before(self, step: PipelineStep) -> None:
        """Copy the graph for the verification."""
        if not self.request.verify_each:
            return
        # freeze has values of inputs and variables, and other passes may have feeds
        fetches, values, feeds = (
            getattr(step.options, name, ()) for name in ("fetch", "set", "feed")
        )
        variables = getattr(step.options, "variables", None) or self.runs.inputs.variables
        inputs = self.runs.inputs.replace(variables=variables)
        runs = ComparedRuns.of_pass(inputs, self.runs.cases, fetches, [*values, *feeds])
        with hidden_notes(bool(self.verdicts)):
            self._comparison = prepare_comparison(runs, self.source, self.names)

    def after(self, step: PipelineStep, outcome: PassOutcome) -> None:
        """Print, save, and verify. Raises PassChangedResult if the values differ."""
        number = step.number
        text = dumps(self.source.graph, "graph").decode() if self._prints(step) else ""
        if text:
            print(f"# after {step.name} ({number} of {self.passes})\n{text}", file=sys.stderr)
        if self.request.dump_dir is not None:
            self._dump(step.name, number)
        for warning in outcome.report.warnings:
            note(f"warning: {step.name}: {warning}")
        if self._comparison is not None:
            with hidden_notes():
                verdict = self._comparison.compare(self.source.graph, outcome.report)
            if not verdict:
                message(f"in pass '{step.name}', {number} of {self.passes}")
                raise PassChangedResult(step.name, verdict)
            self.verdicts.append(verdict)
            cases = f"{verdict.delta.cases} case{'s' * (verdict.delta.cases != 1)}"
            note(f"verify: {step.name} changes no value, {cases}")

    def _prints(self, step: PipelineStep) -> bool:
        return not {_ALL, step.name}.isdisjoint(self.request.print_after)

    def _dump(self, name: str, number: int = 0) -> None:
        """Save the graph at once, so that a failure later does not lose it."""
        assert self.request.dump_dir is not None
        path = Path(self.request.dump_dir, f"{number:02}-{name}.graph")
        with StagedFiles() as files:
            files.make_folder(path.parent)
            files.write(str(path), dumps(self.source.graph, "graph"))
        self.dumped.append(artifact("dump", str(path)))
        add_member("artifacts", self.dumped[-1])


def pipeline_file(
    path: str, text: str, request: PipelineOptions, runs: ComparedRuns, outputs: OutputOptions
) -> int:
    """Read a graph, run the passes, and write it. Returns the exit code.

    It is 1, and the graph is not written, if a pass changes a value. Raises UsageError for a
    pipeline that cannot be parsed, before anything is read.
    """
    pipeline = Pipeline(text)
    _require_compatible_options(pipeline, request, runs, outputs)
    source = read_graph(path)
    entry, graph = source.to_json(), source.graph
    signature, variables = runs.inputs.signature, runs.inputs.variables
    names = signature_names(source, signature, variables, short=False)
    passes = len(pipeline.steps)
    observer = PipelineObserver(request, source, names, runs, passes, [], [])
    observer.start()
    changed: PassChangedResult | None = None
    done: list[PassOutcome] = []

    def after(step: PipelineStep, outcome: PassOutcome) -> None:
        done.append(outcome)
        observer.after(step, outcome)

    try:
        pipeline.run(graph, before=observer.before, after=after, names=names)
    except PassChangedResult as result:
        changed = result
    written = None
    if changed is None and not _only_observed(request, outputs):
        written = write_graph(graph, outputs.output, outputs.to)
    rows = _pass_reports(done, request.time_passes)
    if not is_quiet():
        out = page(stream=sys.stderr)
        out.heading("pipeline", f"{len(done)} of {passes} passes" if changed else "")
        out.table(report_table(PassedGraph, rows, "pass_", "before", "after", "ms", "percentage"))
    verdicts = observer.verdicts
    if changed is not None:
        verdicts.append(changed.verdict)
    if outputs.json:
        found = [verdict.report() for verdict in verdicts]
        rows = [
            replace(row, verify=verify) for row, verify in zip_longest(rows, found[: len(rows)])
        ]
        print_document(
            PipelineResult(rows, changed.name if changed else None),
            inputs=[entry],
            summary=PipelineSummary(passes, entry.nodes or 0, rows[-1].after),
            artifacts=[*observer.dumped, *output_artifacts(written, "names", None)],
            exit_code=int(changed is not None),
        )
    return int(changed is not None)


def _require_compatible_options(
    pipeline: Pipeline, request: PipelineOptions, runs: ComparedRuns, outputs: OutputOptions
) -> None:
    outputs.require_separate_json()
    known = [_ALL, *dict.fromkeys(step.name for step in pipeline.steps)]
    for name in request.print_after:
        if name not in known:
            hint = did_you_mean(name, known) or f"use {', '.join(known)}"
            raise UsageError(f"--print-after {name!r}: no such pass in the pipeline", hint=hint)
    if runs.is_set and not request.verify_each:
        message = "feeds and other run options require --verify-each"
        raise UsageError(message, hint="add --verify-each")


def _only_observed(request: PipelineOptions, outputs: OutputOptions) -> bool:
    """True if a terminal shows what was requested, and would show the graph as bytes."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    observes = request.print_after or request.dump_dir or request.time_passes
    return bool(observes) and outputs.output is None and outputs.to is None and is_terminal


def _pass_reports(outcomes: Sequence[PassOutcome], with_times: bool) -> list[PassedGraph]:
    total = sum(outcome.seconds for outcome in outcomes) or 1.0
    return [
        PassedGraph(
            outcome.name,
            sum(outcome.before.values()),
            sum(outcome.after.values()),
            round(outcome.seconds * 1e3, 3) if with_times else None,
            round(outcome.seconds / total, 3) if with_times else None,
            [OpChange(*change) for change in changed_counts(outcome.before, outcome.after)],
            outcome.report.warnings,
            None,
        )
        for outcome in outcomes
    ]
