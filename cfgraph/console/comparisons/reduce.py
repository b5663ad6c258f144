"""The `reduce` command: the smallest graph that fails, and the smallest pair that differs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final

from cfgraph.cli.json_output import Artifact, add_member, print_document
from cfgraph.cli.output import detail, hidden_notes, is_quiet, note, page
from cfgraph.cli.transform_options import STDIN, ComparedRuns, OutputOptions
from cfgraph.comparison.equivalence import compare_runs
from cfgraph.comparison.reduce.pair_oracle import PairOracle
from cfgraph.comparison.reduce.reduce_graph import reduce_graph
from cfgraph.comparison.reduce.reduce_pair import reduce_pair
from cfgraph.comparison.reduce.search import ReductionStep
from cfgraph.comparison.reduce.subject import Subject
from cfgraph.console.comparisons.diff_run import print_runs, runs_report
from cfgraph.console.comparisons.failing_command import CommandOptions, CommandOracle, command_text
from cfgraph.console.comparisons.run_options import comparison_options, pair_runs
from cfgraph.console.documents import RunsReport
from cfgraph.console.graph_files import (
    Source,
    artifact,
    output_format,
    read_graph,
    require_distinct_paths,
    write_graph,
)
from cfgraph.errors import UsageError
from cfgraph.ir.file_io import StagedFiles
from cfgraph.reports import Column, Count, DocumentResult, Record

_SECOND: Final = ".b"


@dataclass(slots=True)
class ReducedFiles:
    """The files of the best subject, written atomically for every success."""

    paths: tuple[str, ...]
    to: str | None
    nodes: int | None = None
    steps: list[ReductionStep] = field(default_factory=list)

    def write(self, subject: Subject) -> None:
        """Write all graphs of a subject."""
        with StagedFiles() as files, hidden_notes():
            for graph, path in zip(subject.graphs, self.paths, strict=True):
                write_graph(graph, path, self.to, files)
        self.nodes = subject.nodes

    def on_success(self, subject: Subject, step: ReductionStep) -> None:
        """Write a smaller subject."""
        self.write(subject)
        self.steps.append(step)
        detail(f"{step.operator}: {step.nodes} nodes after {step.tests} tests")

    def artifacts(self) -> list[Artifact]:
        """Return the entries of the files in a JSON document."""
        return [artifact("graph", path) for path in self.paths]

    @contextmanager
    def kept_on_interruption(self) -> Iterator[None]:
        """Name the best result if the body is interrupted."""
        try:
            yield
        except BaseException:
            if self.nodes is not None:
                names = " and ".join(self.paths)
                note(f"note: the best result so far, {self.nodes} nodes, is in {names}")
                for item in self.artifacts():
                    add_member("artifacts", item)
            raise


def reduce_command(
    path: str,
    tested: CommandOptions,
    runs: ComparedRuns,
    outputs: OutputOptions,
    jobs: int | None,
) -> int:
    """Reduce a graph for which a command fails. Returns the exit code, 0.

    Raises UsageError if the command does not fail.
    """
    tested.require_command()
    output = require_file(outputs, path)
    source = read_graph(path)
    form = output_format(output, outputs.to)
    width = jobs or os.cpu_count() or 1
    oracle = CommandOracle(tested, form, f"graph.{form}", width)
    subject = Subject((source.graph,))
    before = subject.nodes
    result = oracle.require_failure(subject)
    options = comparison_options(runs, source) if runs.is_set else None
    files = ReducedFiles((output,), outputs.to)
    with files.kept_on_interruption():
        files.write(subject)
        search = reduce_graph(subject, oracle, options, files.on_success)
    status = result.status if result.status is not None else 0
    if not is_quiet():
        print_reduction(before, search.best.nodes, search.tests)
        page(stream=sys.stderr).line(f"`{command_text(tested.command)}` exits with {status}")
    print_reduction_json(
        outputs,
        [source],
        files,
        ReduceSummary(before, search.best.nodes, search.tests),
        ReduceResult(list(tested.command), status),
    )
    return 0


def reduce_pair_of_files(
    path: str, second: str, runs: ComparedRuns, outputs: OutputOptions, output_b: str | None
) -> int:
    """Reduce two graphs whose runs differ. Returns the exit code, 0.

    Raises UsageError if they agree.
    """
    output = require_file(outputs, path, second)
    other = output_b or _second_path(output)
    _require_other_path(other, path, second)
    require_distinct_paths(output, other, "reduced second graph")
    if path == second == STDIN:
        raise UsageError("standard input can be read only once")
    sources = read_graph(path), read_graph(second)
    paired = pair_runs(sources, runs)
    subject = Subject(paired.graphs)
    oracle, difference = PairOracle.compare(subject, paired.options)
    files = ReducedFiles((output, other), outputs.to)
    with files.kept_on_interruption():
        search = reduce_pair(subject, oracle, difference, files.on_success)
        files.write(search.best)
    before, after = subject.nodes, search.best.nodes
    a, b = search.best.graphs
    delta = compare_runs(a, b, replace(oracle.options_for(a), locate=True))
    if not is_quiet():
        print_reduction(before, after, search.tests)
        out = page(stream=sys.stderr)
        print_runs(out, delta, search.best.graphs)
        out.line(f"the reduced B is in {other}", "dim")
    print_reduction_json(
        outputs,
        sources,
        files,
        ReduceSummary(before, after, search.tests),
        ReduceResult(runs=runs_report(delta, search.best.graphs)),
    )
    return 0


def require_file(outputs: OutputOptions, *inputs: str, hint: str = "name it with -o FILE") -> str:
    """Return the path of the result. Raises UsageError for a stream, and for an input."""
    if outputs.output is None or outputs.output == STDIN:
        message = "the smallest graph so far is written to a file"
        raise UsageError(message, hint=hint)
    _require_other_path(outputs.output, *inputs)
    return outputs.output


def _require_other_path(output: str, *inputs: str) -> None:
    """Raise UsageError if a reduced graph would replace the original, which is still needed."""
    for path in inputs:
        if path != STDIN and Path(output).resolve() == Path(path).resolve():
            message = "the reduced graph would replace the original"
            raise UsageError(message, hint="write to another file", path=output)


def _second_path(output: str) -> str:
    """Return the path of the reduced second graph, as in small.b.pb."""
    path = Path(output)
    stem, dot, suffixes = path.name.partition(".")
    return str(path.with_name(f"{stem}{_SECOND}{dot}{suffixes}"))


def print_reduction(before: int, after: int, tests: int) -> None:
    """Print the numbers of nodes and tests."""
    out = page(stream=sys.stderr)
    out.heading("reduced", f"{after} of {before} nodes, {tests} test{'s' * (tests != 1)}")


class ReduceSummary(Record):
    """The numbers of nodes, and of tests."""

    before: Count  #: Nodes of the graph and of its functions.
    after: Count  #: Nodes of the reduced graph.
    tests: Count  #: Candidates on which the command, or the comparison, ran.


class ReduceResult(DocumentResult, command="reduce", summary=ReduceSummary):
    """The failure of the reduced graph, and the steps to it."""

    command_line: Annotated[Sequence[str] | None, Column("command")] = None  #: Null without one.
    #: Exit status of the command for graphs that fail; negative for a signal. Null without one.
    status: int | None = None
    runs: RunsReport | None = None  #: Comparison of the reduced graphs; null for a failing command.
    steps: Sequence[ReductionStep] = ()


def print_reduction_json(
    outputs: OutputOptions,
    sources: Sequence[Source],
    files: ReducedFiles,
    summary: ReduceSummary,
    result: ReduceResult,
) -> None:
    """Print the JSON document of a reduction if it is requested."""
    if outputs.json:
        print_document(
            replace(result, steps=files.steps),
            inputs=sources,
            summary=summary,
            artifacts=files.artifacts(),
        )
