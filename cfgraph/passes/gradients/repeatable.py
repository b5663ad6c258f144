"""Whether a loop may run again: it gives the same values, and changes nothing.

Variables may be read that nothing writes after the loop. Elements of an array of tensors may be
read again, if it keeps them; what was written, or pushed on a stack that these gradients do not pop
from, need not be so again. An array that is made in the loop is made again. All else that has state
is refused.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator
from typing import Final

from cfgraph.analysis.effects import Effects
from cfgraph.analysis.loops.regions import Region
from cfgraph.errors import Unsupported
from cfgraph.ir.graph import Node
from cfgraph.ops.op import lookup
from cfgraph.ops.tensor_array_ops import ArrayOp

# the attribute of an array that gives each element once
CLEARED: Final = "clear_after_read"


class Repeatable:
    """Looks at what loops do that must not be done twice.

    `pushed` are the nodes that push what these gradients do not pop.
    """

    def __init__(self, pushed: Container[Node]) -> None:
        self._pushed = pushed
        self._effects = Effects()

    def require(self, region: Region) -> list[Node]:
        """The arrays that a loop reads elements of; they must keep them.

        Raises Unsupported, naming the node, for a loop that cannot run again.
        """
        nodes = list(_members(region))
        inside, read, written = set(nodes), dict[Node, Node](), set[Node]()
        for node in nodes:
            op, kind = lookup(node.op), access(node)
            if op is None or op.random:
                what = "is not known" if op is None else "draws random numbers"
                raise _refused(region, node, what)
            if kind:
                array = self._effects.origin(node.inputs[0]).node
                if not _is_array(array):
                    raise _refused(region, node, "uses an array that may be one of several")
                if array in inside:
                    continue
                if kind == "write":
                    written.add(array)
                else:
                    read[array] = node
            elif op.stateful and not (op.reads_only or _is_array(node) or node in self._pushed):
                raise _refused(region, node, "has state")
        for array in written & read.keys():
            raise _refused(region, read[array], "reads what the loop itself writes")
        reading = [node for node in nodes if node not in self._pushed and not _is_array(node)]
        used = list(self._effects.accesses(reading))
        changed = self._changed_after(region) if used else set()
        for item in used:
            if item.resource in changed:
                raise _refused(
                    region, item.node, f"reads {item.name}, which changes after the loop"
                )
        return list(read)

    def _changed_after(self, region: Region) -> set[Hashable]:
        """The resources that nodes behind a loop write."""
        behind = dict.fromkeys(use.node for node in region.frame.exits for use in node.uses)
        todo = list(behind)
        while todo:
            for use in todo.pop().uses:
                if use.node not in behind:
                    behind[use.node] = None
                    todo.append(use.node)
        return {item.resource for item in self._effects.accesses(behind) if item.writes}


def access(node: Node) -> str:
    """What a node does to elements of an array of tensors: `read`, `write`, or nothing."""
    op = lookup(node.op)
    return op.access if op is not None and issubclass(op, ArrayOp) else ""


def _is_array(node: Node) -> bool:
    """True for a node that makes an array of tensors."""
    op = lookup(node.op)
    return op is not None and CLEARED in op.parsed().attrs


def _members(region: Region) -> Iterator[Node]:
    """The nodes of a loop and of those in it."""
    for item in region.order:
        if isinstance(item, Region):
            yield from _members(item)
        else:
            yield item


def _refused(region: Region, node: Node, what: str) -> Unsupported:
    path = region.frame.path
    message = f"{node.op} {what}: the loop {path} cannot run again"
    hint = "leave --recompute out: the loop saves what its gradient needs then"
    return Unsupported(message, node=node, frame=path, hint=hint, code="CFG510")
