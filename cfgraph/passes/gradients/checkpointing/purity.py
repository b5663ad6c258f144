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

# the attribute of a TensorArray that frees each element when it is read
CLEAR_AFTER_READ: Final = "clear_after_read"


class Purity:
    """Checks that loops can be recomputed; `skipped` are pushes that are not repeated."""

    def __init__(self, skipped: Container[Node]) -> None:
        self._skipped = skipped
        self._effects = EffectAnalysis()

    def require(self, region: Region) -> list[Node]:
        """The TensorArrays that a loop reads, which have to retain their elements.

        Raises Unsupported, naming the node, for a loop that cannot be recomputed.
        """
        nodes = list(_loop_nodes(region))
        inner, read, written = set(nodes), dict[Node, Node](), set[Node]()
        for node in nodes:
            op, access = lookup(node.op), array_access(node)
            if op is None or op.effects.random:
                problem = "is not registered" if op is None else "draws random numbers"
                raise _impure_loop(region, node, problem)
            if access:
                array = self._effects.origin(node.inputs[0]).node
                if not _creates_array(array):
                    raise _impure_loop(region, node, "uses an array that may be one of several")
                if array in inner:
                    continue
                if access == "write":
                    written.add(array)
                else:
                    read[array] = node
            elif op.effects.stateful and not (
                op.effects.reads_only or _creates_array(node) or node in self._skipped
            ):
                raise _impure_loop(region, node, "has state")
        for array in written & read.keys():
            raise _impure_loop(region, read[array], "reads an array that the loop itself writes")
        self._require_unchanged(region, nodes)
        return list(read)

    def _require_unchanged(self, region: Region, nodes: list[Node]) -> None:
        """Raise Unsupported if a resource that the loop reads is written after the loop."""
        readers = [node for node in nodes if node not in self._skipped and not _creates_array(node)]
        accesses = list(self._effects.accesses(readers))
        written = self._written_downstream(region) if accesses else set()
        for access in accesses:
            if access.resource in written:
                problem = f"reads {access.name}, which changes after the loop"
                raise _impure_loop(region, access.node, problem)

    def _written_downstream(self, region: Region) -> set[Hashable]:
        """The resources that nodes downstream of a loop write."""
        downstream = dict.fromkeys(use.node for node in region.frame.exits for use in node.uses)
        todo = list(downstream)
        while todo:
            for use in todo.pop().uses:
                if use.node not in downstream:
                    downstream[use.node] = None
                    todo.append(use.node)
        return {access.resource for access in self._effects.accesses(downstream) if access.writes}


def array_access(node: Node) -> str:
    """Access of a node to the elements of a TensorArray: `read`, `write`, or empty for neither."""
    op = lookup(node.op)
    return op.access if op is not None and issubclass(op, TensorArrayOp) else ""


def _creates_array(node: Node) -> bool:
    """True for a node that creates a TensorArray."""
    op = lookup(node.op)
    return op is not None and CLEAR_AFTER_READ in op.parsed().attrs


def _loop_nodes(region: Region) -> Iterator[Node]:
    """The nodes of a loop and its inner loops."""
    for item in region.order:
        if isinstance(item, Region):
            yield from _loop_nodes(item)
        else:
            yield item


def _impure_loop(region: Region, node: Node, problem: str) -> Unsupported:
    path = region.frame.path
    message = f"{node.op} {problem}: the loop {path} cannot be recomputed"
    hint = "omit --recompute, so that the loop saves all values that its gradient needs"
    return Unsupported(message, node=node, frame=path, hint=hint, code="CFG510")
