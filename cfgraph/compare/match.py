"""Node matching between two graphs, by name or by structure, and bitwise equality of attributes.

Structural matching works in steps:

1. Nodes with the same fingerprint are paired: the same op, device, and attributes, and so for all
   that they read and all that reads them; then those that agree in one direction.
2. From paired nodes, consumers and sources in the same slots are paired, first by op, then by the
   number of inputs.
3. The rest is paired by name, if the op is the same.

Attributes are equal if they have the same type and value, floats bit by bit: Python takes 1 for
true and 1.0, 0.0 for -0.0, and NaN for unequal to itself.

Each step is linear in the nodes and edges.
"""

from __future__ import annotations

import struct
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from cfgraph.ir.attrs import Func, TensorValue
from cfgraph.ir.graph import CONTROL, Graph, Node
from cfgraph.ir.topological_order import topological_order


def attrs_equal(one: Any, other: Any) -> bool:
    """True for two values of one type that are alike, as are all that they hold."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(attrs_equal(one[key], other[key]) for key in one)
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return _float_bits(one) == _float_bits(other)
    if type(one) is tuple:
        return len(one) == len(other) and all(map(attrs_equal, one, other))
    if is_dataclass(one):
        names = [item.name for item in fields(one) if item.compare]
        return all(attrs_equal(getattr(one, name), getattr(other, name)) for name in names)
    return bool(one == other)


def attr_key(value: Any) -> Hashable:
    """What one can look up; equal for attributes that are the same, of a constant its bytes."""
    if isinstance(value, TensorValue):
        array = value.array
        content = array.tobytes() if array.dtype != object else repr(array.tolist())
        return (value.dtype, array.shape, content)
    if isinstance(value, float):
        return (float, _float_bits(value))
    if isinstance(value, Func):
        return (
            Func,
            value.name,
            frozenset((key, attr_key(item)) for key, item in value.attrs.items()),
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
    """The nodes of both graphs that have the same names."""
    return {node: b.nodes[node.name] for node in a if node.name in b.nodes}


def match_by_structure(a: Graph, b: Graph, attrs: AttrsOfNode, devices: bool = True) -> NodePairs:
    """Pairs of nodes that play the same part; `attrs` gives those that matter of a node."""
    looks = _NodeFingerprints(a, b, attrs, devices)
    pairs: NodePairs = {}
    _pair_equal(looks, looks.both, pairs)
    _pair_equal(looks, looks.reads, pairs)
    _pair_unique(looks, looks.read, pairs)
    _pair_along_edges(pairs, lambda node: node.op)
    _pair_along_edges(pairs, lambda node: len(node.inputs) or None)
    taken = set(pairs.values())
    for node, twin in match_by_name(a, b).items():
        if node not in pairs and twin not in taken and node.op == twin.op:
            pairs[node] = twin
    return {node: pairs[node] for node in a if node in pairs}


class _NodeFingerprints:
    """What each node looks like, as numbers that are equal for equal surroundings.

    `reads` goes by all that a node needs, `read` by all that needs it. Of a back edge only its
    other end counts.
    """

    def __init__(self, a: Graph, b: Graph, attrs: AttrsOfNode, devices: bool) -> None:
        self.known: dict[Hashable, int] = {}
        self.orders = topological_order(a).nodes, topological_order(b).nodes
        self.alone: Fingerprints = {}
        for order in self.orders:
            for node in order:
                told = sorted(attrs(node).items())
                words = tuple([(key, attr_key(value)) for key, value in told])
                self.alone[node] = self.number((node.op, devices and node.device, words))
        self.reads = self.forward(self.orders[0]) | self.forward(self.orders[1])
        self.read = self.backward(self.orders[0]) | self.backward(self.orders[1])
        self.both = {
            node: self.number(("both", look, self.read[node])) for node, look in self.reads.items()
        }

    def number(self, look: Hashable) -> int:
        """The number of a look, a new one where it was not seen before."""
        return self.known.setdefault(look, len(self.known))

    def forward(self, order: tuple[Node, ...]) -> Fingerprints:
        """With the looks of all that a node reads, and so on."""
        found: Fingerprints = {}
        for node in order:
            ends = [(found.get(i[0], _BACK_EDGE), self.alone[i[0]], i[1]) for i in node.inputs]
            waits = tuple(sorted([found.get(item, _BACK_EDGE) for item in node.controls]))
            found[node] = self.number(("reads", self.alone[node], tuple(ends), waits))
        return found

    def backward(self, order: tuple[Node, ...]) -> Fingerprints:
        """With the looks of all that reads a node, and so on."""
        found: Fingerprints = {}
        for node in reversed(order):
            ends = [
                (found.get(use[0], _BACK_EDGE), self.alone[use[0]], use[1], _use_port(use))
                for use in node.uses
            ]
            found[node] = self.number(("read", self.alone[node], tuple(sorted(ends))))
        return found


def _use_port(use: Any) -> int:
    return CONTROL if use.slot == CONTROL else int(use.node.inputs[use.slot].port)


def _pair_equal(looks: _NodeFingerprints, look: Fingerprints, pairs: NodePairs) -> None:
    """Pair what looks the same and reads what is paired, sources first."""
    first, second = looks.orders
    taken = set(pairs.values())
    waiting: dict[Any, dict[str, Node]] = defaultdict(dict)
    for node, seen in _nodes_with_sources(second, {node: node for node in second}):
        if node not in taken:
            waiting[look[node], seen][node.name] = node
    for node, seen in _nodes_with_sources(first, pairs):
        group = None if node in pairs else waiting.get((look[node], seen))
        if group:
            name = node.name if node.name in group else next(iter(group))
            pairs[node] = group.pop(name)


def _nodes_with_sources(order: tuple[Node, ...], pairs: NodePairs) -> Iterator[tuple[Node, Any]]:
    """Each node with what it reads, by the nodes that these are paired with; no back edges."""
    placed: set[Node] = set()
    for node in order:
        yield node, tuple([(pairs.get(i[0]), i[1]) for i in node.inputs if i[0] in placed])
        placed.add(node)


def _pair_unique(looks: _NodeFingerprints, look: Fingerprints, pairs: NodePairs) -> None:
    """Pair what alone in its graph looks like that."""
    taken = set(pairs.values())
    first, second = looks.orders
    mine = _group_by_key((look[node], node) for node in first if node not in pairs)
    theirs = _group_by_key((look[node], node) for node in second if node not in taken)
    pairs.update(_unique_pairs(mine, theirs))


def _pair_along_edges(pairs: NodePairs, kind: NodeKey) -> None:
    """Step 2 of the module: pair what has the same kind, which None is not."""
    taken = set(pairs.values())
    queue = deque(pairs.items())
    while queue:
        node, twin = queue.popleft()
        for one, other in _neighbor_pairs(node, twin, pairs, taken, kind):
            if one not in pairs and other not in taken:
                pairs[one] = other
                taken.add(other)
                queue.append((one, other))


def _neighbor_pairs(
    node: Node, twin: Node, pairs: NodePairs, taken: set[Node], kind: NodeKey
) -> Iterator[tuple[Node, Node]]:
    """What is in the same slots of both, or alone reads both in one slot, and has the same kind."""
    for one, other in zip(node.inputs, twin.inputs, strict=False):
        found = kind(one.node)
        if one.port == other.port and found is not None and found == kind(other.node):
            yield one.node, other.node
    for places in (_unpaired_consumers, _unpaired_controls):
        mine = places(node, pairs, kind)
        theirs = places(twin, taken, kind) if mine else {}
        yield from _unique_pairs(mine, theirs)


def _unpaired_consumers(node: Node, but: Collection[Node], kind: NodeKey) -> NodeGroups:
    """The readers that are not paired yet, by kind, slot and port."""
    uses = [use for use in node.uses if use.node not in but]
    return _group_by_key(((kind(use.node), use.slot, _use_port(use)), use.node) for use in uses)


def _unpaired_controls(node: Node, but: Collection[Node], kind: NodeKey) -> NodeGroups:
    """The nodes that this one waits for and that are not paired yet, by kind."""
    return _group_by_key((kind(item), item) for item in node.controls if item not in but)


def _group_by_key(items: Iterable[tuple[Hashable, Node]]) -> NodeGroups:
    groups: NodeGroups = defaultdict(list)
    for key, node in items:
        groups[key].append(node)
    return groups


def _unique_pairs(mine: NodeGroups, theirs: NodeGroups) -> Iterator[tuple[Node, Node]]:
    """The pairs of those that are alone in their groups of one key."""
    for key, found in mine.items():
        there = theirs.get(key, [])
        if len(found) == len(there) == 1:
            yield found[0], there[0]
