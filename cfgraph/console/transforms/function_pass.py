"""`cfgraph.transform`: a function that edits a graph, applied and verified like a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from cfgraph.analysis.verify.verify import require_valid
from cfgraph.cli.output import hidden_notes
from cfgraph.comparison.diff import diff
from cfgraph.comparison.differences import GraphDiff, RunDiff, ValuesDiffer, run_findings
from cfgraph.comparison.equivalence import DEFAULT_CASES
from cfgraph.console.comparisons.compare import compared_runs, graph_source, with_state
from cfgraph.console.comparisons.diff_run import run_side_text
from cfgraph.console.signatures import SignatureNames
from cfgraph.console.verify import PreparedComparison, prepare_comparison
from cfgraph.ir.graph import Graph, Node, require_graph
from cfgraph.ir.library import copy_graph
from cfgraph.passes.outcome import unchanged_on_error
from cfgraph.rich_display import DisplayedReport
from cfgraph.runtime.engine.step import State

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class TransformReport(DisplayedReport, Generic[Result]):
    """Changes of a graph, and the comparison of its values if it was verified.

    `result` is what the function returned. A report is true if the function changed something.
    """

    changes: GraphDiff
    runs: RunDiff | None
    result: Result

    def __bool__(self) -> bool:
        return bool(self.changes)


def transform(
    graph: Graph,
    function: Callable[[Graph], Result],
    verify: bool = True,
    *,
    feeds: Mapping[str, Any] | None = None,
    cases: int = DEFAULT_CASES,
    fetches: str | Iterable[str] | None = None,
    state: State | None = None,
    seed: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
) -> TransformReport[Result]:
    """Apply a function that edits a graph in place, and check the result.

    The edited graph must be valid and, with `verify`, compute the same values as before, also in
    the variables. The other options are those of `compare`. Nodes that are renamed are compared
    under their new names. After any error the graph is as it was.

    Raises InvalidInput for an edited graph that is not valid, ValuesDiffer for one with other
    values, and the errors of the function and of `compare`.
    """
    require_graph(graph)
    original, comparison = copy_graph(graph), None
    if verify:
        runs = compared_runs(feeds, cases, fetches, seed, rtol, atol)
        with hidden_notes():
            comparison = prepare_comparison(runs, graph_source(graph), SignatureNames())
        comparison = replace(comparison, options=with_state(comparison.options, state))
    before = {node: node.name for node in graph}
    with unchanged_on_error(graph):
        result = function(graph)
        require_valid(graph)
        delta = None if comparison is None else _compared(comparison, graph, before, result)
    return TransformReport(diff(original, graph), delta, result)


def _compared(
    comparison: PreparedComparison, graph: Graph, before: Mapping[Node, str], result: object
) -> RunDiff:
    """Compare the values of a graph with those before it was edited. Raises ValuesDiffer."""
    renamed = {
        f"{old}:{port}": f"{node.name}:{port}"
        for node, old in before.items()
        if node.name != old and graph.nodes.get(node.name) is node
        for port in range(node.assumed_output_count)
    }
    options = replace(comparison.options, names_of_b=renamed)
    delta = replace(comparison, options=options).result(graph, result).delta
    if delta:
        finding = run_findings(delta, run_side_text)[0]
        message = f"the edited graph computes other values: {finding.message}"
        raise ValuesDiffer(message, delta, node=finding.node, hint=finding.hint, code=finding.code)
    return delta
