"""Tensors to fetch instead of one that may be dead, or that has a value per iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.path_conditions import PathConditions
from cfgraph.analysis.loops.while_loop import final_exit, is_loop_switch
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.traversal import joining_merge

_MAX_PATH: Final = 5


def merge_hint(path: Sequence[Node], frames: Frames | None = None) -> str:
    """The Merge to read instead of a tensor in a branch, to which dead nodes lead from a fetch.

    Empty if no Merge joins the branch with the others. Of a Merge in a loop it names the Exit; a
    path outside of loops needs no `frames`.
    """
    unjoined, no_hint = set[Node](), {None, *path}
    merges = ((index, joining_merge(node, unjoined)) for index, node in enumerate(path))
    index, merge = next((item for item in merges if item[1] not in no_hint), (0, None))
    if merge is None:
        return ""
    frame = frames.of_outputs[path[0]] if frames else None
    if frames and frames.of_outputs[merge] is not frame:
        return ""
    loop = frame if frame and frame.parent else None
    if not index:
        advice = fetch_hint(merge.output(), loop) if loop else f"fetch {merge.name}:0"
        return f"{advice}, which joins the branches"
    names = [item.name for item in path[: index + 1]]
    if len(names) > _MAX_PATH:
        names[2:-2] = ["…"]
    edge = f"on the path {' ← '.join(names)}, let {path[index - 1].name} read {merge.name}:0"
    after = f", and {fetch_hint(path[0].output(), loop)}" if loop else ""
    return f"{edge}, which joins the branches{after}"


def fetch_hint(tensor: Output, frame: Frame) -> str:
    """The Exit to fetch for the last value of a tensor in a loop, else the option for all."""
    final = final_exit(tensor, frame)
    if final is None:
        return f"print all values of {tensor.name} with --tap {tensor.node.name}"
    return f"fetch {final.name}, the Exit that carries the last value of {tensor.name}"


def joined_tensor(tensor: Output, frames: Frames) -> Output | None:
    """The Merge that joins the branch of a tensor within its iteration, or None outside of one."""
    frame = frames.of_outputs[tensor.node]
    decisions = PathConditions().of_output(tensor).decisions()
    switches = [item.output.node for item in decisions if item.test.branches]
    local = [switch for switch in switches if frames.of.get(switch) is frame]
    if all(is_loop_switch(switch, frame.loop_cond) for switch in local):
        return None
    merge = joining_merge(tensor.node, set())
    return merge.output() if merge and frames.of_outputs[merge] is frame else None
