"""Put the primitives of a loop beside each other, so that its machinery crosses no device.

A loop that must stay together goes to the device of its LoopCond (of its first Merge, without
one). Then, beside what it belongs to: a Switch on the loop's predicate beside its Merge, an Exit
beside its Switch, an Enter and a NextIteration beside a reader. Merges stay. A Switch of a
conditional goes beside its data where that saves a message.
"""

from __future__ import annotations

from collections.abc import Iterable

from cfgraph.analysis.loops.frames import Frame
from cfgraph.ir.graph import Node
from cfgraph.passes.partition.crossings import COPIED
from cfgraph.passes.partition.devices import Places
from cfgraph.passes.partition.spread import Loops


def relocated(where: Places, loops: Loops) -> tuple[Places, list[Frame]]:
    """Where every node goes, and the loops that were gathered on one device."""
    new = dict(where)
    if len(set(where.values())) < 2:
        return new, []
    gathered = _gather(new, loops)
    _follow_sources(new, loops)
    _follow_readers(new, loops)
    return new, gathered


def _gather(where: Places, loops: Loops) -> list[Frame]:
    """Keep the loops together that must be, with all that is inside."""
    frames = loops.found.all[1:]
    devices = _devices_within(frames, where)
    homes: dict[Frame, str] = {}
    gathered: list[Frame] = []
    if all(len(here) == 1 for here in devices.values()):
        return gathered
    together = loops.stay_together()
    for frame in frames:
        if frame.parent in homes:
            homes[frame] = homes[frame.parent]
        elif len(devices[frame]) > 1 and frame in together:
            homes[frame] = where[_anchor(frame)]
            gathered.append(frame)
    for frame, device in homes.items():
        where.update(dict.fromkeys(frame.nodes, device))
    return gathered


def _devices_within(frames: Iterable[Frame], where: Places) -> dict[Frame, set[str]]:
    found = {frame: {where[node] for node in frame.nodes} for frame in frames}
    for frame in reversed(list(found)):
        if frame.parent in found:
            found[frame.parent] |= found[frame]
    return found


def _anchor(frame: Frame) -> Node:
    for nodes in (frame.loop_conds, frame.merges, frame.nodes, frame.enters):
        if nodes:
            return nodes[0]
    raise AssertionError(frame)


def _follow_sources(where: Places, loops: Loops) -> None:
    """A Switch goes beside the Merge that it reads, an Exit beside what it reads.

    So does any other Switch that nobody reads on its own device: its data need not go there.
    """
    roles = loops.roles
    for node in loops.found.order:
        role = roles[node.op]
        if role not in ("switch", "exit"):
            continue
        source = node.inputs[0].node
        of_variable = role == "switch" and loops.is_variable(source) and loops.is_driven(node)
        follows = of_variable or role == "exit" or _is_unread(node, where)
        if follows and roles[source.op] not in COPIED:
            where[node] = where[source]


def _is_unread(node: Node, where: Places) -> bool:
    return bool(node.uses) and all(where[use.node] != where[node] for use in node.uses)


def _follow_readers(where: Places, loops: Loops) -> None:
    """An Enter or a NextIteration goes beside its first reader, unless one is beside it."""
    roles = loops.roles
    for node in reversed(loops.found.order):
        if roles[node.op] in ("enter", "next_iteration") and node.uses:
            devices = [where[use.node] for use in node.uses]
            if where[node] not in devices:
                where[node] = devices[0]
