"""Lower a graph from a file to a file, and say what changed."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cfgraph.console.answer import print_document
from cfgraph.console.given import NOT_ASKED, Verification
from cfgraph.console.graphs import STDIN, artifact, read_graph, require_apart, write_graph
from cfgraph.console.page import note, page
from cfgraph.console.tables import Column, Table
from cfgraph.document import render
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
    verification: Verification = NOT_ASKED,
) -> int:
    """Read, lower and write a graph; the ops before and after go to stderr. Returns the exit code.

    That is 1, and nothing is written, where the result was to be verified and computes something
    else. Raises UsageError where two answers would go to one place.
    """
    if json and output in (None, STDIN):
        message = "the JSON answer takes standard output"
        raise UsageError(message, hint="say where the graph goes: -o FILE")
    require_apart(output, map_out, "names")
    source = read_graph(path, quiet=quiet)
    inputs = [source.to_json()]  # as it was read, which lowering changes
    verification.before(source, quiet)
    report = lower(source.graph, functions=functions or None, keep_calls=keep_calls)
    verdict = verification.after(source.graph, quiet)
    fine = verdict is None or bool(verdict)
    written = None
    with StagedFiles() as files:
        if fine and map_out is not None:
            files.write(map_out, f"{render(report.names)}\n".encode())
        if fine:
            written = write_graph(source.graph, output, to, files, quiet)
    for warning in report.warnings:
        note(f"warning: {warning}", quiet)
    if not quiet:
        _print_counts(report)
    if json:
        before, after = _totals(report)
        artifacts = [artifact("graph", written)] if written else []
        artifacts += [artifact("names", map_out)] if map_out and fine else []
        print_document(
            "lower",
            inputs=inputs,
            summary={"rewrites": report.rewrites, "before": before, "after": after},
            result={
                "ops": _counts(report).to_json(),
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
    table = _counts(report)
    table.rows.append(("all", *_totals(report)))
    out.table(table)


def _counts(report: Report) -> Table:
    columns = [Column("op"), Column("before", right=True), Column("after", right=True)]
    return Table(columns, [*report.changes()])


def _totals(report: Report) -> tuple[int, int]:
    """The nodes before and after."""
    return sum(report.before.values()), sum(report.after.values())
