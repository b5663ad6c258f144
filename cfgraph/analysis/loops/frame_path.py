"""Frame paths: the Enters and Exits between the frame of a tensor and the frame of its reader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cfgraph.analysis.loops.frames import Frame, Frames
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of, strip_identities


@dataclass(frozen=True, slots=True)
class FramePath:
    """The loops between a tensor and a node that shall read it.

    `leaves` are the frames to exit, innermost first, `enters` those to enter then. `ready` is the
    tensor in the reader's frame if the graph already forwards it; otherwise `near` are Exits of the
    first frame to leave, which forward other variables.
    """

    leaves: tuple[Frame, ...]
    enters: tuple[Frame, ...]
    ready: Output | None
    near: tuple[Node, ...]


def frame_path(graph_frames: Frames, x: Output, reader: Node) -> FramePath:
    """The frames to leave and to enter from a tensor to a node."""
    target, current = graph_frames.of_outputs[x.node], graph_frames.of[reader]
    leaves, enters = [], list[Frame]()
    while current is not target:
        if target.depth >= current.depth and target.parent is not None:
            leaves.append(target)
            target = target.parent
        else:
            enters.insert(0, current)
            current = current.parent or current
    ready: Output | None = x
    for frame in leaves:
        ready = ready and next((e.output() for e in frame.exits if _exit_carries(e, ready)), None)
    for frame in enters:
        ready = ready and next((e.output() for e in frame.enters if _enter_carries(e, ready)), None)
    return FramePath(tuple(leaves), tuple(enters), ready, tuple(leaves[0].exits) if leaves else ())


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
    switch = exit_node.inputs[0].node
    yield exit_node.inputs[0]
    if role_of(switch) is not Role.SWITCH:
        return
    merge = strip_identities(switch.inputs[0]).node
    if role_of(merge) is not Role.MERGE:
        return
    yield merge.output()
    for tensor in merge.inputs:
        if role_of(tensor.node) is Role.NEXT_ITERATION:
            yield tensor.node.inputs[0]
