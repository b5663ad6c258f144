"""Test of two graphs: they are interesting while their runs differ.

Both are edited alike, so that whatever differs comes from what differed before: another value,
another liveness, or an error of the second graph alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic

from cfgraph.comparison.differences import RunDiff
from cfgraph.comparison.equivalence import ComparisonRunOptions, compare_runs
from cfgraph.comparison.reduce.subject import Subject
from cfgraph.errors import CfgraphError
from cfgraph.ir.graph import Graph
from cfgraph.ir.node import node_name
from cfgraph.limits import check_deadline, limited

# a test may take this many times the time of the comparison of the original graphs, and seconds
_PATIENCE, _MIN_SECONDS = 10.0, 5.0
_EXTRA_ITERATIONS = 16


def differs(delta: RunDiff) -> bool:
    """Return true for other values and for a failure of the second graph."""
    return bool(delta.gaps) or delta.failure is not None


@dataclass(slots=True)
class PairOracle:
    """Test in this process; `options` are those of the original comparison, with one case."""

    options: ComparisonRunOptions
    seconds: float
    width: int = 1

    @staticmethod
    def compare(subject: Subject, options: ComparisonRunOptions) -> tuple[PairOracle, RunDiff]:
        """Return the test, and the comparison of the original graphs."""
        start = monotonic()
        a, b = subject.graphs
        delta = compare_runs(a, b, options)
        seconds = monotonic() - start
        setting = replace(options.setting, feeds={**options.setting.feeds, **delta.inputs})
        single = replace(
            options,
            setting=setting,
            cases=1,
            seed=options.seed + max(delta.cases - 1, 0),
            fetches=(),
            missing=(),
            names_of_b={**options.names_of_b, **delta.paired},
            independent=False,
            locate=False,
        )
        return PairOracle(single, seconds), delta

    def first_interesting(self, candidates: Sequence[Subject]) -> int | None:
        """Return the index of the first pair that differs."""
        return next((n for n, item in enumerate(candidates) if self.is_interesting(item)), None)

    def is_interesting(self, subject: Subject) -> bool:
        """Return true if the runs of a pair differ."""
        a, b = subject.graphs
        try:
            with limited(timeout=max(_MIN_SECONDS, _PATIENCE * self.seconds)):
                delta = compare_runs(a, b, self.options_for(a))
        except CfgraphError:
            check_deadline()
            return False
        return differs(delta)

    def limit_iterations(self, count: int) -> None:
        """Let loops run little longer than in the original graph, in `count` iterations."""
        setting, limit = self.options.setting, _EXTRA_ITERATIONS + 2 * count
        limit = min(limit, setting.max_iterations or limit)
        self.options = replace(self.options, setting=replace(setting, max_iterations=limit))

    def options_for(self, graph: Graph) -> ComparisonRunOptions:
        """Return the options with the names that a graph contains."""
        setting = self.options.setting
        feeds = {
            name: value for name, value in setting.feeds.items() if node_name(name) in graph.nodes
        }
        inits = [name for name in setting.inits if node_name(name) in graph.nodes]
        targets = [name for name in self.options.targets if node_name(name) in graph.nodes]
        return replace(
            self.options, setting=replace(setting, feeds=feeds, inits=inits), targets=targets
        )
