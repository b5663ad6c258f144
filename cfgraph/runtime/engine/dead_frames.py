"""Frames that need not run if all their Enters are dead, since all their nodes are dead then.

    dead Enters ▸ Merge ▸ Switch ▸ … ▸ dead Exits      becomes      dead Enters ▸ dead Exits

TensorFlow propagates the dead tokens through the frame. The last iteration of a loop kills the
Enters of the loops in it, so that n loops in each other cost n² tokens. Nothing else depends on
these tokens: a frame that is dead has no second iteration, and its dead Exits are delivered when
all Enters have arrived, with or without the tokens between. Tags and pending counts outside are
the same. A frame with one live Enter runs, and then receives the dead ones that came before.

A frame is not skipped if something observes its dead tokens: a fetch, a Send, a trace, memory
accounting. Nor if something in it could be live or missing: a ControlTrigger, a Recv, or a Merge
that waits for a back edge and has no Enter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Final

from cfgraph.analysis.loops.frames import Frame
from cfgraph.ir.graph import Node
from cfgraph.ir.role import Role
from cfgraph.runtime.engine.plan import FramePlan, Plan

_NEVER_SKIPPED: Final = (Role.CONTROL_TRIGGER, Role.SEND, Role.RECV)


def skippable_frames(plan: Plan, traced: Node | None = None) -> set[FramePlan]:
    """The frames of a plan in which each node fires dead if all Enters of the frame are dead.

    The tokens of the node `traced` are observed.
    """
    observed = {output.node for output in (*plan.fetches.values(), *plan.feeds.values())}
    observed.update([traced] if traced else [])
    skippable: dict[Frame, FramePlan] = {}
    for frame in reversed(plan.frames.all[1:]):
        nodes = [*frame.enters, *frame.nodes]
        roles = {plan.nodes[node].op.role for node in nodes}
        children = {plan.frames.of_outputs[node] for node in frame.nodes} - {frame, frame.parent}
        if not roles.isdisjoint(_NEVER_SKIPPED) or not observed.isdisjoint(nodes):
            continue
        if children <= skippable.keys() and _all_die(plan, frame, children):
            child = plan.nodes[frame.enters[0]].child
            assert child is not None
            skippable[frame] = child
    return set(skippable.values())


def _all_die(plan: Plan, frame: Frame, children: Collection[Frame]) -> bool:
    """True if all nodes fire dead; dead Exits of the children follow all their dead Enters."""
    enters = set(frame.enters)
    missing: dict[Node, int] = {}
    consumers: defaultdict[Node, list[Node]] = defaultdict(list)
    for node in frame.nodes:
        sources = _awaited_nodes(node, enters, is_merge=plan.nodes[node].op.role is Role.MERGE)
        missing[node] = len(sources)
        for source in sources:
            consumers[source].append(node)
    entering = {child: len(child.enters) for child in children}
    dead = list(frame.enters)
    fired = 0
    for source in dead:
        for node in consumers[source]:
            missing[node] -= 1
            if missing[node]:
                continue
            fired += 1
            child = plan.frames.of_outputs[node]
            if child not in entering:
                dead.append(node)
                continue
            entering[child] -= 1
            if not entering[child]:
                dead += child.exits
    return fired == len(frame.nodes)


def _awaited_nodes(node: Node, enters: Collection[Node], *, is_merge: bool) -> list[Node]:
    """The sources whose dead tokens let a node fire; a Merge waits for Enters alone."""
    sources = [tensor.node for tensor in node.inputs]
    entered = [source for source in sources if source in enters] if is_merge else []
    return [*(entered or sources), *node.controls]
