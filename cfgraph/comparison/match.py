"""Node matching between two graphs, by name or by structure, and bitwise equality of attributes.

Structural matching works in steps:

1. Pair nodes with equal fingerprints: first where op, device, attributes, and all direct and
   indirect producers and consumers agree, then where only the producers or only the consumers do.
2. Starting from paired nodes, pair their inputs and consumers in equal slots, first by op, then by
   the number of inputs.
3. Pair the remaining nodes by name if they have the same op.

Attributes are equal if they have the same type and value. Floats are compared bit by bit, because
`==` equates 1, 1.0, and True, as well as 0.0 and -0.0, but not NaN with itself.

Each step takes linear time in the number of nodes and edges.
"""

from __future__ import annotations

import struct
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from cfgraph.ir.attrs import Func, TensorValue, content_key
from cfgraph.ir.graph import CONTROL, Graph, Node
from cfgraph.ir.traversal import topological_order
from cfgraph.limits import check_deadline


def attrs_equal(a: Any, b: Any) -> bool:
    """Return true for values of the same type that are equal, as are all of their elements."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(attrs_equal(a[key], b[key]) for key in a)
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return _float_bits(a) == _float_bits(b)
    if type(a) is tuple:
        return len(a) == len(b) and all(map(attrs_equal, a, b))
    if is_dataclass(a):
        names = [each.name for each in fields(a) if each.compare]
        return all(attrs_equal(getattr(a, name), getattr(b, name)) for name in names)
    return bool(a == b)


def attr_key(value: Any) -> Hashable:
    """Return a hashable key that is equal for equal attributes."""
    if isinstance(value, TensorValue):
        return (value.dtype, value.shape.dims, content_key(value.array))
    if isinstance(value, float):
        return (float, _float_bits(value))
    if isinstance(value, Func):
        return (
            Func,
            value.name,
            frozenset((key, attr_key(attr)) for key, attr in value.attrs.items()),
        )
    return (type(value), tuple(map(attr_key, value)) if type(value) is tuple else value)


def _float_bits(value: float) -> bytes:
    return struct.pack("<d", value)


NodePairs = dict[Node, Node]
Fingerprints = dict[Node, int]
NodeGroups = dict[Hashable, list[Node]]
NodeKey = Callable[[Node], Hashable]
AttrsOfNode = Callable[[Node], Mapping[str, Any]]

_BACK_EDGE: Final = -1


def match_by_name(a: Graph, b: Graph) -> NodePairs:
    """Pair the nodes with equal names."""
    return {node: b.nodes[node.name] for node in a if node.name in b.nodes}


def match_by_structure(a: Graph, b: Graph, attrs: AttrsOfNode, devices: bool = True) -> NodePairs:
    """Pair nodes by op, attributes, and edges; `attrs` selects the relevant attributes."""
    prints = _NodeFingerprints(a, b, attrs, devices)
    pairs: NodePairs = {}
    _pair_equal(prints, prints.both, pairs)
    _pair_equal(prints, prints.upstream, pairs)
    _pair_unique(prints, prints.downstream, pairs)
    _pair_along_edges(pairs, lambda node: node.op)
    _pair_along_edges(pairs, lambda node: len(node.inputs) or None)
    paired = set(pairs.values())
    for node, twin in match_by_name(a, b).items():
        if node not in pairs and twin not in paired and node.op == twin.op:
            pairs[node] = twin
    return {node: pairs[node] for node in a if node in pairs}


class _NodeFingerprints:
    """Numbers of nodes that are equal for equal surroundings.

    `upstream` depends on all producers of a node, `downstream` on all of its consumers, and `both`
    on either. Only the other end of a back edge counts, not what lies beyond it.
    """

    def __init__(self, a: Graph, b: Graph, attrs: AttrsOfNode, devices: bool) -> None:
        self.known: dict[Hashable, int] = {}
        self.orders = topological_order(a).nodes, topological_order(b).nodes
        self.own: Fingerprints = {}
        for order in self.orders:
            for node in order:
                relevant = sorted(attrs(node).items())
                keys = tuple([(key, attr_key(value)) for key, value in relevant])
                self.own[node] = self.number((node.op, devices and node.device, keys))
        self.upstream = self.forward(self.orders[0]) | self.forward(self.orders[1])
        self.downstream = self.backward(self.orders[0]) | self.backward(self.orders[1])
        self.both = {
            node: self.number(("both", upstream, self.downstream[node]))
            for node, upstream in self.upstream.items()
        }

    def number(self, key: Hashable) -> int:
        """Return the number of a key, a new number for a new key."""
        return self.known.setdefault(key, len(self.known))

    def forward(self, order: tuple[Node, ...]) -> Fingerprints:
        """Return fingerprints that include the fingerprints of all producers."""
        upstream: Fingerprints = {}
        for node in order:
            check_deadline()
            ends = [(upstream.get(t[0], _BACK_EDGE), self.own[t[0]], t[1]) for t in node.inputs]
            controls = tuple(sorted([upstream.get(c, _BACK_EDGE) for c in node.controls]))
            upstream[node] = self.number(("upstream", self.own[node], tuple(ends), controls))
        return upstream

    def backward(self, order: tuple[Node, ...]) -> Fingerprints:
        """Return fingerprints that include the fingerprints of all consumers."""
        downstream: Fingerprints = {}
        for node in reversed(order):
            check_deadline()
            ends = [
                (downstream.get(use[0], _BACK_EDGE), self.own[use[0]], use[1], _use_port(use))
                for use in node.uses
            ]
            downstream[node] = self.number(("downstream", self.own[node], tuple(sorted(ends))))
        return downstream


def _use_port(use: Any) -> int:
    return CONTROL if use.slot == CONTROL else int(use.node.inputs[use.slot].port)


def _pair_equal(prints: _NodeFingerprints, print_of: Fingerprints, pairs: NodePairs) -> None:
    """Pair nodes with equal fingerprints whose sources are paired, sources first."""
    first, second = prints.orders
    paired = set(pairs.values())
    candidates: dict[Any, dict[str, Node]] = defaultdict(dict)
    for node, seen in _nodes_with_sources(second, {node: node for node in second}):
        if node not in paired:
            candidates[print_of[node], seen][node.name] = node
    for node, seen in _nodes_with_sources(first, pairs):
        group = None if node in pairs else candidates.get((print_of[node], seen))
        if group:
            name = node.name if node.name in group else next(iter(group))
            pairs[node] = group.pop(name)


def _nodes_with_sources(order: tuple[Node, ...], pairs: NodePairs) -> Iterator[tuple[Node, Any]]:
    """Yield each node with the counterparts of its sources, without back edges."""
    visited: set[Node] = set()
    for node in order:
        check_deadline()
        yield node, tuple([(pairs.get(t[0]), t[1]) for t in node.inputs if t[0] in visited])
        visited.add(node)


def _pair_unique(prints: _NodeFingerprints, print_of: Fingerprints, pairs: NodePairs) -> None:
    """Pair nodes whose fingerprint is unique in each graph."""
    paired = set(pairs.values())
    first, second = prints.orders
    groups_a = _group_by_key((print_of[node], node) for node in first if node not in pairs)
    groups_b = _group_by_key((print_of[node], node) for node in second if node not in paired)
    pairs.update(_unique_pairs(groups_a, groups_b))


def _pair_along_edges(pairs: NodePairs, kind: NodeKey) -> None:
    """Extend `pairs` along edges to neighbors of equal kind (step 2 of the module).

    A node for which `kind` returns None is not paired.
    """
    paired = set(pairs.values())
    queue = deque(pairs.items())
    while queue:
        node, twin = queue.popleft()
        for a, b in _neighbor_pairs(node, twin, pairs, paired, kind):
            if a not in pairs and b not in paired:
                pairs[a] = b
                paired.add(b)
                queue.append((a, b))


def _neighbor_pairs(
    node: Node, twin: Node, pairs: NodePairs, paired: set[Node], kind: NodeKey
) -> Iterator[tuple[Node, Node]]:
    """Yield sources in equal slots, and unique consumers of equal slots, with the same kind."""
    for a, b in zip(node.inputs, twin.inputs, strict=False):
        kind_a = kind(a.node)
        if a.port == b.port and kind_a is not None and kind_a == kind(b.node):
            yield a.node, b.node
    for neighbors in (_unpaired_consumers, _unpaired_controls):
        groups_a = neighbors(node, pairs, kind)
        groups_b = neighbors(twin, paired, kind) if groups_a else {}
        yield from _unique_pairs(groups_a, groups_b)


def _unpaired_consumers(node: Node, paired: Collection[Node], kind: NodeKey) -> NodeGroups:
    """Group consumers that are not paired yet by kind, slot, and port."""
    uses = [use for use in node.uses if use.node not in paired]
    return _group_by_key(((kind(use.node), use.slot, _use_port(use)), use.node) for use in uses)


def _unpaired_controls(node: Node, paired: Collection[Node], kind: NodeKey) -> NodeGroups:
    """Group control inputs that are not paired yet by kind."""
    return _group_by_key((kind(source), source) for source in node.controls if source not in paired)


def _group_by_key(items: Iterable[tuple[Hashable, Node]]) -> NodeGroups:
    groups: NodeGroups = defaultdict(list)
    for key, node in items:
        groups[key].append(node)
    return groups


def _unique_pairs(groups_a: NodeGroups, groups_b: NodeGroups) -> Iterator[tuple[Node, Node]]:
    """Pair the nodes that are alone in their groups of one key."""
    for key, nodes_a in groups_a.items():
        nodes_b = groups_b.get(key, [])
        if len(nodes_a) == len(nodes_b) == 1:
            yield nodes_a[0], nodes_b[0]
