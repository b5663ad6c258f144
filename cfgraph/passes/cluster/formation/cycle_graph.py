"""The dependency graph of a clustering, kept acyclic while vertices merge.

A loop adds one vertex for the loop itself: its exits depend on all of its entries. The
topological order is maintained as in Pearce and Kelly, "A dynamic topological sort algorithm for
directed acyclic graphs" (2006): only vertices between the two ends in the order are searched to
find out whether a merge closes a cycle."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from heapq import heapify, heappop, heappush

from cfgraph.analysis.loops.frames import Frame, Frames
from cfgraph.analysis.loops.happens_before import unique_sends_by_recv
from cfgraph.ir.graph import Node
from cfgraph.ir.role import Role
from cfgraph.ir.topological_order import OpRoles

Vertex = int


class CycleGraph:
    """The vertices of a graph, by what they wait for; `nodes` are those that a vertex holds.

    `transparent` nodes are looked through: whoever reads one waits for what it waits for.
    `tangled` are the nodes of loops that wait for themselves once a loop counts as one.
    """

    def __init__(self, found: Frames, transparent: Collection[Node] = frozenset()) -> None:
        self.nodes: list[list[Node]] = [[node] for node in found.order]
        self.of: dict[Node, Vertex] = {node: place for place, node in enumerate(found.order)}
        self._loops = {frame: len(self.nodes) + place for place, frame in enumerate(found.all)}
        self.nodes.extend([] for _ in found.all)
        self.after: list[dict[Vertex, None]] = [{} for _ in self.nodes]
        self.before: list[dict[Vertex, None]] = [{} for _ in self.nodes]
        self._connect(found, transparent)
        self.in_cycle: frozenset[Node] = frozenset()
        self.rank: list[int] = self._ranks()

    # -- the edges -------------------------------------------------------------------------------

    def _connect(self, found: Frames, transparent: Collection[Node]) -> None:
        roles = OpRoles()
        hears = unique_sends_by_recv(found, roles)
        for node in found.order:
            there = self._entering(node, found, roles)
            for source in _iteration_predecessors(node, roles, transparent):
                if roles[source.op] is not Role.NEXT_ITERATION and source in self.of:
                    self._edge(self._leaving(source, found, roles), there)
            if node in hears:
                self._edge(self._leaving(hears[node], found, roles), there)

    def _entering(self, node: Node, found: Frames, roles: OpRoles) -> Vertex:
        return self._loop(found.of_outputs[node]) if roles[node.op] is Role.ENTER else self.of[node]

    def _leaving(self, node: Node, found: Frames, roles: OpRoles) -> Vertex:
        return self._loop(found.of[node]) if roles[node.op] is Role.EXIT else self.of[node]

    def _loop(self, frame: Frame) -> Vertex:
        return self._loops[frame]

    def _edge(self, source: Vertex, target: Vertex) -> None:
        self.after[source][target] = None
        self.before[target][source] = None

    # -- the order -------------------------------------------------------------------------------

    def _ranks(self) -> list[int]:
        """The place of each vertex in an order; what is tangled becomes one vertex first."""
        order = self._sorted()
        if len(order) < len(self.nodes):
            self._merge_cycles(set(range(len(self.nodes))).difference(order))
            order = self._sorted()
        ranks = [0] * len(self.nodes)
        for place, vertex in enumerate(order):
            ranks[vertex] = place
        return ranks

    def _sorted(self) -> list[Vertex]:
        """The vertices, sources first, else in the order of their numbers; without the tangled."""
        missing = [len(before) for before in self.before]
        ready = [vertex for vertex, count in enumerate(missing) if not count]
        heapify(ready)
        order = []
        while ready:
            vertex = heappop(ready)
            order.append(vertex)
            for reader in self.after[vertex]:
                missing[reader] -= 1
                if not missing[reader]:
                    heappush(ready, reader)
        return order

    def _merge_cycles(self, left: set[Vertex]) -> None:
        """Join what lies on cycles, and between them, to one vertex."""
        todo = [vertex for vertex in left if left.isdisjoint(self.after[vertex])]
        while todo:
            vertex = todo.pop()
            left.discard(vertex)
            for source in self.before[vertex]:
                if source in left and left.isdisjoint(self.after[source]):
                    todo.append(source)
        first, *others = sorted(left)
        for other in others:
            self._absorb(first, other)
        self.after[first].pop(first, None)
        self.before[first].pop(first, None)
        self.in_cycle = frozenset(self.nodes[first])

    # -- joining ---------------------------------------------------------------------------------

    def path(self, one: Vertex, other: Vertex) -> list[Vertex] | None:
        """A path from one vertex to another over a third; None if there is none."""
        came: dict[Vertex, Vertex] = {}
        self._forward(one, other, came)
        if other not in came:
            return None
        path = [other]
        while path[-1] != one:
            path.append(came[path[-1]])
        return path[::-1]

    def _forward(self, one: Vertex, other: Vertex, came: dict[Vertex, Vertex]) -> None:
        """What is reached from `one` before `other`, which is reached only over another one."""
        limit, rank = self.rank[other], self.rank
        queue = [vertex for vertex in self.after[one] if rank[vertex] < limit]
        came.update(dict.fromkeys(queue, one))
        for vertex in queue:
            for reader in self.after[vertex]:
                if reader == other:
                    came[other] = vertex
                    return
                if reader not in came and rank[reader] < limit:
                    came[reader] = vertex
                    queue.append(reader)

    def join(self, one: Vertex, other: Vertex) -> Vertex | None:
        """Make two vertices one, the larger; None, with nothing done, where that closes a cycle."""
        early, late = sorted((one, other), key=self.rank.__getitem__)
        if self._size(one) < self._size(other):
            one, other = other, one
        reached: dict[Vertex, Vertex] = {}
        self._forward(early, late, reached)
        if late in reached:
            return None
        leading = self._backward(late, self.rank[early])
        places = sorted(self.rank[vertex] for vertex in (early, *leading, *reached))
        order = [*sorted(leading, key=self.rank.__getitem__), one]
        order.extend(sorted(reached, key=self.rank.__getitem__))
        for vertex, place in zip(order, places, strict=True):
            self.rank[vertex] = place
        self._absorb(one, other)
        return one

    def _size(self, vertex: Vertex) -> int:
        return len(self.nodes[vertex]) + len(self.after[vertex]) + len(self.before[vertex])

    def _backward(self, late: Vertex, limit: int) -> list[Vertex]:
        """What `late` waits for behind a place in the order."""
        found = [vertex for vertex in self.before[late] if self.rank[vertex] > limit]
        seen = set(found)
        for vertex in found:
            for source in self.before[vertex]:
                if source not in seen and self.rank[source] > limit:
                    seen.add(source)
                    found.append(source)
        return found

    def _absorb(self, one: Vertex, other: Vertex) -> None:
        """Give `one` the edges and nodes of `other`."""
        for mine, back in ((self.after, self.before), (self.before, self.after)):
            for neighbour in mine[other]:
                back[neighbour].pop(other, None)
                if neighbour != one:
                    back[neighbour][one] = None
                    mine[one][neighbour] = None
            mine[one].pop(other, None)
            mine[other] = {}
        self.of.update(dict.fromkeys(self.nodes[other], one))
        self.nodes[one].extend(self.nodes[other])
        self.nodes[other] = []


def _iteration_predecessors(
    node: Node, roles: OpRoles, transparent: Collection[Node]
) -> Iterator[Node]:
    """What a node waits for in its iteration, with transparent nodes looked through."""
    is_merge = roles[node.op] is Role.MERGE
    data = [item.node for item in node.inputs]
    if is_merge:
        data = [source for source in data if roles[source.op] is not Role.NEXT_ITERATION]
    yield from skip_transparent([*data, *node.controls], transparent)


def skip_transparent(nodes: Iterable[Node], transparent: Collection[Node]) -> Iterator[Node]:
    """These nodes, with what transparent ones wait for in their place; each once."""
    todo = dict.fromkeys(nodes)
    queue = list(todo)
    for source in queue:
        if source not in transparent:
            yield source
            continue
        new = [control for control in source.controls if control not in todo]
        todo.update(dict.fromkeys(new))
        queue.extend(new)
