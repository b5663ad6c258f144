"""What `cluster` says of its clusters, and of the nodes and edges that are in none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from cfgraph.console.page import Page
from cfgraph.console.tables import Column, Table, flowed
from cfgraph.passes.cluster.rejection_reasons import (
    EDGE_REASONS,
    NODE_REASONS,
    REGION_REASONS,
    RejectionReason,
)
from cfgraph.passes.cluster.report import Clustering, CompilationGain

_OPS: Final = 6
_ALWAYS: Final = "true"


def print_summary(out: Page, report: Clustering) -> None:
    """The clusters, and how many nodes are left out for what reasons."""
    share = f"{report.coverage:.0%}".replace("%", " %")
    count = _count(len(report.clusters), "cluster")
    out.heading(f"clustered {report.clustered} of {report.nodes} nodes", f"{share}, in {count}")
    if report.clusters:
        out.table(_clusters(report))
        conditions = _conditions(report)
        if conditions.rows:
            out.line()
            out.table(conditions)
    reasons = report.histogram()
    if reasons:
        out.line()
        out.heading("not clustered", _count(len(report.outside), "node"))
        out.table(_reasons(report, reasons))


def _clusters(report: Clustering) -> Table:
    columns = [
        Column("cluster"),
        Column("nodes", right=True),
        Column("copies", "copied", right=True),
        Column("inputs", right=True),
        Column("results", right=True),
        Column("frame", optional=True),
        Column("device", optional=True),
        Column("ops"),
    ]
    rows = [
        (
            one.name,
            len(one.nodes),
            len(one.copies),
            one.constants + one.arguments + one.resources,
            one.results,
            one.frame if one.frame != "/" else "",
            one.device,
            _ops(one.ops),
        )
        for one in report.clusters
    ]
    return Table(columns, [*rows])


def _conditions(report: Clustering) -> Table:
    """When the clusters run that do not always; a condition may be long, and has a line of its own.

    Clusters that are live together are told of once.
    """
    together: dict[str, list[str]] = {}
    for one in report.clusters:
        if one.condition != _ALWAYS:
            together.setdefault(one.condition, []).append(one.name)
    rows = [(", ".join(names), condition) for condition, names in together.items()]
    return Table([Column("cluster"), Column("condition", "live when")], [*rows])


def _ops(ops: Mapping[str, int]) -> str:
    often = sorted(ops.items(), key=lambda item: (-item[1], item[0]))
    told = [f"{op} {count}" if count > 1 else op for op, count in often[:_OPS]]
    return ", ".join([*told, *(["…"] if len(often) > _OPS else [])])


def _reasons(report: Clustering, reasons: Mapping[str, int]) -> Table:
    columns = [Column("reason"), Column("nodes", right=True), Column("meaning"), Column("ops")]
    rows = []
    for kind, count in reasons.items():
        ops = Counter(
            report.op_of[n] for n, reason in report.outside.items() if reason.kind == kind
        )
        rows.append((kind, count, NODE_REASONS[kind], _ops(ops)))
    return Table(columns, [*rows])


def print_regions(out: Page, report: Clustering) -> None:
    """The loops, conditionals, stacks and arrays that were looked at, and what became of them."""
    out.line()
    raised = sum(one.raised is not None for one in report.regions)
    out.heading("regions", f"{raised} of {len(report.regions)} in clusters")
    columns = [
        Column("kind"),
        Column("region"),
        Column("nodes", right=True),
        Column("reason"),
        Column("detail"),
    ]
    rows = [(one.kind, one.name, len(one.ops), *_reason(one.reason)) for one in report.regions]
    out.table(Table(columns, [*rows]))
    kinds = [one.reason.kind for one in report.regions if one.reason is not None]
    for kind, count in Counter(kinds).most_common():
        out.line(f"  {kind} {count}: {REGION_REASONS.get(kind) or NODE_REASONS[kind]}", "dim")


def _reason(reason: RejectionReason | None) -> tuple[str, str]:
    return ("", "in a cluster") if reason is None else (reason.kind, reason.text)


def print_explained(out: Page, report: Clustering) -> None:
    """Every node and edge outside with its reason, then what each op costs."""
    if report.regions:
        print_regions(out, report)
    out.line()
    out.heading("nodes in no cluster")
    columns = [Column("node"), Column("op"), Column("reason"), Column("detail")]
    nodes = report.outside.items()
    rows = [(name, report.op_of[name], reason.kind, reason.text) for name, reason in nodes]
    out.table(Table(columns, [*rows]))
    if report.edges:
        out.line()
        out.heading("edges that join nothing")
        ends = [Column("source", "from"), Column("target", "to")]
        edges = [(e.source, e.target, e.reason.kind, e.reason.text) for e in report.edges]
        out.table(Table([*ends, *columns[2:]], [*edges]))
        for kind, count in report.edge_histogram().items():
            out.line(f"  {kind} {count}: {EDGE_REASONS[kind]}", "dim")
    gains = [gain for gain in report.gains if gain.more > 0]
    if gains:
        out.line()
        out.heading("largest gain if an op were compiled")
        columns = [
            Column("op"),
            Column("more", "more nodes", right=True),
            Column("clusters", right=True),
        ]
        out.table(Table(columns, [(gain.ops, gain.more, gain.clusters) for gain in gains]))


def print_what_if(out: Page, report: Clustering, gain: CompilationGain) -> None:
    """What would be clustered if some ops compiled."""
    out.line()
    change = f"{gain.more:+d} nodes, in {_count(gain.clusters, 'cluster')}"
    out.heading(f"if {', '.join(gain.ops)} compiled", change)
    for line in flowed(gain.nodes):
        out.line(line)
    for name, reason in gain.still_outside.items():
        out.line(f"  {name} would stay outside: {reason.kind}: {reason.text}", "dim")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
