"""The `lower` command: the ops of a graph before and after lowering."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from cfgraph.cli.output import Page, note, report_table
from cfgraph.cli.pass_options import LowerOptions
from cfgraph.cli.transform_options import ComparedRuns
from cfgraph.console.documents import OpChange, OpChanges, RunsReport, Warnings
from cfgraph.console.graph_files import Source
from cfgraph.console.signatures import SignatureNames
from cfgraph.console.transforms.transform import PassResult
from cfgraph.ir.graph import Graph
from cfgraph.passes.lowering import lower
from cfgraph.passes.outcome import Report
from cfgraph.reports import Count, DocumentResult, Record


class RewriteSummary(Record):
    """The numbers of rewrites, and of nodes before and after."""

    rewrites: Count
    before: Count
    after: Count


class LowerResult(DocumentResult, command="lower", summary=RewriteSummary):
    """The ops whose number changed."""

    ops: OpChanges
    warnings: Warnings
    verify: RunsReport | None


class Lowering(PassResult[LowerOptions, Report]):
    """A lowered graph, with the numbers of its ops."""

    @classmethod
    def require_used(cls, options: LowerOptions, runs: ComparedRuns) -> None:
        """Accept a signature, the names of whose tensors are printed."""
        super().require_used(options, replace(runs, inputs=runs.inputs.replace(signature=None)))

    @classmethod
    def prepare(
        cls, source: Source, options: LowerOptions, names: SignatureNames, runs: ComparedRuns
    ) -> LowerOptions:
        """Print the names of a signature that is named, which the lowered graph lacks."""
        if runs.inputs.signature is not None:
            note(f"note: in the signature {runs.inputs.signature}, {names.listing()}")
        return options

    @classmethod
    def apply(cls, graph: Graph, options: LowerOptions, names: SignatureNames) -> Self:
        """Lower a graph; its functions are no names of a signature."""
        functions, keep_calls = options.function or None, options.keep_calls
        report = lower(graph, functions=functions, keep_calls=keep_calls, unfuse=options.unfuse)
        return cls(graph, options, report)

    def summary(self) -> RewriteSummary:
        """The numbers of lowered nodes, and of all nodes before and after."""
        return RewriteSummary(self.report.rewrites, *node_totals(self.report))

    def result(self, verify: RunsReport | None) -> LowerResult:
        """The ops whose number changed."""
        return LowerResult(_op_changes(self.report), self.report.warnings, verify)

    def show(self, out: Page) -> None:
        """Print the ops, and the total."""
        rewrites, changes = self.report.rewrites, _op_changes(self.report)
        if not rewrites:
            out.line("nothing to lower")
            return
        kind = "" if self.options.unfuse else "functional "
        out.heading(f"lowered {rewrites} {kind}node{'s' * (rewrites != 1)}")
        changes.append(OpChange("total", *node_totals(self.report)))
        out.table(report_table(OpChange, changes, "op", "before", "after"))


def _op_changes(report: Report) -> list[OpChange]:
    return [OpChange(*change) for change in report.changes()]


def node_totals(report: Report) -> tuple[int, int]:
    """Return the numbers of nodes before and after a pass."""
    return sum(report.before.values()), sum(report.after.values())
