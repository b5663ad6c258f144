"""The `lower` command: lower a graph and report the ops before and after."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cfgraph.console.graph_files import (
    STDIN,
    artifact,
    read_graph,
    require_distinct_paths,
    write_graph,
)
from cfgraph.console.json_output import print_document, render_json
from cfgraph.console.output import Column, OutputTable, note, page
from cfgraph.console.verify_options import NO_VERIFICATION, Verification
from cfgraph.errors import UsageError
from cfgraph.ir.file_io import StagedFiles
from cfgraph.passes.lower.lower import lower
from cfgraph.passes.report import Report


def lower_file(
    path: str,
    output: str | None,
    to: str | None,
    functions: Sequence[str],
    keep_calls: bool,
    map_out: str | None,
    json: bool,
    quiet: bool,
    verification: Verification = NO_VERIFICATION,
) -> int:
    """Read, lower and write a graph; the ops before and after go to stderr. Returns the exit code.

    That is 1, and nothing is written, where the result was to be verified and computes something
    else. Raises UsageError where two answers would go to one place.
    """
    if json and output in (None, STDIN):
        message = "the JSON document is written to standard output"
        raise UsageError(message, hint="write the graph to a file: -o FILE")
    require_distinct_paths(output, map_out, "names")
    source = read_graph(path, quiet=quiet)
    inputs = [source.to_json()]  # as it was read, which lowering changes
    verification.before(source, quiet)
    report = lower(source.graph, functions=functions or None, keep_calls=keep_calls)
    verdict = verification.after(source.graph, quiet)
    fine = verdict is None or bool(verdict)
    written = None
    with StagedFiles() as files:
        if fine and map_out is not None:
            files.write(map_out, f"{render_json(report.names)}\n".encode())
        if fine:
            written = write_graph(source.graph, output, to, files, quiet)
    for warning in report.warnings:
        note(f"warning: {warning}", quiet)
    if not quiet:
        _print_counts(report)
    if json:
        before, after = _node_totals(report)
        artifacts = [artifact("graph", written)] if written else []
        artifacts += [artifact("names", map_out)] if map_out and fine else []
        print_document(
            "lower",
            inputs=inputs,
            summary={"rewrites": report.rewrites, "before": before, "after": after},
            result={
                "ops": _op_counts(report).to_json(),
                "warnings": report.warnings,
                "verify": verdict,
            },
            artifacts=artifacts,
            exit_code=int(not fine),
        )
    return int(not fine)


def _print_counts(report: Report) -> None:
    out = page(stream=sys.stderr)
    if not report:
        out.line("nothing to lower")
        return
    nodes = "node" if report.rewrites == 1 else "nodes"
    out.heading(f"lowered {report.rewrites} functional {nodes}")
    table = _op_counts(report)
    table.rows.append(("total", *_node_totals(report)))
    out.table(table)


def _op_counts(report: Report) -> OutputTable:
    columns = [Column("op"), Column("before", right=True), Column("after", right=True)]
    return OutputTable(columns, [*report.changes()])


def _node_totals(report: Report) -> tuple[int, int]:
    """The nodes before and after."""
    return sum(report.before.values()), sum(report.after.values())
