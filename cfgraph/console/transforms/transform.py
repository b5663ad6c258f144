"""The driver of all commands that change a graph: read, apply a pass, verify, write, and report.

A command is a `PassResult`: how its pass is applied, and how the report of the pass is shown.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from cfgraph.cli.json_output import Artifact, InputFile, print_document
from cfgraph.cli.output import Page, is_quiet, note, page
from cfgraph.cli.transform_options import ComparedRuns, OutputOptions
from cfgraph.console.documents import RunsReport
from cfgraph.console.graph_files import (
    Source,
    json_bytes,
    output_artifacts,
    read_graph,
    require_distinct_paths,
    write_graph,
)
from cfgraph.console.node_names import stdin_is_terminal
from cfgraph.console.signatures import SignatureNames, note_lost_names, signature_names
from cfgraph.console.verify import VerificationResult, prepare_comparison
from cfgraph.errors import UsageError
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.graph import Graph
from cfgraph.ir.serde.saved_model import SavedSignature
from cfgraph.reports import DocumentResult, Record


class PassReport(Protocol):
    """Report of any pass."""

    @property
    def warnings(self) -> Sequence[str]:
        """Facts about the result that a person should know."""


Options = TypeVar("Options")
Report = TypeVar("Report", bound=PassReport)


@dataclass(slots=True)
class PassResult(ABC, Generic[Options, Report]):
    """Result of a pass on a graph, in place: its report, as text and as members of a document.

    `companion` is the kind of the file that a command writes next to the graph. If the command
    `shares_names`, its options have those of a signature too.
    """

    command: ClassVar[str]
    companion: ClassVar[str] = "names"
    shares_names: ClassVar[bool] = False

    graph: Graph
    options: Options
    report: Report

    @classmethod
    @abstractmethod
    def apply(cls, graph: Graph, options: Options, names: SignatureNames) -> Self:
        """Run the pass on a graph; `names` are those of a signature, which options may use."""

    @classmethod
    def require_valid(cls, options: Options, outputs: OutputOptions) -> None:
        """Check the options before the graph is read. Raises UsageError."""
        outputs.require_separate_json()

    @classmethod
    def require_used(cls, options: Options, runs: ComparedRuns) -> None:
        """Raise UsageError for inputs of runs that nothing uses without --verify."""
        inputs = runs.inputs
        if cls.shares_names:
            inputs = inputs.replace(signature=None, variables=None, allow_io=False)
        if inputs.is_set or runs.cases.is_set:
            message = "feeds and other run options require --verify"
            raise UsageError(message, hint="add --verify")

    @classmethod
    def companion_path(cls, options: Options, outputs: OutputOptions) -> str | None:
        """The path of the file next to the graph, if it is requested."""
        return outputs.map_out

    @classmethod
    def prepare(
        cls,
        source: Source,
        options: Options,
        names: SignatureNames,
        runs: ComparedRuns,
    ) -> Options:
        """Complete the options by what the graph and its runs say before the pass."""
        return options

    def check(self) -> bool:
        """Check the result in the way of its pass; false for a result that must not be written."""
        return True

    def notes(self) -> Sequence[str]:
        """The warnings, as printed."""
        return [f"warning: {warning}" for warning in self.report.warnings]

    @property
    def exit_status(self) -> int:
        """1 for a result that options declare to be a finding."""
        return 0

    @abstractmethod
    def summary(self) -> Record:
        """The summary of the document."""

    @abstractmethod
    def result(self, verify: RunsReport | None) -> DocumentResult:
        """The result in the document, with the verification."""

    @abstractmethod
    def show(self, out: Page) -> None:
        """Print the report."""

    def print(self, outputs: OutputOptions, passed: bool) -> None:
        """Print the report where the command prints it."""
        if not is_quiet():
            self.show(page(stream=sys.stderr))

    def companion_data(self) -> bytes:
        """The content of the file next to the graph: a map of names."""
        return json_bytes(getattr(self.report, "names", {}))

    def is_written(self, outputs: OutputOptions) -> bool:
        """True if the graph is a result, rather than the report alone."""
        return True

    def signatures(self, names: SignatureNames) -> Sequence[SavedSignature] | None:
        """Changed signatures of a SavedModel; None if the result is never written as one."""
        return None

    def write(
        self, source: Source, names: SignatureNames, outputs: OutputOptions
    ) -> list[Artifact]:
        """Write the graph and the file next to it, both or neither.

        Returns the artifacts, of which only a document has the digests.
        """
        signatures = self.signatures(names)
        origin = None if signatures is None else source
        path, second = None, self.companion_path(self.options, outputs)
        with StagedFiles() as files:
            if second is not None:
                files.write(second, self.companion_data())
            if self.is_written(outputs):
                path = write_graph(
                    self.graph, outputs.output, outputs.to, files, origin, signatures or ()
                )
        if path is not None and signatures is not None:
            note_lost_names(names, path)
        return output_artifacts(path, self.companion, second) if outputs.json else []


@dataclass(frozen=True, slots=True)
class Transformation:
    """A result with the file that it comes from, its verification, and the written files."""

    result: PassResult[Any, Any]
    inputs: Sequence[InputFile]
    passed: bool
    artifacts: Sequence[Artifact]
    verdict: VerificationResult | None

    def report(self, outputs: OutputOptions) -> int:
        """Print the report and the document; returns the exit code, 1 if a check failed.

        It is the status of the result if none failed.
        """
        result = self.result
        exit_code = int(not self.passed) or result.exit_status
        result.print(outputs, self.passed)
        if outputs.json:
            print_document(
                result.result(None if self.verdict is None else self.verdict.report()),
                inputs=self.inputs,
                summary=result.summary(),
                artifacts=self.artifacts,
                exit_code=exit_code,
            )
        return exit_code


def transform(
    source: Source,
    pass_type: type[PassResult[Options, Any]],
    options: Options,
    outputs: OutputOptions,
    runs: ComparedRuns,
) -> Transformation:
    """Apply a pass to a graph that was read, and write it unless a check fails."""
    # before the pass changes the graph
    inputs = [source.to_json()] if outputs.json else []
    signature, variables = runs.inputs.signature, runs.inputs.variables
    names = signature_names(source, signature, variables, short=stdin_is_terminal())
    options = pass_type.prepare(source, options, names, runs)
    comparison = None
    if runs.cases.verify:
        shared = pass_type.shares_names
        comparison = prepare_comparison(runs, source, names, by_signature=shared)
    result = pass_type.apply(source.graph, options, names)
    for text in result.notes():
        note(text)
    verdict = None
    if comparison is not None:
        verdict = comparison.compare(source.graph, result.report)
    passed = result.check() and (verdict is None or bool(verdict))
    artifacts = result.write(source, names, outputs) if passed else []
    return Transformation(result, inputs, passed, artifacts, verdict)


def transform_file(
    path: str,
    pass_type: type[PassResult[Options, Any]],
    options: Options,
    outputs: OutputOptions,
    runs: ComparedRuns,
) -> int:
    """Read a graph, apply a pass, write it, and report on stderr. Returns the exit code.

    It is 1, and nothing is written, if the verification finds a difference. Raises UsageError for
    options that do not fit each other, and if two results would be written to one place.
    """
    pass_type.require_valid(options, outputs)
    if not runs.cases.verify:
        pass_type.require_used(options, runs)
    second = pass_type.companion_path(options, outputs)
    require_distinct_paths(outputs.output, second, pass_type.companion)
    source = read_graph(path)
    return transform(source, pass_type, options, outputs, runs).report(outputs)
