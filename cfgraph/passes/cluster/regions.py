"""Turn whole lowered loops and conditionals into calls, innermost first, if XLA compiles them.

    Enter ▸ Merge ▸ Switch ▸ … ▸ Exit      becomes      StatelessWhile
    Switch ▸ … ▸ Merge                     becomes      StatelessIf

The reverse of `lower`. A call is dead if any input is dead, so all inputs of a region must have the
same liveness, and the region must not have side effects. A trial on a copy of the graph finds the
regions that no cluster would contain; those stay in lowered form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from cfgraph.analysis.liveness_rules import LivenessRule, liveness_rule
from cfgraph.analysis.loops.cycle_graph import CycleGraph
from cfgraph.analysis.loops.frames import Frame, frames
from cfgraph.ir.devices import DeviceName
from cfgraph.ir.function_graph import FunctionInstances
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import copy_graph
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import ancestors
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.evaluation import MAX_NESTED_CALLS
from cfgraph.ops.opdef.op import back_edge_of, lookup, role_of
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.passes.cluster.formation.cluster_plan import (
    ClusterPlan,
    plan_clusters,
)
from cfgraph.passes.cluster.formation.compilable import ClusterConstraints, CompilationRules
from cfgraph.passes.cluster.formation.merge_conflicts import ClusterSizes
from cfgraph.passes.functionalize.function_body import is_cheap_constant
from cfgraph.passes.functionalize.functionalize_cond import (
    ConditionalRegion,
    PredicateSides,
    SharedCalls,
    conditional_region,
    functionalize_cond,
    predicate_sides,
    require_uniform_liveness,
)
from cfgraph.passes.functionalize.functionalize_while import (
    OpenLoops,
    functionalizable_loop,
    functionalize_while,
    loop_call,
    require_static_shapes,
    require_uniform_entry,
)
from cfgraph.passes.functionalize.report import (
    NotFunctionalizable,
    RegionReport,
    RejectionReason,
    not_functionalizable,
)
from cfgraph.passes.functionalize.tensor_lists import (
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
    """Functionalize, in place, the loops and conditionals that will be in clusters."""
    rejected: dict[str, RejectionReason] = {}
    while new := _unclustered_regions(graph, mode, sizes, constraints_of, rejected):
        rejected.update(new)
    functionalizer = Functionalizer(graph, mode, constraints_of(graph), rejected)
    functionalizer.run()
    return functionalizer


def _unclustered_regions(
    graph: Graph,
    mode: str,
    sizes: ClusterSizes,
    constraints_of: Callable[[Graph], ClusterConstraints],
    rejected: dict[str, RejectionReason],
) -> dict[str, RejectionReason]:
    """Return the regions that a trial on a copy leaves outside of clusters."""
    copy = copy_graph(graph, graph)
    trial = Functionalizer(copy, mode, constraints_of(copy), rejected)
    trial.run()
    if not trial.functionalized and not trial.lists.nodes:
        return {}
    plan = plan_clusters(copy, liveness_rule(copy, mode), sizes, trial.cluster_constraints())
    unclustered = {
        region.name: plan.outside[node]
        for node, region in trial.functionalized.items()
        if node in plan.outside
    }
    greatest = sizes.greatest
    for region in trial.functionalized.values():
        size = len(region.ops)
        if greatest is not None and size > greatest:
            unclustered[region.name] = RejectionReason("size", f"{size} nodes", {"size": size})
    return {**unclustered, **_lists_across_clusters(trial, plan)}


def _lists_across_clusters(trial: Functionalizer, plan: ClusterPlan) -> dict[str, RejectionReason]:
    """Return the lists that are not used within a single cluster."""
    cluster_of = {node: number for number, body in enumerate(plan.bodies) for node in body.members}
    rejected = {}
    for name, nodes in trial.lists.live_nodes(trial.graph).items():
        readers = {reader for node in nodes for reader in list_readers(node)}
        users = (*nodes, *readers)
        outside = [node for node in users if node not in cluster_of]
        if outside:
            text = f"{outside[0].name}, which uses it, is in no cluster"
            rejected[name] = RejectionReason("list", text, {"node": outside[0].name})
        elif len({cluster_of[node] for node in users}) > 1:
            rejected[name] = RejectionReason("list", "its users are in several clusters")
    return rejected


# reasons that keep a node out of a cluster but not out of a region
_CLUSTER_ONLY_REASONS: Final = ("pivot", "not needed")
# bound on the rounds of analysis: a conditional needs one more than the regions in it
_MAX_NESTED_CONDITIONALS: Final = 16
_FUNCTION_SUFFIXES: Final = ("cond", "body", "then", "else")


class Functionalizer:
    """Functionalizes the regions of one lowered graph, except those in `rejected`.

    `functionalized` contains the report of each call, and `left_lowered` the report of each other
    region.
    """

    def __init__(
        self,
        graph: Graph,
        mode: str,
        constraints: ClusterConstraints,
        rejected: Mapping[str, RejectionReason],
    ) -> None:
        self.graph = graph
        self.mode = mode
        self.constraints = constraints
        self.rejected = rejected
        self.functionalized: dict[Node, RegionReport] = {}
        self.left_lowered: dict[str, RegionReport] = {}
        self.lists = FunctionalizedLists()
        self._nesting: dict[Node, int] = {}
        self._instances = FunctionInstances(graph.functions)
        self._names = 0
        self._shapes: StaticShapes | None = None
        self._original_nodes = set(graph)
        self._fetched_names = [node.name for node in constraints.fetched]

    def run(self) -> None:
        """Functionalize regions, innermost first, until a fixed point."""
        if len(frames(self.graph).all) > 1:
            liveness = liveness_rule(self.graph, self.mode)
            self.lists = functionalize_lists(
                self.graph,
                liveness,
                self.rejected,
                self.constraints.fetched,
                traced=self.constraints.traced,
            )
        while self._functionalize_innermost():
            check_deadline()
            pass

    @property
    def regions(self) -> tuple[RegionReport, ...]:
        """Return the reports of functionalized regions, followed by the reports of all others."""
        lowered = (*self.left_lowered.values(), *self.lists.left_unchanged.values())
        return (*self.functionalized.values(), *lowered)

    def cluster_constraints(self) -> ClusterConstraints:
        """Return the caller's constraints, extended by the new nodes."""
        new = dict.fromkeys(self.lists.computing(self.graph), 1)
        new.update((node, len(region.ops)) for node, region in self.functionalized.items())
        constraints = self.constraints
        if constraints.needed is not None:
            fetched = [self.graph[name] for name in self._fetched_names if name in self.graph]
            needed = {*constraints.needed, *ancestors(self.graph, fetched)}
            constraints = replace(constraints, needed=needed)
        return replace(constraints, functionalized=new)

    def _functionalize_innermost(self) -> bool:
        """Functionalize the innermost regions; return false if there are none."""
        liveness = liveness_rule(self.graph, self.mode)
        self._shapes = None
        constraints = self.cluster_constraints()
        rules = CompilationRules(self.graph, liveness.frames, constraints, self._instances)
        loops = OpenLoops(self.graph, liveness.frames)
        dependencies = CycleGraph(liveness.frames)
        self.left_lowered = {}
        changed = False
        for frame in liveness.frames.all:
            check_deadline()
            if self._functionalize_conditionals(
                frame, loops.order[frame], liveness, rules, dependencies
            ):
                changed = True
        return changed or self._functionalize_loops(loops, liveness, rules, dependencies.in_cycle)

    def _functionalize_loops(
        self,
        loops: OpenLoops,
        liveness: LivenessRule,
        rules: CompilationRules,
        in_cycle: frozenset[Node],
    ) -> bool:
        """Functionalize loops, innermost first; return false if there are none."""
        tangled = not_functionalizable("tangled loops", "an exit of the loop is needed to enter it")
        reasons: dict[Frame, RejectionReason | None] = {}
        for frame in loops.innermost():
            check_deadline()
            try:
                if not in_cycle.isdisjoint(frame.nodes):
                    raise tangled
                call = self._functionalize_loop(frame, loops.order[frame], liveness, rules)
            except NotFunctionalizable as error:
                reasons[frame] = error.reason
                continue
            reasons[frame] = None
            loops.close(frame, call)
        inner = not_functionalizable("inner loop", "a loop in it is not compiled")
        for frame in liveness.frames.all[1:]:
            not_tried = inner if in_cycle.isdisjoint(frame.nodes) else tangled
            reason = reasons.get(frame, not_tried.reason)
            if reason is not None:
                self.left_lowered[frame.path] = RegionReport(
                    "loop", frame.path, _ops_by_name(frame.nodes), None, reason
                )
        return None in reasons.values()

    def _functionalize_conditionals(
        self,
        frame: Frame,
        order: Sequence[Node],
        liveness: LivenessRule,
        rules: CompilationRules,
        dependencies: CycleGraph,
    ) -> bool:
        """Functionalize the innermost conditionals of a frame; return false if there are none."""
        merges = [node for node in frame.merges if back_edge_of(node) is None]
        if not merges:
            return False
        sides = predicate_sides(frame, order)
        calls: dict[PredicateSides, SharedCalls] = {}
        for merge in merges:
            try:
                if merge in dependencies.in_cycle:
                    raise not_functionalizable("tangled loops", "it depends on itself")
                if merge.name in self.rejected:
                    raise NotFunctionalizable(self.rejected[merge.name])
                form = conditional_region(merge, sides)
                inside = form.cone().inside
                self._require_nodes([merge, *inside], rules)
                self._require_nesting(inside, _MAX_NESTED_CONDITIONALS)
                require_uniform_liveness(form, liveness)
                if form.predicate_sides not in calls:
                    calls[form.predicate_sides] = SharedCalls(liveness, dependencies)
                calls[form.predicate_sides].add(form)
            except NotFunctionalizable as error:
                ops = {merge.name: merge.op}
                self.left_lowered[merge.name] = RegionReport(
                    "conditional", merge.name, ops, None, error.reason
                )
        for form in (form for shared in calls.values() for form in shared.regions):
            self._functionalize_branches(form)
        return bool(calls)

    def _functionalize_branches(self, form: ConditionalRegion) -> None:
        inside, outside, _ = form.cone()
        nesting = self._nesting_in(inside) + 1
        node = functionalize_cond(self.graph, form, self._name("if"), set(self.constraints.fetched))
        self._nesting[node] = nesting
        ops = self._original_ops_of(self._remove_unread([*inside, *form.predicate_sides.switches]))
        ops.update(
            self._drop_unread(tensor.node for tensor in outside if is_cheap_constant(tensor.node))
        )
        self.functionalized[node] = RegionReport("conditional", form.merges[0].name, ops, node)

    def _remove_unread(self, nodes: list[Node]) -> list[Node]:
        """Remove nodes that nothing reads any more, and return them."""
        removed: list[Node] = []
        todo = dict.fromkeys(node for node in nodes if self.graph.nodes.get(node.name) is node)
        while todo:
            unread = [
                node for node in todo if not node.uses and node not in self.constraints.fetched
            ]
            if not unread:
                break
            for node in unread:
                del todo[node]
                self.graph.remove(node)
            removed += unread
        return removed

    def _functionalize_loop(
        self,
        frame: Frame,
        order: Sequence[Node],
        liveness: LivenessRule,
        rules: CompilationRules,
    ) -> Node:
        """Functionalize a loop whose inner loops are calls; return the call."""
        if frame.path in self.rejected:
            raise NotFunctionalizable(self.rejected[frame.path])
        form = functionalizable_loop(frame, order)
        self._require_compiled(frame, rules)
        self._require_nesting(frame.nodes, MAX_NESTED_CALLS)
        require_uniform_entry(form, liveness)
        name = self._name("loop")
        call = loop_call(self.graph, form, name)
        require_static_shapes(self._instances, call, self._known_shapes())
        nesting = self._nesting_in(frame.nodes) + 1
        exits, copied = set(frame.exits), [enter.inputs[0].node for enter in call.copied]
        ops = self._original_ops_of(
            [node for node in frame.nodes if node not in exits], frame.enters
        )
        node = functionalize_while(self.graph, form, call, name)
        self._nesting[node] = nesting
        ops.update(self._drop_unread(copied))
        self.functionalized[node] = RegionReport("loop", frame.path, ops, node)
        rules.functionalized.add(node)
        return node

    def _nesting_in(self, nodes: Iterable[Node]) -> int:
        """Return the depth of the calls among nodes and in their functions."""
        return max((self._nesting.get(node, 0) for node in nodes), default=0)

    def _require_nesting(self, nodes: Iterable[Node], limit: int) -> None:
        """Raise NotFunctionalizable if a call of these nodes would be nested too deeply."""
        if self._nesting_in(nodes) >= limit:
            text = f"it contains {limit} regions in each other"
            raise not_functionalizable("nesting", text)

    def _known_shapes(self) -> StaticShapes:
        """Return the shapes in the graph at the start of the round."""
        if self._shapes is None:
            self._shapes = infer_shapes(self.graph)
        return self._shapes

    def _original_ops_of(self, *groups: Iterable[Node]) -> dict[str, str]:
        """Return the names and ops that nodes had before functionalization, those of inner regions
        included.

        The records of inner regions are deleted: the outer region has them now.
        """
        ops: dict[str, str] = {}
        lists = self.lists.original_ops()
        for node in (node for group in groups for node in group):
            region = self.functionalized.pop(node, None)
            if region is not None:
                ops.update(region.ops)
            elif node in lists or node in self._original_nodes:
                ops.update(lists.get(node, {node.name: node.op}))
        return ops

    def original_ops(self) -> dict[Node, Mapping[str, str]]:
        """Return the names and ops of the original nodes that each new node replaces."""
        replaced: dict[Node, Mapping[str, str]] = {
            node: {} for node in self.graph if node not in self._original_nodes
        }
        replaced.update(self.lists.original_ops())
        replaced.update((node, region.ops) for node, region in self.functionalized.items())
        return replaced

    def _drop_unread(self, constants: Iterable[Node]) -> Iterator[tuple[str, str]]:
        """Remove constants that only a region read; yield their names and ops."""
        for node in dict.fromkeys(constants):
            if not node.uses and node not in self.constraints.fetched:
                yield node.name, node.op
                self.graph.remove(node)

    def _require_compiled(self, frame: Frame, rules: CompilationRules) -> None:
        """Raise NotFunctionalizable unless a loop compiles and nothing inside is fed or fetched."""
        exits = set(frame.exits)
        self._require_nodes([node for node in frame.nodes if node not in exits], rules)

    def _require_nodes(self, nodes: Iterable[Node], rules: CompilationRules) -> None:
        """Raise NotFunctionalizable unless nodes compile, on one device, none fed or fetched."""
        chosen = list(nodes)
        if len({DeviceName.parse(node.device) for node in chosen}) > 1:
            raise not_functionalizable("several devices", "its nodes are not on one device")
        for node in chosen:
            fetched = self.constraints.needed is not None and node in self.constraints.fetched
            if node in self.constraints.fed or (fetched and role_of(node) is not Role.MERGE):
                raise not_functionalizable("fed", f"{node.name} is fed or fetched", node=node.name)
            op = lookup(node.op)
            if op is not None and op.role:
                continue
            reason = rules.rejection(node)
            if reason is not None and reason.kind not in _CLUSTER_ONLY_REASONS:
                data = {**reason.data, "node": node.name}
                raise NotFunctionalizable(
                    RejectionReason(reason.kind, f"{node.name}: {reason.text}", data)
                )
            if op is None or op.effects.stateful:
                raise not_functionalizable(
                    "effects", f"{node.name}: {node.op} is stateful", node=node.name
                )

    def _name(self, kind: str) -> str:
        """Return a node name that is unused, also with the suffixes of its functions."""
        while True:
            name = f"{kind}_{self._names}"
            self._names += 1
            names = [name, *(f"{name}_{suffix}" for suffix in _FUNCTION_SUFFIXES)]
            if not any(new in self.graph or new in self.graph.functions for new in names):
                return name


def _ops_by_name(nodes: list[Node]) -> dict[str, str]:
    return {node.name: node.op for node in nodes}
