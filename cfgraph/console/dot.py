"""A graph in the DOT language of Graphviz: loops as nested boxes, back edges in red."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from cfgraph.analysis.frames import Frame, Frames
from cfgraph.ir.graph import Node
from cfgraph.ops.op import role

_SHAPES = {"switch": "trapezium", "merge": "invtrapezium", "enter": "cds", "exit": "cds"}


def dot_lines(nodes: Iterable[Node], found: Frames) -> Iterator[str]:
    """The lines of a digraph of some nodes and the edges among them."""
    chosen = list(nodes)
    numbers = {node: f"n{place}" for place, node in enumerate(chosen)}
    yield "digraph {"
    yield '  node [shape=box, style=rounded, fontname="sans-serif", fontsize=10];'
    yield from _frames(chosen, found, numbers)
    for node in chosen:
        yield from _edges(node, numbers)
    yield "}"


def _frames(chosen: list[Node], found: Frames, numbers: dict[Node, str]) -> Iterator[str]:
    """The nodes, those of a loop within its box."""
    members: dict[Frame, list[Node]] = {}
    for node in chosen:
        members.setdefault(found.of[node], []).append(node)
    children: dict[Frame | None, list[Frame]] = {}
    for frame in found.all:
        children.setdefault(frame.parent, []).append(frame)
    box = {frame: place for place, frame in enumerate(found.all)}
    stack: list[tuple[Frame, bool]] = [(found.root, False)]
    while stack:
        frame, closing = stack.pop()
        indent = "  " * (frame.depth + 1)
        if closing:
            yield f"{indent[2:]}}}"
            continue
        if frame is not found.root:
            yield f"{indent[2:]}subgraph cluster_{box[frame]} {{"
            yield f"{indent}label={_quoted(frame.name)}; color=gray60; fontcolor=gray40;"
            stack.append((frame, True))
        for node in members.get(frame, ()):
            yield f"{indent}{_node(node, numbers[node])}"
        stack.extend((child, False) for child in reversed(children.get(frame, [])))


def _node(node: Node, number: str) -> str:
    label = node.name if node.name == node.op else f"{node.name}\n{node.op}"
    shape = _SHAPES.get(role(node))
    more = f", shape={shape}" if shape else ""
    more += f", tooltip={_quoted(node.device)}" if node.device else ""
    return f"{number} [label={_quoted(label)}{more}];"


def _edges(node: Node, numbers: dict[Node, str]) -> Iterator[str]:
    here = numbers[node]
    for item in node.inputs:
        source = numbers.get(item.node)
        if source is None:
            continue
        style = []
        if role(item.node) == "next_iteration" and role(node) == "merge":
            style.append("color=red, constraint=false")
        if item.port:
            style.append(f'taillabel="{item.port}"')
        yield f"  {source} -> {here}" + (f" [{', '.join(style)}];" if style else ";")
    for control in node.controls:
        if control in numbers:
            yield f"  {numbers[control]} -> {here} [style=dashed, color=gray50];"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
