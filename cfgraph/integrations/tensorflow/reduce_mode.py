"""Reduction of a graph in which a mode of TensorFlow is wrong or fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from cfgraph.comparison.differences import RunDiff
from cfgraph.comparison.equivalence import ComparisonRunOptions
from cfgraph.comparison.reduce.body_operators import BodyOperator, FunctionalVariableOperator
from cfgraph.comparison.reduce.loop_operators import (
    BranchOperator,
    LoopOperator,
    LoopVariableOperator,
)
from cfgraph.comparison.reduce.node_operators import (
    BypassOperator,
    NodeOperator,
    OutputOperator,
    RewireOperator,
    SourceOperator,
)
from cfgraph.comparison.reduce.recording import record
from cfgraph.comparison.reduce.removal import StandIns
from cfgraph.comparison.reduce.search import Operator, ReductionStep, Search
from cfgraph.comparison.reduce.subject import Subject
from cfgraph.comparison.reduce.value_operators import LAST_OPERATORS, FunctionOperator
from cfgraph.comparison.sample_point import sample_point
from cfgraph.errors import UsageError
from cfgraph.integrations.tensorflow.mode_comparison import compare_modes
from cfgraph.integrations.tensorflow.mode_oracle import ModeOracle, difference_kind, has_race
from cfgraph.integrations.tensorflow.mode_runs import needed_graph
from cfgraph.integrations.tensorflow.modes import Mode
from cfgraph.integrations.tensorflow.processes import ModePool
from cfgraph.ir.graph import Graph

# that is fed instead of the recorded value
_MAX_INTEGER: Final = 3
OnSuccess = Callable[[Subject, ReductionStep], None]


def start_oracle(
    pool: ModePool,
    graph: Graph,
    mode: Mode,
    against: Mode | None,
    options: ComparisonRunOptions,
) -> tuple[ModeOracle, RunDiff]:
    """Return the test, and the comparison of the original graph.

    Raises UsageError if the modes agree.
    """
    delta = compare_modes(pool, graph, mode, against, options)
    if not delta:
        rounded = [item.message for item in delta.notices if item.code == "CFG809"]
        reason = f" within rounding: {rounded[0]}" if rounded else ": there is nothing to reduce"
        raise UsageError(
            f"the modes agree{reason}",
            hint="feed inputs for which they differ, or compare more --cases",
        )
    options = replace(options, seed=options.seed + max(delta.cases - 1, 0))
    kind = difference_kind(delta, mode)
    races = has_race(graph)
    return ModeOracle(pool, mode, against, options, kind, delta.inputs, allow_races=races), delta


def reduce_mode(
    oracle: ModeOracle,
    graph: Graph,
    delta: RunDiff,
    on_success: OnSuccess = lambda subject, step: None,
) -> Search:
    """Return the completed search for the smallest graph that differs in the same way.

    Loops and conditionals that are functions stay so, unless the graph is smaller without. Other
    integers may need fewer nodes: a counter that starts from 1 can be doubled.
    """
    subject = _needed(oracle, Subject((graph,)), delta)
    search = _run_search(oracle, subject, on_success)
    for make in (_lowered, _with_other_integers):
        feeds = oracle.feeds
        start = make(search.best, oracle)
        if start is None:
            continue
        other = _run_search(oracle, start)
        tests = search.tests + other.tests
        if other.best.nodes < search.best.nodes:
            search = other
            on_success(other.best, ReductionStep(_NAMES[make], other.best.nodes, tests))
        else:
            oracle.feeds = feeds
        search.tests = tests
    return search


def _needed(oracle: ModeOracle, subject: Subject, delta: RunDiff) -> Subject:
    """Return the graph without what the requested fetches do not need, if it differs then."""
    graph = subject.graphs[0]
    needed = Subject((needed_graph(graph, delta.fetches, oracle.options.targets, delta.inputs),))
    return needed if oracle.is_interesting(needed) else subject


def _run_search(
    oracle: ModeOracle, subject: Subject, on_success: OnSuccess = lambda subject, step: None
) -> Search:
    values = recorded_values(oracle, subject.graphs[0])
    oracle.feeds = {**recorded_feeds(values), **oracle.feeds}
    search = Search(oracle, subject, on_success)
    search.run(mode_operators(values))
    return search


def recorded_values(oracle: ModeOracle, graph: Graph) -> dict[str, Any]:
    """Return the values of all tensors in cfgraph."""
    options = oracle.options_for(graph)
    targets = [node.name for node in graph if not node.uses]
    point = sample_point(graph, [graph[name] for name in targets], options.setting, options.seed)
    return record(point, (), targets).values


def recorded_feeds(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of tensors by the names of the placeholders that replace them."""
    feeds = {}
    for name, value in values.items():
        node, _, port = name.rpartition(":")
        feeds[f"{node}:0" if port == "0" else f"{node}_{port}:0"] = value
    return feeds


def _lowered(subject: Subject, oracle: ModeOracle) -> Subject | None:
    """Return a graph without function calls, None if it has none or does not differ then."""
    new = subject.lowered()
    return new if new is not None and oracle.is_interesting(new) else None


def _with_other_integers(subject: Subject, oracle: ModeOracle) -> Subject | None:
    """Return the same graph, if it still differs when other integers are fed."""
    graph, feeds = subject.graphs[0], oracle.feeds
    fed = oracle.options_for(graph).setting.feeds
    scalars = [name for name, value in fed.items() if np.asarray(value).dtype.kind in "iu"]
    scalars = [name for name in scalars if np.ndim(fed[name]) == 0]
    for value in range(1, _MAX_INTEGER + 1):
        new = {name: np.asarray(value, np.asarray(fed[name]).dtype) for name in scalars}
        oracle.feeds = {**feeds, **new}
        if new and oracle.is_interesting(subject):
            return subject
    oracle.feeds = feeds
    return None


_NAMES: Final = {_lowered: "lowering", _with_other_integers: "integers"}


def mode_operators(values: Mapping[str, Any]) -> Sequence[Operator]:
    """Return the operators on a graph, the coarse ones first.

    What is removed is fed instead, so that TensorFlow cannot compute it before the run; constants
    come last.
    """
    fed, constants, zeros = StandIns({}, "placeholder"), StandIns(values), StandIns({}, "zeros")
    return (
        OutputOperator(),
        FunctionOperator(),
        LoopOperator(fed),
        SourceOperator(fed),
        NodeOperator(fed),
        BranchOperator(values),
        LoopVariableOperator(constants),
        LoopVariableOperator(zeros, "loop variables as zeros"),
        SourceOperator(constants, "sources as constants"),
        NodeOperator(constants, "nodes as constants"),
        SourceOperator(zeros, "sources as zeros"),
        BypassOperator(),
        FunctionalVariableOperator(values),
        BodyOperator(NodeOperator(zeros)),
        BodyOperator(BypassOperator()),
        BodyOperator(RewireOperator()),
        *LAST_OPERATORS,
    )
