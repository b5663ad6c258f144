"""Edges between different frames, which no Enter or Exit crosses, and the tensors to read instead.

    add:0 (in /loop) -> out (in the root frame)      read exit:0, the Exit that forwards add:0

A node whose inputs are in different frames belongs to the loop that it serves: the deepest one in
which a NextIteration, a LoopCond, or an Exit depends on it. If it serves none, it is outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.ir.graph import CONTROL, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import reachable
from cfgraph.ops.opdef.op import lookup, role_of, strip_identities

_SERVED: Final = (Role.NEXT_ITERATION, Role.LOOP_COND, Role.EXIT)


@dataclass(frozen=True, slots=True)
class FramePath:
    """The loops between a tensor and a node that shall read it.

    `leaves` are the frames to exit, innermost first, `enters` those to enter then. `reached` is the
    tensor that the graph forwards furthest, and `blocked` the frame that nothing forwards it out of
    or into; it is None if `reached` is in the reader's frame. `near` are the Exits of the first
    frame to leave.
    """

    leaves: tuple[Frame, ...]
    enters: tuple[Frame, ...]
    reached: Output
    blocked: Frame | None
    near: tuple[Node, ...]

    @property
    def ready(self) -> Output | None:
        """The tensor in the reader's frame, if the graph forwards it there."""
        return self.reached if self.blocked is None else None


def frame_path(source: Frame, target: Frame, x: Output) -> FramePath:
    """The frames to leave and to enter from the frame of a tensor to that of a reader."""
    current = target
    leaves: list[Frame] = []
    enters: list[Frame] = []
    while current is not source:
        if source.depth >= current.depth and source.parent is not None:
            leaves.append(source)
            source = source.parent
        else:
            enters.insert(0, current)
            current = current.parent or current
    reached, blocked = x, None
    for frame in (*leaves, *enters):
        nodes, carries = (
            (frame.exits, _exit_carries) if frame in leaves else (frame.enters, _enter_carries)
        )
        forwarded = next((node.output() for node in nodes if carries(node, reached)), None)
        if forwarded is None:
            blocked = frame
            break
        reached = forwarded
    near = tuple(leaves[0].exits) if leaves else ()
    return FramePath(tuple(leaves), tuple(enters), reached, blocked, near)


def _enter_carries(enter: Node, x: Output) -> bool:
    """True if an Enter forwards a tensor to every iteration of its loop."""
    return x in enter.inputs and bool(enter.attr("is_constant"))


def _exit_carries(exit_node: Node, x: Output) -> bool:
    """True if an Exit forwards the final value of a tensor of its loop."""
    return strip_identities(x) in map(strip_identities, _final_values(exit_node))


def _final_values(exit_node: Node) -> Iterator[Output]:
    """The tensors of a loop whose final value an Exit forwards.

    The branch of the Switch that enters the body is excluded: it ends one iteration earlier.
    """
    if not exit_node.inputs:
        return
    switch = exit_node.inputs[0].node
    yield exit_node.inputs[0]
    if role_of(switch) is not Role.SWITCH or not switch.inputs:
        return
    merge = strip_identities(switch.inputs[0]).node
    if role_of(merge) is not Role.MERGE:
        return
    yield merge.output()
    for tensor in merge.inputs:
        if role_of(tensor.node) is Role.NEXT_ITERATION and tensor.node.inputs:
            yield tensor.node.inputs[0]


@dataclass(frozen=True, slots=True)
class FrameCrossing:
    """An edge from a tensor, or with `is_control` from its node, to a reader in another frame."""

    source: Output
    is_control: bool
    reader: Node
    source_frame: Frame
    reader_frame: Frame

    @property
    def name(self) -> str:
        """The name of the input, as in a graph file."""
        return f"^{self.source.node.name}" if self.is_control else self.source.name

    @property
    def path(self) -> FramePath:
        """The loops to leave and to enter, with the tensor to read if there is one."""
        return frame_path(self.source_frame, self.reader_frame, self.source)

    @property
    def missing(self) -> str:
        """The kind of node that the edge lacks."""
        path = self.path
        kinds = ["an Exit"] * bool(path.leaves) + ["an Enter"] * bool(path.enters)
        return " and ".join(kinds)

    def advice(self) -> str:
        """The change that makes the edge valid, as a hint."""
        path, node = self.path, self.source.node
        if path.blocked is None and not (self.is_control and path.enters):
            kind = f"the Exit of {path.leaves[-1].path}" if path.leaves else ""
            if path.enters:
                kind += f"{', and ' * bool(kind)}the constant Enter into {path.enters[-1].path}"
            name = f"^{path.reached.node.name}" if self.is_control else path.reached.name
            return f"read {name!r}, {kind}, instead of {self.name!r}"
        blocked = path.blocked or path.enters[-1]
        if self.is_control and path.leaves:
            return f"wait for an Exit of {path.leaves[-1].path} instead of {node.name!r}"
        if self.is_control:
            return f"let the Enters of the loop {blocked.path} wait for {node.name!r}"
        if blocked in path.leaves:
            return f"forward {path.reached.name!r} out of {blocked.path} by an Exit, and read that"
        if path.reached == self.source and not (node.inputs or node.controls or _is_fed(node)):
            loop = self.reader_frame.path
            return f"give {node.name!r} a control input from inside the loop {loop}"
        return f"forward {path.reached.name!r} into {blocked.path} by a constant Enter"


def _is_fed(node: Node) -> bool:
    definition = lookup(node.op)
    return definition is not None and definition.effects.is_input


def crossings_into(graph_frames: Frames, reader: Node) -> tuple[FrameCrossing, ...]:
    """The edges into a node from other frames than the one that it belongs to."""
    edges = [(tensor, False) for tensor in _forward_inputs(reader)]
    edges += [(control.output(), True) for control in reader.controls]
    known = [
        (tensor, is_control, graph_frames.of_outputs[tensor.node])
        for tensor, is_control in edges
        if tensor.node in graph_frames.of_outputs
    ]
    own_frame = _intended_frame(graph_frames, reader, [frame for _, _, frame in known])
    return tuple(
        FrameCrossing(tensor, is_control, reader, frame, own_frame)
        for tensor, is_control, frame in known
        if frame is not own_frame
    )


def _forward_inputs(node: Node) -> Iterator[Output]:
    """The inputs that determine the frame of a node."""
    for tensor in node.inputs:
        if role_of(node) is Role.MERGE and role_of(tensor.node) is Role.NEXT_ITERATION:
            continue
        yield tensor


def _intended_frame(graph_frames: Frames, reader: Node, sources: Iterable[Frame]) -> Frame:
    """The deepest frame of the inputs that the node serves, else one that contains all of them."""
    candidates = sorted(dict.fromkeys(sources), key=lambda frame: -frame.depth)
    if len(candidates) < 2:
        return candidates[0] if candidates else graph_frames.root
    served = _served_frames(graph_frames, reader)
    for frame in candidates:
        if any(loop.is_within(frame) for loop in served):
            return frame
    common = candidates[-1]
    while not all(frame.is_within(common) for frame in candidates) and common.parent is not None:
        common = common.parent
    return common


def _served_frames(graph_frames: Frames, start: Node) -> set[Frame]:
    """The frames of the NextIterations, LoopConds, and Exits that depend on a node."""

    def readers(node: Node) -> list[Node]:
        if role_of(node) in _SERVED:
            return []
        return [
            use.node for use in node.uses if use.slot != CONTROL and use.node in graph_frames.of
        ]

    served = [node for node in reachable([start], readers) if role_of(node) in _SERVED]
    return {frame for node in served for frame in _frames_of_loop(graph_frames, node)}


def _frames_of_loop(graph_frames: Frames, node: Node) -> Iterator[Frame]:
    """The frames of the loop that a node belongs to; its own is a guess that its inputs decide."""
    nodes = list[Node]()
    if role_of(node) is Role.NEXT_ITERATION:
        nodes = [use.node for use in node.uses if role_of(use.node) is Role.MERGE]
    elif role_of(node) is Role.LOOP_COND:
        switches = [use.node for use in node.uses if _is_complete_switch(use.node)]
        nodes = [switch.inputs[0].node for switch in switches]
    elif node.inputs and _is_complete_switch(switch := node.inputs[0].node):
        nodes = [strip_identities(switch.inputs[1]).node]
    else:
        yield graph_frames.of[node]
    yield from (graph_frames.of_outputs[item] for item in nodes if item in graph_frames.of_outputs)


def _is_complete_switch(node: Node) -> bool:
    """True for a Switch with data and a predicate; the graph may not be verified."""
    return role_of(node) is Role.SWITCH and len(node.inputs) > 1
