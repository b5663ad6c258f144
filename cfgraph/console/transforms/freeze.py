"""The `freeze` command: the variables and inputs that are constants now, and why others are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

from cfgraph.cli.options import split_names
from cfgraph.cli.output import Page, report_table
from cfgraph.cli.pass_options import FreezeOptions
from cfgraph.cli.transform_options import ComparedRuns
from cfgraph.console.comparison_inputs import require_restored
from cfgraph.console.documents import RunsReport, Warnings
from cfgraph.console.graph_files import Source, saved_model_state_of
from cfgraph.console.signatures import SignatureNames
from cfgraph.console.transforms.lower import node_totals
from cfgraph.console.transforms.transform import PassResult
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph
from cfgraph.ir.names import first_names
from cfgraph.ir.node import node_name
from cfgraph.ir.shapes import Shape
from cfgraph.ir.units import format_byte_size
from cfgraph.passes.freeze.freeze import Frozen, FrozenTable, FrozenVariable, KeptTable, freeze
from cfgraph.passes.optimize.rewriting import Rewrite
from cfgraph.reports import Column, Count, DocumentResult, Record
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.feeds.case_files import read_case
from cfgraph.runtime.feeds.parse_feeds import read_feeds
from cfgraph.runtime.io_policy import IoPolicy
from cfgraph.runtime.restore import (
    SAVE_VARIABLES,
    RequiredState,
    required_state,
    restore_for_graph,
    state_with_values,
)

_MAX_NAMES = 4
_VALUES_HINT = (
    "name the SavedModel or the checkpoint that has them: --variables PATH; "
    f"{SAVE_VARIABLES} writes one, for --variables ck"
)


class VariableReport(Record):
    """A variable: a constant now, or why not."""

    name: Annotated[str, Column(title="variable")]
    dtype: str
    shape: Sequence[int | None] | None  #: Null if the number of dimensions is unknown.
    bytes: Count
    constant: bool
    reason: Annotated[str | None, Column(optional=True)]  #: Why it still is a variable.
    node: str | None  #: The node that needs the variable.

    @property
    def type(self) -> str:
        """The dtype and the shape as text."""
        return f"{self.dtype}{Shape(self.shape)}"


class FreezeSummary(Record):
    """The numbers of variables, constants, and nodes before and after."""

    variables: Count  #: Variables that the outputs need.
    frozen: Count  #: Those that are constants now.
    bytes: Count  #: Size of these constants.
    before: Count
    after: Count


class FreezeResult(DocumentResult, command="freeze", summary=FreezeSummary):
    """The variables, the inputs that are constants, the branches that went, and the tables."""

    variables: Sequence[VariableReport]  #: Every variable that the outputs need.
    inputs: Sequence[str]  #: Tensors that are constants now.
    branches: Sequence[Rewrite]  #: The rewrites that removed a branch.
    tables: Sequence[KeptTable]  #: The tables that stay.
    constant_tables: Sequence[FrozenTable]  #: The tables that are constants now.
    updates: Sequence[str]  #: The updates of variables that were dropped.
    warnings: Warnings
    verify: RunsReport | None


@dataclass(slots=True)
class FrozenGraph(PassResult[FreezeOptions, Frozen]):
    """A frozen graph, with the number of its functions before, and its names, which it loses."""

    shares_names = True
    functions: int
    lost: SignatureNames

    @classmethod
    def require_used(cls, options: FreezeOptions, runs: ComparedRuns) -> None:
        """Raise UsageError for initializers in place of values, and for unused inputs of runs."""
        if runs.inputs.init and options.variables is None:
            raise UsageError("--init assigns no values before the pass", hint=_VALUES_HINT)
        super(FrozenGraph, cls).require_used(options, runs)

    @classmethod
    def prepare(
        cls,
        source: Source,
        options: FreezeOptions,
        names: SignatureNames,
        runs: ComparedRuns,
    ) -> FreezeOptions:
        """Take the variables of a SavedModel from itself, unless a path is named."""
        if options.variables is None and saved_model_state_of(source) is not None:
            return options.replace(variables=source.path)
        return options

    @classmethod
    def apply(cls, graph: Graph, options: FreezeOptions, names: SignatureNames) -> Self:
        """Freeze a graph; a signature may name fetches and inputs, and provides its outputs."""
        fetches = names.output_tensors(split_names(options.fetch))
        fetches = fetches or [*dict.fromkeys(names.outputs.values())]
        if not fetches:
            message = "the graph has no signature, so that its outputs are unknown"
            raise UsageError(message, hint="name what to keep: --fetch NAME")
        values = read_feeds(graph, options.set, names=names.inputs)
        functions = len(graph.functions)
        report = freeze(
            graph,
            _restored(graph, options, fetches),
            outputs=fetches,
            values=values,
            keep_variables=split_names(options.keep_variables),
            drop_updates=options.drop_updates,
            constant_tables=options.constant_tables,
        )
        return cls(graph, options, report, functions, names)

    def notes(self) -> Sequence[str]:
        """The warnings, and the tensors that the signature names."""
        lost = self.lost.listing(without=self.report.inputs)
        return [
            *PassResult.notes(self),
            *([f"note: a frozen graph has no signature: {lost}"] * bool(lost)),
        ]

    def variables(self) -> list[VariableReport]:
        """The variables, for the document."""
        return [*map(_variable_report, self.report.variables)]

    def summary(self) -> FreezeSummary:
        """The numbers of variables, constants, and nodes before and after."""
        frozen = [item for item in self.report.variables if item.frozen]
        size = sum(item.bytes for item in frozen)
        totals = node_totals(self.report)
        return FreezeSummary(len(self.report.variables), len(frozen), size, *totals)

    def result(self, verify: RunsReport | None) -> FreezeResult:
        """The variables, the inputs that are constants, the branches that went, and the tables."""
        variables = self.variables()
        return FreezeResult.from_attributes(self.report, variables=variables, verify=verify)

    def show(self, out: Page) -> None:
        """Print what was frozen, what still is a variable and why, and which branches went."""
        report = self.report
        before, after = node_totals(report)
        counts = f"{before} nodes, now {after}"
        if self.functions:
            counts += f"; {self.functions} functions, now {len(self.graph.functions)}"
        out.heading("frozen", counts)
        frozen = [item for item in report.variables if item.frozen]
        size = format_byte_size(sum(item.bytes for item in frozen))
        plural = "s" * (len(frozen) != 1)
        out.line(f"{len(frozen)} variable{plural}, {size}: constant{plural} now")
        if report.constant_tables:
            tables = (f"{table.name} ({table.rows} rows)" for table in report.constant_tables)
            out.line(f"constants in place of tables: {', '.join(tables)}")
        if report.inputs:
            out.line(f"constants in place of inputs: {', '.join(report.inputs)}")
        remaining = [item for item in self.variables() if not item.constant]
        if remaining:
            out.heading("still variables")
            out.table(report_table(VariableReport, remaining, "name", "type", "reason"))
        if report.branches:
            out.heading("branches decided")
            out.table(report_table(Rewrite, report.branches, "function", "node", "op", "result"))


def _variable_report(item: FrozenVariable) -> VariableReport:
    dims, reason, node = item.shape.dims, item.reason or None, item.node or None
    return VariableReport(item.name, str(item.dtype), dims, item.bytes, item.frozen, reason, node)


def _restored(graph: Graph, options: FreezeOptions, fetches: Sequence[str]) -> State | None:
    """The values of the variables that the outputs need, or None if they need none.

    They are those of a path, then those of a case.
    """
    required = required_state(graph, [graph[node_name(name)] for name in fetches])
    tables = required.tables and options.constant_tables
    required = RequiredState(required.variables, tables)
    if required.is_empty:
        return None
    path, state = options.variables, None
    if path is not None:
        state = restore_for_graph(graph, path, required, IoPolicy(options.allow_io))
        require_restored(state, required, path)
    values = read_case(options.feeds).variables
    if values:
        state = state_with_values(graph, state, values)
    if state or not required.variables:
        return state
    names = first_names([name for _, name in sorted(required.variables)], _MAX_NAMES)
    message = f"no values of the variables {names}"
    raise UsageError(message, hint=_VALUES_HINT)
