"""Validity of loops: findings on cycles without NextIteration and on inconsistent frames."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from cfgraph.analysis.findings import Finding
from cfgraph.ir import registry
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.topological_order import OpRoles

if TYPE_CHECKING:
    from cfgraph.analysis.loops.frames import Frame, Frames


_SHOWN: Final = 8


def cycle_findings(
    graph_frames: Sequence[tuple[Node, ...]], nodes: Iterable[Node]
) -> Iterator[Finding]:
    """One finding per cycle, ordered by the positions of `nodes`."""
    if not graph_frames:
        return
    places = {node: position for position, node in enumerate(nodes)}
    for cycle in sorted(graph_frames, key=lambda cycle: min(places[node] for node in cycle)):
        names, (first, *related) = describe_cycle(cycle, places)
        message = f"nodes wait for each other in a cycle: {names}"
        hint = "a loop closes through a NextIteration that feeds a Merge directly"
        yield Finding("CFG109", "error", message, first, hint, tuple(related))


def describe_cycle(
    cycle: Sequence[Node], places: Mapping[Node, int]
) -> tuple[str, tuple[str, ...]]:
    """The text of a cycle, its middle omitted, and its names from the first node in graph order."""
    first = min(range(len(cycle)), key=lambda position: places[cycle[position]])
    nodes = (*cycle[first:], *cycle[:first])
    shown = [repr(node.name) for node in (*nodes, nodes[0])]
    if len(shown) > _SHOWN:
        shown[_SHOWN - 2 : -1] = [f"… {len(shown) - _SHOWN} more …"]
    return " -> ".join(shown), tuple(node.name for node in nodes)


# TensorFlow exempts the nodes of its own gradient library
_EXEMPT_NAME = "LoopCounter"


def verify_frames(
    graph_frames: Frames, nodes: Iterable[Node], cut: Collection[Output], mixed: Collection[Node]
) -> Iterator[Finding]:
    """Findings on the frames, in graph order; `mixed` are the nodes whose inputs disagree."""
    roles = OpRoles()
    conditions: dict[Frame, Node] = {}
    for node in nodes:
        if node in mixed:
            yield _mixed_frames(graph_frames, node, cut, roles)
        role = roles[node.op]
        if not role:
            continue
        if role is Role.ENTER:
            yield from _unnamed_frame(node)
        elif role is Role.MERGE:
            yield from _merge_faults(graph_frames, node, cut, roles)
        elif role in _IN_ROOT and graph_frames.of[node] is graph_frames.root:
            yield _loop_node_in_root(node, role)
        elif role is Role.LOOP_COND:
            yield from _second_loop_cond(graph_frames.of[node], node, conditions)


def _frame_label(frame: Frame) -> str:
    """The name of a frame in messages."""
    return f"frame '{frame.path}'" if frame.parent else "the root frame"


def _sources(
    graph_frames: Frames, node: Node, cut: Collection[Output], roles: OpRoles
) -> Iterator[tuple[str, Node, Frame]]:
    """The inputs that determine the frame of a node: name, node, and frame."""
    is_merge = roles[node.op] is Role.MERGE
    for tensor in node.inputs:
        fed = cut and tensor in cut
        if is_merge and roles[tensor.node.op] is Role.NEXT_ITERATION and not fed:
            continue
        if fed:
            yield tensor.name, tensor.node, graph_frames.root
        elif tensor.node in graph_frames.of_outputs:
            yield tensor.name, tensor.node, graph_frames.of_outputs[tensor.node]
    for control in node.controls:
        if control in graph_frames.of_outputs:
            yield f"^{control.name}", control, graph_frames.of_outputs[control]


def _mixed_frames(
    graph_frames: Frames, node: Node, cut: Collection[Output], roles: OpRoles
) -> Finding:
    own_frame = graph_frames.of[node]
    sources = list(_sources(graph_frames, node, cut, roles))
    name, source, _ = next(entry for entry in sources if entry[2] is own_frame)
    other_name, stranger, other_frame = next(
        entry for entry in sources if entry[2] is not own_frame
    )
    message = (
        f"inputs come from different frames: {name!r} is in {_frame_label(own_frame)}, "
        f"{other_name!r} in {_frame_label(other_frame)}"
    )
    hint = _mixed_frames_hint((name, own_frame), (other_name, stranger, other_frame))
    related = (source.name, stranger.name)
    return Finding("CFG201", "error", message, node.name, hint, related, str(own_frame))


def _mixed_frames_hint(inside: tuple[str, Frame], outside: tuple[str, Node, Frame]) -> str:
    name, own_frame = inside
    other_name, stranger, other_frame = outside
    if not own_frame.is_within(other_frame):
        return f"read an Exit of the loop that contains {other_name!r}, not the tensor inside"
    if other_name.startswith("^"):
        return f"let the Enters of the loop wait for {stranger.name!r}"
    if not stranger.inputs and not stranger.controls and not _is_fed(stranger):
        return f"give {stranger.name!r} a control input from inside the loop"
    return (
        f"forward {other_name!r} into the loop by a constant Enter, "
        f"or read the loop's Exit instead of {name!r}"
    )


def _is_fed(node: Node) -> bool:
    definition = registry.lookup(node.op)
    return definition is not None and definition.effects.is_input


def _unnamed_frame(node: Node) -> Iterator[Finding]:
    if not node.attrs.get("frame_name"):
        message = "an Enter must name the frame that it leads into"
        hint = "set the attribute frame_name to a string that is not empty"
        yield Finding("CFG202", "error", message, node.name, hint)


_IN_ROOT = {
    Role.EXIT: ("CFG203", "an Exit in the root frame leaves no loop"),
    Role.NEXT_ITERATION: ("CFG204", "a NextIteration in the root frame has no loop to continue"),
    Role.LOOP_COND: ("CFG205", "a LoopCond in the root frame belongs to no loop"),
}


def _loop_node_in_root(node: Node, role: Role) -> Finding:
    code, message = _IN_ROOT[role]
    hint = "a loop starts with an Enter; its nodes depend on it"
    return Finding(code, "error", message, node.name, hint)


def _second_loop_cond(frame: Frame, node: Node, conditions: dict[Frame, Node]) -> Iterator[Finding]:
    if _EXEMPT_NAME in node.name:
        return
    first = conditions.setdefault(frame, node)
    if first is not node:
        message = (
            f"{_frame_label(frame)} has more than one LoopCond: {first.name!r} and {node.name!r}"
        )
        hint = "two loops in one frame need different frame names"
        yield Finding("CFG206", "error", message, node.name, hint, (first.name,), str(frame))


def _merge_faults(
    graph_frames: Frames, node: Node, cut: Collection[Output], roles: OpRoles
) -> Iterator[Finding]:
    back = [
        tensor
        for tensor in node.inputs
        if roles[tensor.node.op] is Role.NEXT_ITERATION and not (cut and tensor in cut)
    ]
    frame = graph_frames.of[node]
    if back and len(back) == len(node.inputs) and not node.controls:
        message = "nothing starts the loop: all inputs of the Merge are NextIterations"
        hint = "add an Enter for the initial value"
        yield Finding("CFG208", "error", message, node.name, hint, tuple(i.node.name for i in back))
        return
    for tensor in back:
        have = graph_frames.of_outputs.get(tensor.node)
        if have is not None and have is not frame and have is not graph_frames.root:
            message = (
                f"the loop does not close: the Merge is in {_frame_label(frame)}, "
                f"its NextIteration {tensor.node.name!r} in {_frame_label(have)}"
            )
            hint = "forward the value through the inner loop's Exit first"
            yield Finding(
                "CFG207", "error", message, node.name, hint, (tensor.node.name,), str(frame)
            )
