"""`grad --check`: gradients in double precision against finite differences."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from cfgraph.analysis.resource_handles import is_variable, variable_key
from cfgraph.cli.output import OutputTable, Styled, page, report_table, warn
from cfgraph.cli.transform_options import RunInputs
from cfgraph.comparison.finite_differences import SlopeComparison
from cfgraph.comparison.gradient_check import GradientCheckOptions, check_gradients
from cfgraph.console.comparison_inputs import prepare_inputs
from cfgraph.console.graph_files import Source
from cfgraph.console.signatures import SignatureNames
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph
from cfgraph.ir.node import node_name
from cfgraph.passes.derivatives import DerivativeRequest, derivatives
from cfgraph.passes.widen import widen
from cfgraph.reports import Count, Inline, Record
from cfgraph.runtime.engine.step import State

Comparisons = Sequence[Mapping[str, SlopeComparison]]


@dataclass(frozen=True, slots=True)
class FiniteDifferenceCheck:
    """A comparison of gradients with finite differences, on a copy of the graph without them.

    The copy computes in double precision where it can; `warnings` say where not.
    """

    graph: Graph
    request: DerivativeRequest
    options: GradientCheckOptions
    warnings: tuple[str, ...]

    @classmethod
    def prepare(
        cls,
        source: Source,
        request: DerivativeRequest,
        runs: RunInputs,
        names: SignatureNames,
        cases: int,
        rtol: float | None,
    ) -> Self:
        """Copy the graph before gradients are added to it. Raises UsageError for invalid feeds."""
        graph, copy = source.graph, copy_graph(source.graph)
        report = widen(copy)
        needed = [graph[node_name(name)] for name in (*request.ys, *request.xs)]
        inputs = prepare_inputs(runs, source, names, needed, fed=copy)
        state = inputs.state
        limits = {} if runs.max_iterations is None else {"max_iterations": runs.max_iterations}
        options = GradientCheckOptions(
            feeds=inputs.feeds,
            inits=inputs.inits,
            cases=cases,
            seed=inputs.seed,
            rtol=rtol,
            narrow=tuple(report.names),
            state=None if state is None else widened_state(state, copy),
            io=inputs.io,
            **limits,
        )
        weights = request.grad_ys and [
            weight if isinstance(weight, str) else _widened_weight(copy, y, weight)
            for y, weight in zip(request.ys, request.grad_ys, strict=True)
        ]
        return cls(copy, replace(request, grad_ys=weights), options, report.warnings)

    def compare(self) -> Comparisons:
        """Add the gradients to the copy and compare them: per order, by x."""
        for text in self.warnings:
            warn(f"{text}; using looser tolerances")
        return check_gradients(self.graph, derivatives(self.graph, self.request), self.options)


def widened_state(state: State, graph: Graph) -> State:
    """Convert variables to the types that they have in a widened graph."""
    twin = state.copy()
    cells = dict(twin.variables())
    for node in graph:
        cell = cells.get(variable_key(node)) if is_variable(node) else None
        if cell is not None and cell.dtype is not node.attr("dtype"):
            cell.dtype = node.attr("dtype")
            cell.value = cell.dtype.numpy.type(cell.value)
    return twin


def _widened_weight(graph: Graph, y: str, weight: Any) -> Any:
    dtype = graph.tensor(y).dtype
    return weight if dtype is None else np.asarray(weight, dtype.base.numpy)


class CheckedGradient(Record):
    """The gradient with respect to an x, compared with finite differences."""

    order: Count
    comparison: Inline[SlopeComparison]

    @property
    def agrees(self) -> str:
        """The verdict in color."""
        return Styled("yes", "green") if self.comparison.agrees else Styled("no", "red")


def checked_gradients(comparisons: Comparisons) -> list[CheckedGradient]:
    """Return the comparisons of all orders."""
    return [
        CheckedGradient(order, item)
        for order, row in enumerate(comparisons, 1)
        for item in row.values()
    ]


def _check_table(comparisons: Comparisons, *, some_differ: bool) -> OutputTable:
    """Return one row per order and x, without columns that would say the same in each row."""
    numbers = "directions", "rough", "max_abs", "max_rel", "index", "actual", "expected", "skipped"
    names = ["order"] * (len(comparisons) > 1) + ["comparison.x"] + ["agrees"] * some_differ
    names += [f"comparison.{name}" for name in numbers]
    return report_table(CheckedGradient, checked_gradients(comparisons), *names)


def print_check(comparisons: Comparisons, *, hidden: bool) -> None:
    """Print the comparison as a table on stderr."""
    items = [item for row in comparisons for item in row.values()]
    if not items or hidden:
        return
    out = page(stream=sys.stderr)
    wrong = [item.x for item in items if not item.agrees]
    compared = [item for item in items if not item.skipped]
    verdict = "agree" if compared else "nothing could be compared; nothing was written"
    out.heading("gradients and finite differences", f"{len(wrong)} differ" if wrong else verdict)
    out.table(_check_table(comparisons, some_differ=bool(wrong)))


def gradients_agree(comparisons: Comparisons) -> bool:
    """True if all gradients agree with finite differences and at least one was compared."""
    items = [item for row in comparisons for item in row.values()]
    return all(item.agrees for item in items) and not all(item.skipped for item in items)
