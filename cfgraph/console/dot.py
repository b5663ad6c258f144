"""A graph in the DOT language of Graphviz: loops as nested boxes, back edges in red.

With deadness, nodes with equal liveness share a fill color, and dead nodes are gray.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

from cfgraph.analysis.deadness.deadness import LivenessCondition
from cfgraph.analysis.loops.frames import Frame
from cfgraph.console.selection import NodeSelection
from cfgraph.ir.graph import Node
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of

_SHAPES: Final[dict[Role | None, str]] = {
    Role.SWITCH: "trapezium",
    Role.MERGE: "invtrapezium",
    Role.ENTER: "cds",
    Role.EXIT: "cds",
}


# the angle between the hues of two neighbours, as far from those of others as it gets
_GOLDEN_RATIO: Final = 0.618


def dot_lines(chosen: Iterable[NodeSelection], deadness: bool = False) -> Iterator[str]:
    """The lines of a digraph of some nodes and the edges among them."""
    parts = list(chosen)
    nodes = [node for some in parts for node in some.nodes]
    numbers = {node: f"n{place}" for place, node in enumerate(nodes)}
    yield "digraph {"
    yield '  node [shape=box, style=rounded, fontname="sans-serif", fontsize=10];'
    boxes = 0
    for some in parts:
        yield from _frame_boxes(some, numbers, boxes, deadness)
        boxes += len(some.view.found.all)
    for node in nodes:
        yield from _edges(node, numbers)
    yield "}"


def _frame_boxes(
    some: NodeSelection, numbers: dict[Node, str], boxes: int, deadness: bool
) -> Iterator[str]:
    """The nodes, those of a loop within its box; so many boxes have been drawn before."""
    found = some.view.found
    members: dict[Frame, list[Node]] = {}
    for node in some.nodes:
        members.setdefault(found.of[node], []).append(node)
    children: dict[Frame | None, list[Frame]] = {}
    for frame in found.all:
        children.setdefault(frame.parent, []).append(frame)
    box = {frame: boxes + place for place, frame in enumerate(found.all)}
    stack: list[tuple[Frame, bool]] = [(found.root, False)]
    while stack:
        frame, closing = stack.pop()
        indent = "  " * (frame.depth + 1)
        if closing:
            yield f"{indent[2:]}}}"
            continue
        if frame is not found.root:
            yield f"{indent[2:]}subgraph cluster_{box[frame]} {{"
            yield f"{indent}label={_quote(frame.name)}; color=gray60; fontcolor=gray40;"
            stack.append((frame, True))
        for node in members.get(frame, ()):
            when = some.view.when[node] if deadness else None
            yield f"{indent}{_node(node, some.view.title(node), numbers[node], when)}"
        stack.extend((child, False) for child in reversed(children.get(frame, [])))


def _node(node: Node, title: str, number: str, when: LivenessCondition | None) -> str:
    label = title if title == node.op else f"{title}\n{node.op}"
    shape = _SHAPES.get(role_of(node))
    more = f", shape={shape}" if shape else ""
    if when is not None and when.how_often != "always":
        label += f"\n{when.text}"
        more += f', style="rounded,filled", fillcolor="{_liveness_color(when)}"'
    more += f", tooltip={_quote(node.device)}" if node.device else ""
    return f"{number} [label={_quote(label)}{more}];"


def _liveness_color(when: LivenessCondition) -> str:
    """A light colour of the group, as hue, saturation and value."""
    if when.how_often == "never":
        return "gray85"
    return f"{when.group * _GOLDEN_RATIO % 1:.3f} 0.25 1.000"


def _edges(node: Node, numbers: dict[Node, str]) -> Iterator[str]:
    here = numbers[node]
    for item in node.inputs:
        source = numbers.get(item.node)
        if source is None:
            continue
        style = []
        if role_of(item.node) is Role.NEXT_ITERATION and role_of(node) is Role.MERGE:
            style.append("color=red, constraint=false")
        if item.port:
            style.append(f'taillabel="{item.port}"')
        yield f"  {source} -> {here}" + (f" [{', '.join(style)}];" if style else ";")
    for control in node.controls:
        if control in numbers:
            yield f"  {numbers[control]} -> {here} [style=dashed, color=gray50];"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
