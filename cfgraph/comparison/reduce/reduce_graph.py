"""Reduction of one graph: the smallest one that a test still finds interesting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cfgraph.comparison.equivalence import ComparisonRunOptions
from cfgraph.comparison.reduce.loop_operators import (
    BranchOperator,
    IterationOperator,
    LoopOperator,
    LoopVariableOperator,
)
from cfgraph.comparison.reduce.node_operators import (
    BypassOperator,
    NodeOperator,
    OutputOperator,
    SourceOperator,
)
from cfgraph.comparison.reduce.recording import record
from cfgraph.comparison.reduce.removal import StandIns
from cfgraph.comparison.reduce.search import Operator, Oracle, ReductionStep, Search
from cfgraph.comparison.reduce.subject import Subject
from cfgraph.comparison.reduce.value_operators import LAST_OPERATORS, FunctionOperator
from cfgraph.comparison.sample_point import sample_point
from cfgraph.ir.graph import Graph


def reduce_graph(
    subject: Subject,
    oracle: Oracle,
    options: ComparisonRunOptions | None = None,
    on_success: Callable[[Subject, ReductionStep], None] = lambda subject, step: None,
) -> Search:
    """Return the completed search for the smallest interesting graph.

    With `options` the graph is run first, and constants with its values replace removed nodes;
    without, they are placeholders, or zeros.
    """
    values = recorded_values(subject.graphs[0], options) if options is not None else {}
    search = Search(oracle, subject, on_success)
    search.run(graph_operators(values))
    return search


def recorded_values(graph: Graph, options: ComparisonRunOptions) -> dict[str, Any]:
    """Return the values of one run of a graph; fetches are all outputs if there are none."""
    fetches = list(options.fetches)
    targets = list(options.targets)
    if not fetches and not targets:
        targets = [node.name for node in graph if not node.uses]
    nodes = [graph.tensor(name).node for name in fetches] + [graph[name] for name in targets]
    point = sample_point(graph, nodes, options.setting, options.seed)
    return record(point, fetches, targets).values


def graph_operators(values: Mapping[str, Any]) -> Sequence[Operator]:
    """Return the operators on a graph, the coarse ones first."""
    stand_ins, zeros = StandIns(values, "placeholder"), StandIns(values, "zeros")
    return (
        OutputOperator(),
        FunctionOperator(),
        LoopOperator(stand_ins),
        SourceOperator(stand_ins),
        NodeOperator(stand_ins),
        BranchOperator(values),
        IterationOperator(stand_ins),
        LoopVariableOperator(zeros),
        SourceOperator(zeros, "sources as zeros"),
        NodeOperator(zeros, "nodes as zeros"),
        BypassOperator(),
        *LAST_OPERATORS,
    )
