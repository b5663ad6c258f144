"""Which nodes of a straight line are computed by one kernel: maximal groups of elementwise ones.

A node's depth counts the changes, on its way from the arguments, between what is elementwise and
what is not, so that nothing lies between nodes of one depth. Those that edges join are a group, and
those that read the same, but for constants. A node may wait for its readers: it then goes to their
depth, where it can join them.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from cfgraph.errors import CfgraphError
from cfgraph.ir import registry
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.op import KERNEL_FAILURES, Op, lookup
from cfgraph.runtime.fused.expressions import Dims, Elements, Recorder
from cfgraph.runtime.fused.namespace import ELEMENTWISE

# shapes that a kernel is tried on: of equal shapes, of rows and a vector, of scalars
_TRIED: Final[tuple[tuple[Dims, Dims], ...]] = (((2, 2), (2, 2)), ((2, 2), (2,)), ((), ()))


def is_elementwise(node: Node) -> bool:
    """True where a generated kernel can do what the node's own one does.

    The kernel is tried on what stands for arrays: it is, where that makes an expression.
    """
    op = lookup(node.op)
    if op is None or not op.traceable or op.of_shapes or op.in_line or not node.inputs:
        return False
    if op.host_only or op.host_inputs or op.host_outputs or registry.output_count(node) != 1:
        return False
    return any(_writes(node, op, *shapes) for shapes in _TRIED)


def _writes(node: Node, op: type[Op], first: Dims, others: Dims) -> bool:
    types = registry.input_types(node)
    try:
        if types is None:
            return False
        recorder = Recorder()
        given = [
            recorder.input(place, dtype.numpy, others if place else first)
            for place, dtype in enumerate(types)
        ]
        return isinstance(op.bind(node, ELEMENTWISE)(*given), Elements)
    except (CfgraphError, AttributeError, *KERNEL_FAILURES):
        return False


def groups_of(order: Sequence[Node], members: Collection[Node]) -> list[list[Node]]:
    """The nodes of a line in an order that edges allow, those of a group together.

    `order` has sources first; only `members` are joined.
    """
    depths = _depths(order, members)
    owner: dict[Node, Node] = {node: node for node in order}

    def root(node: Node) -> Node:
        while owner[node] is not node:
            owner[node] = owner[owner[node]]
            node = owner[node]
        return node

    first: dict[tuple[int, Output], Node] = {}
    for node in order:
        if node not in members:
            continue
        for source in _sources(node, owner):
            if source in members and depths[node] == depths[source]:
                owner[root(node)] = root(source)
        for item in node.inputs:
            if item.node in owner and not item.node.inputs:
                continue
            other = first.setdefault((depths[node], item), node)
            owner[root(node)] = root(other)
    units: dict[Node, list[Node]] = {}
    for node in order:
        units.setdefault(root(node), []).append(node)
    return list(_sorted(order, units))


def _sources(node: Node, known: Mapping[Node, object]) -> Iterator[Node]:
    """The nodes of the line that a node reads or waits for."""
    for source in (*(item.node for item in node.inputs), *node.controls):
        if source in known:
            yield source


def _depths(order: Sequence[Node], members: Collection[Node]) -> dict[Node, int]:
    depths: dict[Node, int] = {}
    readers: dict[Node, list[Node]] = {node: [] for node in order}
    for node in order:
        depths[node] = 0
        for source in _sources(node, depths):
            if source is not node:
                both = node in members and source in members
                depths[node] = max(depths[node], depths[source] + (not both))
                readers[source].append(node)
    for node in reversed(order):
        after = readers[node]
        if node not in members or not after:
            continue
        latest = min(depths[reader] - (reader not in members) for reader in after)
        if any(reader in members and depths[reader] == latest for reader in after):
            depths[node] = max(depths[node], latest)
    return depths


def _sorted(order: Sequence[Node], units: Mapping[Node, list[Node]]) -> Iterator[list[Node]]:
    """The groups, each behind all that it needs, otherwise in the order of their last nodes."""
    unit_of = {node: first for first, nodes in units.items() for node in nodes}
    places = {node: place for place, node in enumerate(order)}
    needs: dict[Node, set[Node]] = {
        first: {unit_of[source] for node in nodes for source in _sources(node, unit_of)} - {first}
        for first, nodes in units.items()
    }
    readers: dict[Node, list[Node]] = {first: [] for first in units}
    for first, sources in needs.items():
        for source in sources:
            readers[source].append(first)
    rank = {first: places[nodes[-1]] for first, nodes in units.items()}
    ready = [(rank[first], first.name, first) for first in units if not needs[first]]
    heapq.heapify(ready)
    while ready:
        *_, first = heapq.heappop(ready)
        yield units[first]
        for reader in readers[first]:
            needs[reader].discard(first)
            if not needs[reader]:
                heapq.heappush(ready, (rank[reader], reader.name, reader))
