"""Which node of one graph is which of another, whatever their names: by what surrounds them.

    1. Nodes that look the same are paired: those for which all that they read and all that reads
       them looks the same too, then those for which one of both does.
    2. From pairs along edges: what stands in the same slot, and has the same op, was changed; then
       what at least reads as much.
    3. What is left is paired by name, if the op is the same.

Each step is linear in the nodes and edges.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final

from cfgraph.compare.same import look
from cfgraph.ir.graph import CONTROL, Graph, Node
from cfgraph.ir.walk import topological

Pairs = dict[Node, Node]
Looks = dict[Node, int]
Groups = dict[Hashable, list[Node]]
Kind = Callable[[Node], Hashable]
Attrs = Callable[[Node], Mapping[str, Any]]

_BACK: Final = -1


def match_by_name(a: Graph, b: Graph) -> Pairs:
    """The nodes of both graphs that have the same names."""
    return {node: b.nodes[node.name] for node in a if node.name in b.nodes}


def match_by_structure(a: Graph, b: Graph, attrs: Attrs, devices: bool = True) -> Pairs:
    """Pairs of nodes that play the same part; `attrs` gives those that matter of a node."""
    looks = _Looks(a, b, attrs, devices)
    pairs: Pairs = {}
    _pair_alike(looks, looks.both, pairs)
    _pair_alike(looks, looks.reads, pairs)
    _pair_unique(looks, looks.read, pairs)
    _pair_along_edges(pairs, lambda node: node.op)
    _pair_along_edges(pairs, lambda node: len(node.inputs) or None)
    taken = set(pairs.values())
    for node, twin in match_by_name(a, b).items():
        if node not in pairs and twin not in taken and node.op == twin.op:
            pairs[node] = twin
    return {node: pairs[node] for node in a if node in pairs}


class _Looks:
    """What each node looks like, as numbers that are equal for equal surroundings.

    `reads` goes by all that a node needs, `read` by all that needs it. Of a back edge only its
    other end counts.
    """

    def __init__(self, a: Graph, b: Graph, attrs: Attrs, devices: bool) -> None:
        self.known: dict[Hashable, int] = {}
        self.orders = topological(a).nodes, topological(b).nodes
        self.alone: Looks = {}
        for order in self.orders:
            for node in order:
                told = sorted(attrs(node).items())
                words = tuple([(key, look(value)) for key, value in told])
                self.alone[node] = self.number((node.op, devices and node.device, words))
        self.reads = self.forward(self.orders[0]) | self.forward(self.orders[1])
        self.read = self.backward(self.orders[0]) | self.backward(self.orders[1])
        self.both = {
            node: self.number(("both", look, self.read[node])) for node, look in self.reads.items()
        }

    def number(self, look: Hashable) -> int:
        """The number of a look, a new one where it was not seen before."""
        return self.known.setdefault(look, len(self.known))

    def forward(self, order: tuple[Node, ...]) -> Looks:
        """With the looks of all that a node reads, and so on."""
        found: Looks = {}
        for node in order:
            ends = [(found.get(i[0], _BACK), self.alone[i[0]], i[1]) for i in node.inputs]
            waits = tuple(sorted([found.get(item, _BACK) for item in node.controls]))
            found[node] = self.number(("reads", self.alone[node], tuple(ends), waits))
        return found

    def backward(self, order: tuple[Node, ...]) -> Looks:
        """With the looks of all that reads a node, and so on."""
        found: Looks = {}
        for node in reversed(order):
            ends = [
                (found.get(use[0], _BACK), self.alone[use[0]], use[1], _port(use))
                for use in node.uses
            ]
            found[node] = self.number(("read", self.alone[node], tuple(sorted(ends))))
        return found


def _port(use: Any) -> int:
    return CONTROL if use.slot == CONTROL else int(use.node.inputs[use.slot].port)


def _pair_alike(looks: _Looks, look: Looks, pairs: Pairs) -> None:
    """Pair what looks the same and reads what is paired, sources first."""
    first, second = looks.orders
    taken = set(pairs.values())
    waiting: dict[Any, dict[str, Node]] = defaultdict(dict)
    for node, seen in _with_sources(second, {node: node for node in second}):
        if node not in taken:
            waiting[look[node], seen][node.name] = node
    for node, seen in _with_sources(first, pairs):
        group = None if node in pairs else waiting.get((look[node], seen))
        if group:
            name = node.name if node.name in group else next(iter(group))
            pairs[node] = group.pop(name)


def _with_sources(order: tuple[Node, ...], pairs: Pairs) -> Iterator[tuple[Node, Any]]:
    """Each node with what it reads, by the nodes that these are paired with; no back edges."""
    placed: set[Node] = set()
    for node in order:
        yield node, tuple([(pairs.get(i[0]), i[1]) for i in node.inputs if i[0] in placed])
        placed.add(node)


def _pair_unique(looks: _Looks, look: Looks, pairs: Pairs) -> None:
    """Pair what alone in its graph looks like that."""
    taken = set(pairs.values())
    first, second = looks.orders
    mine = _grouped((look[node], node) for node in first if node not in pairs)
    theirs = _grouped((look[node], node) for node in second if node not in taken)
    pairs.update(_alone(mine, theirs))


def _pair_along_edges(pairs: Pairs, kind: Kind) -> None:
    """Step 2 of the module: pair what has the same kind, which None is not."""
    taken = set(pairs.values())
    queue = deque(pairs.items())
    while queue:
        node, twin = queue.popleft()
        for one, other in _neighbours(node, twin, pairs, taken, kind):
            if one not in pairs and other not in taken:
                pairs[one] = other
                taken.add(other)
                queue.append((one, other))


def _neighbours(
    node: Node, twin: Node, pairs: Pairs, taken: set[Node], kind: Kind
) -> Iterator[tuple[Node, Node]]:
    """What is in the same slots of both, or alone reads both in one slot, and has the same kind."""
    for one, other in zip(node.inputs, twin.inputs, strict=False):
        found = kind(one.node)
        if one.port == other.port and found is not None and found == kind(other.node):
            yield one.node, other.node
    for places in (_readers, _sources):
        mine = places(node, pairs, kind)
        theirs = places(twin, taken, kind) if mine else {}
        yield from _alone(mine, theirs)


def _readers(node: Node, but: Collection[Node], kind: Kind) -> Groups:
    """The readers that are not paired yet, by kind, slot and port."""
    uses = [use for use in node.uses if use.node not in but]
    return _grouped(((kind(use.node), use.slot, _port(use)), use.node) for use in uses)


def _sources(node: Node, but: Collection[Node], kind: Kind) -> Groups:
    """The nodes that this one waits for and that are not paired yet, by kind."""
    return _grouped((kind(item), item) for item in node.controls if item not in but)


def _grouped(items: Iterable[tuple[Hashable, Node]]) -> Groups:
    groups: Groups = defaultdict(list)
    for key, node in items:
        groups[key].append(node)
    return groups


def _alone(mine: Groups, theirs: Groups) -> Iterator[tuple[Node, Node]]:
    """The pairs of those that are alone in their groups of one key."""
    for key, found in mine.items():
        there = theirs.get(key, [])
        if len(found) == len(there) == 1:
            yield found[0], there[0]
