"""Reduction of two graphs whose runs differ: the smallest pair that differs in the same way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cfgraph.compare.equivalence import ComparisonRunOptions, RunDiff
from cfgraph.compare.reduce.loop_operators import (
    BranchOperator,
    IterationOperator,
    LoopOperator,
    LoopVariableOperator,
)
from cfgraph.compare.reduce.node_operators import (
    BypassOperator,
    ControlOperator,
    NodeOperator,
    OutputOperator,
    SourceOperator,
)
from cfgraph.compare.reduce.pair import PairOracle, differs
from cfgraph.compare.reduce.recording import record
from cfgraph.compare.reduce.region import regions
from cfgraph.compare.reduce.removal import StandIns
from cfgraph.compare.reduce.search import Operator, ReductionStep, Search
from cfgraph.compare.reduce.subject import Subject
from cfgraph.compare.reduce.value_operators import AnnotationOperator, ConstantOperator
from cfgraph.compare.sample_point import sample_point
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class PairReduction:
    """Result: the smallest pair, the difference before, the steps, and the number of tests.

    `options` compare the runs of the smallest pair.
    """

    graphs: tuple[Graph, Graph]
    delta: RunDiff
    options: ComparisonRunOptions
    steps: tuple[ReductionStep, ...]
    tests: int


def reduce_pair(
    a: Graph,
    b: Graph,
    options: ComparisonRunOptions | None = None,
    on_success: Callable[[Subject, ReductionStep], None] = lambda subject, step: None,
    jobs: int = 1,
) -> PairReduction:
    """Return the smallest pair of graphs whose runs differ as those of `a` and `b` do.

    Raises UsageError if they agree, and the errors of `compare_runs`.
    """
    subject = Subject((a, b))
    oracle, delta = PairOracle.compare(subject, options or ComparisonRunOptions())
    if not differs(delta):
        message = "the runs of the two graphs agree: there is nothing to reduce"
        raise UsageError(message, hint="feed inputs for which they differ, or compare more --cases")
    search = Search(oracle, subject, on_success)
    values = _recorded_values(oracle, delta, a)
    search.try_each("region", regions(subject, delta.first.node if delta.first else None, values))
    search.run(pair_operators(values))
    first, second = search.best.graphs
    shown = replace(oracle.options_for(first), locate=True)
    return PairReduction((first, second), delta, shown, tuple(search.steps), search.tests)


def _recorded_values(oracle: PairOracle, delta: RunDiff, graph: Graph) -> dict[str, object]:
    """Return the values of the first graph, in the iteration of the first wrong node.

    Limits the iterations of the test to about as many.
    """
    options = oracle.options_for(graph)
    targets = list(options.targets)
    nodes = [graph.tensor(name).node for name in delta.fetches]
    nodes += [graph[name.removeprefix("^")] for name in targets]
    point = sample_point(graph, nodes, options.setting, options.seed)
    path = delta.first.frame if delta.first is not None else "/"
    recorder = record(point, delta.fetches, targets, path)
    oracle.limit_iterations(recorder.iterations)
    return recorder.values


def pair_operators(values: dict[str, object]) -> Sequence[Operator]:
    """Return the operators on pairs, the coarse ones first."""
    stand_ins = StandIns(values)
    return (
        OutputOperator(),
        LoopOperator(stand_ins),
        SourceOperator(stand_ins),
        BranchOperator(values),
        NodeOperator(stand_ins),
        IterationOperator(stand_ins),
        LoopVariableOperator(stand_ins),
        BypassOperator(),
        ControlOperator(),
        AnnotationOperator(),
        ConstantOperator(),
    )
