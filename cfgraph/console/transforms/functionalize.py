"""The `functionalize` command: regions that became functional nodes, and why others did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Self

from cfgraph.analysis.findings import catalog
from cfgraph.cli.options import split_names
from cfgraph.cli.output import OutputTable, Page
from cfgraph.cli.pass_options import FunctionalizeOptions
from cfgraph.console.documents import RunsReport, Warnings
from cfgraph.console.signatures import SignatureNames
from cfgraph.console.transforms.transform import PassResult
from cfgraph.ir.graph import Graph
from cfgraph.ir.serde.saved_model import SavedSignature
from cfgraph.ir.units import format_count
from cfgraph.passes.functionalize.functionalize import Functionalization, functionalize
from cfgraph.passes.functionalize.report import RegionReport, RejectionReason
from cfgraph.reports import OPTIONAL, Column, Count, DocumentResult, Inline, Keywords, Record

# of the dropped outputs
_MAX_OUTPUTS: Final = 5


class FunctionalizeSummary(Record):
    """The numbers of functionalized and rejected regions, and of dropped nodes."""

    functionalized: Count
    rejected: Count
    dropped: Count


class ReplacingNode(Record):
    """The node that replaced a region."""

    name: str
    op: str


class CodedReason(Record):
    """The reason why a region keeps its form, with its code."""

    code: Annotated[str | None, Keywords(pattern="^CFG[0-9]{3}$"), OPTIONAL]
    reason: Inline[RejectionReason]


class FunctionalizedRegion(Record):
    """A region of the graph: the node that it became, or the reason for none."""

    kind: Annotated[str, Keywords(enum=["loop", "conditional", "list"])]
    name: str
    nodes: Count
    call: ReplacingNode | None
    reason: CodedReason | None  #: Why the region keeps its form.


class RemainingResource(FunctionalizedRegion):
    """A stack or TensorArray that became no list."""

    kind: Annotated[str, Keywords(const="list")]
    call: None
    reason: CodedReason  #: Why it became no list.


class FunctionalizeResult(DocumentResult, command="functionalize", summary=FunctionalizeSummary):
    """The regions, the stacks and TensorArrays that remain, and the nodes nothing needs."""

    #: The loops and conditionals, and the nodes that they became.
    regions: Sequence[FunctionalizedRegion]
    #: The stacks and TensorArrays that did not become lists.
    resources: Sequence[RemainingResource]
    dropped: Sequence[str]  #: The nodes that no result needs.
    warnings: Warnings
    verify: RunsReport | None


@dataclass(slots=True)
class FunctionalizedGraph(PassResult[FunctionalizeOptions, Functionalization]):
    """A functionalized graph, with the numbers of its regions and the reasons for lowered ones.

    `outputs` are the nodes that nothing read.
    """

    outputs: frozenset[str] = frozenset()

    @classmethod
    def apply(cls, graph: Graph, options: FunctionalizeOptions, names: SignatureNames) -> Self:
        """Functionalize a graph; a signature may name the fetches."""
        fetches = names.output_tensors(split_names(options.fetch))
        outputs = frozenset(node.name for node in graph if not node.uses)
        report = functionalize(
            graph,
            fetches or None,
            tensor_arrays=options.tensor_arrays,
            dead_as=options.dead_as,
            target=options.target,
        )
        return cls(graph, options, report, outputs)

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

    def summary(self) -> FunctionalizeSummary:
        """The numbers of functionalized and rejected regions, and of dropped nodes."""
        rejected = len(self.report.rejected)
        kept = len(self.report.regions) - rejected
        return FunctionalizeSummary(kept, rejected, len(self.report.dropped))

    def result(self, verify: RunsReport | None) -> FunctionalizeResult:
        """The regions, the stacks and TensorArrays that remain, and the nodes nothing needs."""
        report = self.report
        regions = [FunctionalizedRegion(*_members(region)) for region in report.regions]
        resources = [RemainingResource(*_members(region)) for region in report.resources]
        return FunctionalizeResult.from_attributes(
            report, regions=regions, resources=resources, verify=verify
        )

    def show(self, out: Page) -> None:
        """Print the regions, and a reason for each that kept its form."""
        report = self.report
        total, rejected = len(report.regions), report.rejected
        if total:
            out.heading(
                f"functionalized {total - len(rejected)} of {format_count(total, 'region')}"
            )
            out.table(self.rows())
        elif report.has_target_edits:
            out.line("no lowered loop or conditional; changed functional nodes for converters")
        else:
            out.line("nothing to functionalize")
        if report.dropped:
            count = len(report.dropped)
            names = [name for name in report.dropped if name in self.outputs]
            more = ["…"] * (len(names) > _MAX_OUTPUTS)
            listed = f"; outputs: {', '.join([*names[:_MAX_OUTPUTS], *more])}" if names else ""
            out.line(
                out.wrapped(f"dropped {format_count(count, 'node')} that no result needs{listed}")
            )
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


def _members(region: RegionReport) -> Iterator[Any]:
    yield from (region.kind, region.name, len(region.ops))
    yield region.replacement and ReplacingNode(region.replacement.name, region.replacement.op)
    yield region.reason and CodedReason(region.code, region.reason)


def _summary(region: RegionReport) -> str:
    """Return the title of the code of a region, or its own reason."""
    if region.code is not None:
        return catalog()[region.code].title
    return "" if region.reason is None else region.reason.text
