"""Graphs in the DOT language of Graphviz: plain or with clusters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from cfgraph.console.views.selection import NodeSelection
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.printable import clean_lines
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of

if TYPE_CHECKING:
    from cfgraph.analysis.deadness.deadness import LivenessCondition
    from cfgraph.analysis.loops.frame import Frame
    from cfgraph.passes.cluster.formation.report import Clustering

# late imports: only what is written as DOT has quoted texts
_SHAPES: Final[dict[Role | None, str]] = {
    Role.SWITCH: "trapezium",
    Role.MERGE: "invtrapezium",
    Role.ENTER: "cds",
    Role.EXIT: "cds",
}
_FRAME_STYLE: Final = ("color=gray60", "fontcolor=gray40")
_CLUSTER_STYLE: Final = ("color=blue", "fontcolor=blue")
# multiples of it modulo 1 are far apart, so neighboring liveness classes get distinct hues
_GOLDEN_RATIO: Final = 0.618


def graph_dot(selections: Sequence[NodeSelection], deadness: bool = False) -> Iterator[str]:
    """Yield a digraph of the selected nodes: loops as nested boxes, back edges in red.

    With deadness, nodes with equal liveness share a fill color, and dead nodes are gray.
    """
    nodes = [node for selection in selections for node in selection.nodes]
    ids = {node: f"n{index}" for index, node in enumerate(nodes)}
    boxes = 0
    lines: list[str] = []
    for selection in selections:
        lines += _frame_boxes(selection, ids, boxes, deadness)
        boxes += len(selection.view.frames.all)
    for node in nodes:
        lines += _node_edges(node, ids)
    yield from _digraph(lines)


def cluster_dot(graph: Graph, report: Clustering) -> Iterator[str]:
    """Yield a digraph of the nodes before clustering, with a box per cluster."""
    ids = {node.name: f"n{index}" for index, node in enumerate(graph)}
    reasons = {(edge.source, edge.target): edge.reason.kind for edge in report.edges}
    lines: list[str] = []
    clustered = set[str]()
    for index, cluster in enumerate(report.clusters):
        lines.append(f"  subgraph cluster_{index} {{")
        lines.append(_box_label("    ", f"{cluster.name}: {cluster.condition}", _CLUSTER_STYLE))
        for name in cluster.nodes:
            clustered.add(name)
            lines.append(f"    {_statement(ids[name], _node_label(name, graph[name].op))}")
        lines.append("  }")
    for node in graph:
        if node.name not in clustered:
            reason = report.outside.get(node.name)
            kind = reason.kind if reason else "copied"
            label = f"{_node_label(node.name, node.op)}\n{kind}"
            lines.append(
                f"  {_statement(ids[node.name], label, 'color=gray60', 'fontcolor=gray40')}"
            )
    for node in graph:
        lines += _clustered_edges(node, ids, reasons)
    yield from _digraph(lines)


def _digraph(lines: Iterable[str]) -> Iterator[str]:
    yield "digraph {"
    yield '  node [shape=box, style=rounded, fontname="sans-serif", fontsize=10];'
    yield from lines
    yield "}"


def _frame_boxes(
    selection: NodeSelection, ids: Mapping[Node, str], first: int, deadness: bool
) -> Iterator[str]:
    """Yield the nodes, with each loop's nodes inside a box; boxes are numbered from `first`."""
    view, frames = selection.view, selection.view.frames
    members: dict[Frame, list[Node]] = {}
    for node in selection.nodes:
        members.setdefault(frames.of[node], []).append(node)
    children: dict[Frame | None, list[Frame]] = {}
    for frame in frames.all:
        children.setdefault(frame.parent, []).append(frame)
    numbers = {frame: first + index for index, frame in enumerate(frames.all)}
    stack: list[tuple[Frame, bool]] = [(frames.root, False)]
    while stack:
        frame, closing = stack.pop()
        indent = "  " * (frame.depth + 1)
        if closing:
            yield f"{indent[2:]}}}"
            continue
        if frame is not frames.root:
            yield f"{indent[2:]}subgraph cluster_{numbers[frame]} {{"
            yield _box_label(indent, frame.name, _FRAME_STYLE)
            stack.append((frame, True))
        for node in members.get(frame, ()):
            when = view.liveness[node] if deadness else None
            yield indent + _node_statement(node, view.title(node), ids[node], when)
        stack.extend((child, False) for child in reversed(children.get(frame, [])))


def _node_statement(node: Node, title: str, id: str, when: LivenessCondition | None) -> str:
    label = _node_label(title, node.op)
    attributes = []
    if shape := _SHAPES.get(role_of(node)):
        attributes.append(f"shape={shape}")
    if when is not None and when.how_often != "always":
        label += f"\n{when.text}"
        attributes.append(f'style="rounded,filled", fillcolor="{_liveness_color(when)}"')
    if node.device:
        attributes.append(f"tooltip={_quote(node.device)}")
    return _statement(id, label, *attributes)


def _liveness_color(when: LivenessCondition) -> str:
    """Return a light color for a liveness class, as hue, saturation, and value."""
    if when.how_often == "never":
        return "gray85"
    return f"{when.group * _GOLDEN_RATIO % 1:.3f} 0.25 1.000"


def _node_edges(node: Node, ids: Mapping[Node, str]) -> Iterator[str]:
    for item in node.inputs:
        if item.node not in ids:
            continue
        attributes = []
        if role_of(item.node) is Role.NEXT_ITERATION and role_of(node) is Role.MERGE:
            attributes.append("color=red, constraint=false")
        if item.port:
            attributes.append(f'taillabel="{item.port}"')
        yield _edge(ids[item.node], ids[node], *attributes)
    for control in node.controls:
        if control in ids:
            yield _edge(ids[control], ids[node], "style=dashed", "color=gray50")


def _clustered_edges(
    node: Node, ids: Mapping[str, str], reasons: Mapping[tuple[str, str], str]
) -> Iterator[str]:
    sources = [(item.node.name, False) for item in node.inputs]
    sources += [(control.name, True) for control in node.controls]
    for source, control in dict.fromkeys(sources):
        attributes = ["style=dashed"] if control else []
        if reason := reasons.get((source, node.name)):
            attributes.append(f"color=red, fontcolor=red, fontsize=9, label={_quote(reason)}")
        yield _edge(ids[source], ids[node.name], *attributes)


def _node_label(title: str, op: str) -> str:
    return title if title == op else f"{title}\n{op}"


def _box_label(indent: str, text: str, style: Iterable[str]) -> str:
    return f"{indent}{'; '.join([f'label={_quote(text)}', *style])};"


def _statement(id: str, label: str, *attributes: str) -> str:
    return f"{id} [{', '.join([f'label={_quote(label)}', *attributes])}];"


def _edge(source: str, target: str, *attributes: str) -> str:
    return f"  {source} -> {target}" + (f" [{', '.join(attributes)}];" if attributes else ";")


def _quote(text: str) -> str:
    import json

    return json.dumps(clean_lines(text), ensure_ascii=False)
