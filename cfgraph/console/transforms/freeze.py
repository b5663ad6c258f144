"""The `freeze` command: the variables and inputs that are constants now, and why others are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from cfgraph.cli.options import split_names
from cfgraph.cli.output import Column, OutputTable, Page
from cfgraph.cli.pass_options import FreezeOptions
from cfgraph.cli.transform_options import ComparedRuns
from cfgraph.console.comparison_inputs import require_restored
from cfgraph.console.graph_files import Source, saved_model_state_of
from cfgraph.console.signatures import SignatureNames
from cfgraph.console.transforms.lower import node_totals
from cfgraph.console.transforms.transform import PassResult
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph
from cfgraph.ir.names import first_names
from cfgraph.ir.node import node_name
from cfgraph.ir.units import format_byte_size
from cfgraph.passes.freeze.freeze import Frozen, FrozenVariable, freeze
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.feeds.case_files import read_case
from cfgraph.runtime.feeds.parse_feeds import read_feeds
from cfgraph.runtime.io_policy import IoPolicy
from cfgraph.runtime.restore import (
    RequiredState,
    required_state,
    restore_for_graph,
    state_with_values,
)

_MAX_NAMES = 4


@dataclass(slots=True)
class FrozenGraph(PassResult[FreezeOptions, Frozen]):
    """A frozen graph, with the number of its functions before, and its names, which it loses."""

    command = "freeze"
    shares_names = True
    functions: int
    lost: SignatureNames

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
        )
        return cls(graph, options, report, functions, names)

    def notes(self) -> Sequence[str]:
        """The warnings, and the tensors that the signature names."""
        lost = self.lost.listing(without=self.report.inputs)
        return [
            *PassResult.notes(self),
            *([f"note: a frozen graph has no signature: {lost}"] * bool(lost)),
        ]

    def rows(self) -> OutputTable:
        """The variables."""
        columns = [
            Column("variable"),
            Column("type"),
            Column("bytes", right=True),
            Column("constant"),
            Column("reason", optional=True),
        ]
        rows = [
            (item.name, f"{item.dtype}{item.shape}", item.bytes, item.frozen, item.reason or None)
            for item in self.report.variables
        ]
        return OutputTable(columns, [*rows])

    def summary(self) -> Mapping[str, Any]:
        """The numbers of variables, constants, and nodes before and after."""
        before, after = node_totals(self.report)
        frozen = [item for item in self.report.variables if item.frozen]
        return {
            "variables": len(self.report.variables),
            "frozen": len(frozen),
            "bytes": sum(item.bytes for item in frozen),
            "before": before,
            "after": after,
        }

    def members(self) -> Mapping[str, Any]:
        """The variables, the inputs that are constants, the branches that went, and the tables."""
        report = self.report
        return {
            "variables": [_variable_json(item) for item in report.variables],
            "inputs": list(report.inputs),
            "branches": [asdict(item) for item in report.branches],
            "tables": [asdict(item) for item in report.tables],
            "updates": list(report.updates),
        }

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
        if report.inputs:
            out.line(f"constants in place of inputs: {', '.join(report.inputs)}")
        remaining = [item for item in report.variables if not item.frozen]
        if remaining:
            out.heading("still variables")
            columns = [Column("variable"), Column("type"), Column("reason")]
            rows = [(v.name, f"{v.dtype}{v.shape}", v.reason) for v in remaining]
            out.table(OutputTable(columns, [*rows]))
        if report.branches:
            out.heading("branches decided")
            columns = [
                Column("function", optional=True),
                Column("node"),
                Column("op"),
                Column("is now"),
            ]
            found = [(b.function or None, b.node, b.op, b.result) for b in report.branches]
            out.table(OutputTable(columns, [*found]))


def _variable_json(item: FrozenVariable) -> dict[str, Any]:
    return {
        "name": item.name,
        "dtype": str(item.dtype),
        "shape": None if item.shape.dims is None else list(item.shape.dims),
        "bytes": item.bytes,
        "constant": item.frozen,
        "reason": item.reason or None,
        "node": item.node or None,
    }


def _restored(graph: Graph, options: FreezeOptions, fetches: Sequence[str]) -> State | None:
    """The values of the variables that the outputs need, or None if they need none.

    They are those of a path, then those of a case.
    """
    required = required_state(graph, [graph[node_name(name)] for name in fetches])
    required = RequiredState(required.variables, tables=False)
    if required.is_empty:
        return None
    path, state = options.variables, None
    if path is not None:
        state = restore_for_graph(graph, path, required, IoPolicy(options.allow_io))
        require_restored(state, required, path)
    values = read_case(options.feeds).variables
    if values:
        state = state_with_values(graph, state, values)
    if state or required.variables is None:
        return state
    names = first_names([name for _, name in sorted(required.variables)], _MAX_NAMES)
    message = f"no values of the variables {names}"
    hint = "name the SavedModel or the checkpoint that has them: --variables PATH"
    raise UsageError(message, hint=hint)
