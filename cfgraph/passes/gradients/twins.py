"""A second loop like one of the graph, with all that is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cfgraph.analysis.effects import Effects
from cfgraph.analysis.loops.frames import Frame
from cfgraph.analysis.loops.regions import Region
from cfgraph.ir.graph import Node, Output
from cfgraph.passes.gradients.repeatable import access
from cfgraph.passes.gradients.work import Work


def twin_of(
    work: Work, region: Region, entering: Callable[[Output], Output]
) -> tuple[Region, dict[Node, Node]]:
    """Add a loop like another one; its region, and the new node for each old one.

    `entering` has for each tensor that enters the old loop the one that enters the new one.
    """
    graph, skipped = work.graph, work.left_out
    twins = {node: work.twin(node) for node in _members(region) if node not in skipped}

    def twin(x: Output) -> Output:
        while x.node in skipped:
            x = x.node.inputs[1]
        return Output(twins[x.node], x.port)

    entered = set(region.frame.enters)
    for node, made in twins.items():
        work.known.copy(made, node)
        if node in entered:
            graph.connect(made, map(entering, node.inputs), ())
        else:
            controls = [twin(item.output()).node for item in node.controls]
            graph.connect(made, map(twin, node.inputs), controls)
    _name_frames(work, region, twins)
    return _region(region, region.outer, twins), twins


def settle(work: Work) -> None:
    """Once the gradients are there: do not write arrays again, and remove twins that nobody needs.

    What was written is there still, so that a write has only to hand on its flow; but for arrays
    that are made again.
    """
    graph, twins, effects = work.graph, set(work.twins), Effects()
    for node in work.twins:
        if access(node) == "write" and effects.origin(node.inputs[0]).node not in twins:
            flow = node.inputs[-1]
            graph.replace_uses(node.output(), flow)
            for reader in node.control_readers:
                waits = [flow.node if item is node else item for item in reader.controls]
                graph.set_controls(reader, waits)
    todo = [node for node in work.twins if any(use.node not in twins for use in node.uses)]
    needed = set(todo)
    while todo:
        node = todo.pop()
        for before in (*(item.node for item in node.inputs), *node.controls):
            if before in twins and before not in needed:
                needed.add(before)
                todo.append(before)
    graph.remove(*(node for node in work.twins if node not in needed))


def _members(region: Region) -> Iterator[Node]:
    """The Enters of a loop, its nodes, and those of the loops in it."""
    yield from region.frame.enters
    for item in region.order:
        if isinstance(item, Region):
            yield from _members(item)
        else:
            yield item


def _name_frames(work: Work, region: Region, twins: dict[Node, Node]) -> None:
    frame = region.frame
    name = work.frame_name(f"again/{frame.name}").encode()
    for enter in frame.enters:
        work.graph.set_attr(twins[enter], "frame_name", name)
    for item in region.order:
        if isinstance(item, Region):
            _name_frames(work, item, twins)


def _region(region: Region, outer: Region | None, twins: dict[Node, Node]) -> Region:
    frame = region.frame
    lists = (
        [twins[node] for node in nodes if node in twins]
        for nodes in (
            frame.nodes,
            frame.enters,
            frame.exits,
            frame.merges,
            frame.next_iterations,
            frame.loop_conds,
        )
    )
    parent = None if outer is None else outer.frame
    made = Region(Frame(frame.name, parent, frame.depth, *lists), outer)
    made.order = [
        _region(item, made, twins) if isinstance(item, Region) else twins[item]
        for item in region.order
        if isinstance(item, Region) or item in twins
    ]
    return made
