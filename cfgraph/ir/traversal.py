"""Traversals of a graph: topological order of nodes, and reachability.

The topological order lists sources before readers; back edges of loops are ignored. Reachability
follows data, control, and rendezvous edges: a rendezvous edge leads from a Send to the Recv with
the same key, so the ancestors of a node cross devices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import MERGE, NEXT_ITERATION, RECV, SEND
from cfgraph.limits import check_deadline

_T = TypeVar("_T", bound=Hashable)
_NO_CUT: Final[frozenset[Output]] = frozenset()
NO_SENDERS: Final[Mapping[Node, Node]] = {}


@dataclass(frozen=True, slots=True)
class TopologicalOrder:
    """Nodes in topological order, and the cycles that remain.

    A cycle lists its nodes in the direction of data flow; the last feeds the first. Listed cycles
    are disjoint. One edge of each is ignored, so that every node has a position.
    """

    nodes: tuple[Node, ...]
    cycles: tuple[tuple[Node, ...], ...]


def topological_order(
    nodes: Iterable[Node],
    cut: Collection[Output] = _NO_CUT,
    senders: Mapping[Node, Node] = NO_SENDERS,
) -> TopologicalOrder:
    """Order nodes so that sources precede readers; otherwise the original order is kept.

    Back edges (from a NextIteration to a Merge), edges of `cut` outputs, and edges from nodes
    outside of `nodes` are ignored. A Recv follows its Send in `senders`.
    """
    todo = dict.fromkeys(nodes)
    walk = _DepthFirstSort(todo, cut, senders)
    order = walk.order
    for node in list(todo):
        if node not in todo:
            continue
        # fast path: most files list sources first
        for item in node.inputs:
            if item[0] in todo:
                walk.visit(node)
                break
        else:
            for control in node.controls:
                if control in todo:
                    walk.visit(node)
                    break
            else:
                if node in senders:
                    walk.visit(node)
                    continue
                del todo[node]
                order.append(node)
    return TopologicalOrder(tuple(order), tuple(walk.cycles))


class _DepthFirstSort:
    """Iterative depth-first search against the edges."""

    def __init__(
        self, todo: dict[Node, None], cut: Collection[Output], senders: Mapping[Node, Node]
    ) -> None:
        self.todo = todo
        self.cut = cut
        self.senders = senders
        self.order: list[Node] = []
        self.cycles: list[tuple[Node, ...]] = []

    def visit(self, start: Node) -> None:
        """Append a node after everything that it depends on."""
        todo, order = self.todo, self.order
        trail, indices, pending = [start], {start: 0}, [iter(self.needs(start))]
        # highest trail index, up to each position, that belongs to a listed cycle
        listed = [-1]
        while trail:
            for source in pending[-1]:
                if source not in todo:
                    continue
                index = indices.get(source)
                if index is None:
                    indices[source] = len(trail)
                    trail.append(source)
                    listed.append(listed[-1])
                    pending.append(iter(self.needs(source)))
                    break
                if listed[-1] < index:
                    self.cycles.append(tuple(reversed(trail[index:])))
                    listed[index:] = range(index, len(trail))
            else:
                node = trail.pop()
                pending.pop()
                listed.pop()
                del indices[node], todo[node]
                order.append(node)

    def needs(self, node: Node) -> list[Node]:
        """Sources that must come first and are not ordered yet."""
        todo, cut = self.todo, self.cut
        needs = [item for item in node.inputs if item[0] in todo]
        if needs and cut:
            needs = [item for item in needs if item not in cut]
        if needs and ROLES[node.op] is MERGE:
            needs = [item for item in needs if ROLES[item[0].op] is not NEXT_ITERATION]
        needed = [item[0] for item in needs]
        if node.controls:
            needed.extend(control for control in node.controls if control in todo)
        if node in self.senders and self.senders[node] in todo:
            needed.append(self.senders[node])
        return needed


class RendezvousKey(NamedTuple):
    """Key shared by a Send and its Recv within one frame and iteration."""

    send_device: str
    recv_device: str
    tensor_name: str

    @property
    def sent_name(self) -> str:
        """The name of the node that is sent, without the number that partitioning adds."""
        return re.sub(r"^edge_\d+_", "", self.tensor_name)

    def __str__(self) -> str:
        return f"{self.tensor_name!r} from {self.send_device} to {self.recv_device}"


def rendezvous_key(node: Node) -> RendezvousKey:
    """The key of a Send or a Recv. Raises InvalidInput if an attribute is missing."""
    return RendezvousKey(*[_text(node.attr(name)) for name in RendezvousKey._fields])


def _text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def is_transfer(node: Node) -> bool:
    """True for a Send or Recv whose other end is a node, not the client."""
    return ROLES[node.op] in (SEND, RECV) and not node.attrs.get("client_terminated")


def transfers(nodes: Iterable[Node]) -> list[Node]:
    """The Sends and Recvs among some nodes whose other end is a node."""
    roles = ROLES
    return [node for node in nodes if roles[node.op] is not None and is_transfer(node)]


def is_partitioned(graph: Graph) -> bool:
    """True if the graph contains transfers between devices."""
    if not any(ROLES[op] in (SEND, RECV) for op in graph.ops):
        return False
    return any(is_transfer(node) for node in graph)


def named_devices(graph: Graph) -> list[str]:
    """The devices of a partitioned graph; of another, a run ignores them."""
    return sorted({node.device for node in graph}) if is_partitioned(graph) else []


def sends_by_key(nodes: Iterable[Node]) -> dict[RendezvousKey, Node]:
    """The first Send of each key."""
    sends = dict[RendezvousKey, Node]()
    for node in transfers(nodes):
        if ROLES[node.op] is SEND:
            sends.setdefault(rendezvous_key(node), node)
    return sends


def sends_by_recv(nodes: Collection[Node]) -> dict[Node, Node]:
    """The Send of each Recv, without Recvs whose Send is not among the nodes."""
    ends = transfers(nodes)
    recvs, sent = [node for node in ends if ROLES[node.op] is RECV], sends_by_key(ends)
    pairs = ((node, sent.get(rendezvous_key(node))) for node in recvs)
    return {node: send for node, send in pairs if send is not None}


def unsent_recvs(graph: Graph) -> list[Node]:
    """The Recvs for which the graph has no Send, as in one part of a partitioned graph."""
    ends = transfers(graph)
    matched = sends_by_recv(ends)
    return [node for node in ends if ROLES[node.op] is RECV and node not in matched]


def ancestors(
    graph: Graph,
    targets: Iterable[Node],
    fed: Collection[Output] = (),
    fed_nodes: Collection[Node] = (),
) -> list[Node]:
    """The nodes that `targets` depend on, in graph order.

    Dependencies end at `fed` outputs, and at control edges from `fed_nodes` (placeholders, which do
    not run when fed).
    """
    needed = set(targets)
    queue = list(needed)
    sends: dict[RendezvousKey, Node] | None = None
    while queue:
        node = queue.pop()
        if not node.inputs and ROLES[node.op] is RECV and is_transfer(node):
            sends = sends_by_key(graph) if sends is None else sends
            send = sends.get(rendezvous_key(node))
            if send is not None and send not in needed:
                needed.add(send)
                queue.append(send)
        for tensor in node.inputs:
            source = tensor[0]
            if source not in needed and not (fed and tensor in fed):
                needed.add(source)
                queue.append(source)
        for source in node.controls:
            if source not in needed and source not in fed_nodes:
                needed.add(source)
                queue.append(source)
    return [node for node in graph if node in needed]


def reachable(starts: Iterable[_T], neighbors: Callable[[_T], Iterable[_T]]) -> dict[_T, None]:
    """The starts and all that neighbors of these lead to, in breadth-first order."""
    reached = dict.fromkeys(starts)
    queue = list(reached)
    for item in queue:
        check_deadline()
        for neighbor in neighbors(item):
            if neighbor not in reached:
                reached[neighbor] = None
                queue.append(neighbor)
    return reached


def upstream(targets: Iterable[Node]) -> dict[Node, None]:
    """The targets and all nodes that they depend on, without rendezvous edges."""
    return reachable(targets, lambda node: node.predecessors)


def downstream(sources: Iterable[Node]) -> dict[Node, None]:
    """The sources and all nodes that depend on one of them, without rendezvous edges."""
    return reachable(sources, lambda node: [use[0] for use in node.uses])


def dependents(graph: Graph, sources: Iterable[Node]) -> dict[Node, None]:
    """The sources and all nodes that depend on one of them, also by a Send and its Recv."""
    receivers: dict[Node, list[Node]] = {}
    for recv, send in sends_by_recv(graph.nodes.values()).items():
        receivers.setdefault(send, []).append(recv)
    return reachable(
        sources, lambda node: [*(use[0] for use in node.uses), *receivers.get(node, ())]
    )


def joining_merge(node: Node, unjoined: set[Node]) -> Node | None:
    """The first Merge of branches that depends on a node, or None.

    No Merge depends on the nodes that are unjoined; those that a search finds are added.
    """
    reached = reachable([node], lambda item: [x[0] for x in item.uses if x[0] not in unjoined])
    for reader in reached:
        sources = [tensor.node for tensor in reader.inputs]
        is_loop = any(ROLES[source.op] is NEXT_ITERATION for source in sources)
        if reader is not node and ROLES[reader.op] is MERGE and not is_loop:
            return reader
    unjoined.update(item for item in reached if ROLES[item.op] is not MERGE)
    return None


def postorder(start: _T, needs: Callable[[_T], Iterable[_T]], known: Container[_T]) -> Iterator[_T]:
    """Yield all that is needed for `start` and not known, in an order in which it can be computed.

    The caller adds each item to `known`. There must be no cycles.
    """
    stack = [start]
    while stack:
        item = stack[-1]
        missing = [] if item in known else [each for each in needs(item) if each not in known]
        if missing:
            stack += missing
            continue
        stack.pop()
        if item not in known:
            yield item


def strong_components(successors: Mapping[_T, Iterable[_T]]) -> list[list[_T]]:
    """The strongly connected components of a directed graph (Tarjan 1972)."""
    # the lowest number that each item reaches; the number of items once its component is complete
    lows: dict[_T, int] = {}
    path: list[_T] = []
    components: list[list[_T]] = []
    for root in successors:
        pending = [] if root in lows else [(root, len(lows), len(path), iter(successors[root]))]
        while pending:
            item, number, start, rest = pending[-1]
            if item not in lows:
                lows[item] = number
                path.append(item)
            for successor in rest:
                if successor not in lows:
                    following = iter(successors[successor])
                    pending.append((successor, len(lows), len(path), following))
                    break
                lows[item] = min(lows[item], lows[successor])
            else:
                pending.pop()
                if pending:
                    lows[pending[-1][0]] = min(lows[pending[-1][0]], lows[item])
                if lows[item] == number:
                    components.append(path[start:])
                    lows.update(dict.fromkeys(path[start:], len(successors)))
                    del path[start:]
    return components
