"""The `cluster` command: clusters and decisions as text, JSON, or DOT."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Self

from cfgraph.cli.json_output import Artifact
from cfgraph.cli.options import feed_names, split_names
from cfgraph.cli.output import OutputTable, Page, flowed, is_quiet, page, report_table
from cfgraph.cli.pass_options import ClusterOptions
from cfgraph.cli.transform_options import STDIN, OutputOptions
from cfgraph.console.documents import RunsReport, Warnings
from cfgraph.console.graph_files import Source
from cfgraph.console.signatures import SignatureNames
from cfgraph.console.transforms.transform import PassResult
from cfgraph.console.views.dot import cluster_dot
from cfgraph.errors import UsageError
from cfgraph.extensions import NODE_DATA, extension
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph
from cfgraph.ir.units import format_count
from cfgraph.passes.cluster.cluster import cluster
from cfgraph.passes.cluster.formation.report import (
    EDGE_REASONS,
    NODE_REASONS,
    REGION_REASONS,
    ClusterEdge,
    Clustering,
    ClusterReport,
    CompilationGain,
    frequent_ops,
)
from cfgraph.passes.functionalize.report import RejectionReason
from cfgraph.passes.lowering import lower
from cfgraph.reports import Column, Count, DocumentResult, Inline, Maybe, Real, Record

_ALWAYS_LIVE: Final = "true"


class RegionDecision(Record):
    """A loop, conditional, stack, or array, and whether it is in a cluster."""

    kind: str
    name: Annotated[str, Column(title="region", scoped=True)]
    nodes: Count
    clustered: bool
    reason: RejectionReason | None

    @property
    def detail(self) -> str:
        """The reason in words."""
        return "in a cluster" if self.reason is None else self.reason.text


class OutsideNode(Record):
    """A node in no cluster, and the reason."""

    name: Annotated[str, Column(title="node", scoped=True)]
    op: str
    reason: Inline[RejectionReason]


class ClusterSummary(Record):
    """The numbers of nodes and clusters."""

    nodes: Count
    clustered: Count
    coverage: Real
    clusters: Count


Gain = Annotated[CompilationGain, "What is gained if these ops compiled."]


class ClusterResult(DocumentResult, command="cluster", summary=ClusterSummary):
    """The clusters, and the reasons of nodes and edges outside of them, if requested."""

    clusters: Sequence[ClusterReport]
    absorbed: Sequence[str]
    outside: Mapping[str, Count]  #: The nodes in no cluster, by reason.
    warnings: Warnings
    regions: Maybe[Sequence[RegionDecision]]
    nodes: Maybe[Sequence[OutsideNode]]
    edges: Maybe[Sequence[ClusterEdge]]
    edge_reasons: Maybe[Mapping[str, Count]]
    gains: Maybe[Sequence[Gain]]
    what_if: Maybe[Gain]
    verify: RunsReport | None


def _region_decisions(report: Clustering) -> list[RegionDecision]:
    return [
        RegionDecision.from_attributes(
            region, nodes=len(region.ops), clustered=region.replacement is not None
        )
        for region in report.regions
    ]


def _outside_nodes(report: Clustering) -> list[OutsideNode]:
    nodes = report.outside.items()
    return [OutsideNode(name, report.op_of[name], reason) for name, reason in nodes]


def print_summary(out: Page, report: Clustering) -> None:
    """Print the clusters, and the number of unclustered nodes per reason."""
    share = f"{report.coverage:.0%}".replace("%", " %")
    count = format_count(len(report.clusters), "cluster")
    out.heading(f"clustered {report.clustered} of {report.nodes} nodes", f"{share}, in {count}")
    if report.clusters:
        out.table(_clusters_table(report))
        conditions = _conditions_table(report)
        if conditions.rows:
            out.line()
            out.table(conditions)
    reasons = report.histogram()
    if reasons:
        out.line()
        out.heading("not clustered", format_count(len(report.outside), "node"))
        out.table(_reasons_table(report, reasons))


def _clusters_table(report: Clustering) -> OutputTable:
    names = ("name", "nodes", "copies", "inputs", "results", "frame", "device", "ops")
    return report_table(ClusterReport, report.clusters, *names)


def _conditions_table(report: Clustering) -> OutputTable:
    """Return the conditions of clusters that are not always live.

    A separate table, because conditions are long; clusters with equal conditions share a row.
    """
    names_by_condition: dict[str, list[str]] = {}
    for formed in report.clusters:
        if formed.condition and formed.condition != _ALWAYS_LIVE:
            names_by_condition.setdefault(formed.condition, []).append(formed.name)
    rows = [(", ".join(names), condition) for condition, names in names_by_condition.items()]
    return OutputTable([Column("cluster"), Column("condition", scoped=True)], [*rows])


def _reasons_table(report: Clustering, reasons: Mapping[str, int]) -> OutputTable:
    columns = [Column("reason"), Column("nodes", right=True), Column("meaning"), Column("ops")]
    rows = []
    for kind, count in reasons.items():
        ops = Counter(
            report.op_of[n] for n, reason in report.outside.items() if reason.kind == kind
        )
        rows.append((kind, count, NODE_REASONS[kind], frequent_ops(ops)))
    return OutputTable(columns, [*rows])


def print_regions(out: Page, report: Clustering) -> None:
    """Print the decision on each loop, conditional, stack, and array."""
    out.line()
    clustered = sum(region.replacement is not None for region in report.regions)
    out.heading("regions", f"{clustered} of {len(report.regions)} in clusters")
    names = ("kind", "name", "nodes", "reason.kind", "detail")
    out.table(report_table(RegionDecision, _region_decisions(report), *names))
    kinds = [region.reason.kind for region in report.regions if region.reason is not None]
    for kind, count in Counter(kinds).most_common():
        out.line(f"  {kind} {count}: {REGION_REASONS.get(kind) or NODE_REASONS[kind]}", "dim")


def print_exclusions(out: Page, report: Clustering) -> None:
    """Print the reason for each node and edge outside of clusters, then the largest gains."""
    if report.regions:
        print_regions(out, report)
    out.line()
    out.heading("nodes outside of clusters")
    names = ("name", "op", "reason.kind", "reason.text")
    out.table(report_table(OutsideNode, _outside_nodes(report), *names))
    if report.edges:
        out.line()
        out.heading("edges that join no clusters")
        names = ("source", "target", "reason.kind", "reason.text")
        out.table(report_table(ClusterEdge, report.edges, *names))
        for kind, count in report.edge_histogram().items():
            out.paragraph(f"  {kind} {count}: {EDGE_REASONS[kind]}", "dim")
    gains = [gain for gain in report.gains if gain.more > 0]
    if gains:
        out.line()
        out.heading("largest gains from compiling one more op")
        out.table(report_table(CompilationGain, gains, "ops", "more", "clusters"))


def print_what_if(out: Page, report: Clustering, gain: CompilationGain) -> None:
    """Print what would be clustered if some ops compiled."""
    out.line()
    change = f"{gain.more:+d} nodes, in {format_count(gain.clusters, 'cluster')}"
    out.heading(f"if {', '.join(gain.ops)} compiled", change)
    for line in flowed(gain.nodes):
        out.line(line)
    for name, reason in gain.still_outside.items():
        out.line(f"  {name} would stay outside: {reason.kind}: {reason.text}", "dim")


FORMATS: Final = ("text", "json", "dot")


def _is_report(options: ClusterOptions) -> bool:
    """True if the report, not the graph, is the result."""
    return options.explain or bool(options.what_if)


@dataclass(slots=True)
class ClusteredGraph(PassResult[ClusterOptions, Clustering]):
    """A graph with clusters; `whole` is a copy without them, for a drawing."""

    whole: Graph | None
    data: Any

    @classmethod
    def require_valid(cls, options: ClusterOptions, outputs: OutputOptions) -> None:
        """Raise UsageError if two results would be written to one place."""
        if options.format not in FORMATS:
            message = f"unknown format {options.format!r}"
            raise UsageError(message, hint=f"use one of {', '.join(FORMATS)}")
        report = _is_report(options) or outputs.json or options.format != "text"
        if report and outputs.output == STDIN:
            message = "the report is written to standard output"
            raise UsageError(message, hint="write the graph to a file: -o FILE")
        if outputs.json and not _is_report(options) and outputs.output is None:
            message = "the JSON document is written to standard output"
            raise UsageError(
                message, hint="write the graph to a file: -o FILE; or request a report: --explain"
            )

    @classmethod
    def apply(cls, graph: Graph, options: ClusterOptions, names: SignatureNames) -> Self:
        """Cluster a graph; a signature may name fetches and feeds."""
        whole: Graph | None = None
        data = (
            None
            if options.node_data is None
            else extension(NODE_DATA, "cluster")(graph, options.node_data)
        )
        if options.format == "dot":
            lower(graph)
            whole = copy_graph(graph, graph)
        fetches = names.output_tensors(split_names(options.fetch))
        report = cluster(
            graph,
            deadness=options.deadness,
            min_size=options.min_size,
            max_size=options.max_size,
            only_ops=split_names(options.only_ops),
            exclude_ops=split_names(options.exclude_ops),
            fetches=fetches or None,
            feeds=[names.inputs.get(name, name) for name in feed_names(options.feed)],
            explain=options.explain,
            what_if=split_names(options.what_if),
            regions=options.regions,
        )
        return cls(graph, options, report, whole, data)

    def is_written(self, outputs: OutputOptions) -> bool:
        """False for a requested report or drawing without a file for the graph."""
        return outputs.output is not None or not (_is_report(self.options) or self.whole)

    def write(
        self, source: Source, names: SignatureNames, outputs: OutputOptions
    ) -> list[Artifact]:
        """Write the graph, and the cluster of each node; returns the artifacts."""
        written = PassResult.write(self, source, names, outputs)
        return written if self.data is None else [*written, self.data.write(self.report)]

    def summary(self) -> ClusterSummary:
        """The numbers of nodes and clusters."""
        return ClusterSummary.from_attributes(self.report, clusters=len(self.report.clusters))

    def result(self, verify: RunsReport | None) -> ClusterResult:
        """The clusters, and the reasons of nodes and edges outside of them, if requested."""
        report, explains = self.report, self.options.explain
        return ClusterResult.from_attributes(
            report,
            outside=report.histogram(),
            regions=_region_decisions(report) if self.options.regions else None,
            nodes=_outside_nodes(report) if explains else None,
            edges=report.edges if explains else None,
            edge_reasons=report.edge_histogram() if explains else None,
            gains=report.gains if explains else None,
            verify=verify,
        )

    def show(self, out: Page) -> None:
        """Print the clusters, and what was requested in addition."""
        report = self.report
        print_summary(out, report)
        if self.options.explain:
            print_exclusions(out, report)
        if report.what_if is not None:
            print_what_if(out, report, report.what_if)

    def print(self, outputs: OutputOptions, passed: bool) -> None:
        """Print a requested report or drawing on standard output, a summary on stderr."""
        if outputs.json:
            return
        if self.whole is not None:
            print("\n".join(cluster_dot(self.whole, self.report)))
        elif _is_report(self.options) or not is_quiet():
            self.show(page(stream=sys.stdout if _is_report(self.options) else sys.stderr))
