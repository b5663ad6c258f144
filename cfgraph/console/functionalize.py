"""The `functionalize` command: regions that became functional nodes, and why others did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Self

from cfgraph.cli.options import split_names
from cfgraph.cli.output import Column, OutputTable, Page
from cfgraph.cli.pass_options import FunctionalizeOptions
from cfgraph.console.signatures import SignatureNames
from cfgraph.console.transform import PassResult
from cfgraph.ir.graph import Graph
from cfgraph.ir.serde.saved_model import SavedSignature
from cfgraph.passes.functionalize.functionalize import Functionalization, functionalize


class FunctionalizedGraph(PassResult[FunctionalizeOptions, Functionalization]):
    """A functionalized graph, with the numbers of its regions and the reasons for lowered ones."""

    command = "functionalize"

    @classmethod
    def apply(cls, graph: Graph, options: FunctionalizeOptions, names: SignatureNames) -> Self:
        """Functionalize a graph; a signature may name the fetches."""
        fetches = [names.outputs.get(name, name) for name in split_names(options.fetch)]
        report = functionalize(
            graph,
            fetches or None,
            tensor_arrays=options.tensor_arrays,
            dead_as=options.dead_as,
        )
        return cls(graph, options, report)

    @property
    def exit_status(self) -> int:
        """1 with `strict` if a region kept its form."""
        return int(self.options.strict and bool(self.report.refused))

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
        """The numbers of functionalized and refused regions, and of dropped nodes."""
        refused = len(self.report.refused)
        return {
            "functionalized": len(self.report.regions) - refused,
            "refused": refused,
            "dropped": len(self.report.dropped),
        }

    def members(self) -> Mapping[str, Any]:
        """The regions, and the nodes that nothing needs."""
        regions = [region.to_call_json() for region in self.report.regions]
        return {"regions": regions, "dropped": self.report.dropped}

    def show(self, out: Page) -> None:
        """Print the regions, and a reason for each that kept its form."""
        summary, refused = self.summary(), self.report.refused
        if not self.report.regions:
            out.line("nothing to functionalize")
            return
        count = summary["functionalized"]
        total = len(self.report.regions)
        out.heading(f"functionalized {count} of {total} region{'s' * (total != 1)}")
        out.table(self.rows())
        if self.report.dropped:
            out.line(f"dropped {len(self.report.dropped)} nodes that no result needs")
        if not refused:
            return
        out.line()
        out.heading("not functionalized", f"{len(refused)} keep Switch and Merge")
        if self.options.explain:
            for region in refused:
                assert region.reason is not None
                out.line(f"{region.code} {region.kind} {region.name}: {region.reason.text}")
            return
        kinds = Counter(region.reason.kind for region in refused if region.reason is not None)
        columns = [Column("reason"), Column("count", right=True)]
        out.table(OutputTable(columns, [*kinds.most_common()]))
        out.line("--explain lists each of them")
