"""Grow clusters: merge nodes along edges, then adjacent nodes without an edge.

`ClusterGrowth.rejection` is the only place that decides whether two clusters may merge. Its answer
is also the reason reported for an edge between two clusters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from cfgraph.analysis.effects import EffectAnalysis, ResourceAccess
from cfgraph.analysis.loops.frames import Frame
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.devices import DeviceName
from cfgraph.ir.graph import Node
from cfgraph.ir.role import Role
from cfgraph.ops.families.constants import Const
from cfgraph.ops.families.control_flow import NoOp
from cfgraph.ops.opdef.op import is_a, lookup, role_of
from cfgraph.passes.cluster.formation.compilable import CompilationRules
from cfgraph.passes.cluster.formation.cycle_graph import CycleGraph, Vertex
from cfgraph.passes.cluster.formation.liveness_rules import LivenessRule
from cfgraph.passes.cluster.formation.merge_conflicts import EffectSet, FetchEffects
from cfgraph.passes.cluster.formation.rejection_reasons import RejectionReason

MAX_CHEAP_ELEMENTS: Final = (
    16  # a constant of so many elements is copied into every cluster that reads it
)
_SAMPLE_SIZE: Final = 6


@dataclass(frozen=True, slots=True)
class ClusterSizes:
    """The least number of nodes that do something, and the greatest of all nodes, of a cluster."""

    least: int = 2
    greatest: int | None = None


@dataclass(slots=True)
class ClusterCandidate:
    """What is known of a vertex whose nodes compile together."""

    frame: Frame
    device: DeviceName
    first: Node
    size: int = 1
    ties: EffectSet = field(default_factory=EffectSet)
    accesses: list[ResourceAccess] = field(default_factory=list)

    def take(self, other: ClusterCandidate) -> None:
        """Add what is known of another one."""
        self.size += other.size
        self.ties.take(other.ties)
        self.accesses.extend(other.accesses)


class ClusterGrowth:
    """The clusters of a graph, by what may be in one. `reasons` says why a node is in none."""

    def __init__(
        self, rules: CompilationRules, liveness: LivenessRule, sizes: ClusterSizes
    ) -> None:
        self.liveness = liveness
        self.sizes = sizes
        self.reasons: dict[Node, RejectionReason] = {}
        self.cheap_constants = {
            n: None for n in rules.found.order if is_cheap_constant(n) and not rules.refusal(n)
        }
        self.waiting = CycleGraph(liveness.frames, self.cheap_constants)
        self.groups: dict[Vertex, ClusterCandidate] = {}
        self._transfers = {n for n in liveness.frames.order if role_of(n) in (Role.SEND, Role.RECV)}
        effects = EffectAnalysis()
        # what is fetched runs together
        tied = FetchEffects(
            liveness.frames.order if rules.constraints.needed is None else (), effects
        )
        for node in liveness.frames.order:
            if node in self.cheap_constants:
                continue
            reason = rules.refusal(node) or self._liveness_rejection(node)
            if reason is not None:
                self.reasons[node] = reason
                continue
            size = rules.constraints.raised.get(node, 1)
            group = ClusterCandidate(
                liveness.frames.of[node], _parsed_device(node), node, size, tied.of(node)
            )
            group.accesses.extend(effects.accesses([node]))
            self.groups[self.waiting.of[node]] = group
        self._form()

    def _liveness_rejection(self, node: Node) -> RejectionReason | None:
        if node in self.waiting.in_cycle:
            return RejectionReason("tangled loops", "what leaves its loop is needed to enter it")
        if self.liveness.is_candidate(node):
            return None
        sources = dict.fromkeys([*(item.node for item in node.inputs), *node.controls])
        told = [f"{source.name}: {self.liveness.text(source)}" for source in sources]
        return RejectionReason("mismatch", "; ".join(told), {"inputs": told})

    # -- joining ---------------------------------------------------------------------------------

    def _form(self) -> None:
        # a shape is best asked for where the tensor is made
        asking = [v for v, group in self.groups.items() if _is_shape_only(group.first)]
        for vertex in asking:
            for source in self._ordered(self.waiting.before[vertex]):
                if source in self.groups and self._join(source, vertex) is not None:
                    break
        self._merge_along_edges()
        while self.liveness.mode != "off" and self._merge_adjacent():
            self._merge_along_edges()

    def _merge_along_edges(self) -> None:
        """Join along edges, the last nodes first, until nothing more can be."""
        joined = True
        while joined:
            joined = False
            tried: dict[Vertex, set[Vertex]] = {}
            for vertex in reversed(self._ordered(dict.fromkeys(self.groups))):
                if vertex in self.groups and self._merge_readers(vertex, tried):
                    joined = True

    def _merge_readers(self, vertex: Vertex, tried: dict[Vertex, set[Vertex]]) -> bool:
        """Join a vertex with what reads it; what a part of it `tried` is left to the next round."""
        found, taken = set[Vertex](), False
        todo = self._ordered(self.waiting.after[vertex])
        while todo:
            for reader in todo:
                found.add(reader)
                joined = self._join(vertex, reader) if reader in self.groups else None
                if joined is not None:
                    vertex, taken = joined, True
                    less, found = sorted((found, tried.pop(reader, set())), key=len)
                    found |= less
            after = self.waiting.after[vertex]
            todo = self._ordered({v: None for v in after if v not in found})
        tried[vertex] = found
        return taken

    def _merge_adjacent(self) -> bool:
        """Join what reads from one vertex, or is read by one; true if any was."""
        joined = False
        for vertex in self._ordered(dict.fromkeys(range(len(self.waiting.nodes)))):
            for near in (self.waiting.after[vertex], self.waiting.before[vertex]):
                beside = [v for v in self._ordered(near) if v in self.groups]
                joined |= self._join_all(beside)
        return joined

    def _join_all(self, vertices: list[Vertex]) -> bool:
        joined = False
        kept: list[Vertex] = []
        for vertex in vertices:
            if vertex not in self.groups or self._touches_transfer(vertex):
                continue
            # with so many beside each other, a few are enough to find one that suits
            for place in range(max(0, len(kept) - _SAMPLE_SIZE), len(kept)):
                both = self._join(kept[place], vertex, beside=True)
                if both is not None:
                    kept[place], joined = both, True
                    break
            else:
                kept.append(vertex)
        return joined

    def _touches_transfer(self, vertex: Vertex) -> bool:
        """True if a message is waited for, or waits: it should not wait for more."""
        if not self._transfers:
            return False
        near = [*self.waiting.after[vertex], *self.waiting.before[vertex]]
        nodes = (node for other in near for node in self.waiting.nodes[other])
        return not self._transfers.isdisjoint(nodes)

    def _ordered(self, vertices: dict[Vertex, None]) -> list[Vertex]:
        return sorted(vertices, key=self.waiting.rank.__getitem__)

    def _join(self, one: Vertex, other: Vertex, *, beside: bool = False) -> Vertex | None:
        """Join two clusters; the vertex that holds both, or None where they stay apart."""
        if self._merge_conflict(self.groups[one], self.groups[other], beside) is not None:
            return None
        joined = self.waiting.join(one, other)
        if joined is not None:
            first, second = self.groups.pop(one), self.groups.pop(other)
            first.take(second)
            self.groups[joined] = first
        return joined

    # -- objections ------------------------------------------------------------------------------

    def rejection(self, one: Vertex, other: Vertex) -> RejectionReason | None:
        """Why a cluster cannot take the one that it has an edge to; None if it can."""
        clash = self._merge_conflict(self.groups[one], self.groups[other], False)
        if clash is not None:
            return clash
        path = self.waiting.path(one, other)
        if path is None:
            return None
        names = [
            self.waiting.nodes[vertex][0].name for vertex in path if self.waiting.nodes[vertex]
        ]
        text = " → ".join([*names[:_SAMPLE_SIZE], *(["…"] if len(names) > _SAMPLE_SIZE else [])])
        return RejectionReason("cycle", text, {"path": names})

    def _merge_conflict(
        self, one: ClusterCandidate, other: ClusterCandidate, beside: bool
    ) -> RejectionReason | None:
        """What speaks against one cluster, whatever paths there are."""
        if one.frame is not other.frame:
            paths = [one.frame.path, other.frame.path]
            return RejectionReason("frame", " and ".join(paths), {"frames": paths})
        if one.device != other.device:
            devices = [one.first.device, other.first.device]
            return RejectionReason("device", " and ".join(map(repr, devices)), {"devices": devices})
        if not self.liveness.alike(one.first, other.first):
            told = [self.liveness.text(one.first), self.liveness.text(other.first)]
            return RejectionReason(
                "deadness",
                f"live when {told[0]}, and when {told[1]}",
                {"conditions": told},
            )
        if one.ties.apart(other.ties):
            ends = [one.first.name, other.first.name]
            return RejectionReason("effects", " and ".join(ends), {"nodes": ends})
        size, greatest = one.size + other.size, self.sizes.greatest
        if greatest is not None and size > greatest:
            return RejectionReason("size", f"{size} nodes", {"size": size})
        return _resource_conflict(one, other, beside)


def _resource_conflict(
    one: ClusterCandidate, other: ClusterCandidate, beside: bool
) -> RejectionReason | None:
    """Variables that both use, in an order that a cluster does not keep, or by two handles."""
    for here in one.accesses:
        for there in other.accesses:
            if here.resource != there.resource:
                continue
            data = {"variable": here.name, "nodes": [here.node.name, there.node.name]}
            if _resource_handles(here).isdisjoint(_resource_handles(there)):
                return RejectionReason("handles", f"those of {here.name}", data)
            if here.writes or (beside and there.writes):
                text = f"{here.node.name} writes {here.name}, which {there.node.name} uses"
                return RejectionReason("resource", text, data)
    return None


def _resource_handles(access: ResourceAccess) -> set[object]:
    return {item for item in access.node.inputs if item.dtype and item.dtype.kind == "resource"}


def _is_shape_only(node: Node) -> bool:
    op = lookup(node.op)
    return op is not None and op.shape_only


def is_cheap_constant(node: Node) -> bool:
    """True for a constant that is copied to wherever it is read."""
    value = node.attrs.get("value")
    if not is_a(node, Const) or not isinstance(value, TensorValue):
        return False
    elements = value.shape.elements
    return elements is not None and elements <= MAX_CHEAP_ELEMENTS


def node_weight(node: Node) -> int:
    """1 for a node that does something, 0 for one that only holds or hands on."""
    op = lookup(node.op)
    return int(op is None or not (op.is_identity or issubclass(op, Const | NoOp)))


def _parsed_device(node: Node) -> DeviceName:
    return DeviceName.parse(node.device) or DeviceName()
