"""`--verify`: run what a command made and what it was made of, before anything is written."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from cfgraph.compare.runs import RunDiff, compare_runs
from cfgraph.console.diff_run import print_runs, runs_json
from cfgraph.console.page import page
from cfgraph.console.run_given import Given
from cfgraph.errors import UsageError
from cfgraph.ir.copy import copy_of
from cfgraph.ir.files import dumps, loads
from cfgraph.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the result compares with the input; true where they compute the same."""

    found: RunDiff
    graphs: tuple[Graph, Graph]

    def __bool__(self) -> bool:
        return not self.found and not self.found.missing

    def show(self, quiet: bool) -> None:
        """Say on stderr what was compared; of a difference also where notes are not wanted."""
        if self and quiet:
            return
        out = page(stream=sys.stderr)
        out.heading("verify", "A is the input, B the result")
        print_runs(out, self.found, self.graphs)
        if not self:
            out.line("nothing is written", "red")

    def to_json(self) -> dict[str, Any]:
        """The verdict as a member of a command's JSON document."""
        return runs_json(self.found, self.graphs)


@dataclass(frozen=True, slots=True)
class Verifier:
    """Keeps the input as it was, and compares the result with it."""

    before: Graph
    given: Given

    def verdict(self, graph: Graph) -> Verdict:
        """Compare with the graph as its file will hold it. Raises what `compare_runs` raises."""
        options = self.given.options(self.before)
        made = loads(dumps(graph, "pb"), "pb")
        return Verdict(compare_runs(self.before, made, options), (self.before, made))


def verifier(graph: Graph, wanted: bool, given: Given) -> Verifier | None:
    """What will verify a command that is about to change a graph; None where nobody asks for it.

    Raises UsageError for inputs that are given and not wanted, or that do not fit the graph.
    """
    if not wanted:
        if given.said:
            raise UsageError("inputs are for --verify, which is not asked for", hint="add --verify")
        return None
    before = copy_of(graph)
    given.options(before)
    return Verifier(before, given)


def verdict_of(found: Verifier | None, graph: Graph, quiet: bool) -> Verdict | None:
    """The verdict on a graph, shown; None where nobody asks for it."""
    if found is None:
        return None
    verdict = found.verdict(graph)
    verdict.show(quiet)
    return verdict
