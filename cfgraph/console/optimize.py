"""The `optimize` command: rewrite a graph and report the rewrites of each rule."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from cfgraph.console.graph_files import (
    OutputOptions,
    output_artifacts,
    read_graph,
    require_distinct_paths,
    write_graph_and_map,
)
from cfgraph.console.json_output import print_document
from cfgraph.console.output import Column, OutputTable, detail, note, page
from cfgraph.console.signatures import SignatureNames, signature_names
from cfgraph.console.verify import Verification
from cfgraph.ir.graph import Graph
from cfgraph.options import split_names
from cfgraph.passes.optimize.optimize import Optimization, optimize

_MEANINGS: Final = {
    "prune": "not needed by a fetch",
    "fold": "computed from constants",
    "arithmetic": "equal to another tensor",
    "branches": "decided by deadness",
    "cse": "computed twice",
    "licm": "the same in every iteration",
}


@dataclass(frozen=True, slots=True)
class OptimizeOptions:
    """Options of the pass, named as those of the command."""

    only: Sequence[str] = ()
    skip: Sequence[str] = ()
    fetch: Sequence[str] = ()
    feed: Sequence[str] = ()
    keep: Sequence[str] = ()

    def apply(self, graph: Graph, names: SignatureNames) -> Optimization:
        """Optimize a graph; a signature may name fetches and feeds, and its outputs stay."""
        fetches = [names.outputs.get(name, name) for name in split_names(self.fetch)]
        kept = split_names(self.keep)
        if not fetches:
            kept += names.outputs.values()
        return optimize(
            graph,
            only=split_names(self.only),
            skip=split_names(self.skip),
            fetches=fetches or None,
            feeds=[names.inputs.get(name, name) for name in split_names(self.feed)],
            keep=kept,
        )


def optimize_file(
    path: str, request: OptimizeOptions, outputs: OutputOptions, verification: Verification
) -> int:
    """Read, optimize and write a graph; print the rewrites on stderr. Returns the exit code.

    It is 1, and nothing is written, if the verification finds a difference. Raises UsageError if
    two results would be written to one place.
    """
    outputs.require_separate_json()
    require_distinct_paths(outputs.output, outputs.map_out, "names")
    source = read_graph(path, quiet=outputs.quiet)
    entry = source.to_json()
    verification.before(source, outputs.quiet)
    runs = verification.inputs
    names = signature_names(source, runs.signature, runs.variables)
    function_nodes = _function_nodes(source.graph)
    report = request.apply(source.graph, names)
    verdict = verification.after(source.graph, outputs.quiet)
    passed = verdict is None or bool(verdict)
    written = write_graph_and_map(source.graph, outputs, report.names) if passed else None
    for warning in report.warnings:
        note(f"warning: {warning}", outputs.quiet)
    before, after = sum(report.before.values()), sum(report.after.values())
    if not outputs.quiet:
        counts = f"{before} nodes, now {after}"
        if function_nodes:
            counts += f"; in functions {function_nodes}, now {_function_nodes(source.graph)}"
        _print_rewrites(report, counts)
    if outputs.json:
        print_document(
            "optimize",
            inputs=[entry],
            summary={"rewrites": report.rewrites, "before": before, "after": after},
            result={
                "rules": report.rules,
                "rewrites": [asdict(rewrite) for rewrite in report.applied],
                "warnings": report.warnings,
                "verify": verdict,
            },
            artifacts=output_artifacts(written, "names", outputs.map_out if passed else None),
            exit_code=int(not passed),
        )
    return int(not passed)


def _function_nodes(graph: Graph) -> int:
    return sum(len(function.definition.nodes) for function in graph.functions.values())


def _print_rewrites(report: Optimization, counts: str) -> None:
    for rewrite in report.applied:
        name = f"{rewrite.function}/{rewrite.node}" if rewrite.function else rewrite.node
        result = rewrite.result or "removed"
        detail(f"{rewrite.rule}: {name} ({rewrite.op}) -> {result}")
    out = page(stream=sys.stderr)
    if not report:
        out.line("nothing to optimize")
        return
    out.heading("optimized", counts)
    columns = [Column("rule"), Column("rewrites", right=True), Column("meaning")]
    rows = [(rule, count, _MEANINGS[rule]) for rule, count in report.rules.items() if count]
    out.table(OutputTable(columns, [*rows]))
