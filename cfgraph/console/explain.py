"""Explain a node of a graph, or a loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from cfgraph.analysis.deadness.pretty import describe_assignment
from cfgraph.analysis.explain import (
    EdgeCondition,
    Explanation,
    UnconditionalWork,
    explain_node,
    unconditional_work,
)
from cfgraph.analysis.loops.frames import frames
from cfgraph.console.answer import print_document
from cfgraph.console.explain_loop import answer_loop
from cfgraph.console.graphs import Source, read_graph, require_one_stdin
from cfgraph.console.page import Page, page
from cfgraph.console.tables import Column, Table
from cfgraph.console.view import View, find
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph
from cfgraph.ir.names import first_names
from cfgraph.ops.op import lookup, role
from cfgraph.options import Color
from cfgraph.passes.cluster.inline_clusters import called_function, cluster_calls

if TYPE_CHECKING:
    from cfgraph.console.explain_run import Fate, Run

_MAX_FED: Final = 8


class Answer(Protocol):
    """What is said to a question."""

    def to_json(self) -> dict[str, Any]:
        """The answer as a member of the document."""

    def print(self, out: Page) -> None:
        """The answer as text."""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """A node before it runs, what runs regardless if it is a predicate, and its fate in a run."""

    told: Explanation
    decides: UnconditionalWork | None
    fate: Fate | None
    full: bool

    def to_json(self) -> dict[str, Any]:
        """The member `node` of the document."""
        extra: dict[str, Any] = {"run": self.fate and self.fate.to_json()}
        if self.decides is not None:
            extra["decides"] = {
                "predicate": self.decides.predicate.name,
                "switches": [node.name for node in self.decides.switches],
                "regardless": {
                    str(side): [node.name for node in nodes]
                    for side, nodes in self.decides.of.items()
                },
            }
        return _node_json(self.told) | extra

    def print(self, out: Page) -> None:
        """The answer as text."""
        _print(out, self.told, [*_rows(self.told, self.full), *self._more()])

    def _more(self) -> Iterator[tuple[str, str, str]]:
        if self.decides is not None:
            count = len(self.decides.switches)
            switches = "1 Switch" if count == 1 else f"{count} Switches"
            yield "decides", f"by {self.decides.predicate.name}", switches
            for side, nodes in self.decides.of.items():
                names = first_names([node.name for node in nodes], _MAX_FED)
                sides = {0: "where it is false", 1: "where it is true"}
                serves = sides.get(side, f"on side {side}")
                yield "regardless", names, f"made outside, read only {serves}"
        if self.fate is not None:
            yield "in this run", self.fate.words, self.fate.why


def explain_subject(
    path: str, subject: str, run: Run | None, *, full: bool, json: bool, color: Color
) -> None:
    """Explain a node, a tensor or a loop, and what becomes of it in a run."""
    source = read_graph(path, quiet=json)
    if run is not None:
        require_one_stdin(source, run.feeds)
    print_answer(source, *_answer(source, subject, run, full), json=json, color=color)


def print_answer(source: Source, kind: str, answer: Answer, *, json: bool, color: Color) -> None:
    """Print what is said of a graph; `kind` is the member of the document."""
    if json:
        print_document("explain", inputs=[source.to_json()], result={kind: answer.to_json()})
    else:
        answer.print(page(color))


def _answer(source: Source, subject: str, run: Run | None, full: bool) -> tuple[str, Answer]:
    graph = source.graph
    if _is_loop(graph, subject):
        seen = None if run is None else run.of(source).iterations
        return "loop", answer_loop(graph, subject, seen)
    require_outside_functions(graph, subject)
    told = explain_node(graph, subject)
    ready = None if run is None else run.of(source, [told.node])
    fate = None if ready is None else ready.fate(told.node, in_root=told.frame == "/")
    return "node", NodeAnswer(told, _decides(graph, told), fate, full)


def _is_loop(graph: Graph, subject: str) -> bool:
    if subject.removeprefix("^").partition(":")[0] in graph:
        return False
    named = any(subject in (frame.path, frame.name) for frame in frames(graph).all[1:])
    return named or subject.startswith("/")


def _decides(graph: Graph, told: Explanation) -> UnconditionalWork | None:
    """What runs regardless of a node that is a predicate outside of loops, or of a Switch's."""
    node = told.node
    if role(node) == "switch":
        return unconditional_work(graph, node.inputs[1])
    return unconditional_work(graph, node.output()) if node.readers(0) else None


def require_outside_functions(graph: Graph, subject: str) -> None:
    """Raise UsageError for what is in a function, of which nothing is known before it is called."""
    found = find(View(graph), subject.removeprefix("^"))
    if found.view.name:
        if graph.functions[found.view.name] in [
            called_function(graph, x) for x in cluster_calls(graph)
        ]:
            message = f"{subject!r} is in a cluster, and runs when all of that does"
            raise UsageError(message, hint="explain it in the graph that was clustered")
        message = f"{subject!r} is in a function, and runs as often as that is called"
        hint = "lower the graph first (`cfgraph lower`), and explain what became of it"
        raise UsageError(message, hint=hint)


def _print(out: Page, told: Explanation, rows: list[Sequence[Any]]) -> None:
    op = lookup(told.node.op)
    about = (op.__doc__ or "").splitlines()[0] if op else "an op that cfgraph does not know"
    out.heading(f"{told.node.name}  {told.node.op}", about)
    columns = [Column("what", style="dim"), Column("which", style="cyan"), Column("more")]
    out.table(Table(columns, rows, headings=False))
    if told.mismatched:
        told_of = "its inputs may differ in liveness: one is dead in some run where another is live"
        out.line(f"  {told_of}", "yellow")
    for limit in told.limits:
        out.line(f"  {limit}", "yellow")


def _rows(told: Explanation, full: bool) -> list[tuple[str, str, str]]:
    node = told.runs
    rows = [("frame", told.frame, "" if told.frame == "/" else "inside a loop")]
    rows.append(("live", node.predicate, node.words))
    if told.witness and "|" in node.predicate:
        rows.append(("for example", f"with {describe_assignment(told.witness)}", ""))
    rows += [("output", edge.name, _when(edge)) for edge in told.outputs]
    rows.append(("waits for", told.waits_for, ""))
    rows += [("input", edge.name, _when(edge)) for edge in told.inputs]
    fed = first_names(told.fed_by, None if full else _MAX_FED)
    rows.append(("fed by", fed or "nothing", ""))
    read = first_names(told.read_by, None if full else _MAX_FED)
    rows.append(("read by", read or "nothing", ""))
    if told.message is not None:
        rows.append(("message", told.message, ""))
    rows.append(("device", told.device, told.device_reason))
    return rows


def _when(edge: EdgeCondition) -> str:
    """The condition of an edge: an edge does not run, it is live."""
    if edge.predicate in ("true", "false"):
        return "always live" if edge.predicate == "true" else "never live"
    return edge.words.replace("runs when", "live when", 1)


def _node_json(told: Explanation) -> dict[str, Any]:
    return {
        "name": told.node.name,
        "op": told.node.op,
        "frame": told.frame,
        "predicate": told.runs.predicate,
        "runs": told.runs.words,
        "witness": None if told.witness is None else dict(told.witness),
        "outputs": [_edge_json(edge) for edge in told.outputs],
        "waits_for": told.waits_for,
        "inputs": [_edge_json(edge) for edge in told.inputs],
        "mismatched_inputs": told.mismatched,
        "fed_by": list(told.fed_by),
        "read_by": list(told.read_by),
        "message": told.message,
        "device": told.device,
        "device_reason": told.device_reason,
        "limits": list(told.limits),
    }


def _edge_json(edge: EdgeCondition) -> dict[str, str]:
    return {"tensor": edge.name, "predicate": edge.predicate, "live": _when(edge)}
