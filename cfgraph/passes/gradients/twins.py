"""A second loop like one of the graph, with all that is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cfgraph.analysis.frames import Frame
from cfgraph.analysis.regions import Region
from cfgraph.ir.graph import Node, Output
from cfgraph.passes.gradients.repeatable import access
from cfgraph.passes.gradients.work import Work


def twin_of(
    work: Work, region: Region, entering: Callable[[Output], Output]
) -> tuple[Region, dict[Node, Node]]:
    """Add a loop like another one; its region, and the new node for each old one.

    `entering` has for each tensor that enters the old loop the one that enters the new one.
    """
    nodes = list(_members(region))
    twins = {node: work.twin(node) for node in nodes}
    graph = work.graph
    for node, twin in twins.items():
        work.known.copy(twin, node)
        if node in region.frame.enters:
            graph.connect(twin, map(entering, node.inputs), ())
            continue
        inputs = [Output(twins[item.node], item.port) for item in node.inputs]
        graph.connect(twin, inputs, [twins[item] for item in node.controls])
    _name_frames(work, region, twins)
    return _region(region, region.outer, twins), twins


def settle(work: Work) -> None:
    """Once the gradients are there: do not write arrays again, and remove twins that nobody needs.

    What was written is there still, so that a write has only to hand on its flow.
    """
    graph = work.graph
    for node in work.twins:
        if access(node) == "write":
            flow = node.inputs[-1]
            graph.replace_uses(node.output(), flow)
            for reader in node.control_readers:
                waits = [flow.node if item is node else item for item in reader.controls]
                graph.set_controls(reader, waits)
    twins = set(work.twins)
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
        [twins[node] for node in nodes]
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
    ]
    return made
