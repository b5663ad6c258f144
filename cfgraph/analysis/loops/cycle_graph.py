"""Dependency graph of a clustering that stays acyclic while vertices merge (as GraphCycles does).

Each loop is one vertex more: its Exits depend on all of its Enters. A loop that waits for its own
Exits so is not one step: two vertices merge only if they wait for the same late Enters
(`late_enters`), which leaves unchanged what each Exit waits for. The topological order is
maintained by a two-way search over an ordered list, as in Haeupler et al., "Incremental cycle
detection, topological ordering, and strong component maintenance" (2012): to find out whether a
merge closes a cycle, only the vertices between the two ends in the order are searched."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Final

from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.happens_before import unique_sends_by_recv
from cfgraph.analysis.loops.late_enters import late_enters
from cfgraph.ir.graph import Node
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import ENTER, EXIT, MERGE, NEXT_ITERATION

_NONE: Final[frozenset[Node]] = frozenset()
# between neighbors at first
_GAP: Final = 1 << 32


class OrderLabels:
    """A list of the vertices 0 to n-1; `labels` has a number per vertex that grows in the list.

    A vertex that moves takes a label between those of its new neighbors. Where there is no room,
    the vertices after it are spread, as many as make the labels sparse enough (Dietz and Sleator,
    "Two algorithms for maintaining order in a list", 1987): an amortized logarithmic number.
    """

    def __init__(self, order: Sequence[int]) -> None:
        self.labels = [0] * len(order)
        # the list is circular: its head, and its end, is vertex n
        self._head = len(order)
        self._next = [0] * (len(order) + 1)
        self._previous = [0] * (len(order) + 1)
        for position, vertex in enumerate(order, 1):
            self.labels[vertex] = position * _GAP
        for vertex, following in pairwise((self._head, *order, self._head)):
            self._link(vertex, following)

    def _link(self, vertex: int, following: int) -> None:
        self._next[vertex] = following
        self._previous[following] = vertex

    def move_before(self, anchor: int, vertices: Iterable[int]) -> list[int]:
        """Move vertices, in order, to before another; return those that have a new label."""
        return self._move(vertices, anchor, is_before=True)

    def move_after(self, anchor: int, vertices: Iterable[int]) -> list[int]:
        """Move vertices, in order, to after another; return those that have a new label."""
        return self._move(vertices, anchor, is_before=False)

    def replace(self, vertices: Sequence[int], new: Sequence[int]) -> list[int]:
        """Put new vertices, in order, at the positions of others; return those that moved."""
        if vertices == new:
            return []
        occupant = dict(zip(vertices, new, strict=True))
        for vertex in occupant.values() - occupant.keys():
            self._link(self._previous[vertex], self._next[vertex])
        positions = [
            (self._previous[vertex], self._next[vertex], self.labels[vertex]) for vertex in vertices
        ]
        for vertex, (before, after, label) in zip(new, positions, strict=True):
            self._link(occupant.get(before, before), vertex)
            self._link(vertex, occupant.get(after, after))
            self.labels[vertex] = label
        return [vertex for vertex, old in zip(new, vertices, strict=True) if vertex != old]

    def _move(self, vertices: Iterable[int], anchor: int, *, is_before: bool) -> list[int]:
        moved = list(vertices)
        for vertex in moved:
            self._link(self._previous[vertex], self._next[vertex])
        start = self._previous[anchor] if is_before else anchor
        end = self._next[start]
        for vertex, following in pairwise((start, *moved, end)):
            self._link(vertex, following)
        low = 0 if start == self._head else self.labels[start]
        while end != self._head and self.labels[end] - low <= len(moved) ** 2:
            moved.append(end)
            end = self._next[end]
        last = low + _GAP * (len(moved) + 1) if end == self._head else self.labels[end]
        gap = (last - low) // (len(moved) + 1)
        for position, vertex in enumerate(moved, 1):
            self.labels[vertex] = low + position * gap
        return moved


Vertex = int
# of each vertex, in order: a tuple of few, which takes a quarter of the memory, or the keys of many
Neighbors = list[tuple[Vertex, ...] | dict[Vertex, None]]
_FEW_NEIGHBORS: Final = 8
# ranks, negative for predecessors, with their vertices
Heap = list[tuple[int, Vertex]]
# vertices with fewer neighbors are searched without a heap
_MANY_NEIGHBORS: Final = 64
# moves of vertices, on average, to keep the order close to the first one
_MOVES_PER_VERTEX: Final = 16


class _PathSearch:
    """One end of a search for a path: `previous` leads from each visited vertex to `start`."""

    def __init__(
        self,
        start: Vertex,
        edges: Neighbors,
        heaps: dict[Vertex, Heap],
        limit: int,
        sign: int,
    ) -> None:
        self.start, self.edges, self.heaps = start, edges, heaps
        self.limit, self.sign = limit, sign
        self.queue = deque([start])
        self.previous = {start: start}
        self._cost = 0

    def next_cost(self) -> int:
        """Return the number of edges followed after the next vertex."""
        return self._cost + len(self.edges[self.queue[0]])

    def next_vertex(self) -> Vertex:
        """Remove the next vertex from the queue."""
        self._cost = self.next_cost()
        return self.queue.popleft()

    def add(self, vertex: Vertex, previous: Vertex) -> None:
        """Visit a vertex later, unless it was visited."""
        if vertex not in self.previous:
            self.previous[vertex] = previous
            self.queue.append(vertex)

    def path_to(self, vertex: Vertex) -> list[Vertex]:
        """Return the path from a visited vertex to the start."""
        path = [vertex]
        while path[-1] != self.start:
            path.append(self.previous[path[-1]])
        return path


def _add_neighbor(edges: Neighbors, vertex: Vertex, neighbor: Vertex) -> None:
    known = edges[vertex]
    if isinstance(known, dict):
        known[neighbor] = None
    elif neighbor not in known:
        more = (*known, neighbor)
        edges[vertex] = more if len(more) <= _FEW_NEIGHBORS else dict.fromkeys(more)


def _remove_neighbor(edges: Neighbors, vertex: Vertex, neighbor: Vertex) -> None:
    known = edges[vertex]
    if isinstance(known, dict):
        known.pop(neighbor, None)
    elif neighbor in known:
        edges[vertex] = tuple([other for other in known if other != neighbor])


class CycleGraph:
    """Dependencies between vertices; `nodes` lists the nodes that each vertex contains.

    An edge to a consumer of a `transparent` node starts from the predecessors of that node.
    `in_cycle` are the nodes between loops that depend on themselves once each loop is one vertex,
    and those in a loop that wait for themselves over several iterations. `tangled` are the frames
    of those loops, and of inner ones whose Exits wait for different `late_enters` of them.
    """

    def __init__(self, frames: Frames, transparent: Collection[Node] = frozenset()) -> None:
        self.nodes: list[list[Node]] = [[node] for node in frames.order]
        self.vertex_of: dict[Node, Vertex] = {node: i for i, node in enumerate(frames.order)}
        self._loops = {frame: len(self.nodes) + i for i, frame in enumerate(frames.all)}
        self.nodes.extend([] for _ in frames.all)
        self.successors: Neighbors = [()] * len(self.nodes)
        self.predecessors: Neighbors = [()] * len(self.nodes)
        # by rank, of vertices with many neighbors: successors, and predecessors from the last
        self._later: dict[Vertex, Heap] = {}
        self._earlier: dict[Vertex, Heap] = {}
        # the late Enters that it waits for, by vertex, and the node itself if it is in a cycle
        self._waits_for: dict[Vertex, frozenset[Node]] = {}
        send_of = unique_sends_by_recv(frames)
        self._connect(frames, transparent, send_of)
        self.in_cycle: frozenset[Node] = frozenset()
        self.tangled: frozenset[Frame] = frozenset()
        self._order = OrderLabels(self._acyclic_order())
        self.late_enters = late_enters(frames, self.tangled, send_of) if self.tangled else []
        self._add_late_enters(frames)
        self._moves = _MOVES_PER_VERTEX * len(self.nodes)
        # numbers that grow in the topological order
        self.rank: list[int] = self._order.labels

    def loop_vertex(self, frame: Frame) -> Vertex:
        """Return the vertex of a loop, which depends on its Enters, and its Exits on it."""
        return self._loops[frame]

    def add_nodes(self, vertex: Vertex, nodes: Collection[Node]) -> None:
        """Add new nodes to a vertex."""
        self.vertex_of.update(dict.fromkeys(nodes, vertex))
        self.nodes[vertex].extend(nodes)

    # -- edges -----------------------------------------------------------------------------------

    def _connect(
        self, frames: Frames, transparent: Collection[Node], send_of: Mapping[Node, Node]
    ) -> None:
        for node in frames.order:
            target = self._target_vertex(node, frames)
            for source in _iteration_predecessors(node, transparent):
                if ROLES[source.op] is not NEXT_ITERATION and source in self.vertex_of:
                    self._add_edge(self._source_vertex(source, frames), target)
            if node in send_of:
                self._add_edge(self._source_vertex(send_of[node], frames), target)

    def _target_vertex(self, node: Node, frames: Frames) -> Vertex:
        """Return the vertex that depends on the inputs of a node: for an Enter, its loop."""
        is_enter = ROLES[node.op] is ENTER
        return self._loops[frames.of_outputs[node]] if is_enter else self.vertex_of[node]

    def _source_vertex(self, node: Node, frames: Frames) -> Vertex:
        """Return the vertex that consumers of a node depend on: for an Exit, its loop."""
        return self._loops[frames.of[node]] if ROLES[node.op] is EXIT else self.vertex_of[node]

    def _add_edge(self, source: Vertex, target: Vertex) -> None:
        _add_neighbor(self.successors, source, target)
        _add_neighbor(self.predecessors, target, source)

    def _add_late_enters(self, frames: Frames) -> None:
        """Find the late Enters that each vertex waits for, and loops only a part of which does."""
        in_cycle = set(self.in_cycle)
        for late in self.late_enters:
            is_cycle = late.own_exit is not None
            for node in late.waiting:
                vertex = self.vertex_of[node]
                waits = self._waits_for.get(vertex, _NONE) | {late.enter}
                if is_cycle and frames.of[node].is_within(late.frame):
                    in_cycle.add(node)
                    waits |= {node}
                self._waits_for[vertex] = waits
        self.in_cycle = frozenset(in_cycle)
        if self.late_enters:
            self.tangled |= {frame for frame in frames.all if not self._is_one_step(frame)}

    def _is_one_step(self, frame: Frame) -> bool:
        """True if each Exit of a loop waits for every late Enter that any Enter waits for."""
        if not self.in_cycle.isdisjoint(frame.exits):
            return False
        waits = [self.late_enters_before(node) for node in frame.enters]
        entered = _NONE.union(*waits)
        return all(self.late_enters_before(leaving) == entered for leaving in frame.exits)

    def late_enters_before(self, node: Node) -> frozenset[Node]:
        """The late Enters that a node waits for, those of outer loops included."""
        return self._waits_for.get(self.vertex_of[node], _NONE)

    # -- topological order -----------------------------------------------------------------------

    def _acyclic_order(self) -> list[Vertex]:
        """Return the vertices in order, after cycles have become one vertex."""
        order = self._sorted()
        if len(order) < len(self.nodes):
            self._merge_cycles(set(range(len(self.nodes))).difference(order))
            order = self._sorted()
        return order

    def _sorted(self) -> list[Vertex]:
        """Sort the vertices topologically, ties by number, omitting vertices on or after cycles."""
        missing = [len(sources) for sources in self.predecessors]
        ready = [vertex for vertex, count in enumerate(missing) if not count]
        heapify(ready)
        order = []
        while ready:
            vertex = heappop(ready)
            order.append(vertex)
            for consumer in self.successors[vertex]:
                missing[consumer] -= 1
                if not missing[consumer]:
                    heappush(ready, consumer)
        return order

    def _merge_cycles(self, unsorted: set[Vertex]) -> None:
        """Merge all vertices that lie on cycles, or between cycles, into one."""
        todo = [vertex for vertex in unsorted if unsorted.isdisjoint(self.successors[vertex])]
        while todo:
            vertex = todo.pop()
            unsorted.discard(vertex)
            for source in self.predecessors[vertex]:
                if source in unsorted and unsorted.isdisjoint(self.successors[source]):
                    todo.append(source)
        self.tangled = frozenset(frame for frame, v in self._loops.items() if v in unsorted)
        first, *rest = sorted(unsorted)
        for vertex in rest:
            self._absorb(first, vertex)
        _remove_neighbor(self.successors, first, first)
        _remove_neighbor(self.predecessors, first, first)
        self.in_cycle = frozenset(self.nodes[first])

    # -- merging ---------------------------------------------------------------------------------

    def has_path(self, a: Vertex, b: Vertex) -> bool:
        """Return true if a path leads from `a` to `b`."""
        return b in self.successors[a] or self.indirect_path(a, b) is not None

    def indirect_path(self, a: Vertex, b: Vertex) -> list[Vertex] | None:
        """Return a path from `a` to `b` over at least one other vertex, or None."""
        return self._search(*self._ends(a, b))

    def _ends(self, a: Vertex, b: Vertex) -> tuple[_PathSearch, _PathSearch]:
        forward = _PathSearch(a, self.successors, self._later, self.rank[b], 1)
        return forward, _PathSearch(b, self.predecessors, self._earlier, -self.rank[a], -1)

    def _search(self, forward: _PathSearch, backward: _PathSearch) -> list[Vertex] | None:
        """Search from both ends, which take turns by the number of edges that they follow."""
        while forward.queue and backward.queue:
            is_shorter = forward.next_cost() < backward.next_cost()
            search, other = (forward, backward) if is_shorter else (backward, forward)
            vertex = search.next_vertex()
            near = self._within(search, vertex)
            if vertex != search.start and other.start in search.edges[vertex]:
                near = [other.start]
            for neighbor in near:
                search.add(neighbor, vertex)
                if neighbor in other.previous:
                    return [*forward.path_to(neighbor)[::-1], *backward.path_to(neighbor)[1:]]
        return None

    def merge(self, a: Vertex, b: Vertex) -> Vertex | None:
        """Merge two vertices into the larger; return None, unchanged, if that closes a cycle."""
        if self._waits_for.get(a) != self._waits_for.get(b):
            return None
        early, late = sorted((a, b), key=self.rank.__getitem__)
        large, small = (b, a) if self._size(a) < self._size(b) else (a, b)
        if all(vertex == late for vertex in self.successors[early]):
            # no other vertex comes after the earlier one
            self._update_heaps(self._order.replace([late], [large]))
            self._absorb(large, small)
            return large
        forward, backward = self._ends(early, late)
        if self._has_predecessor_after(late, early):
            if self._search(forward, backward) is not None:
                return None
            self._reorder(forward, backward, large)
        else:
            self._update_heaps(self._order.replace([early], [large]))
        self._absorb(large, small)
        return large

    def merge_nodes(self, target: Node, nodes: Iterable[Node]) -> list[Node]:
        """Merge the vertices of nodes into that of another; return the nodes for which none can be.

        A path between two of them over a third is no obstacle: the third is merged first.
        """
        pending, before = [*nodes], -1
        while len(pending) != before:
            before, left = len(pending), list[Node]()
            for node in pending:
                a, b = self.vertex_of[target], self.vertex_of[node]
                if a != b and self.merge(a, b) is None:
                    left.append(node)
            pending = left
        return pending

    def _reorder(self, forward: _PathSearch, backward: _PathSearch, large: Vertex) -> None:
        """Put all predecessors between the two ends before `large`, and all successors after it.

        They share their positions, as in Pearce and Kelly (2006), which keeps the order close to
        the first one. After many moves, only those on the side that is exhausted first move.
        """
        is_before = not backward.queue
        rest = forward if is_before else backward
        while rest.queue and len(rest.previous) <= self._moves:
            vertex = rest.next_vertex()
            for neighbor in self._within(rest, vertex):
                rest.add(neighbor, vertex)
        self._moves -= len(rest.previous)
        early, late = forward.start, backward.start
        before, after = self._sorted_finds(backward), self._sorted_finds(forward)
        if not rest.queue and self._moves > 0:
            positions = sorted((early, *before, *after), key=self.rank.__getitem__)
            moved = self._order.replace(positions, [*before, large, *after])
        elif is_before:
            moved = self._order.replace([early], [large]) + self._order.move_before(large, before)
        else:
            moved = self._order.replace([late], [large]) + self._order.move_after(large, after)
        self._update_heaps(moved)

    def _sorted_finds(self, search: _PathSearch) -> list[Vertex]:
        found = (vertex for vertex in search.previous if vertex != search.start)
        return sorted(found, key=self.rank.__getitem__)

    def _within(self, search: _PathSearch, vertex: Vertex) -> list[Vertex]:
        """Return the neighbors of a vertex that a search is to visit."""
        return self._neighbors_within(search.edges, search.heaps, vertex, search.limit, search.sign)

    def _has_predecessor_after(self, vertex: Vertex, early: Vertex) -> bool:
        """Return true if a predecessor of a vertex ranks above `early`."""
        limit = -self.rank[early]
        return bool(self._neighbors_within(self.predecessors, self._earlier, vertex, limit, -1))

    def _size(self, vertex: Vertex) -> int:
        edges = len(self.successors[vertex]) + len(self.predecessors[vertex])
        return len(self.nodes[vertex]) + edges

    def _neighbors_within(
        self,
        edges: Neighbors,
        heaps: dict[Vertex, Heap],
        vertex: Vertex,
        limit: int,
        sign: int,
    ) -> list[Vertex]:
        """Return the neighbors whose rank, times `sign`, is below a limit."""
        neighbors, rank = edges[vertex], self.rank
        if len(neighbors) < _MANY_NEIGHBORS:
            return [other for other in neighbors if sign * rank[other] < limit]
        heap = heaps.get(vertex)
        if heap is None or len(heap) > 4 * len(neighbors):
            heap = heaps[vertex] = [(sign * rank[other], other) for other in neighbors]
            heapify(heap)
        within: dict[Vertex, int] = {}
        while heap and heap[0][0] < limit:
            position, other = heappop(heap)
            # entries of neighbors that merged or moved are out of date
            if other in neighbors and sign * rank[other] == position:
                within[other] = position
        for other, position in within.items():
            heappush(heap, (position, other))
        return list(within)

    def _update_heaps(self, vertices: Iterable[Vertex]) -> None:
        """Add vertices with their ranks to the heaps of their neighbors."""
        for heaps, edges, reverse, sign in (
            (self._later, self.predecessors, self.successors, 1),
            (self._earlier, self.successors, self.predecessors, -1),
        ):
            if not heaps:
                continue
            many = heaps.keys()
            for vertex in vertices:
                near = edges[vertex]
                for other in list(near if len(near) < len(many) else many):
                    if other in many and vertex in reverse[other]:
                        heappush(heaps[other], (sign * self.rank[vertex], vertex))

    def _absorb(self, target: Vertex, absorbed: Vertex) -> None:
        """Move the edges and nodes of one vertex to another."""
        for edges, reverse, heaps, reverse_heaps, sign in (
            (self.successors, self.predecessors, self._later, self._earlier, 1),
            (self.predecessors, self.successors, self._earlier, self._later, -1),
        ):
            heap = heaps.get(target)
            heaps.pop(absorbed, None)
            for neighbor in edges[absorbed]:
                _remove_neighbor(reverse, neighbor, absorbed)
                if neighbor != target:
                    _add_neighbor(reverse, neighbor, target)
                    _add_neighbor(edges, target, neighbor)
                    if heap is not None:
                        heappush(heap, (sign * self.rank[neighbor], neighbor))
                    if neighbor in reverse_heaps:
                        heappush(reverse_heaps[neighbor], (-sign * self.rank[target], target))
            _remove_neighbor(edges, target, absorbed)
            edges[absorbed] = ()
        self._waits_for.pop(absorbed, None)
        self.vertex_of.update(dict.fromkeys(self.nodes[absorbed], target))
        self.nodes[target].extend(self.nodes[absorbed])
        self.nodes[absorbed] = []


def _iteration_predecessors(node: Node, transparent: Collection[Node]) -> Iterator[Node]:
    """Yield the predecessors of a node in its iteration, looking through transparent nodes."""
    is_merge = ROLES[node.op] is MERGE
    data = [tensor.node for tensor in node.inputs]
    if is_merge:
        data = [source for source in data if ROLES[source.op] is not NEXT_ITERATION]
    yield from skip_transparent([*data, *node.controls], transparent)


def skip_transparent(nodes: Iterable[Node], transparent: Collection[Node]) -> Iterator[Node]:
    """Yield nodes once each, replacing transparent ones by their control inputs."""
    todo = dict.fromkeys(nodes)
    queue = list(todo)
    for source in queue:
        if source not in transparent:
            yield source
            continue
        new = [control for control in source.controls if control not in todo]
        todo.update(dict.fromkeys(new))
        queue.extend(new)
