"""Where the flow of an array goes: one way, so that the list that goes it has all writes.

──▶ Write ──▶ Write ──▶ Read        a chain, or the two sides of a Switch
──▶ Write                           a fork: what reads beside a writer has no part in what
 └▶ Read                            that writes, unless the writer waits for it
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cfgraph.ir.graph import Node, Output, Use
from cfgraph.ops.op import role
from cfgraph.passes.lift.refused import refused


def require_one_way(
    flows: Iterable[Output], writers: Collection[Node], carriers: Collection[Node]
) -> None:
    """Raise Refused where a flow that is written on has another reader, or comes again."""
    order = list(flows)
    leading = _leading(order, writers, carriers)
    for item in order:
        readers = item.node.readers(item.port)
        later = [use for use in readers if use.node in writers or use.node in leading]
        if not later:
            continue
        if role(item.node) == "enter" and item.node.attr("is_constant"):
            text = f"each iteration writes on what {item.node.name} brings"
            raise refused("list", text, node=item.node.name)
        for use in readers:
            if use is not later[0] and not _harmless(use, later[0], writers, carriers):
                names = f"{later[0].node.name} and {use.node.name}"
                raise refused("list", f"{names} go on from one state of it", node=item.node.name)


def _leading(
    flows: list[Output], writers: Collection[Node], carriers: Collection[Node]
) -> set[Node]:
    """The carriers behind which something is written."""
    found: set[Node] = set()
    todo = [item.node for item in flows if any(use.node in writers for use in _uses(item))]
    for node in todo:
        if node in carriers and node not in found:
            found.add(node)
            todo += [item.node for item in node.inputs]
    return found


def _uses(item: Output) -> list[Use]:
    return item.node.readers(item.port)


def _harmless(use: Use, later: Use, writers: Collection[Node], carriers: Collection[Node]) -> bool:
    """True for a node that only reads, and is done when the writer writes or waits for no writer.

    An element is written once, so that what was there when the flow came by is there for good.
    """
    reader, writer = use.node, later.node
    if reader in writers or reader in carriers:
        return False
    if writer in writers and reader in _waited_for(writer, within=True):
        return True
    beside = [item.node for slot, item in enumerate(reader.inputs) if slot != use.slot]
    cones = (_waited_for(node, within=False) for node in (*beside, *reader.controls))
    return not any(cone.intersection(writers) for cone in cones)


def _waited_for(node: Node, *, within: bool) -> set[Node]:
    """A node with all that it waits for; `within` one iteration, or in those before as well."""
    found, queue = {node}, [node]
    for here in queue:
        if within and role(here) == "next_iteration":
            continue
        near = {*(item.node for item in here.inputs), *here.controls} - found
        found |= near
        queue += near
    return found
