"""The `cluster` command: clusters and decisions as text, JSON, or DOT."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from cfgraph.cli.options import feed_names, split_names
from cfgraph.cli.output import Column, OutputTable, Page, flowed, is_quiet, page
from cfgraph.cli.pass_options import ClusterOptions
from cfgraph.cli.transform_options import STDIN, OutputOptions
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
    Clustering,
    CompilationGain,
    region_json,
)
from cfgraph.passes.functionalize.report import RejectionReason
from cfgraph.passes.lower.lower import lower

_MAX_OPS: Final = 6
_ALWAYS_LIVE: Final = "true"


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
    columns = [
        Column("cluster"),
        Column("nodes", right=True),
        Column("copies", "copied", right=True),
        Column("inputs", right=True),
        Column("results", "outputs", right=True),
        Column("frame", optional=True),
        Column("device", optional=True),
        Column("ops"),
    ]
    rows = [
        (
            formed.name,
            len(formed.nodes),
            len(formed.copies),
            formed.constants + formed.arguments + formed.resources,
            formed.results,
            formed.frame if formed.frame != "/" else "",
            formed.device,
            _frequent_ops(formed.ops),
        )
        for formed in report.clusters
    ]
    return OutputTable(columns, [*rows])


def _conditions_table(report: Clustering) -> OutputTable:
    """Return the conditions of clusters that are not always live.

    A separate table, because conditions are long; clusters with equal conditions share a row.
    """
    names_by_condition: dict[str, list[str]] = {}
    for formed in report.clusters:
        if formed.condition and formed.condition != _ALWAYS_LIVE:
            names_by_condition.setdefault(formed.condition, []).append(formed.name)
    rows = [(", ".join(names), condition) for condition, names in names_by_condition.items()]
    return OutputTable([Column("cluster"), Column("condition")], [*rows])


def _frequent_ops(ops: Mapping[str, int]) -> str:
    often = sorted(ops.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{op} {count}" if count > 1 else op for op, count in often[:_MAX_OPS]]
    return ", ".join([*shown, *(["…"] if len(often) > _MAX_OPS else [])])


def _reasons_table(report: Clustering, reasons: Mapping[str, int]) -> OutputTable:
    columns = [Column("reason"), Column("nodes", right=True), Column("meaning"), Column("ops")]
    rows = []
    for kind, count in reasons.items():
        ops = Counter(
            report.op_of[n] for n, reason in report.outside.items() if reason.kind == kind
        )
        rows.append((kind, count, NODE_REASONS[kind], _frequent_ops(ops)))
    return OutputTable(columns, [*rows])


def print_regions(out: Page, report: Clustering) -> None:
    """Print the decision on each loop, conditional, stack, and array."""
    out.line()
    clustered = sum(region.replacement is not None for region in report.regions)
    out.heading("regions", f"{clustered} of {len(report.regions)} in clusters")
    columns = [
        Column("kind"),
        Column("region"),
        Column("nodes", right=True),
        Column("reason"),
        Column("detail"),
    ]
    rows = [
        (region.kind, region.name, len(region.ops), *_reason_cells(region.reason))
        for region in report.regions
    ]
    out.table(OutputTable(columns, [*rows]))
    kinds = [region.reason.kind for region in report.regions if region.reason is not None]
    for kind, count in Counter(kinds).most_common():
        out.line(f"  {kind} {count}: {REGION_REASONS.get(kind) or NODE_REASONS[kind]}", "dim")


def _reason_cells(reason: RejectionReason | None) -> tuple[str, str]:
    return ("", "in a cluster") if reason is None else (reason.kind, reason.text)


def print_exclusions(out: Page, report: Clustering) -> None:
    """Print the reason for each node and edge outside of clusters, then the largest gains."""
    if report.regions:
        print_regions(out, report)
    out.line()
    out.heading("nodes outside of clusters")
    columns = [Column("node"), Column("op"), Column("reason"), Column("detail")]
    nodes = report.outside.items()
    rows = [(name, report.op_of[name], reason.kind, reason.text) for name, reason in nodes]
    out.table(OutputTable(columns, [*rows]))
    if report.edges:
        out.line()
        out.heading("edges that join no clusters")
        ends = [Column("source", "from"), Column("target", "to")]
        edges = [(e.source, e.target, e.reason.kind, e.reason.text) for e in report.edges]
        out.table(OutputTable([*ends, *columns[2:]], [*edges]))
        for kind, count in report.edge_histogram().items():
            out.line(f"  {kind} {count}: {EDGE_REASONS[kind]}", "dim")
    gains = [gain for gain in report.gains if gain.more > 0]
    if gains:
        out.line()
        out.heading("largest gains from compiling one more op")
        columns = [
            Column("op"),
            Column("more", "more nodes", right=True),
            Column("clusters", right=True),
        ]
        out.table(OutputTable(columns, [(gain.ops, gain.more, gain.clusters) for gain in gains]))


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

    command = "cluster"
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
    ) -> list[dict[str, Any]]:
        """Write the graph, and the cluster of each node; returns the artifacts."""
        written = PassResult.write(self, source, names, outputs)
        return written if self.data is None else [*written, self.data.write(self.report)]

    def rows(self) -> OutputTable:
        """The clusters."""
        return _clusters_table(self.report)

    def summary(self) -> Mapping[str, Any]:
        """The numbers of nodes and clusters."""
        report = self.report
        return {
            "nodes": report.nodes,
            "clustered": report.clustered,
            "coverage": report.coverage,
            "clusters": len(report.clusters),
        }

    def members(self) -> Mapping[str, Any]:
        """The clusters, and the reasons of nodes and edges outside of them, if requested."""
        report, request = self.report, self.options
        result: dict[str, Any] = {
            "clusters": report.clusters,
            "absorbed": report.absorbed,
            "outside": report.histogram(),
            "warnings": report.warnings,
        }
        if request.regions:
            result["regions"] = [*map(region_json, report.regions)]
        if request.explain:
            result["nodes"] = [
                {"name": name, "op": report.op_of[name], **reason.to_json()}
                for name, reason in report.outside.items()
            ]
            result["edges"] = report.edges
            result["edge_reasons"] = report.edge_histogram()
            result["gains"] = report.gains
        if report.what_if is not None:
            result["what_if"] = report.what_if
        return result

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
