"""The tensor lists that a graph has already: those that a compiler can hold.

All that hands one list on to another, or joins two, is of one group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from cfgraph.ir import registry
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ops.op import lookup, role
from cfgraph.ops.shape_inference import Shapes
from cfgraph.passes.lift.refused import refused

_CARRIERS: Final = ("enter", "switch", "merge", "exit", "next_iteration")
_LIMIT: Final = 1


def given_lists(graph: Graph) -> Iterator[list[Node]]:
    """The nodes that handle lists, in groups."""
    seen: set[Node] = set()
    for node in graph:
        if node in seen or not any(map(_is_list, _outputs(node))):
            continue
        group = dict.fromkeys([node])
        todo = [node]
        for here in todo:
            for near in _neighbours(here):
                if near not in group:
                    group[near] = None
                    todo.append(near)
        seen.update(group)
        yield list(group)


def require_holdable(group: list[Node], shapes: Shapes, kept: Collection[Node]) -> None:
    """Raise Refused unless each node of a group does to lists what a compiler can."""
    done = set()
    for node in group:
        op = lookup(node.op)
        does: str = getattr(op, "as_rows", "")
        carries = op is not None and (op.role in _CARRIERS or op.forwards)
        if not does and not carries:
            raise refused("list", f"{node.name} ({node.op}) handles it", node=node.name)
        if node in kept and any(map(_is_list, _outputs(node))):
            raise refused("list", f"{node.name} is fetched", node=node.name)
        if does == "empty":
            limit = shapes.value(node.inputs[_LIMIT])
            if limit is None or limit < 0:
                text = f"how many elements {node.name} will have is not known"
                raise refused("list", text, node=node.name)
        done.add(does)
    if {"push", "all"} <= done:
        raise refused("list", "how many of its elements there are in the end is not known")


def _neighbours(node: Node) -> Iterator[Node]:
    for item in node.inputs:
        if _is_list(item):
            yield item.node
    yield from list_readers(node)


def list_readers(node: Node) -> Iterator[Node]:
    """The nodes that read a list that a node gives."""
    for use in node.uses:
        if use.slot >= 0 and _is_list(use.node.inputs[use.slot]):
            yield use.node


def _outputs(node: Node) -> list[Output]:
    count = registry.output_count(node) or 0
    return [node.output(port) for port in range(min(count, 2) if role(node) else count)]


def _is_list(item: Output) -> bool:
    dtype = item.dtype
    return dtype is not None and dtype.kind == "variant"
