"""The `explain` command for one node or loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Protocol

from cfgraph.analysis.deadness.pretty import describe_assignment
from cfgraph.analysis.explain import (
    EdgeReport,
    Explanation,
    UnconditionalWork,
    explain_node,
    unconditional_work,
)
from cfgraph.analysis.verify.verify import require_analyzable, structural_errors
from cfgraph.cli.json_output import partial_document, print_document
from cfgraph.cli.options import Color
from cfgraph.cli.output import Page, page
from cfgraph.cli.transform_options import RunInputs
from cfgraph.console.feeds_in_functions import with_inner_feeds
from cfgraph.console.graph_files import (
    Source,
    read_graph,
    require_single_stdin,
    saved_model_assets,
)
from cfgraph.console.node_names import NodeNames, is_loop
from cfgraph.console.signatures import SignatureNames, signature_names
from cfgraph.console.views.node_facts import op_description
from cfgraph.console.views.selection import GraphView, NodeSelection, find_node
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import called_implementation
from cfgraph.ir.names import first_names
from cfgraph.ir.role import Role
from cfgraph.ir.units import format_count
from cfgraph.ops.opdef.op import function_calls, is_stateful, role_of
from cfgraph.passes.cluster.encapsulate import called_function, cluster_calls

# late imports: few graphs are invalid, and few nodes are loops, use a table, or call a module

if TYPE_CHECKING:
    from cfgraph.analysis.table_contents import TableContents
    from cfgraph.console.explanations.answers import FunctionResults, NodeReport, SourceLine
    from cfgraph.console.explanations.explain_run import ExplainedRuns, NodeOutcome
    from cfgraph.console.views.modules import ModuleExplanation

    LineFinder = Callable[[Graph, Node], SourceLine]

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
        from cfgraph.console.explanations.answers import NodeReport

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
        from cfgraph.console.explanations.explain_crossings import explain_crossings

        crossings = explain_crossings(source.graph, subject)
        if not crossings.edges:
            require_analyzable(source.graph)
        print_explanation(source, "crossings", crossings, json=json, color=color)
        return
    require_single_stdin(source, inputs.feed)
    names = signature_names(source, inputs.signature, inputs.variables)
    runs = make_runs and make_runs(*with_inner_feeds(source, names, inputs)[:2])
    subject = names.subject(subject)
    assets = saved_model_assets(source)
    explained = _explain(names.nodes, subject, runs, full, find_line, assets, full or json)
    print_explanation(source, *explained, json=json, color=color)


def print_explanation(
    source: Source, kind: str, answer: PrintedAnswer, *, json: bool, color: Color
) -> None:
    """Print an explanation; `kind` is its member in the document."""
    if json:
        written = partial_document().get("artifacts", [])
        from cfgraph.console.explanations.answers import ExplainResult

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
    many_rows: bool,
) -> tuple[str, PrintedAnswer]:
    graph = names.graph
    if is_loop(graph, subject):
        if find_line is not None:
            raise UsageError("--source explains nodes, not loops", hint="name a node of the loop")
        from cfgraph.console.explanations.explain_loop import explain_loop

        return "loop", explain_loop(graph, subject, None if runs is None else runs.iterations)
    selection = find_node(GraphView(graph), subject.removeprefix("^"), names)
    if find_line is None and function_calls(selection.nodes[0].op).is_loop:
        loop = _explain_called_loop(names, selection, runs)
        if loop is not None:
            return "loop", loop
    module = _explain_module(selection, full)
    if module is not None and selection.view.name and runs is None:
        return "module", module
    if runs is not None or find_line is not None:
        require_outside_functions(graph, subject)
    view, node = selection.view, selection.nodes[0]
    facts = explain_node(view.graph, node.name)
    outcome = None if runs is None else runs.outcome(node, in_root=facts.frame == "/")
    unconditional = _unconditional_work(view.graph, node)
    called = called_implementation(graph, node)
    code = None if find_line is None else find_line(graph, node)
    table = None if view.name else _table_of_node(graph, node, assets, many_rows)
    explained = NodeExplanation(
        facts, unconditional, outcome, full, called, code, module, _results(view, node), table
    )
    return "node", explained


def _explain_called_loop(
    names: NodeNames, selection: NodeSelection, runs: ExplainedRuns | None
) -> PrintedAnswer | None:
    """The explanation of the loop of a node that calls functions, None if nothing calls it."""
    from cfgraph.console.explanations.explain_loop import explain_loop
    from cfgraph.console.views.loop_views import called_loop

    loop = called_loop(names, selection)
    if loop is None:
        return None
    measure = None if runs is None else runs.iterations
    explained = explain_loop(loop.view.graph, loop.frame.path, measure)
    return replace(explained, variables=loop.variables, condition=loop.condition, node=loop.title)


def _explain_module(selection: NodeSelection, full: bool) -> ModuleExplanation | None:
    """The explanation of the module that a node calls."""
    from cfgraph.console.views.modules import ModuleExplanation, is_module

    node = selection.nodes[0]
    if not is_module(node):
        return None
    return ModuleExplanation.of_node(selection.view.title(node), node, full)


def _results(view: GraphView, node: Node) -> FunctionResults | None:
    """The function that has a node, and the results that the node computes."""
    if not view.name:
        return None
    from cfgraph.console.explanations.answers import FunctionResults

    return FunctionResults(view.name, view.results_of(node))


def _table_of_node(
    graph: Graph, node: Node, assets: Mapping[str, str], many_rows: bool
) -> TableContents | None:
    """The lookup table that a node uses, which no graph without state has."""
    if not any(map(is_stateful, graph)):
        return None
    from cfgraph.analysis.table_contents import FEW_ROWS, MANY_ROWS, contents_of_node

    return contents_of_node(graph, node, assets, MANY_ROWS if many_rows else FEW_ROWS)


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
