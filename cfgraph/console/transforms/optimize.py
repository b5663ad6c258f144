"""The `optimize` command: the rewrites of each rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from cfgraph.cli.options import feed_names, split_names
from cfgraph.cli.output import OutputTable, Page, detail, report_table
from cfgraph.cli.pass_options import OptimizeOptions
from cfgraph.console.documents import RunsReport, Warnings
from cfgraph.console.signatures import SignatureNames
from cfgraph.console.transforms.lower import RewriteSummary, node_totals
from cfgraph.console.transforms.transform import PassResult
from cfgraph.ir.graph import Graph
from cfgraph.passes.optimize.optimize import Optimization, optimize
from cfgraph.passes.optimize.rewriting import KeptLoop, Rewrite
from cfgraph.reports import Column, Count, DocumentResult, Unrequired

_MEANINGS: Final = {
    "prune": "not needed by a fetch",
    "fold": "computed from constants",
    "arithmetic": "equal to another tensor",
    "branches": "decided by deadness",
    "cse": "computed twice",
    "licm": "the same in every iteration",
    "unroll": "loops that are straight lines",
}


class OptimizeResult(DocumentResult, command="optimize", summary=RewriteSummary):
    """The number of rewrites per rule, each rewrite, and the loops that are not unrolled."""

    #: Rewrites of each rule that was applied, in the order of the rules.
    rules: Mapping[str, Count]
    rewrites: Sequence[Rewrite]  #: Every rewrite, in order.
    kept_loops: Unrequired[Sequence[KeptLoop]]  #: The loops that `--unroll` does not replace.
    warnings: Warnings
    verify: RunsReport | None


@dataclass(slots=True)
class OptimizedGraph(PassResult[OptimizeOptions, Optimization]):
    """An optimized graph, and the number of nodes in its functions before."""

    function_nodes: int

    @classmethod
    def apply(cls, graph: Graph, options: OptimizeOptions, names: SignatureNames) -> Self:
        """Optimize a graph; a signature may name fetches and feeds, and its outputs stay."""
        fetches = [names.outputs.get(name, name) for name in split_names(options.fetch)]
        kept = split_names(options.keep)
        if not fetches:
            kept += names.outputs.values()
        function_nodes = _function_nodes(graph)
        report = optimize(
            graph,
            only=split_names(options.only),
            skip=split_names(options.skip),
            fetches=fetches or None,
            feeds=[names.inputs.get(name, name) for name in feed_names(options.feed)],
            keep=kept,
            unroll=options.unroll,
        )
        return cls(graph, options, report, function_nodes)

    def rows(self) -> OutputTable:
        """The rules that were applied."""
        columns = [Column("rule"), Column("rewrites", right=True), Column("meaning")]
        counts = self.report.rules.items()
        rows = [(rule, count, _MEANINGS[rule]) for rule, count in counts if count]
        return OutputTable(columns, [*rows])

    def summary(self) -> RewriteSummary:
        """The numbers of rewrites, and of nodes before and after."""
        return RewriteSummary(self.report.rewrites, *node_totals(self.report))

    def result(self, verify: RunsReport | None) -> OptimizeResult:
        """The number of rewrites per rule, each rewrite, and the loops that are not unrolled."""
        applied = self.report.applied
        return OptimizeResult.from_attributes(self.report, rewrites=applied, verify=verify)

    def show(self, out: Page) -> None:
        """Print the rules, and with `--verbose` each rewrite."""
        for rewrite in self.report.applied:
            name = f"{rewrite.function}/{rewrite.node}" if rewrite.function else rewrite.node
            result = rewrite.result or "removed"
            detail(f"{rewrite.rule}: {name} ({rewrite.op}) -> {result}")
        if self.report:
            self._show_rules(out)
        else:
            out.line("nothing to optimize")
        if self.report.kept_loops:
            out.heading("loops", "not unrolled")
            out.table(report_table(KeptLoop, self.report.kept_loops, "function", "loop", "reason"))

    def _show_rules(self, out: Page) -> None:
        before, after = node_totals(self.report)
        counts = f"{before} nodes, now {after}"
        if self.function_nodes:
            now = _function_nodes(self.graph)
            counts += f"; in functions {self.function_nodes}, now {now}"
        out.heading("optimized", counts)
        out.table(self.rows())


def _function_nodes(graph: Graph) -> int:
    return sum(len(function.definition.nodes) for function in graph.functions.values())
