"""`--verify`: run a graph before and after a change, and compare the values."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cfgraph.cli.output import is_quiet, page
from cfgraph.cli.transform_options import ComparedRuns
from cfgraph.console.documents import RunsReport
from cfgraph.console.graph_files import Source, require_single_stdin
from cfgraph.console.signatures import SignatureNames
from cfgraph.ir.files import dumps, loads
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph

# late imports: a command without --verify does not load the runtime

if TYPE_CHECKING:
    from cfgraph.comparison.differences import RunDiff
    from cfgraph.comparison.equivalence import ComparisonRunOptions


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """Comparison of a result with the input; true if both compute the same."""

    delta: RunDiff
    graphs: tuple[Graph, Graph]

    def __bool__(self) -> bool:
        return not self.delta

    def show(self) -> None:
        """Report the comparison on stderr; differences also with `--quiet`."""
        from cfgraph.console.comparisons.diff_run import print_runs

        if self and is_quiet():
            return
        out = page(stream=sys.stderr)
        out.heading("verify", "A is the input, B is the result")
        print_runs(out, self.delta, self.graphs)
        if not self:
            out.line("nothing was written", "red")

    def report(self) -> RunsReport:
        """Return the comparison as a member of a document."""
        from cfgraph.console.comparisons.diff_run import runs_report

        return runs_report(self.delta, self.graphs)


@dataclass(frozen=True, slots=True)
class PreparedComparison:
    """A graph before a change, and the runs in which it is compared with the changed one.

    Imports inside: a command that does not verify must not load the runtime.
    """

    original: Graph
    options: ComparisonRunOptions

    def compare(self, graph: Graph, report: object) -> VerificationResult:
        """Compare the graphs as `result` does, and show the comparison."""
        result = self.result(graph, report)
        result.show()
        return result

    def result(self, graph: Graph, report: object) -> VerificationResult:
        """Compare the original graph with the changed one as it is written.

        The `report` of the pass has what it drops: with `updates`, the variables may differ, and a
        node of `dropped` is no result if it may be dead.
        """
        from cfgraph.comparison.equivalence import compare_runs

        written = loads(dumps(graph, "pb"), "pb")
        options = replace(
            self.options,
            compares_variables=not getattr(report, "updates", ()),
            dropped=frozenset(getattr(report, "dropped", ())),
        )
        delta = compare_runs(self.original, written, options)
        return VerificationResult(delta, (self.original, written))


def prepare_comparison(
    runs: ComparedRuns, source: Source, names: SignatureNames, *, by_signature: bool = False
) -> PreparedComparison:
    """Copy the graph and read the inputs. Raises UsageError if they do not fit the graph."""
    from cfgraph.console.comparisons.run_options import comparison_options

    require_single_stdin(source, runs.inputs.feed)
    original = replace(source, graph=copy_graph(source.graph))
    options = comparison_options(runs, original, names, by_signature=by_signature)
    return PreparedComparison(original.graph, options)
