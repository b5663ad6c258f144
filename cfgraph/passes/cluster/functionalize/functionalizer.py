"""Turn whole lowered loops and conditionals into calls, innermost first, if XLA compiles them.

    Enter ▸ Merge ▸ Switch ▸ … ▸ Exit      becomes      StatelessWhile
    Switch ▸ … ▸ Merge                     becomes      StatelessIf

The reverse of `lower`. A call is dead if any input is dead, so all inputs of a region must have the
same liveness, and the region must not have side effects. A trial on a copy of the graph finds the
regions that no cluster would contain; those stay in lowered form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from cfgraph.analysis.loops.frames import Frame, frames
from cfgraph.analysis.reachability import ancestors
from cfgraph.ir.devices import DeviceName
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import copy_graph
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import back_edge_of, lookup, role_of
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.passes.cluster.formation.cluster_plan import ClusterPlan, plan_clusters
from cfgraph.passes.cluster.formation.compilable import ClusterConstraints, CompilationRules
from cfgraph.passes.cluster.formation.cycle_graph import CycleGraph
from cfgraph.passes.cluster.formation.grow import ClusterSizes, is_cheap_constant
from cfgraph.passes.cluster.formation.liveness_rules import LivenessRule, liveness_rule
from cfgraph.passes.cluster.formation.rejection_reasons import (
    NotFunctionalizable,
    RejectionReason,
    not_functionalizable,
)
from cfgraph.passes.cluster.formation.report import RegionReport
from cfgraph.passes.cluster.functionalize.functionalize_cond import (
    ConditionalRegion,
    PredicateSides,
    conditional_region,
    functionalize_cond,
    predicate_sides,
    require_uniform_liveness,
)
from cfgraph.passes.cluster.functionalize.functionalize_while import (
    functionalizable_loop,
    functionalize_while,
    loop_call,
    require_static_shapes,
    require_uniform_entry,
)
from cfgraph.passes.cluster.functionalize.tensor_lists import (
    FunctionalizedLists,
    functionalize_lists,
    list_readers,
)


def functionalize_regions(
    graph: Graph,
    mode: str,
    sizes: ClusterSizes,
    constraints_of: Callable[[Graph], ClusterConstraints],
) -> Functionalizer:
    """Raise the loops and conditionals of a lowered graph that clusters will hold, in place."""
    refused: dict[str, RejectionReason] = {}
    while new := _unclustered_regions(graph, mode, sizes, constraints_of, refused):
        refused.update(new)
    lifting = Functionalizer(graph, mode, constraints_of(graph), refused)
    lifting.run()
    return lifting


def _unclustered_regions(
    graph: Graph,
    mode: str,
    sizes: ClusterSizes,
    constraints_of: Callable[[Graph], ClusterConstraints],
    refused: dict[str, RejectionReason],
) -> dict[str, RejectionReason]:
    """The regions that would be in no cluster, found out in a copy."""
    copy = copy_graph(graph, graph)
    trial = Functionalizer(copy, mode, constraints_of(copy), refused)
    trial.run()
    if not trial.raised and not trial.lists.nodes:
        return {}
    plan = plan_clusters(copy, liveness_rule(copy, mode), sizes, trial.told())
    found = {
        region.name: plan.outside[node]
        for node, region in trial.raised.items()
        if node in plan.outside
    }
    greatest = sizes.greatest
    for region in trial.raised.values():
        size = len(region.ops)
        if greatest is not None and size > greatest:
            found[region.name] = RejectionReason("size", f"it has {size} nodes", {"size": size})
    return {**found, **_lists_across_clusters(trial, plan)}


def _lists_across_clusters(trial: Functionalizer, plan: ClusterPlan) -> dict[str, RejectionReason]:
    """The lists that are not within one cluster."""
    place = {node: number for number, body in enumerate(plan.bodies) for node in body.members}
    found = {}
    for name, nodes in trial.lists.live_nodes(trial.graph).items():
        around = {reader for node in nodes for reader in list_readers(node)}
        outside = [node for node in (*nodes, *around) if node not in place]
        if outside:
            text = f"{outside[0].name}, which uses it, is in no cluster"
            found[name] = RejectionReason("list", text, {"node": outside[0].name})
        elif len({place[node] for node in (*nodes, *around)}) > 1:
            found[name] = RejectionReason("list", "those that use it are in several clusters")
    return found


# reasons against a node that do not count in a region
_CLUSTER_ONLY_REASONS: Final = ("pivot", "not needed")
_FUNCTION_SUFFIXES: Final = ("cond", "body", "then", "else")


class Functionalizer:
    """The regions of a lowered graph as they are raised, with those that are refused."""

    def __init__(
        self,
        graph: Graph,
        mode: str,
        constraints: ClusterConstraints,
        refused: Mapping[str, RejectionReason],
    ) -> None:
        self.graph = graph
        self.mode = mode
        self.constraints = constraints
        self.refused = refused
        self.raised: dict[Node, RegionReport] = {}
        self.kept: dict[str, RegionReport] = {}
        self.lists = FunctionalizedLists()
        self._names = 0
        self._shapes: StaticShapes | None = None
        self._given = set(graph)
        self._kept = [node.name for node in constraints.kept]

    def run(self) -> None:
        """Raise what can be, until nothing more can."""
        if len(frames(self.graph).all) > 1:
            agreed = liveness_rule(self.graph, self.mode)
            self.lists = functionalize_lists(
                self.graph, agreed, self.refused, self.constraints.kept
            )
        while self._functionalize_innermost():
            pass

    @property
    def regions(self) -> tuple[RegionReport, ...]:
        """The regions that stand in the graph, and those that were refused."""
        return (*self.raised.values(), *self.kept.values(), *self.lists.kept.values())

    def told(self) -> ClusterConstraints:
        """The wishes, with what was raised and added."""
        raised = dict.fromkeys(self.lists.computing(self.graph), 1)
        raised.update((node, len(region.ops)) for node, region in self.raised.items())
        wishes = self.constraints
        if wishes.needed is not None:
            kept = [self.graph[name] for name in self._kept if name in self.graph]
            wishes = replace(wishes, needed={*wishes.needed, *ancestors(self.graph, kept)})
        return replace(wishes, raised=raised)

    def _functionalize_innermost(self) -> bool:
        """Raise the innermost regions; false if there was nothing to raise."""
        agreed = liveness_rule(self.graph, self.mode)
        self._shapes = None
        rules = CompilationRules(self.graph, agreed.frames, self.told())
        waiting = CycleGraph(agreed.frames)
        tangled = waiting.in_cycle
        self.kept = {}
        done = False
        for frame in agreed.frames.all:
            if self._functionalize_conditionals(frame, agreed, rules, waiting):
                done = True
        if done:
            return True
        parents = {frame.parent for frame in agreed.frames.all}
        for frame in agreed.frames.all[1:]:
            try:
                if tangled.intersection(frame.nodes):
                    raise not_functionalizable(
                        "tangled loops", "what leaves it is needed to enter it"
                    )
                if frame in parents:
                    raise not_functionalizable("inner loop", "a loop in it is not compiled")
                self._functionalize_loop(frame, agreed, rules)
                done = True
            except NotFunctionalizable as error:
                self.kept[frame.path] = RegionReport(
                    "loop", frame.path, _ops_by_name(frame.nodes), None, error.reason
                )
        return done

    def _functionalize_conditionals(
        self, frame: Frame, liveness: LivenessRule, rules: CompilationRules, waiting: CycleGraph
    ) -> bool:
        """Raise the conditionals of a frame in which no other is; true if there were any."""
        merges = [node for node in frame.merges if back_edge_of(node) is None]
        if not merges:
            return False
        every = predicate_sides(frame, liveness.frames.order)
        groups: dict[PredicateSides, list[ConditionalRegion]] = {}
        for merge in merges:
            try:
                if merge in waiting.in_cycle:
                    raise not_functionalizable("tangled loops", "it waits for itself")
                if merge.name in self.refused:
                    raise NotFunctionalizable(self.refused[merge.name])
                form = conditional_region(merge, every)
                self._require_nodes([merge, *form.cone().inside], rules)
                require_uniform_liveness(form, liveness)
                self._gather(groups.setdefault(form.decided, []), form, liveness, waiting)
            except NotFunctionalizable as error:
                ops = {merge.name: merge.op}
                self.kept[merge.name] = RegionReport(
                    "conditional", merge.name, ops, None, error.reason
                )
        for form in (form for forms in groups.values() for form in forms):
            self._functionalize_branches(form)
        return any(groups.values())

    def _gather(
        self,
        groups: list[ConditionalRegion],
        form: ConditionalRegion,
        liveness: LivenessRule,
        waiting: CycleGraph,
    ) -> None:
        """Let a Merge be of the call of another one, if it can be without waiting for itself."""
        (merge,) = form.merges
        for group in groups:
            first = group.merges[0]
            if not liveness.alike(first, merge):
                continue
            if waiting.join(waiting.of[first], waiting.of[merge]) is not None:
                group.merges.append(merge)
                return
        groups.append(form)

    def _functionalize_branches(self, form: ConditionalRegion) -> None:
        inside, outside, _ = form.cone()
        node = functionalize_cond(self.graph, form, self._name("if"), set(self.constraints.kept))
        ops = self._inner(self._remove_unread([*inside, *form.decided.switches]))
        ops.update(self._unread(item.node for item in outside if is_cheap_constant(item.node)))
        self.raised[node] = RegionReport("conditional", form.merges[0].name, ops, node)

    def _remove_unread(self, nodes: list[Node]) -> list[Node]:
        """Remove those that nothing reads any more; the removed."""
        gone: list[Node] = []
        todo = dict.fromkeys(node for node in nodes if self.graph.nodes.get(node.name) is node)
        while todo:
            unread = [node for node in todo if not node.uses and node not in self.constraints.kept]
            if not unread:
                break
            for node in unread:
                del todo[node]
                self.graph.remove(node)
            gone += unread
        return gone

    def _functionalize_loop(
        self, frame: Frame, liveness: LivenessRule, rules: CompilationRules
    ) -> None:
        if frame.path in self.refused:
            raise NotFunctionalizable(self.refused[frame.path])
        form = functionalizable_loop(frame, liveness.frames)
        self._require_compiled(frame, rules)
        require_uniform_entry(form, liveness)
        name = self._name("loop")
        call = loop_call(self.graph, form, name)
        require_static_shapes(self.graph, call, self._known_shapes())
        leaving, copied = set(frame.exits), [enter.inputs[0].node for enter in call.copied]
        ops = self._inner([node for node in frame.nodes if node not in leaving], frame.enters)
        node = functionalize_while(self.graph, form, call, name)
        ops.update(self._unread(copied))
        self.raised[node] = RegionReport("loop", frame.path, ops, node)

    def _known_shapes(self) -> StaticShapes:
        """The shapes of the graph as the round found it."""
        if self._shapes is None:
            self._shapes = infer_shapes(self.graph)
        return self._shapes

    def _inner(self, *groups: Iterable[Node]) -> dict[str, str]:
        """The nodes of a region by name, with those of the regions in it, which are gone."""
        ops: dict[str, str] = {}
        lists = self.lists.original_ops()
        for node in (node for group in groups for node in group):
            region = self.raised.pop(node, None)
            if region is not None:
                ops.update(region.ops)
            elif node in lists or node in self._given:
                ops.update(lists.get(node, {node.name: node.op}))
        return ops

    def original_ops(self) -> dict[Node, Mapping[str, str]]:
        """What each new node stands for: nodes that were, by name with their ops."""
        found: dict[Node, Mapping[str, str]] = {
            node: {} for node in self.graph if node not in self._given
        }
        found.update(self.lists.original_ops())
        found.update((node, region.ops) for node, region in self.raised.items())
        return found

    def _unread(self, constants: Iterable[Node]) -> Iterator[tuple[str, str]]:
        """Drop the constants that were read in a region alone; they are in it now."""
        for node in dict.fromkeys(constants):
            if not node.uses and node not in self.constraints.kept:
                yield node.name, node.op
                self.graph.remove(node)

    def _require_compiled(self, frame: Frame, rules: CompilationRules) -> None:
        """Raise Refused unless a loop compiles, and nobody asks for what is in it."""
        leaving = set(frame.exits)
        self._require_nodes([node for node in frame.nodes if node not in leaving], rules)

    def _require_nodes(self, nodes: Iterable[Node], rules: CompilationRules) -> None:
        """Raise Refused unless XLA compiles nodes, on one device, and nobody asks for one."""
        chosen = list(nodes)
        if len({DeviceName.parse(node.device) for node in chosen}) > 1:
            raise not_functionalizable("several devices", "its nodes are not on one device")
        for node in chosen:
            asked = self.constraints.needed is not None and node in self.constraints.kept
            if node in self.constraints.fed or (asked and role_of(node) is not Role.MERGE):
                raise not_functionalizable("fed", f"{node.name} is fed or fetched", node=node.name)
            op = lookup(node.op)
            if op is not None and op.role:
                continue
            reason = rules.refusal(node)
            if reason is not None and reason.kind not in _CLUSTER_ONLY_REASONS:
                data = {**reason.data, "node": node.name}
                raise NotFunctionalizable(
                    RejectionReason(reason.kind, f"{node.name}: {reason.text}", data)
                )
            if op is None or op.stateful:
                raise not_functionalizable(
                    "effects", f"{node.name}: {node.op} hangs on state", node=node.name
                )

    def _name(self, kind: str) -> str:
        """A name that is free, and so are those of its functions."""
        while True:
            name = f"{kind}_{self._names}"
            self._names += 1
            made = [name, *(f"{name}_{part}" for part in _FUNCTION_SUFFIXES)]
            if not any(one in self.graph or one in self.graph.functions for one in made):
                return name


def _ops_by_name(nodes: list[Node]) -> dict[str, str]:
    return {node.name: node.op for node in nodes}
