"""A graph in the DOT language with its clusters as boxes; edges that join nothing say why."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from cfgraph.ir.graph import Graph, Node
from cfgraph.passes.cluster.report import Clustering


def cluster_dot(graph: Graph, report: Clustering) -> Iterator[str]:
    """The lines of a digraph of the nodes before they were clustered."""
    numbers = {node.name: f"n{place}" for place, node in enumerate(graph)}
    reasons = {(edge.source, edge.target): edge.reason for edge in report.edges}
    yield "digraph {"
    yield '  node [shape=box, style=rounded, fontname="sans-serif", fontsize=10];'
    inside = set[str]()
    for place, one in enumerate(report.clusters):
        yield f"  subgraph cluster_{place} {{"
        yield f"    label={_quoted(f'{one.name}: {one.condition}')}; color=blue; fontcolor=blue;"
        for name in one.nodes:
            inside.add(name)
            yield f"    {numbers[name]} [label={_quoted(_label(graph[name]))}];"
        yield "  }"
    for node in graph:
        if node.name not in inside:
            reason = report.outside.get(node.name)
            told = reason.kind if reason else "copied"
            label = _quoted(f"{_label(node)}\n{told}")
            yield f"  {numbers[node.name]} [label={label}, color=gray60, fontcolor=gray40];"
    for node in graph:
        yield from _edges(node, numbers, {k: r.kind for k, r in reasons.items()})
    yield "}"


def _label(node: Node) -> str:
    return node.name if node.name == node.op else f"{node.name}\n{node.op}"


def _edges(
    node: Node, numbers: Mapping[str, str], reasons: Mapping[tuple[str, str], str]
) -> Iterator[str]:
    sources = [(item.node.name, False) for item in node.inputs]
    sources += [(control.name, True) for control in node.controls]
    for source, control in dict.fromkeys(sources):
        style = ["style=dashed"] if control else []
        reason = reasons.get((source, node.name))
        if reason is not None:
            style.append(f"color=red, fontcolor=red, fontsize=9, label={_quoted(reason)}")
        told = f" [{', '.join(style)}]" if style else ""
        yield f"  {numbers[source]} -> {numbers[node.name]}{told};"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
