"""The `lower` command: lower a graph and report the ops before and after."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from cfgraph.console.graph_files import (
    OutputOptions,
    output_artifacts,
    read_graph,
    require_distinct_paths,
    write_graph_and_map,
)
from cfgraph.console.json_output import print_document
from cfgraph.console.output import Column, OutputTable, note, page
from cfgraph.console.signatures import SignatureNames
from cfgraph.console.verify import Verification
from cfgraph.ir.graph import Graph
from cfgraph.passes.lower.lower import lower
from cfgraph.passes.outcome import Report


@dataclass(frozen=True, slots=True)
class LowerOptions:
    """Options of the pass, named as those of the command."""

    function: Sequence[str] = ()
    keep_calls: bool = False
    unfuse: bool = False

    def apply(self, graph: Graph, names: SignatureNames) -> Report:
        """Lower a graph; its functions are no names of a signature."""
        functions = self.function or None
        return lower(graph, functions=functions, keep_calls=self.keep_calls, unfuse=self.unfuse)


def lower_file(
    path: str,
    request: LowerOptions,
    outputs: OutputOptions,
    verification: Verification,
) -> int:
    """Read, lower and write a graph; print op counts on stderr. Returns the exit code.

    It is 1, and nothing is written, if the verification finds a difference. Raises UsageError if
    two results would be written to one place.
    """
    outputs.require_separate_json()
    require_distinct_paths(outputs.output, outputs.map_out, "names")
    source = read_graph(path, quiet=outputs.quiet)
    inputs = [source.to_json()]  # before lowering changes the graph
    verification.before(source, outputs.quiet)
    report = request.apply(source.graph, SignatureNames())
    verdict = verification.after(source.graph, outputs.quiet)
    passed = verdict is None or bool(verdict)
    written = write_graph_and_map(source.graph, outputs, report.names) if passed else None
    for warning in report.warnings:
        note(f"warning: {warning}", outputs.quiet)
    if not outputs.quiet:
        _print_counts(report, "" if request.unfuse else "functional ")
    if outputs.json:
        before, after = _node_totals(report)
        print_document(
            "lower",
            inputs=inputs,
            summary={"rewrites": report.rewrites, "before": before, "after": after},
            result={
                "ops": _op_counts(report).to_json(),
                "warnings": report.warnings,
                "verify": verdict,
            },
            artifacts=output_artifacts(written, "names", outputs.map_out if passed else None),
            exit_code=int(not passed),
        )
    return int(not passed)


def _print_counts(report: Report, kind: str) -> None:
    out = page(stream=sys.stderr)
    if not report:
        out.line("nothing to lower")
        return
    nodes = "node" if report.rewrites == 1 else "nodes"
    out.heading(f"lowered {report.rewrites} {kind}{nodes}")
    table = _op_counts(report)
    table.rows.append(("total", *_node_totals(report)))
    out.table(table)


def _op_counts(report: Report) -> OutputTable:
    columns = [Column("op"), Column("before", right=True), Column("after", right=True)]
    return OutputTable(columns, [*report.changes()])


def _node_totals(report: Report) -> tuple[int, int]:
    """Return the numbers of nodes before and after."""
    return sum(report.before.values()), sum(report.after.values())
