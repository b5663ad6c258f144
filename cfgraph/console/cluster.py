"""The `cluster` command: form clusters, write the graph, report decisions as text, JSON, or DOT."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cfgraph.console.dot import cluster_dot
from cfgraph.console.graph_files import (
    STDIN,
    OutputOptions,
    output_artifacts,
    read_graph,
    require_distinct_paths,
    write_graph,
)
from cfgraph.console.json_output import print_document, render_json
from cfgraph.console.output import Column, OutputTable, Page, flowed, note, page
from cfgraph.console.signatures import SignatureNames, signature_names
from cfgraph.console.verify import Verification
from cfgraph.errors import UsageError
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph
from cfgraph.options import split_list
from cfgraph.passes.cluster.cluster import cluster
from cfgraph.passes.cluster.formation.report import (
    EDGE_REASONS,
    NODE_REASONS,
    Clustering,
    CompilationGain,
)
from cfgraph.passes.functionalize.report import REGION_REASONS, RejectionReason
from cfgraph.passes.lower.lower import lower

_MAX_OPS: Final = 6
_ALWAYS_LIVE: Final = "true"


def print_summary(out: Page, report: Clustering) -> None:
    """Print the clusters, and the number of unclustered nodes per reason."""
    share = f"{report.coverage:.0%}".replace("%", " %")
    count = _plural(len(report.clusters), "cluster")
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
        out.heading("not clustered", _plural(len(report.outside), "node"))
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
    change = f"{gain.more:+d} nodes, in {_plural(gain.clusters, 'cluster')}"
    out.heading(f"if {', '.join(gain.ops)} compiled", change)
    for line in flowed(gain.nodes):
        out.line(line)
    for name, reason in gain.still_outside.items():
        out.line(f"  {name} would stay outside: {reason.kind}: {reason.text}", "dim")


def _plural(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


FORMATS: Final = ("text", "json", "dot")


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Options of the pass, named as those of the command, and the requested reports."""

    deadness: str
    min_size: int
    max_size: int | None
    only_ops: Sequence[str]
    exclude_ops: Sequence[str]
    fetch: Sequence[str]
    feed: Sequence[str]
    regions: bool = False
    explain: bool = False
    what_if: Sequence[str] = ()

    @property
    def is_report(self) -> bool:
        """True if the report, not the graph, is the result."""
        return self.explain or bool(self.what_if)

    def resolve(self, names: SignatureNames) -> ClusterOptions:
        """Replace names of a signature by those of its tensors."""
        fetch = [names.outputs.get(name, name) for name in _split_all(self.fetch)]
        feed = [names.inputs.get(name, name) for name in _split_all(self.feed)]
        return replace(self, fetch=fetch, feed=feed)

    def apply(self, graph: Graph, names: SignatureNames) -> Clustering:
        """Run the pass on a graph."""
        return self.resolve(names).run(graph)

    def run(self, graph: Graph) -> Clustering:
        """Run the pass on a graph, with names of tensors only."""
        fetches = _split_all(self.fetch)
        return cluster(
            graph,
            deadness=self.deadness,
            min_size=self.min_size,
            max_size=self.max_size,
            only_ops=_split_all(self.only_ops),
            exclude_ops=_split_all(self.exclude_ops),
            fetches=fetches or None,
            feeds=_split_all(self.feed),
            explain=self.explain,
            what_if=_split_all(self.what_if),
            regions=self.regions,
        )


def cluster_file(
    path: str, request: ClusterOptions, outputs: OutputOptions, verification: Verification
) -> int:
    """Read, cluster and write a graph; a requested report is the result instead of the graph.

    Returns the exit code: 1, and nothing is written, if the verification finds a difference. Raises
    UsageError if two results would be written to one place.
    """
    _require_distinct_outputs(request, outputs)
    source = read_graph(path, quiet=outputs.quiet)
    inputs, graph = [source.to_json()], source.graph
    verification.before(source, outputs.quiet)
    runs = verification.inputs
    request = request.resolve(signature_names(source, runs.signature, runs.variables))
    whole: Graph | None = None
    if outputs.format == "dot":
        lower(graph)
        whole = copy_graph(graph, graph)
    report = request.run(graph)
    verdict = verification.after(graph, outputs.quiet)
    passed = verdict is None or bool(verdict)
    written = None
    with StagedFiles() as files:
        if passed and outputs.companion is not None:
            files.write(outputs.companion, f"{render_json(report.names)}\n".encode())
        if passed and (outputs.output is not None or not (request.is_report or whole)):
            written = write_graph(graph, outputs.output, outputs.to, files, outputs.quiet)
    for warning in report.warnings:
        note(f"warning: {warning}", outputs.quiet)
    if outputs.format == "json":
        print_document(
            "cluster",
            inputs=inputs,
            summary=_summary_json(report),
            result={**_result_json(report, request), "verify": verdict},
            artifacts=output_artifacts(written, "names", outputs.companion if passed else None),
            exit_code=int(not passed),
        )
    elif whole is not None:
        print("\n".join(cluster_dot(whole, report)))
    elif request.is_report:
        _print_report(report, request)
    elif not outputs.quiet:
        print_summary(page(stream=sys.stderr), report)
    return int(not passed)


def _split_all(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(item for text in texts for item in split_list(text))


def _require_distinct_outputs(request: ClusterOptions, outputs: OutputOptions) -> None:
    if outputs.format not in FORMATS:
        message = f"unknown format {outputs.format!r}"
        raise UsageError(message, hint=f"use one of {', '.join(FORMATS)}")
    report = request.is_report or outputs.format != "text"
    if report and outputs.output == STDIN:
        message = "the report is written to standard output"
        raise UsageError(message, hint="write the graph to a file: -o FILE")
    if outputs.format == "json" and not request.is_report and outputs.output is None:
        message = "the JSON document is written to standard output"
        raise UsageError(
            message, hint="write the graph to a file: -o FILE; or request a report: --explain"
        )
    require_distinct_paths(outputs.output, outputs.companion, "names")


def _print_report(report: Clustering, request: ClusterOptions) -> None:
    out = page()
    print_summary(out, report)
    if request.explain:
        print_exclusions(out, report)
    if report.what_if is not None:
        print_what_if(out, report, report.what_if)


def _summary_json(report: Clustering) -> dict[str, Any]:
    return {
        "nodes": report.nodes,
        "clustered": report.clustered,
        "coverage": report.coverage,
        "clusters": len(report.clusters),
    }


def _result_json(report: Clustering, request: ClusterOptions) -> dict[str, Any]:
    result: dict[str, Any] = {
        "clusters": report.clusters,
        "absorbed": report.absorbed,
        "outside": report.histogram(),
        "warnings": report.warnings,
    }
    if request.regions:
        result["regions"] = report.regions
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
