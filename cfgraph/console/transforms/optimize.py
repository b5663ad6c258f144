"""The `optimize` command: the rewrites of each rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from cfgraph.cli.options import feed_names, split_names
from cfgraph.cli.output import Column, OutputTable, Page, detail
from cfgraph.cli.pass_options import OptimizeOptions
from cfgraph.console.signatures import SignatureNames
from cfgraph.console.transforms.lower import node_totals
from cfgraph.console.transforms.transform import PassResult
from cfgraph.ir.graph import Graph
from cfgraph.passes.optimize.optimize import Optimization, optimize

_MEANINGS: Final = {
    "prune": "not needed by a fetch",
    "fold": "computed from constants",
    "arithmetic": "equal to another tensor",
    "branches": "decided by deadness",
    "cse": "computed twice",
    "licm": "the same in every iteration",
    "unroll": "loops that are straight lines",
}


@dataclass(slots=True)
class OptimizedGraph(PassResult[OptimizeOptions, Optimization]):
    """An optimized graph, and the number of nodes in its functions before."""

    command = "optimize"
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

    def summary(self) -> Mapping[str, Any]:
        """The numbers of rewrites, and of nodes before and after."""
        before, after = node_totals(self.report)
        return {"rewrites": self.report.rewrites, "before": before, "after": after}

    def members(self) -> Mapping[str, Any]:
        """The number of rewrites per rule, each rewrite, and the loops that are not unrolled."""
        rewrites = [asdict(rewrite) for rewrite in self.report.applied]
        kept = [asdict(loop) for loop in self.report.kept_loops]
        return {"rules": self.report.rules, "rewrites": rewrites, "kept_loops": kept}

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
            columns = [Column("function", optional=True), Column("loop"), Column("reason")]
            kept = [(k.function or None, k.loop, k.reason) for k in self.report.kept_loops]
            out.table(OutputTable(columns, [*kept]))

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
