"""The `grad` command: options, added gradients, and their check against finite differences."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cfgraph.analysis.gradient_paths import default_xs
from cfgraph.analysis.resource_handles import is_variable, variable_key
from cfgraph.analysis.summary import sinks
from cfgraph.compare.finite_differences import SlopeComparison
from cfgraph.compare.gradient_check import GradientCheckOptions, check_gradients
from cfgraph.console.comparison_inputs import RunInputs, VariableSource
from cfgraph.console.grad_report import AddedGradients, added_gradients, print_gradients
from cfgraph.console.graph_files import (
    OutputOptions,
    Source,
    json_bytes,
    output_artifacts,
    read_graph,
    require_distinct_paths,
    require_single_stdin,
    write_graph_and_companion,
)
from cfgraph.console.json_output import print_document
from cfgraph.console.output import Column, OutputTable, Styled, note, page
from cfgraph.console.signatures import SignatureNames, note_lost_names, signature_names
from cfgraph.console.verify import Verification
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.library import copy_graph
from cfgraph.ir.node import node_name, split_tensor_name
from cfgraph.options import split_names
from cfgraph.passes.derivatives import UNCONNECTED, derivatives
from cfgraph.passes.gradients.checkpointing import AUTO
from cfgraph.passes.widen import widen
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.feeds.parse_feeds import read_feeds, read_value


@dataclass(frozen=True, slots=True)
class GradOptions:
    """Requested gradients: options of the command, as the user wrote them."""

    ys: Sequence[str] = ()
    xs: Sequence[str] = ()
    grad_ys: Sequence[str] = ()
    stop: Sequence[str] = ()
    unconnected: str = "none"
    order: int = 1
    swap_memory: bool = False
    ignore_custom: bool = False
    recompute: str | None = None

    @property
    def recompute_interval(self) -> int | str | None:
        """Iterations between saved loop states. Raises UsageError for an invalid number."""
        text = self.recompute
        if text is None or text == AUTO:
            return text
        if not text.isdecimal() or int(text) < 1:
            message = f"invalid --recompute {text!r}"
            raise UsageError(message, hint=f"expected a number of iterations (1 or more) or {AUTO}")
        return int(text)

    def apply(self, graph: Graph, names: SignatureNames) -> AddedGradients:
        """Add the gradients to a graph. Raises UsageError for names that do not fit it."""
        self.require_valid()
        gradient_args, before = _gradient_args(graph, self, names), set(graph.nodes)
        return added_gradients(graph, before, derivatives(graph, **gradient_args))

    def require_valid(self) -> None:
        """Raise UsageError for an unknown gradient of unconnected xs."""
        if self.unconnected not in UNCONNECTED:
            message = f"invalid --unconnected {self.unconnected!r}"
            raise UsageError(message, hint=f"use one of {', '.join(UNCONNECTED)}")


@dataclass(frozen=True, slots=True)
class GradCheckOptions:
    """Options of the comparison with finite differences."""

    wanted: bool = False
    feeds: Sequence[str] = ()
    archives: Sequence[str] = ()
    inits: Sequence[str] = ()
    cases: int | None = None
    rtol: float | None = None
    seed: int | None = None
    max_iterations: int | None = None
    verify: bool = False
    variables: str | None = None
    allow_io: bool = False
    signature: str | None = None

    @property
    def run_inputs(self) -> RunInputs:
        """Inputs for the verification of the result."""
        return RunInputs(
            feeds=self.feeds,
            archives=self.archives,
            inits=self.inits,
            cases=self.cases,
            seed=self.seed,
            max_iterations=self.max_iterations,
            variables=self.variables,
            allow_io=self.allow_io,
            signature=self.signature,
        )

    @property
    def has_unused_run_options(self) -> bool:
        """True if run options are set, but nothing will run."""
        numbers = (self.cases, self.rtol, self.seed, self.max_iterations)
        texts = (self.feeds, self.archives, self.inits, self.variables)
        is_set = self.allow_io or any(texts) or numbers.count(None) < len(numbers)
        return is_set and not self.wanted and not self.verify


def split_values(texts: Iterable[str]) -> list[str]:
    """Split repeated lists of values; commas inside brackets and quotes belong to a value."""
    values: list[str] = []
    for text in texts:
        depth, quoted, start = 0, False, 0
        for index, char in enumerate(text):
            quoted ^= char == '"'
            depth += (char in "[(") - (char in ")]") if not quoted else 0
            if char == "," and not depth and not quoted:
                values.append(text[start:index].strip())
                start = index + 1
        values.append(text[start:].strip())
    return values


Comparisons = Sequence[Mapping[str, SlopeComparison]]


@dataclass(frozen=True, slots=True)
class GradientCheckCopy:
    """A copy of a graph in double precision, for the comparison of its gradients."""

    graph: Graph
    gradient_args: Mapping[str, Any]
    options: GradientCheckOptions
    warnings: tuple[str, ...] = field(default=())

    def compare(self) -> Comparisons:
        """Add the gradients to the copy and compare them: per order, by x."""
        for text in self.warnings:
            note(f"warning: {text}; using looser tolerances")
        return check_gradients(
            self.graph, derivatives(self.graph, **self.gradient_args), self.options
        )


def prepare_check(
    source: Source,
    gradient_args: Mapping[str, Any],
    checked: GradCheckOptions,
    names: SignatureNames,
    quiet: bool,
) -> GradientCheckCopy:
    """Copy the graph before gradients are added to it. Raises UsageError for invalid feeds."""
    graph, copy = source.graph, copy_graph(source.graph)
    needed = [*gradient_args["ys"], *gradient_args["xs"], *checked.inits]
    wanted = [graph[node_name(name)] for name in needed]
    variables = VariableSource(checked.variables, quiet, checked.allow_io)
    state = variables.state(source, wanted)
    report = widen(copy)
    limits = {} if checked.max_iterations is None else {"max_iterations": checked.max_iterations}
    seed = checked.seed or 0
    options = GradientCheckOptions(
        feeds=read_feeds(copy, checked.feeds, checked.archives, seed, names.inputs),
        inits=checked.inits,
        cases=checked.cases or 1,
        seed=seed,
        rtol=checked.rtol,
        narrow=tuple(report.names),
        state=None if state is None else widened_state(state, copy),
        io=variables.io_policy(source),
        **limits,
    )
    weights = gradient_args["grad_ys"] and [
        weight if isinstance(weight, str) else _widened_weight(copy, y, weight)
        for y, weight in zip(gradient_args["ys"], gradient_args["grad_ys"], strict=True)
    ]
    return GradientCheckCopy(copy, {**gradient_args, "grad_ys": weights}, options, report.warnings)


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


def check_table(comparisons: Comparisons) -> OutputTable:
    """Return one row per order and x."""
    columns = [
        Column("order", right=True, optional=True),
        Column("x"),
        Column("agrees", optional=True),
        Column("directions", "checked", right=True),
        Column("rough", "approximate", right=True, optional=True),
        Column("max_abs", "max abs", right=True),
        Column("max_rel", "max rel", right=True),
        Column("index", "at", right=True),
        Column("gradient", right=True),
        Column("differences", "numeric", right=True),
        Column("skipped", "", optional=True),
    ]
    rows = [
        tuple({"order": number, **item.to_json()}[column.key] for column in columns)
        for number, row in enumerate(comparisons, 1)
        for item in row.values()
    ]
    return OutputTable(columns, [*rows])


def print_check(comparisons: Comparisons, quiet: bool) -> None:
    """Print the comparison as a table on stderr."""
    items = [item for row in comparisons for item in row.values()]
    if not items or quiet:
        return
    out = page(stream=sys.stderr)
    wrong = [item.x for item in items if not item.agrees]
    compared = [item for item in items if not item.skipped]
    verdict = "agree" if compared else "nothing could be compared; nothing was written"
    out.heading("gradients and finite differences", f"{len(wrong)} differ" if wrong else verdict)
    table = check_table(comparisons)
    # columns that would say the same in each row
    redundant = {"order"} if len(comparisons) == 1 else set()
    redundant |= set() if wrong else {"agrees"}
    keys = [column.key for column in table.columns]
    table.rows = [
        tuple(
            None if key in redundant else _check_cell(key, cell)
            for key, cell in zip(keys, row, strict=True)
        )
        for row in table.rows
    ]
    out.table(table)


def _check_cell(key: str, cell: Any) -> Any:
    """Shorten a cell, so that a row fits in 80 columns."""
    if key == "agrees":
        return Styled("yes", "green") if cell else Styled("no", "red")
    if key == "rough":
        return cell or None
    if isinstance(cell, float):
        return f"{cell:.2g}" if key in ("max_abs", "max_rel") else f"{cell:.4g}"
    return str(cell) if isinstance(cell, list) else cell


def grad_file(
    path: str, request: GradOptions, checked: GradCheckOptions, outputs: OutputOptions
) -> int:
    """Read a graph, add gradients and write it; returns the exit code.

    It is 1, and nothing is written, if gradients differ from finite differences, none could be
    compared, or the verification finds a difference. Raises UsageError for options that do not fit
    each other or the graph.
    """
    _require_compatible_options(request, checked, outputs)
    source = read_graph(path, quiet=outputs.quiet)
    # the comparison reads feeds again, in double precision
    feeds = [*checked.feeds] * (checked.wanted + checked.verify)
    require_single_stdin(source, [*feeds, *(f"={text}" for text in request.grad_ys)])
    inputs, graph = [source.to_json()], source.graph
    names = signature_names(source, checked.signature, checked.variables)
    gradient_args = _gradient_args(graph, request, names)
    checks = checked.wanted
    check = prepare_check(source, gradient_args, checked, names, outputs.quiet) if checks else None
    verification = Verification(checked.run_inputs, enabled=True) if checked.verify else None
    if verification is not None:
        verification.before(source, outputs.quiet)
    before = set(graph.nodes)
    added = added_gradients(graph, before, derivatives(graph, **gradient_args))
    for text in added.warnings if request.xs else ():
        note(f"warning: {text}", outputs.quiet)
    if not added.has_gradients:
        note("warning: no x has a gradient", outputs.quiet)
    verdict = verification and verification.after(graph, outputs.quiet)
    comparisons = check.compare() if check is not None else []
    passed = (check is None or _gradients_agree(comparisons)) and (verdict is None or bool(verdict))
    files = _write_outputs(source, added, outputs, checked, names) if passed else []
    if not outputs.quiet:
        print_gradients(added, xs_are_defaults=not request.xs)
    print_check(comparisons, outputs.quiet and passed)
    if outputs.json:
        print_document(
            "grad",
            inputs=inputs,
            summary=added.summary(),
            result={
                "gradients": added.to_json(),
                "check": check_table(comparisons).to_json() if checked.wanted else None,
                "verify": verdict,
                "warnings": added.warnings,
            },
            artifacts=files,
            exit_code=int(not passed),
        )
    return int(not passed)


def _require_compatible_options(
    request: GradOptions, checked: GradCheckOptions, outputs: OutputOptions
) -> None:
    outputs.require_separate_json()
    require_distinct_paths(outputs.output, outputs.companion, "names")
    request.require_valid()
    if checked.has_unused_run_options:
        message = "feeds and other run options require --check or --verify"
        raise UsageError(message, hint="add --check; or `cfgraph run` the graph with gradients")


def _gradient_args(graph: Graph, request: GradOptions, names: SignatureNames) -> dict[str, Any]:
    """Resolve the options into arguments of `derivatives`."""
    ys, xs = _ys_and_xs(graph, request, names)
    inputs = names.inputs
    return {
        "ys": [y.name for y in ys],
        "xs": [x.name for x in xs],
        "grad_ys": _y_weights(graph, ys, split_values(request.grad_ys)),
        "stop_gradients": [
            graph.tensor(inputs.get(name, name)).name for name in split_names(request.stop)
        ],
        "order": request.order,
        "unconnected": request.unconnected,
        "swap_memory": request.swap_memory,
        "ignore_custom": request.ignore_custom,
        "recompute": request.recompute_interval,
    }


def _gradients_agree(comparisons: Comparisons) -> bool:
    """True if all gradients agree with finite differences and at least one was compared."""
    items = [item for row in comparisons for item in row.values()]
    return all(item.agrees for item in items) and not all(item.skipped for item in items)


def _ys_and_xs(
    graph: Graph, request: GradOptions, names: SignatureNames
) -> tuple[list[Output], list[Output]]:
    """Resolve the ys and the xs. Raises UsageError if there are none."""
    ys = _tensors(graph, request.ys, names.outputs)
    if not ys:
        likely = ", ".join([*names.outputs] or [item.name for item in sinks(graph)[:3]])
        hint = f"use --ys; outputs of the graph: {likely}" if likely else None
        raise UsageError("nothing to differentiate", hint=hint)
    xs = _tensors(graph, request.xs, names.inputs) or default_xs(graph)
    if not xs:
        message = (
            "the graph has neither variables nor float inputs to differentiate with respect to"
        )
        raise UsageError(message, hint="name tensors with --xs")
    return ys, xs


def _tensors(graph: Graph, texts: Sequence[str], names: Mapping[str, str]) -> list[Output]:
    """Resolve lists of names, which may be those of a signature."""
    return [graph.tensor(names.get(name, name)) for name in dict.fromkeys(split_names(texts))]


def _y_weights(graph: Graph, ys: list[Output], texts: list[str]) -> list[Any] | None:
    """Return a tensor name or an array per y. Raises UsageError if their numbers differ."""
    if not texts:
        return None
    if len(texts) != len(ys):
        message = f"{len(texts)} upstream gradients (--grad-ys) for {len(ys)} ys"
        raise UsageError(message, hint="give one per y, in the same order")
    return [_y_weight(graph, y, text) for y, text in zip(ys, texts, strict=True)]


def _y_weight(graph: Graph, y: Output, text: str) -> Any:
    if split_tensor_name(text)[0] in graph:
        return graph.tensor(text).name
    try:
        return read_value(text, graph, y, f"the upstream gradient of {y.name}")
    except UsageError as error:
        error.hint = error.hint or "use a tensor name or a --feed value"
        raise


def _write_outputs(
    source: Source,
    added: AddedGradients,
    outputs: OutputOptions,
    checked: GradCheckOptions,
    names: SignatureNames,
) -> list[dict[str, Any]]:
    """Write the graph and the map of names; returns the artifacts."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    to_terminal = outputs.output is None and outputs.to is None and is_terminal
    if checked.wanted and to_terminal:
        return []  # only the comparison was requested
    signature = names.selected
    signatures = () if signature is None else (added.extend(signature),)
    data = json_bytes(added.names())
    path = write_graph_and_companion(source.graph, outputs, data, source, signatures)
    if path is not None:
        note_lost_names(names, path, outputs.quiet)
    return output_artifacts(path, "names", outputs.companion)
