"""Purity of a loop: whether recomputing it yields the same values and has no side effects.

Variables may be read if nothing writes them after the loop. Elements of a TensorArray may be read
again if the array retains them. Writes to arrays, and pushes on stacks that these gradients do not
pop, are not repeated. An array created in the loop is created again. A loop with any other stateful
op is rejected.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator
from typing import Final

from cfgraph.analysis.effects import EffectAnalysis
from cfgraph.analysis.loops.regions import Region
from cfgraph.errors import Unsupported
from cfgraph.ir.graph import Node
from cfgraph.ops.families.tensor_array_ops import TensorArrayOp
from cfgraph.ops.opdef.op import lookup

# the attribute of an array that gives each element once
CLEAR_AFTER_READ: Final = "clear_after_read"


class Purity:
    """Looks at what loops do that must not be done twice.

    `pushed` are the nodes that push what these gradients do not pop.
    """

    def __init__(self, pushed: Container[Node]) -> None:
        self._add_push = pushed
        self._effects = EffectAnalysis()

    def require(self, region: Region) -> list[Node]:
        """The arrays that a loop reads elements of; they must keep them.

        Raises Unsupported, naming the node, for a loop that cannot run again.
        """
        nodes = list(_loop_nodes(region))
        inside, read, written = set(nodes), dict[Node, Node](), set[Node]()
        for node in nodes:
            op, kind = lookup(node.op), array_access(node)
            if op is None or op.effects.random:
                what = "is not known" if op is None else "draws random numbers"
                raise _impure_loop(region, node, what)
            if kind:
                array = self._effects.origin(node.inputs[0]).node
                if not _creates_array(array):
                    raise _impure_loop(region, node, "uses an array that may be one of several")
                if array in inside:
                    continue
                if kind == "write":
                    written.add(array)
                else:
                    read[array] = node
            elif op.effects.stateful and not (
                op.effects.reads_only or _creates_array(node) or node in self._add_push
            ):
                raise _impure_loop(region, node, "has state")
        for array in written & read.keys():
            raise _impure_loop(region, read[array], "reads what the loop itself writes")
        reading = [
            node for node in nodes if node not in self._add_push and not _creates_array(node)
        ]
        used = list(self._effects.accesses(reading))
        changed = self._written_downstream(region) if used else set()
        for item in used:
            if item.resource in changed:
                raise _impure_loop(
                    region, item.node, f"reads {item.name}, which changes after the loop"
                )
        return list(read)

    def _written_downstream(self, region: Region) -> set[Hashable]:
        """The resources that nodes behind a loop write."""
        behind = dict.fromkeys(use.node for node in region.frame.exits for use in node.uses)
        todo = list(behind)
        while todo:
            for use in todo.pop().uses:
                if use.node not in behind:
                    behind[use.node] = None
                    todo.append(use.node)
        return {item.resource for item in self._effects.accesses(behind) if item.writes}


def array_access(node: Node) -> str:
    """What a node does to elements of an array of tensors: `read`, `write`, or nothing."""
    op = lookup(node.op)
    return op.access if op is not None and issubclass(op, TensorArrayOp) else ""


def _creates_array(node: Node) -> bool:
    """True for a node that makes an array of tensors."""
    op = lookup(node.op)
    return op is not None and CLEAR_AFTER_READ in op.parsed().attrs


def _loop_nodes(region: Region) -> Iterator[Node]:
    """The nodes of a loop and of those in it."""
    for item in region.order:
        if isinstance(item, Region):
            yield from _loop_nodes(item)
        else:
            yield item


def _impure_loop(region: Region, node: Node, what: str) -> Unsupported:
    path = region.frame.path
    message = f"{node.op} {what}: the loop {path} cannot run again"
    hint = "leave --recompute out: the loop saves what its gradient needs then"
    return Unsupported(message, node=node, frame=path, hint=hint, code="CFG510")
