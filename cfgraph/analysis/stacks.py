"""Which pushes and pops belong to which stack, in a bare graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from cfgraph.ir import registry
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ops.op import HANDS_ON, is_a, lookup, role
from cfgraph.ops.stacks import NewStack, StackPopV2, StackPushV2


@dataclass(slots=True, eq=False)
class StackUse:
    """A stack: the node that makes it, and the nodes that push to it and pop from it."""

    handle: Node
    pushes: list[Node] = field(default_factory=list)
    pops: list[Node] = field(default_factory=list)


def stacks(graph: Graph) -> dict[Node, StackUse]:
    """The stack of every push and pop; handles are followed to where they are used."""
    found: dict[Node, StackUse] = {}
    for node in graph:
        if not is_a(node, NewStack):
            continue
        use = StackUse(node)
        for reader in _readers(node.output()):
            if is_a(reader, StackPushV2):
                use.pushes.append(reader)
                found[reader] = use
            elif is_a(reader, StackPopV2):
                use.pops.append(reader)
                found[reader] = use
    return found


def _readers(handle: Output) -> Iterator[Node]:
    """What reads a handle, also behind nodes that hand it on."""
    todo, seen = [handle], {handle}
    while todo:
        item = todo.pop()
        for use in item.node.readers(item.port):
            if use.slot or not _hands_on(use.node):
                yield use.node
                continue
            count = registry.output_count(use.node) or 1
            for made in map(use.node.output, range(count if role(use.node) == "switch" else 1)):
                if made not in seen:
                    seen.add(made)
                    todo.append(made)


def _hands_on(node: Node) -> bool:
    op = lookup(node.op)
    return op is not None and (op.forwards or op.role in HANDS_ON)
