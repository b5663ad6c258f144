"""The driver of all commands that change a graph: read, apply a pass, verify, write, and report.

A command is a `PassResult`: how its pass is applied, and how the report of the pass is shown.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from cfgraph.console.graph_files import (
    OutputOptions,
    Source,
    json_bytes,
    output_artifacts,
    read_graph,
    require_distinct_paths,
    write_graph_and_companion,
)
from cfgraph.console.json_output import print_document
from cfgraph.console.output import OutputTable, Page, note, page
from cfgraph.console.signatures import SignatureNames, signature_names
from cfgraph.console.verify import Verification, VerificationResult
from cfgraph.ir.graph import Graph


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

    `companion` is the kind of the file that a command writes next to the graph.
    """

    command: ClassVar[str]
    companion: ClassVar[str] = "names"

    graph: Graph
    options: Options
    report: Report

    @classmethod
    @abstractmethod
    def apply(cls, graph: Graph, options: Options, names: SignatureNames) -> Self:
        """Run the pass on a graph; `names` are those of a signature, which options may use."""

    @classmethod
    def require_valid(cls, options: Options) -> None:
        """Check the options before the graph is read. Raises UsageError."""

    @abstractmethod
    def rows(self) -> OutputTable:
        """The main table of the report."""

    @abstractmethod
    def summary(self) -> Mapping[str, Any]:
        """The summary of the document."""

    @abstractmethod
    def members(self) -> Mapping[str, Any]:
        """The members of the result in the document, without warnings and verification."""

    @abstractmethod
    def show(self, out: Page) -> None:
        """Print the report."""

    def companion_data(self) -> bytes:
        """The content of the file next to the graph: a map of names."""
        return json_bytes(getattr(self.report, "names", {}))


@dataclass(frozen=True, slots=True)
class Transformation:
    """A result with the file that it comes from, its verification, and the written files."""

    result: PassResult[Any, Any]
    inputs: Sequence[Mapping[str, Any]]
    verdict: VerificationResult | None
    artifacts: Sequence[Mapping[str, Any]]

    @property
    def exit_code(self) -> int:
        """1 if the verification found a difference."""
        return int(self.verdict is not None and not self.verdict)

    def report(self, outputs: OutputOptions) -> int:
        """Print warnings, the report, and the document; returns the exit code."""
        result = self.result
        for warning in result.report.warnings:
            note(f"warning: {warning}", outputs.quiet)
        if not outputs.quiet:
            result.show(page(stream=sys.stderr))
        if outputs.json:
            checked = {"warnings": result.report.warnings, "verify": self.verdict}
            print_document(
                result.command,
                inputs=self.inputs,
                summary=result.summary(),
                result={**result.members(), **checked},
                artifacts=self.artifacts,
                exit_code=self.exit_code,
            )
        return self.exit_code


def transform(
    source: Source,
    pass_type: type[PassResult[Options, Any]],
    options: Options,
    outputs: OutputOptions,
    verification: Verification,
) -> Transformation:
    """Apply a pass to a graph that was read, and write it unless the verification fails."""
    inputs = [source.to_json()]  # before the pass changes the graph
    verification.before(source, outputs.quiet)
    runs = verification.inputs
    names = signature_names(source, runs.signature, runs.variables)
    result = pass_type.apply(source.graph, options, names)
    verdict = verification.after(source.graph, outputs.quiet)
    artifacts: list[dict[str, Any]] = []
    if verdict is None or verdict:
        data = result.companion_data() if outputs.companion is not None else b""
        written = write_graph_and_companion(source.graph, outputs, data)
        artifacts = output_artifacts(written, pass_type.companion, outputs.companion)
    return Transformation(result, inputs, verdict, artifacts)


def transform_file(
    path: str,
    pass_type: type[PassResult[Options, Any]],
    options: Options,
    outputs: OutputOptions,
    verification: Verification,
) -> int:
    """Read a graph, apply a pass, write it, and report on stderr. Returns the exit code.

    It is 1, and nothing is written, if the verification finds a difference. Raises UsageError for
    options that do not fit each other, and if two results would be written to one place.
    """
    outputs.require_separate_json()
    pass_type.require_valid(options)
    require_distinct_paths(outputs.output, outputs.companion, pass_type.companion)
    source = read_graph(path, quiet=outputs.quiet)
    return transform(source, pass_type, options, outputs, verification).report(outputs)
