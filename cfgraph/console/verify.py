"""`--verify`: run a graph before and after a change, and compare the values."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

from cfgraph.compare.equivalence import ComparisonRunOptions, RunDiff, compare_runs
from cfgraph.console.diff_run import comparison_options, print_runs, runs_json
from cfgraph.console.graph_files import Source, require_single_stdin
from cfgraph.console.output import page
from cfgraph.console.verify_options import RunInputs
from cfgraph.ir.files import dumps, loads
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """How the result compares with the input; true where they compute the same."""

    found: RunDiff
    graphs: tuple[Graph, Graph]

    def __bool__(self) -> bool:
        return not self.found

    def show(self, quiet: bool) -> None:
        """Say on stderr what was compared; of a difference also where notes are not wanted."""
        if self and quiet:
            return
        out = page(stream=sys.stderr)
        out.heading("verify", "A is the input, B is the result")
        print_runs(out, self.found, self.graphs)
        if not self:
            out.line("nothing was written", "red")

    def to_json(self) -> dict[str, Any]:
        """The verdict as a member of a command's JSON document."""
        return runs_json(self.found, self.graphs)


class RunVerification:
    """Keeps the input as it was, and compares the result with it."""

    def __init__(self, given: RunInputs) -> None:
        self.given = given
        self.kept: Graph | None = None
        self.options: ComparisonRunOptions | None = None

    def before(self, source: Source, quiet: bool) -> None:
        """Keep the graph, and read inputs. Raises UsageError for those that do not fit it."""
        require_single_stdin(source, self.given.feeds)
        self.kept = copy_graph(source.graph)
        self.options = comparison_options(self.given, replace(source, graph=self.kept), quiet)

    def after(self, graph: Graph, quiet: bool) -> VerificationResult:
        """Compare with the graph as its file will hold it. Raises what `compare_runs` raises."""
        assert self.kept is not None
        made = loads(dumps(graph, "pb"), "pb")
        verdict = VerificationResult(compare_runs(self.kept, made, self.options), (self.kept, made))
        verdict.show(quiet)
        return verdict
