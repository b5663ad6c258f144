"""The `explain` command for one node, or for one loop and its critical cycle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Protocol

from cfgraph.analysis.cost import CostEstimates, Costs
from cfgraph.analysis.deadness.pretty import describe_assignment
from cfgraph.analysis.explain import (
    EdgeReport,
    Explanation,
    UnconditionalWork,
    explain_node,
    unconditional_work,
)
from cfgraph.analysis.loops.critical_cycle import CriticalCycle, Item, critical_cycle, item_cost
from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.loops.loop_condition import loop_condition
from cfgraph.analysis.loops.loop_state import VARIABLE_COLUMNS, LoopStateVariable, frame_variables
from cfgraph.analysis.loops.while_loop import static_trip_count
from cfgraph.analysis.table_contents import FEW_ROWS, MANY_ROWS, TableContents, contents_of_node
from cfgraph.analysis.verify.verify import require_analyzable, structural_errors
from cfgraph.cli.json_output import partial_document, print_document
from cfgraph.cli.options import Color
from cfgraph.cli.output import OutputTable, Page, page, report_table
from cfgraph.cli.transform_options import RunInputs
from cfgraph.console.explanations.answers import (
    BusiestDevice,
    CycleItem,
    ExplainResult,
    FunctionResults,
    IterationsReport,
    LoopReport,
    NodeReport,
    SourceLine,
)
from cfgraph.console.explanations.explain_crossings import explain_crossings
from cfgraph.console.feeds_in_functions import with_inner_feeds
from cfgraph.console.graph_files import (
    Source,
    read_graph,
    require_single_stdin,
    saved_model_assets,
)
from cfgraph.console.node_names import NodeNames
from cfgraph.console.signatures import SignatureNames, signature_names
from cfgraph.console.views.loop_views import called_loop, complete_subject, is_loop
from cfgraph.console.views.modules import ModuleExplanation, is_module
from cfgraph.console.views.node_facts import op_description
from cfgraph.console.views.selection import GraphView, find_node
from cfgraph.errors import UsageError
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import called_implementation
from cfgraph.ir.names import first_names
from cfgraph.ir.role import Role
from cfgraph.ir.units import format_count, format_duration
from cfgraph.ops.opdef.op import role_of
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.passes.cluster.encapsulate import called_function, cluster_calls
from cfgraph.reports import Column
from cfgraph.runtime.trace.summary import IterationTimes

if TYPE_CHECKING:
    from cfgraph.console.explanations.answers import SourceLine
    from cfgraph.console.explanations.explain_run import ExplainedRuns, NodeOutcome


# thresholds for the critical cycle's share of the work of an iteration
_NEARLY_ALL: Final = 0.9
_MOST: Final = 0.6
_NS_PER_SECOND: Final = 1e9


def _iterations_report(measured: IterationTimes) -> IterationsReport:
    period = measured.period and round(measured.period)
    busiest = measured.busiest and BusiestDevice(*measured.busiest)
    return IterationsReport(len(measured.spans), period, measured.at_once, busiest)


LineFinder = Callable[[Graph, Node], SourceLine]


@dataclass(frozen=True, slots=True)
class LoopExplanation:
    """A loop's critical cycle, the seconds of each node, and measurements of a virtual run."""

    cycle: CriticalCycle
    cost: Callable[[Node], float]
    measured: IterationTimes | None
    variables: Sequence[LoopStateVariable]
    trips: tuple[int, bool] | None
    condition: str | None
    node: str | None = None

    def report(self) -> LoopReport:
        """Return the member `loop` of the document; times are nanoseconds."""
        cycle = self.cycle
        return LoopReport(
            frame=cycle.frame.path,
            critical_cycle=[
                CycleItem(item_name(item), round(self._seconds(item) * _NS_PER_SECOND))
                for item in cycle.chain
            ],
            iterations_of_the_cycle=cycle.rounds,
            cycle_ns=round(cycle.per_iteration * _NS_PER_SECOND),
            work_ns=round(cycle.work * _NS_PER_SECOND),
            share=round(cycle.share, 4),
            parallel_iterations=cycle.parallel,
            verdict=self.verdict,
            run=None if self.measured is None else _iterations_report(self.measured),
            node=self.node,
            condition=self.condition,
            trip_count=None if self.trips is None else self.trips[0],
            trip_count_is_exact=None if self.trips is None else self.trips[1],
            variables=self.variables,
        )

    @property
    def verdict(self) -> str:
        """The limit on the overlap of iterations."""
        cycle = self.cycle
        if not cycle.chain:
            return "iterations do not depend on each other"
        if cycle.parallel == 1:
            return "iterations do not overlap: the loop's parallel_iterations is 1"
        if cycle.share >= _NEARLY_ALL:
            return "iterations do not overlap: nearly all work of one depends on the previous one"
        if cycle.share >= _MOST:
            return "iterations barely overlap: most work of one depends on the previous one"
        times = min(1 / cycle.share, cycle.parallel)
        return f"about {times:.1f} iterations can overlap, given enough devices"

    def _seconds(self, item: Item) -> float:
        return item_cost(item, self.cost)

    def print(self, out: Page) -> None:
        """Print the explanation as text."""
        cycle = self.cycle
        out.heading(cycle.frame.path, f"loop with {len(cycle.frame.nodes)} nodes")
        out.line(f"  {self.verdict}", "bold")
        if self.condition is not None:
            out.line(f"  it goes on while {self.condition}")
        out.facts(self._rows())
        if self.variables:
            out.line()
            out.heading("variables", "as an iteration reads and returns them")
            out.table(report_table(LoopStateVariable, self.variables, *VARIABLE_COLUMNS))
        if not cycle.chain:
            return
        out.line()
        out.heading("critical cycle", "each node depends on the one above, the first on the last")
        node = Column("node", style="cyan", scoped=True)
        nodes = [node, Column("op"), Column("device"), Column("time")]
        rows: list[Sequence[Any]] = [
            (
                item_name(item),
                *_op_and_device(item),
                format_duration(self._seconds(item) * _NS_PER_SECOND),
            )
            for item in cycle.chain
        ]
        out.table(OutputTable(nodes, rows))

    def _rows(self) -> list[tuple[str, str, str]]:
        cycle = self.cycle
        cycle_time = format_duration(cycle.per_iteration * _NS_PER_SECOND)
        work_time = format_duration(cycle.work * _NS_PER_SECOND)
        rounds = "" if cycle.rounds < 2 else f", spanning {cycle.rounds} iterations"
        share = f"per iteration (estimated): {_percent(cycle.share)} of its work{rounds}"
        rows = [
            ("iterations", *self._trip_count()),
            ("critical cycle", cycle_time, share),
            ("whole iteration", work_time, "estimated from ops and shapes, on one device"),
            ("in flight", str(cycle.parallel), "iterations at most (parallel_iterations)"),
        ]
        if self.measured is not None:
            rows += _iteration_rows(self.measured)
        return rows

    def _trip_count(self) -> tuple[str, str]:
        if self.trips is None:
            return "?", "a run decides"
        count, is_exact = self.trips
        return (str(count), "") if is_exact else (f"≤ {count}", "a run may end the loop earlier")


def _iteration_rows(measured: IterationTimes) -> list[tuple[str, str, str]]:
    if measured.period is None:
        return [("in a run", str(len(measured.spans)), "iterations, too few to measure a period")]
    rows = [
        (
            "in a run",
            format_duration(measured.period),
            f"per iteration in virtual time, over {len(measured.spans)} iterations",
        ),
        ("", str(measured.at_once), "iterations in flight at most"),
    ]
    if measured.busiest:
        device, share = measured.busiest
        rows.append(("", _percent(share), f"utilization of {device}, the busiest device"))
    return rows


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def explain_loop(
    graph: Graph,
    path: str,
    iterations: Callable[[Frame], IterationTimes] | None = None,
) -> LoopExplanation:
    """Find a loop's critical cycle; `iterations` measures a run in virtual time.

    Raises UsageError if there is no such loop, and the errors of a run.
    """
    loop_frames, shapes = frames(graph), infer_shapes(graph)
    estimates, costs = CostEstimates(shapes, loop_frames), Costs()

    def cost(node: Node) -> float:
        kind = costs.kind_of(node.device)
        waits = (
            costs.link.seconds(estimates.size(Output(node))) if role_of(node) is Role.RECV else 0.0
        )
        return costs.seconds(kind, *estimates.work(node)) + waits

    answer = critical_cycle(graph, path, cost)
    measured = iterations and iterations(answer.frame)
    variables = frame_variables(answer.frame, shapes)
    condition = loop_condition(answer.frame, variables)
    trips = _trips(answer.frame, shapes)
    return LoopExplanation(answer, cost, measured, variables, trips, condition)


def _trips(frame: Frame, shapes: StaticShapes) -> tuple[int, bool] | None:
    """The iterations of a loop, and whether they are exact; None if they are not static."""
    cond = frame.loop_cond
    count = None if cond is None else static_trip_count(cond, shapes)
    if cond is None or count is None:
        return None
    return count, static_trip_count(cond, shapes, exact=True) == count


def item_name(item: Item) -> str:
    """Return the name of a node, or the path of a loop."""
    return item.name if isinstance(item, Node) else item.frame.path


def _op_and_device(item: Item) -> tuple[str, str]:
    return (item.op, short_device_name(item.device)) if isinstance(item, Node) else ("a loop", "")


_MAX_NAMES: Final = 8
_EMPTY: Final = "each lookup fails"
# names of folded inputs
_MAX_FOLDED: Final = 3


class PrintedAnswer(Protocol):
    """The answer to one `explain` query."""

    def report(self) -> Any:
        """Return the answer as a member of the document."""

    def print(self, out: Page) -> None:
        """Print the answer as text."""


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """Static facts about a node and, if it was run, the outcome.

    `unconditional` is set for a predicate or a Switch: the nodes that run whatever the value of the
    predicate, although only one branch uses them. `implementation` is set for a call of a function
    with several implementations: the one that its device selects. `code` is the line of a Python
    file that computes it. `module` is set for a call of a StableHLO module, and `function` for a
    node of a function: its name, and those of the results that the node computes. `table` is the
    lookup table that the node uses.
    """

    facts: Explanation
    unconditional: UnconditionalWork | None
    outcome: NodeOutcome | None
    full: bool
    implementation: str | None = None
    code: SourceLine | None = None
    module: ModuleExplanation | None = None
    function: FunctionResults | None = None
    table: TableContents | None = None

    def report(self) -> NodeReport:
        """Return the member `node` of the document."""
        return NodeReport.from_attributes(
            self.facts,
            run=None if self.outcome is None else self.outcome.report(),
            decides=self.unconditional,
            implementation=self.implementation,
            function=self.function,
            source=self.code,
            module=None if self.module is None else self.module.report(),
            table=self.table,
        )

    def print(self, out: Page) -> None:
        """Print the explanation as text."""
        edges = _edge_rows(self.facts, self.full)
        _print_node(out, self.facts, [*self._call(), *edges, *self._more()])
        if self.module is not None:
            out.line()
            self.module.print(out)

    def _call(self) -> Iterator[tuple[str, str, str]]:
        if self.function is not None:
            results = ", ".join(self.function.results)
            returned = f", and returns this as {results}" if results else ""
            yield "function", self.function.name, f"runs when it is called{returned}"

    def _more(self) -> Iterator[tuple[str, str, str]]:
        if self.implementation is not None:
            yield "calls", self.implementation, "the implementation for its device"
        if self.unconditional is not None:
            count = len(self.unconditional.switches)
            switches = "1 Switch" if count == 1 else f"{count} Switches"
            yield "decides", self.unconditional.predicate, f"predicate of {switches}"
            for side, nodes in self.unconditional.regardless.items():
                names = first_names(nodes, _MAX_NAMES)
                sides = {0: "if it is false", 1: "if it is true"}
                serves = sides.get(side, f"on branch {side}")
                yield "unconditional", names, f"always computed, but used only {serves}"
        if self.table is not None:
            yield from _table_rows(self.table)
        if self.code is not None:
            yield "source", f"{self.code.path}:{self.code.line}", self.code.text
        if self.outcome is not None:
            yield "in this run", self.outcome.words, self.outcome.why
            for item in self.outcome.compilations[:_MAX_NAMES]:
                yield "", "", str(item)


def explain_subject(
    path: str,
    subject: str,
    inputs: RunInputs,
    make_runs: Callable[[Source, SignatureNames], ExplainedRuns] | None,
    *,
    find_line: LineFinder | None = None,
    full: bool,
    json: bool,
    color: Color,
) -> None:
    """Explain a node, a tensor or a loop, and optionally its run.

    `find_line` finds the line of the node in a Python file that the graph was converted to.
    """
    source = read_graph(path, quiet=json)
    if structural_errors(source.graph):
        crossings = explain_crossings(source.graph, subject)
        if not crossings.edges:
            require_analyzable(source.graph)
        print_explanation(source, "crossings", crossings, json=json, color=color)
        return
    require_single_stdin(source, inputs.feed)
    names = signature_names(source, inputs.signature, inputs.variables)
    runs = make_runs and make_runs(*with_inner_feeds(source, names, inputs)[:2])
    subject = complete_subject(names, subject)
    assets = saved_model_assets(source)
    rows = MANY_ROWS if full or json else FEW_ROWS
    explained = _explain(names.nodes, subject, runs, full, find_line, assets, rows)
    print_explanation(source, *explained, json=json, color=color)


def print_explanation(
    source: Source, kind: str, answer: PrintedAnswer, *, json: bool, color: Color
) -> None:
    """Print an explanation; `kind` is its member in the document."""
    if json:
        written = partial_document().get("artifacts", [])
        result = ExplainResult(**{kind: answer.report()})
        print_document(result, inputs=[source], artifacts=written)
    else:
        answer.print(page(color))


def _explain(
    names: NodeNames,
    subject: str,
    runs: ExplainedRuns | None,
    full: bool,
    find_line: LineFinder | None,
    assets: Mapping[str, str],
    rows: int,
) -> tuple[str, PrintedAnswer]:
    graph = names.graph
    if is_loop(graph, subject):
        if find_line is not None:
            raise UsageError("--source explains nodes, not loops", hint="name a node of the loop")
        measure = None if runs is None else runs.iterations
        return "loop", explain_loop(graph, subject, measure)
    selection = find_node(GraphView(graph), subject.removeprefix("^"))
    loop = called_loop(names, selection) if find_line is None else None
    if loop is not None:
        measure = None if runs is None else runs.iterations
        explained_loop = explain_loop(loop.view.graph, loop.frame.path, measure)
        return "loop", replace(
            explained_loop, variables=loop.variables, condition=loop.condition, node=loop.title
        )
    module = None
    if is_module(selection.nodes[0]):
        title = selection.view.title(selection.nodes[0])
        module = ModuleExplanation.of_node(title, selection.nodes[0], full)
        if selection.view.name and runs is None:
            return "module", module
    if runs is not None or find_line is not None:
        require_outside_functions(graph, subject)
    view, node = selection.view, selection.nodes[0]
    facts = explain_node(view.graph, node.name)
    outcome = None if runs is None else runs.outcome(node, in_root=facts.frame == "/")
    unconditional = _unconditional_work(view.graph, node)
    called = called_implementation(graph, node)
    code = None if find_line is None else find_line(graph, node)
    function = FunctionResults(view.name, view.results_of(node)) if view.name else None
    table = None if view.name else contents_of_node(graph, node, assets, rows)
    explained = NodeExplanation(
        facts, unconditional, outcome, full, called, code, module, function, table
    )
    return "node", explained


def _table_rows(table: TableContents) -> Iterator[tuple[str, str, str]]:
    """The facts about a lookup table."""
    rows = "" if table.rows is None else f", {format_count(table.rows, 'row')}"
    first = ", ".join(table.first) + ", …" * (len(table.first) < (table.rows or 0))
    yield "table", table.table, f"{table.type}{rows}" + (f": {first}" if table.first else "")
    source = f"from {table.file}" if table.file else ""
    yield "filled by", table.filled_by or "nothing", source if table.filled_by else _EMPTY


def _unconditional_work(graph: Graph, node: Node) -> UnconditionalWork | None:
    """Find unconditional work for a predicate, or for the predicate of a Switch."""
    if role_of(node) is Role.SWITCH:
        return unconditional_work(graph, node.inputs[1])
    return unconditional_work(graph, node.output()) if node.readers(0) else None


def require_outside_functions(graph: Graph, subject: str) -> None:
    """Raise UsageError for a node of a function or of the lowered graph alone: no run has it."""
    selection = find_node(GraphView(graph), subject.removeprefix("^"))
    name = selection.view.name
    if name and graph.functions[name] in [called_function(graph, x) for x in cluster_calls(graph)]:
        message = f"{subject!r} is inside a cluster and runs whenever the cluster does"
        raise UsageError(message, hint="explain it in the graph before clustering")
    if selection.view.graph is not graph:
        message = f"{subject!r} is inside a function and runs whenever the function is called"
        hint = "lower the graph first (`cfgraph lower`) and explain the lowered node"
        raise UsageError(message if name else f"only lowering makes {subject!r}", hint=hint)


def _print_node(out: Page, facts: Explanation, rows: list[Sequence[Any]]) -> None:
    out.heading(f"{facts.name}  {facts.op}", op_description(facts.op))
    out.facts(rows)
    if facts.mismatched_inputs:
        mismatch = "mismatched inputs: one may be dead while another is live"
        out.line(f"  {mismatch}", "yellow")
    for limit in facts.limits:
        out.line(f"  {limit}", "yellow")


def _input_rows(inputs: Sequence[EdgeReport], full: bool) -> Iterator[tuple[str, str, str]]:
    """A row per input, or per condition that many inputs in a row have in common."""
    for live, group in groupby(inputs, lambda edge: edge.live):
        names = [edge.tensor for edge in group]
        if full or len(names) <= _MAX_NAMES:
            yield from (("input", name, live) for name in names)
        else:
            yield f"{len(names)} inputs", first_names(names, _MAX_FOLDED), live


def _edge_rows(facts: Explanation, full: bool) -> list[tuple[str, str, str]]:
    rows = [("frame", facts.frame, "" if facts.frame == "/" else "inside a loop")]
    rows.append(("live", facts.predicate, facts.runs))
    if facts.witness and "|" in facts.predicate:
        rows.append(("for example", f"with {describe_assignment(facts.witness)}", ""))
    rows += [("output", edge.tensor, edge.live) for edge in facts.outputs]
    rows.append(("waits for", facts.waits_for, ""))
    rows += _input_rows(facts.inputs, full)
    fed = first_names(facts.fed_by, None if full else _MAX_NAMES)
    rows.append(("fed by", fed or "nothing", ""))
    read = first_names(facts.read_by, None if full else _MAX_NAMES)
    rows.append(("read by", read or "nothing", ""))
    if facts.message is not None:
        rows.append(("message", facts.message, ""))
    rows.append(("device", facts.device, facts.device_reason or ""))
    return rows
