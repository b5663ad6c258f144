"""Explain a node of a graph: where it runs, when, and what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cfgraph.analysis.check_words import assignment
from cfgraph.analysis.explain import Edge, Explanation, explain_node
from cfgraph.console.answer import print_document
from cfgraph.console.graphs import read_graph
from cfgraph.console.page import Page, page
from cfgraph.console.tables import Column, Table
from cfgraph.console.view import View, find
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph
from cfgraph.ops.op import lookup
from cfgraph.options import Color

_MAX_FED: Final = 8


def explain_subject(path: str, subject: str, full: bool, json: bool, color: Color) -> None:
    """Print where a node runs, when, and what it waits for."""
    source = read_graph(path, quiet=json)
    _require_outside_functions(source.graph, subject)
    told = explain_node(source.graph, subject)
    if json:
        print_document("explain", inputs=[source.to_json()], result={"node": _node_json(told)})
        return
    _print(page(color), told, full)


def _require_outside_functions(graph: Graph, subject: str) -> None:
    found = find(View(graph), subject.removeprefix("^"))
    if found.view.name:
        message = f"{subject!r} is in a function, and runs as often as that is called"
        hint = "lower the graph first (`cfgraph lower`), and explain what became of it"
        raise UsageError(message, hint=hint)


def _print(out: Page, told: Explanation, full: bool) -> None:
    op = lookup(told.node.op)
    about = (op.__doc__ or "").splitlines()[0] if op else "an op that cfgraph does not know"
    out.heading(f"{told.node.name}  {told.node.op}", about)
    columns = [Column("what", style="dim"), Column("which", style="cyan"), Column("more")]
    rows: list[Sequence[Any]] = [*_rows(told, full)]
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
        rows.append(("for example", f"with {assignment(told.witness)}", ""))
    rows += [("output", edge.name, _when(edge)) for edge in told.outputs]
    rows.append(("waits for", told.waits_for, ""))
    rows += [("input", edge.name, _when(edge)) for edge in told.inputs]
    fed = list(told.fed_by) if full else list(told.fed_by[:_MAX_FED])
    more = len(told.fed_by) - len(fed)
    rows.append(("fed by", ", ".join(fed) or "nothing", f"and {more} more" if more else ""))
    rows.append(("device", told.device, told.device_reason))
    return rows


def _when(edge: Edge) -> str:
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
        "device": told.device,
        "device_reason": told.device_reason,
        "limits": list(told.limits),
    }


def _edge_json(edge: Edge) -> dict[str, str]:
    return {"tensor": edge.name, "predicate": edge.predicate, "live": _when(edge)}
