"""The `functionalize` command: regions that became functional nodes, and why others did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Self

from cfgraph.analysis.findings import catalog
from cfgraph.cli.options import split_names
from cfgraph.cli.output import Column, OutputTable, Page
from cfgraph.cli.pass_options import FunctionalizeOptions
from cfgraph.console.signatures import SignatureNames
from cfgraph.console.transforms.transform import PassResult
from cfgraph.ir.graph import Graph
from cfgraph.ir.serde.saved_model import SavedSignature
from cfgraph.ir.units import format_count
from cfgraph.passes.functionalize.functionalize import Functionalization, functionalize
from cfgraph.passes.functionalize.report import RegionReport


class FunctionalizedGraph(PassResult[FunctionalizeOptions, Functionalization]):
    """A functionalized graph, with the numbers of its regions and the reasons for lowered ones."""

    command = "functionalize"

    @classmethod
    def apply(cls, graph: Graph, options: FunctionalizeOptions, names: SignatureNames) -> Self:
        """Functionalize a graph; a signature may name the fetches."""
        fetches = names.output_tensors(split_names(options.fetch))
        report = functionalize(
            graph,
            fetches or None,
            tensor_arrays=options.tensor_arrays,
            dead_as=options.dead_as,
            target=options.target,
        )
        return cls(graph, options, report)

    @property
    def exit_status(self) -> int:
        """1 with `strict` if a region kept its form."""
        return int(self.options.strict and bool(self.report.rejected))

    def signatures(self, names: SignatureNames) -> Sequence[SavedSignature]:
        """None is changed or added: all keep the names of their tensors."""
        return ()

    def rows(self) -> OutputTable:
        """The number of regions of each kind that became each op."""
        columns = [Column("region"), Column("became"), Column("count", right=True)]
        counts = Counter(
            (region.kind, "-" if region.replacement is None else region.replacement.op)
            for region in self.report.regions
        )
        return OutputTable(columns, [(*key, count) for key, count in sorted(counts.items())])

    def summary(self) -> Mapping[str, Any]:
        """The numbers of functionalized and rejected regions, and of dropped nodes."""
        rejected = len(self.report.rejected)
        return {
            "functionalized": len(self.report.regions) - rejected,
            "rejected": rejected,
            "dropped": len(self.report.dropped),
        }

    def members(self) -> Mapping[str, Any]:
        """The regions, the stacks and TensorArrays that remain, and the nodes nothing needs."""
        report = self.report
        return {
            "regions": report.regions,
            "resources": report.resources,
            "dropped": report.dropped,
        }

    def show(self, out: Page) -> None:
        """Print the regions, and a reason for each that kept its form."""
        report = self.report
        total, rejected = len(report.regions), report.rejected
        if total:
            out.heading(
                f"functionalized {total - len(rejected)} of {format_count(total, 'region')}"
            )
            out.table(self.rows())
        else:
            out.line("nothing to functionalize")
        if report.dropped:
            count = len(report.dropped)
            out.line(f"dropped {format_count(count, 'node')} that no result needs")
        if rejected:
            out.line()
            keep = "keeps" if len(rejected) == 1 else "keep"
            out.heading("not functionalized", f"{len(rejected)} {keep} Switch and Merge")
            self._show_rejected(out, rejected)
        if report.resources:
            out.line()
            out.heading("stacks and TensorArrays", f"{len(report.resources)} became no list")
            self._show_rejected(out, report.resources)
        if (rejected or report.resources) and not self.options.explain:
            out.line("--explain lists each of them")

    def _show_rejected(self, out: Page, regions: Sequence[RegionReport]) -> None:
        """Print each region with its reason, or the number of regions per code."""
        if self.options.explain:
            for region in regions:
                assert region.reason is not None
                code = "" if region.code is None else f"{region.code} "
                out.line(f"{code}{region.kind} {region.name}: {region.reason.text}")
            return
        reasons = Counter((region.code or "", _summary(region)) for region in regions)
        columns = [Column("code", optional=True), Column("reason"), Column("count", right=True)]
        out.table(OutputTable(columns, [(*key, count) for key, count in reasons.most_common()]))


def _summary(region: RegionReport) -> str:
    """Return the title of the code of a region, or its own reason."""
    if region.code is not None:
        return catalog()[region.code].title
    return "" if region.reason is None else region.reason.text
