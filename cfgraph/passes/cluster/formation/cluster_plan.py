"""Plan the clusters of a graph before the graph is changed.

Nodes merge along edges, then siblings do (nodes with a common producer or consumer):

    a -> b -> c            [a b c]            along edges, from the last node to the first
    s -> a, s -> b         s -> [a b]         siblings, if no path connects them

`ClusterGrowth.rejection` alone decides whether two clusters may merge: `merge_conflicts` compares
the two, and `cycle_graph` looks for a path between them over a third. Its answer is also the
reason reported for an edge between two clusters. Where nothing could keep the nodes of a run apart
they are one cluster, and none grows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from cfgraph.analysis.effects import EffectAnalysis
from cfgraph.analysis.liveness_rules import LivenessRule
from cfgraph.analysis.loops.cycle_graph import CycleGraph, Vertex
from cfgraph.analysis.run_requirements import RunRequirements
from cfgraph.ir.devices import DeviceName
from cfgraph.ir.function_graph import FunctionInstances
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import reachable
from cfgraph.limits import check_deadline
from cfgraph.ops.families.constants import Const
from cfgraph.ops.families.control_flow import NoOp
from cfgraph.ops.opdef.op import lookup, role_of
from cfgraph.passes.cluster.formation.compilable import ClusterConstraints, CompilationRules
from cfgraph.passes.cluster.formation.merge_conflicts import (
    ClusterCandidate,
    ClusterSizes,
    merge_conflict,
)
from cfgraph.passes.cluster.formation.report import ClusterEdge, ClusterInputs, ClusterReport
from cfgraph.passes.functionalize.function_body import is_cheap_constant
from cfgraph.passes.functionalize.report import RejectionReason

_SAMPLE_SIZE: Final = 6


class CompilableNodes:
    """The `candidates` of clusters, in execution order, and the cheap constants.

    `reasons` has all other nodes, each with the reason against compiling it.
    """

    def __init__(self, rules: CompilationRules) -> None:
        self.rules = rules
        self.cheap_constants: dict[Node, None] = {}
        self.reasons: dict[Node, RejectionReason] = {}
        self.candidates: dict[Node, None] = {}
        for node in rules.frames.order:
            if reason := rules.rejection(node):
                self.reasons[node] = reason
            else:
                is_copied = is_cheap_constant(node)
                (self.cheap_constants if is_copied else self.candidates)[node] = None

    def are_one_cluster(self, liveness: LivenessRule, sizes: ClusterSizes) -> bool:
        """True if nothing can keep the candidates apart, so that no cluster needs to grow.

        They are then always live, in one frame and on one device, in a run of known fetches, and
        edges connect them, or common producers or consumers.
        """
        limits, devices = self.rules.constraints, {node.device for node in self.candidates}
        is_free = limits.traced and limits.needed is not None and sizes.greatest is None
        if not is_free or liveness.mode == "off" or len(devices) != 1:
            return False
        if any(map(ROLES.__getitem__, self.rules.graph.ops)) or self._has_path_outside():
            return False
        connected = reachable([next(iter(self.candidates))], self._neighbors)
        return self.candidates.keys() <= connected.keys()

    def _has_path_outside(self) -> bool:
        """True if a path may lead from a candidate to another over a node that is none."""
        following = set[Node]()
        for node in self.rules.frames.order:
            sources = node.predecessors
            if node in self.candidates:
                if not following.isdisjoint(sources):
                    return True
            elif any(source in self.candidates or source in following for source in sources):
                following.add(node)
        return False

    def _neighbors(self, node: Node) -> Iterator[Node]:
        is_candidate = node in self.candidates
        for other in (*node.predecessors, *(use.node for use in node.uses)):
            if other in self.candidates or (is_candidate and other in self.reasons):
                yield other


class ClusterGrowth:
    """Grown clusters of a graph, by vertex; `reasons` explains the nodes that are in none."""

    def __init__(self, nodes: CompilableNodes, liveness: LivenessRule, sizes: ClusterSizes) -> None:
        rules, order = nodes.rules, liveness.frames.order
        self.liveness = liveness
        self.sizes = sizes
        self.dependencies = CycleGraph(liveness.frames, nodes.cheap_constants)
        self.candidates: dict[Vertex, ClusterCandidate] = {}
        self._transfers = {n for n in order if role_of(n) in (Role.SEND, Role.RECV)}
        self.reasons: dict[Node, RejectionReason] = {}
        for node in order:
            if node not in nodes.cheap_constants:
                reason = nodes.reasons.get(node) or self._liveness_rejection(node)
                if reason is not None:
                    self.reasons[node] = reason
        effects = EffectAnalysis()
        # known fetches run together, so that they need the same
        requirements = RunRequirements(
            order if rules.constraints.needed is None else (), self.reasons, effects
        )
        for node in nodes.candidates:
            if node in self.reasons:
                continue
            candidate = ClusterCandidate(
                liveness.frames.of[node],
                DeviceName.parse(node.device) or DeviceName(),
                node,
                rules.constraints.functionalized.get(node, 1),
                requirements[node],
            )
            if not rules.constraints.traced:  # traced clusters keep the order of accesses
                candidate.accesses.extend(effects.accesses([node]))
            self.candidates[self.dependencies.vertex_of[node]] = candidate
        self._grow()

    def _liveness_rejection(self, node: Node) -> RejectionReason | None:
        if node in self.dependencies.in_cycle:
            text = "an Enter of the loop waits for it, and it waits for an Exit of that loop"
            return RejectionReason("tangled loops", text)
        if self.liveness.is_candidate(node):
            return None
        sources = dict.fromkeys(node.predecessors)
        conditions = [f"{source.name}: {self.liveness.condition(source)}" for source in sources]
        return RejectionReason("mismatch", "; ".join(conditions), {"inputs": conditions})

    # -- merging ---------------------------------------------------------------------------------

    def _grow(self) -> None:
        self._merge_shape_readers()
        self._merge_along_edges()
        while self.liveness.mode != "off" and self._merge_siblings():
            self._merge_along_edges()

    def _merge_shape_readers(self) -> None:
        """Merge nodes that read only a shape with a producer, which spares passing the tensor."""
        readers = [v for v, candidate in self.candidates.items() if _is_shape_only(candidate.first)]
        for vertex in readers:
            for source in self._by_rank(self.dependencies.predecessors[vertex]):
                if source in self.candidates and self._merge(source, vertex) is not None:
                    break

    def _merge_along_edges(self) -> None:
        """Merge along edges, last nodes first, until a fixed point."""
        merged = True
        while merged:
            merged = False
            tried: dict[Vertex, set[Vertex]] = {}
            for vertex in reversed(self._by_rank(self.candidates)):
                check_deadline()
                if vertex in self.candidates and self._merge_consumers(vertex, tried):
                    merged = True

    def _merge_consumers(self, vertex: Vertex, tried: dict[Vertex, set[Vertex]]) -> bool:
        """Merge a vertex with its consumers, except consumers that any part of it has `tried`."""
        seen, merged_any = set[Vertex](), False
        todo = self._by_rank(self.dependencies.successors[vertex])
        while todo:
            for consumer in todo:
                check_deadline()
                seen.add(consumer)
                merged = self._merge(vertex, consumer) if consumer in self.candidates else None
                if merged is not None:
                    vertex, merged_any = merged, True
                    smaller, seen = sorted((seen, tried.pop(consumer, set())), key=len)
                    seen |= smaller
            successors = self.dependencies.successors[vertex]
            todo = self._by_rank(v for v in successors if v not in seen)
        tried[vertex] = seen
        return merged_any

    def _merge_siblings(self) -> bool:
        """Merge clusters that share a producer or a consumer; return true if any were."""
        merged = False
        for vertex in self._by_rank(range(len(self.dependencies.nodes))):
            for neighbors in (
                self.dependencies.successors[vertex],
                self.dependencies.predecessors[vertex],
            ):
                siblings = [v for v in self._by_rank(neighbors) if v in self.candidates]
                merged |= self._merge_all(siblings)
        return merged

    def _merge_all(self, vertices: list[Vertex]) -> bool:
        merged_any = False
        targets: list[Vertex] = []
        for vertex in vertices:
            if vertex not in self.candidates or self._touches_transfer(vertex):
                continue
            # trying only the latest targets keeps many siblings from costing quadratic time
            for index in range(max(0, len(targets) - _SAMPLE_SIZE), len(targets)):
                merged = self._merge(targets[index], vertex, siblings=True)
                if merged is not None:
                    targets[index], merged_any = merged, True
                    break
            else:
                targets.append(vertex)
        return merged_any

    def _touches_transfer(self, vertex: Vertex) -> bool:
        """Return true next to a _Send or _Recv: merging siblings would delay the message."""
        if not self._transfers:
            return False
        neighbors = [*self.dependencies.successors[vertex], *self.dependencies.predecessors[vertex]]
        nodes = (node for neighbor in neighbors for node in self.dependencies.nodes[neighbor])
        return not self._transfers.isdisjoint(nodes)

    def _by_rank(self, vertices: Iterable[Vertex]) -> list[Vertex]:
        return sorted(vertices, key=self.dependencies.rank.__getitem__)

    def _merge(self, a: Vertex, b: Vertex, *, siblings: bool = False) -> Vertex | None:
        """Merge two clusters; return the vertex of the result, None if they must stay separate."""
        if self._conflict(a, b, siblings=siblings) is not None:
            return None
        merged = self.dependencies.merge(a, b)
        if merged is not None:
            first, second = self.candidates.pop(a), self.candidates.pop(b)
            first.absorb(second)
            self.candidates[merged] = first
        return merged

    def groups(self, position: Mapping[Node, int]) -> list[list[Node]]:
        """The nodes of each cluster, in execution order."""
        vertices = self._by_rank(self.candidates)
        return [sorted(self.dependencies.nodes[v], key=position.__getitem__) for v in vertices]

    # -- rejections ------------------------------------------------------------------------------

    def rejection(self, a: Vertex, b: Vertex) -> RejectionReason | None:
        """Return the reason against merging along an edge from `a` to `b`, or None."""
        conflict = self._conflict(a, b)
        if conflict is not None:
            return conflict
        waits = [self.dependencies.late_enters_before(self.candidates[v].first) for v in (a, b)]
        if waits[0] != waits[1]:
            names = sorted(node.name for node in waits[0] ^ waits[1])
            text = f"one waits for the Enter {', '.join(names)}"
            return RejectionReason("late enter", text, {"enters": names})
        path = self.dependencies.indirect_path(a, b)
        if path is None:
            return None
        nodes = self.dependencies.nodes
        names = [nodes[vertex][0].name for vertex in path if nodes[vertex]]
        text = " → ".join([*names[:_SAMPLE_SIZE], *(["…"] if len(names) > _SAMPLE_SIZE else [])])
        return RejectionReason("cycle", text, {"path": names})

    def _conflict(self, a: Vertex, b: Vertex, *, siblings: bool = False) -> RejectionReason | None:
        first, second = self.candidates[a], self.candidates[b]
        return merge_conflict(first, second, self.liveness, self.sizes, siblings=siblings)


def _is_shape_only(node: Node) -> bool:
    op = lookup(node.op)
    return op is not None and op.algebra.shape_only


def node_weight(node: Node) -> int:
    """Return 1 for a node that computes something, 0 for constants, identities, and NoOps."""
    op = lookup(node.op)
    return int(op is None or not (op.aliasing.is_identity or issubclass(op, Const | NoOp)))


@dataclass(frozen=True, slots=True)
class ClusterBody:
    """Members of a cluster in execution order, and the constants copied into it.

    Edges from `transparent` nodes, which include all copied constants, are replaced by edges from
    the control inputs of these nodes.
    """

    members: tuple[Node, ...]
    copies: tuple[Node, ...]
    transparent: Collection[Node] = ()

    def original_ops(self, replaced: Mapping[Node, Mapping[str, str]]) -> dict[str, str]:
        """The ops of the members by name, and of the nodes that some of these have `replaced`."""
        ops = dict[str, str]()
        for node in self.members:
            ops.update(replaced.get(node, {node.name: node.op}))
        return ops


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """Clusters in execution order, and a reason for each node outside.

    `absorbed` are constants that are read only by clusters with their own copy. A single cluster
    of all candidates has no `growth`.
    """

    liveness: LivenessRule
    bodies: tuple[ClusterBody, ...]
    outside: Mapping[Node, RejectionReason]
    absorbed: tuple[Node, ...]
    instances: FunctionInstances
    growth: ClusterGrowth | None = None

    @property
    def clustered(self) -> int:
        """Return the number of nodes in clusters."""
        return sum(len(body.members) for body in self.bodies) + len(self.absorbed)

    def cluster_report(
        self, body: ClusterBody, original_ops: Mapping[Node, Mapping[str, str]]
    ) -> ClusterReport:
        """Describe a planned cluster, which has no name yet.

        `original_ops` has the original nodes, by name with their ops, of functionalized regions.
        """
        liveness, first = self.liveness, body.members[0]
        ops = body.original_ops(original_ops)
        return ClusterReport(
            "",
            tuple(ops),
            tuple(node.name for node in body.copies),
            dict(sorted(Counter(ops.values()).items())),
            liveness.frames.of[first].path,
            first.device,
            liveness.condition(first),
            ClusterInputs(0, 0, 0),
            0,
        )

    def edges(self) -> Iterator[ClusterEdge]:
        """Yield the edges between compilable nodes of different clusters, each with a reason."""
        growth = self.growth
        if growth is None:
            return
        vertex_of, candidates = growth.dependencies.vertex_of, growth.candidates
        for node in growth.liveness.frames.order:
            sources = dict.fromkeys(node.predecessors)
            for source in sources:
                a, b = vertex_of[source], vertex_of[node]
                if a != b and a in candidates and b in candidates:
                    reason = growth.rejection(a, b)
                    if reason is not None:
                        yield ClusterEdge(source.name, node.name, reason)


def plan_clusters(
    graph: Graph,
    liveness: LivenessRule,
    sizes: ClusterSizes,
    constraints: ClusterConstraints,
    instances: FunctionInstances | None = None,
) -> ClusterPlan:
    """Plan the clusters of a graph in lowered form; `instances` are those of its functions."""
    instances = instances or FunctionInstances(graph.functions)
    nodes = CompilableNodes(CompilationRules(graph, liveness.frames, constraints, instances))
    growth = None
    if not nodes.are_one_cluster(liveness, sizes):
        growth = ClusterGrowth(nodes, liveness, sizes)
    outside = dict(nodes.reasons if growth is None else growth.reasons)
    position = {node: number for number, node in enumerate(liveness.frames.order)}
    groups = [[*nodes.candidates]] if growth is None else growth.groups(position)
    bodies = []
    for members in groups:
        size = sum(map(node_weight, members))
        # a region is worth a cluster of any size: it may run its nodes many times
        is_region = any(constraints.functionalized.get(node, 0) > 1 for node in members)
        if size >= sizes.least or is_region:
            copies = _copied_constants(nodes, members, position)
            bodies.append(ClusterBody(tuple(members), copies, nodes.cheap_constants))
        else:
            outside.update(dict.fromkeys(members, _size_rejection(size, len(members) == 1)))
    absorbed = _absorbed_constants(bodies, constraints)
    removed = set(absorbed)
    shared = RejectionReason("shared", "it is read outside clusters")
    outside.update((node, shared) for node in nodes.cheap_constants if node not in removed)
    return ClusterPlan(liveness, tuple(bodies), outside, absorbed, instances, growth)


@lru_cache
def _size_rejection(size: int, is_alone: bool) -> RejectionReason:
    if is_alone:
        return RejectionReason("alone", "no edge to merge along", {"size": size})
    return RejectionReason("too small", f"{size} computing node{'s' * (size != 1)}", {"size": size})


def _copied_constants(
    nodes: CompilableNodes, members: list[Node], position: Mapping[Node, int]
) -> tuple[Node, ...]:
    """Return the cheap constants that a cluster reads."""
    sources = {tensor.node for node in members for tensor in node.inputs}
    copied = sources.intersection(nodes.cheap_constants)
    return tuple(sorted(copied, key=position.__getitem__))


def _absorbed_constants(
    bodies: list[ClusterBody], constraints: ClusterConstraints
) -> tuple[Node, ...]:
    """Return the constants read only by clusters that contain a copy."""
    members_with_copy: dict[Node, set[Node]] = {}
    for body in bodies:
        for node in body.copies:
            members_with_copy.setdefault(node, set()).update(body.members)
    return tuple(
        node
        for node, members in members_with_copy.items()
        if node not in constraints.fetched and all(use.node in members for use in node.uses)
    )
