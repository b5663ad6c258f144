"""`cfgraph.compare`: `diff --run` for graphs and files in Python."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cfgraph.cli.output import hidden_notes
from cfgraph.cli.transform_options import CaseOptions, ComparedRuns, FetchOptions, RunInputs
from cfgraph.comparison.differences import RunDiff
from cfgraph.comparison.equivalence import DEFAULT_CASES, ComparisonRunOptions
from cfgraph.console.comparisons.run_options import pair_runs
from cfgraph.console.graph_files import Source, read_graph
from cfgraph.ir.file_io import require_path
from cfgraph.ir.graph import Graph
from cfgraph.ir.names import require_names
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.preparation.run_config import require_state
from cfgraph.runtime.preparation.run_names import fetch_names

GraphOrPath = Graph | str | os.PathLike[str]


def compare(
    a: GraphOrPath,
    b: GraphOrPath,
    feeds: Mapping[str, Any] | None = None,
    cases: int = DEFAULT_CASES,
    fetches: str | Iterable[str] | None = None,
    *,
    state: State | None = None,
    state_of_b: State | None = None,
    seed: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
) -> RunDiff:
    """Run two graphs with the same inputs, and compare the values, as `diff --run` does.

    A graph is a `Graph` or the path of a file; a SavedModel has the variables and the names of its
    signature. `feeds` are arrays by name; other inputs are random, and differ in each of the
    `cases`. The default `fetches` are the outputs of the signature, or those of the first graph;
    NAME=NAME_B pairs tensors of different names. `state` has the variables of the first graph, as
    `restore` returns them, and `state_of_b` those of the second, by default the same. The default
    tolerances depend on the type.

    The result is true if the values differ; `gaps`, `first` (the first wrong node), and `inputs`
    say how. `print` shows it as the command does. Raises UsageError for names that do not fit, and
    all errors of a run of the first graph.
    """
    sources = _source(a), _source(b)
    runs = compared_runs(feeds, cases, fetches, seed, rtol, atol)
    with hidden_notes():
        paired = pair_runs(sources, runs)
        options = with_state(paired.options, state)
        if state_of_b is not None:
            require_state(state_of_b)
            options = replace(options, state_of_b=state_of_b)
        return replace(paired, options=options).compare()


def compared_runs(
    feeds: Mapping[str, Any] | None,
    cases: int,
    fetches: str | Iterable[str] | None,
    seed: int,
    rtol: float | None,
    atol: float | None,
) -> ComparedRuns:
    """The runs that these arguments describe. Raises UsageError for fetches that are no names."""
    names = [] if fetches is None else fetch_names(fetches)
    require_names(names)
    return ComparedRuns(
        RunInputs(feeds=[dict(feeds)] if feeds else [], seed=seed),
        CaseOptions(cases=cases, rtol=rtol, atol=atol),
        FetchOptions(fetch=names),
    )


def with_state(options: ComparisonRunOptions, state: State | None) -> ComparisonRunOptions:
    """The options with the variables of the first graph, if they are set."""
    if state is None:
        return options
    require_state(state)
    return replace(options, setting=replace(options.setting, state=state))


def graph_source(graph: Graph) -> Source:
    """A graph that is not from a file."""
    return Source(graph, "the graph", "graph", b"")


def _source(graph: GraphOrPath) -> Source:
    if isinstance(graph, Graph):
        return graph_source(graph)
    require_path(graph, "or pass a Graph")
    return read_graph(os.fspath(graph), quiet=True)
