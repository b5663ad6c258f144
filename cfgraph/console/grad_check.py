"""Compare the gradients that `grad` adds with finite differences, on a copy in double precision."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cfgraph.analysis.trainable_inputs import is_variable, variable_key
from cfgraph.compare.finite_differences import SlopeComparison
from cfgraph.compare.gradient_check import GradientCheckOptions, check_gradients
from cfgraph.console.grad_options import Checked
from cfgraph.console.graphs import Source
from cfgraph.console.page import note, page
from cfgraph.console.run_saved import Restoring
from cfgraph.console.tables import Column, Styled, Table
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph
from cfgraph.ir.names import node_name
from cfgraph.passes.derivatives import derivatives
from cfgraph.passes.widen import widen
from cfgraph.runtime.feeds import read_feeds
from cfgraph.runtime.state import State

Comparisons = Sequence[Mapping[str, SlopeComparison]]


@dataclass(frozen=True, slots=True)
class CheckedCopy:
    """A copy of a graph that computes in double precision, and how to compare its gradients."""

    graph: Graph
    wish: Mapping[str, Any]
    options: GradientCheckOptions
    warnings: tuple[str, ...] = field(default=())

    def compare(self) -> Comparisons:
        """Add the gradients to the copy and compare them: for each order, by x."""
        for text in self.warnings:
            note(f"warning: {text}; compared less closely")
        return check_gradients(self.graph, derivatives(self.graph, **self.wish), self.options)


def checked_copy(
    source: Source, wish: Mapping[str, Any], checked: Checked, quiet: bool
) -> CheckedCopy:
    """Make the copy, before anything is added to the graph. Raises UsageError for wrong feeds."""
    graph, copy = source.graph, copy_graph(source.graph)
    names = [*wish["ys"], *wish["xs"], *checked.inits]
    wanted = [graph[node_name(name)] for name in names]
    state = Restoring(checked.variables, quiet).state(source, wanted)
    report = widen(copy)
    limits = {} if checked.max_iterations is None else {"max_iterations": checked.max_iterations}
    seed = checked.seed or 0
    options = GradientCheckOptions(
        feeds=read_feeds(copy, checked.feeds, checked.archives, seed),
        inits=checked.inits,
        cases=checked.cases or 1,
        seed=seed,
        rtol=checked.rtol,
        narrow=tuple(report.names),
        timeout=checked.timeout,
        state=None if state is None else widened_state(state, copy),
        **limits,
    )
    weights = wish["grad_ys"] and [
        weight if isinstance(weight, str) else _widened(copy, y, weight)
        for y, weight in zip(wish["ys"], wish["grad_ys"], strict=True)
    ]
    return CheckedCopy(copy, {**wish, "grad_ys": weights}, options, report.warnings)


def widened_state(state: State, graph: Graph) -> State:
    """The same values in the types that the variables of a graph have, which was widened."""
    twin = state.copy()
    cells = dict(twin.variables())
    for node in graph:
        cell = cells.get(variable_key(node)) if is_variable(node) else None
        if cell is not None and cell.dtype is not node.attr("dtype"):
            cell.dtype = node.attr("dtype")
            cell.value = cell.dtype.numpy.type(cell.value)
    return twin


def _widened(graph: Graph, y: str, weight: Any) -> Any:
    dtype = graph.tensor(y).dtype
    return weight if dtype is None else np.asarray(weight, dtype.base.numpy)


def check_table(comparisons: Comparisons) -> Table:
    """One row for each order and x."""
    columns = [
        Column("order", right=True, optional=True),
        Column("x"),
        Column("agrees"),
        Column("directions", right=True),
        Column("rough", right=True, optional=True),
        Column("max_abs", "max abs", right=True),
        Column("max_rel", "max rel", right=True),
        Column("index", "worst"),
        Column("gradient", right=True),
        Column("differences", right=True),
        Column("skipped", "", optional=True),
    ]
    rows = [
        tuple({"order": number, **item.to_json()}[column.key] for column in columns)
        for number, row in enumerate(comparisons, 1)
        for item in row.values()
    ]
    return Table(columns, [*rows])


def print_check(comparisons: Comparisons, quiet: bool) -> None:
    """The comparison as a table, on stderr; nothing where there is no x."""
    items = [item for row in comparisons for item in row.values()]
    if not items or quiet:
        return
    out = page(stream=sys.stderr)
    wrong = [item.x for item in items if not item.agrees]
    compared = [item for item in items if not item.skipped]
    verdict = "they agree" if compared else "nothing could be compared, so nothing is written"
    out.heading("gradients and finite differences", f"{len(wrong)} differ" if wrong else verdict)
    table = check_table(comparisons)
    several = len(comparisons) > 1
    table.rows = [tuple(map(_shown, row if several else (None, *row[1:]))) for row in table.rows]
    out.table(table)


def _shown(cell: Any) -> Any:
    if cell is True:
        return Styled("yes", "green")
    if cell is False:
        return Styled("no", "red")
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return str(cell) if isinstance(cell, list) else cell
