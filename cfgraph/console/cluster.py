"""Cluster a graph from a file to a file, and say what was decided, and why."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.console.answer import print_document
from cfgraph.console.cluster_dot import cluster_dot
from cfgraph.console.cluster_report import print_explained, print_summary, print_what_if
from cfgraph.console.given import NOT_ASKED, Verification
from cfgraph.console.graphs import STDIN, artifact, read_graph, require_apart, write_graph
from cfgraph.console.page import note, page
from cfgraph.document import render
from cfgraph.errors import UsageError
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph
from cfgraph.options import split_list
from cfgraph.passes.cluster.cluster import cluster
from cfgraph.passes.cluster.report import Clustering
from cfgraph.passes.lower.lower import lower

FORMATS: Final = ("text", "json", "dot")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be clustered, and what is asked about it."""

    deadness: str
    min_size: int
    max_size: int | None
    only_ops: Sequence[str]
    exclude_ops: Sequence[str]
    fetches: Sequence[str]
    feeds: Sequence[str]
    explain: bool
    what_if: Sequence[str]
    regions: bool = False

    @property
    def reports(self) -> bool:
        """True if the report is the result."""
        return self.explain or bool(self.what_if)

    def apply(self, graph: Graph) -> Clustering:
        """Cluster a graph."""
        fetches = _all(self.fetches)
        return cluster(
            graph,
            deadness=self.deadness,
            min_size=self.min_size,
            max_size=self.max_size,
            only_ops=_all(self.only_ops),
            exclude_ops=_all(self.exclude_ops),
            fetches=fetches or None,
            feeds=_all(self.feeds),
            explain=self.explain,
            what_if=_all(self.what_if),
            regions=self.regions,
        )


@dataclass(frozen=True, slots=True)
class Written:
    """Where the graph and the names go, and how to answer."""

    format: str = "text"
    output: str | None = None
    to: str | None = None
    map_out: str | None = None
    quiet: bool = False
    verification: Verification = NOT_ASKED


def cluster_file(path: str, asked: Asked, writing: Written) -> int:
    """Read, cluster and write a graph; with a report asked for, the report is the result.

    Returns the exit code: 1, and no graph is written, where the result was to be verified and
    computes something else. Raises UsageError where two answers would go to one place.
    """
    _require_places(asked, writing)
    source = read_graph(path, quiet=writing.quiet)
    inputs, graph = [source.to_json()], source.graph
    writing.verification.before(source, writing.quiet)
    whole: Graph | None = None
    if writing.format == "dot":
        lower(graph)
        whole = copy_graph(graph, graph)
    report = asked.apply(graph)
    verdict = writing.verification.after(graph, writing.quiet)
    fine = verdict is None or bool(verdict)
    written = None
    with StagedFiles() as files:
        if fine and writing.map_out is not None:
            files.write(writing.map_out, f"{render(report.names)}\n".encode())
        if fine and (writing.output is not None or not (asked.reports or whole)):
            written = write_graph(graph, writing.output, writing.to, files, writing.quiet)
    for warning in report.warnings:
        note(f"warning: {warning}", writing.quiet)
    if writing.format == "json":
        artifacts = [artifact("graph", written)] if written else []
        artifacts += [artifact("names", writing.map_out)] if writing.map_out and fine else []
        print_document(
            "cluster",
            inputs=inputs,
            summary=_summary(report),
            result={**_result(report, asked), "verify": verdict},
            artifacts=artifacts,
            exit_code=int(not fine),
        )
    elif whole is not None:
        print("\n".join(cluster_dot(whole, report)))
    elif asked.reports:
        _print_report(report, asked)
    elif not writing.quiet:
        print_summary(page(stream=sys.stderr), report)
    return int(not fine)


def _all(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(part for text in texts for part in split_list(text))


def _require_places(asked: Asked, writing: Written) -> None:
    if writing.format not in FORMATS:
        message = f"unknown format {writing.format!r}"
        raise UsageError(message, hint=f"one of {', '.join(FORMATS)}")
    report = asked.reports or writing.format != "text"
    if report and writing.output == STDIN:
        message = "the report takes standard output"
        raise UsageError(message, hint="say where the graph goes: -o FILE")
    if writing.format == "json" and not asked.reports and writing.output is None:
        message = "the JSON answer takes standard output"
        raise UsageError(message, hint="say where the graph goes: -o FILE; or ask for --explain")
    require_apart(writing.output, writing.map_out, "names")


def _print_report(report: Clustering, asked: Asked) -> None:
    out = page()
    print_summary(out, report)
    if asked.explain:
        print_explained(out, report)
    if report.what_if is not None:
        print_what_if(out, report, report.what_if)


def _summary(report: Clustering) -> dict[str, Any]:
    return {
        "nodes": report.nodes,
        "clustered": report.clustered,
        "coverage": report.coverage,
        "clusters": len(report.clusters),
    }


def _result(report: Clustering, asked: Asked) -> dict[str, Any]:
    told: dict[str, Any] = {
        "clusters": report.clusters,
        "absorbed": report.absorbed,
        "outside": report.histogram(),
        "warnings": report.warnings,
    }
    if asked.regions:
        told["regions"] = report.regions
    if asked.explain:
        told["nodes"] = [
            {"name": name, "op": report.op_of[name], **reason.to_json()}
            for name, reason in report.outside.items()
        ]
        told["edges"] = report.edges
        told["edge_reasons"] = report.edge_histogram()
        told["gains"] = report.gains
    if report.what_if is not None:
        told["what_if"] = report.what_if
    return told
