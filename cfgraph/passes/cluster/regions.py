"""Turn the loops and conditionals that XLA compiles into calls, for clusters to contain them.

The functionalizer decides what has the form of a While or an If. XLA asks for more: the nodes of a
region compile and are on one device; no shape and no constant changes in a loop; stacks and
TensorArrays are lists. Where jax traces the region, it may have effects on variables. A region that
no cluster would contain stays in lowered form, which undoes all others, and tries them again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from cfgraph.analysis.liveness_rules import liveness_rule
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.frames import frames
from cfgraph.ir.devices import DeviceName
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.names import first_names
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import Shape
from cfgraph.ir.traversal import ancestors
from cfgraph.ops.opdef.function_bodies import (
    MAX_NESTED_CALLS,
    constant_arguments,
    loop_invariant_arguments,
)
from cfgraph.ops.opdef.op import lookup, role_of
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.passes.cluster.formation.cluster_plan import ClusterPlan, plan_clusters
from cfgraph.passes.cluster.formation.compilable import ClusterConstraints, CompilationRules
from cfgraph.passes.cluster.formation.merge_conflicts import ClusterSizes
from cfgraph.passes.functionalize.functionalizer import Functionalizer
from cfgraph.passes.functionalize.lists.tensor_lists import (
    FunctionalizedLists,
    functionalize_lists,
    list_readers,
)
from cfgraph.passes.functionalize.region_rules import LoopCall, RegionRules
from cfgraph.passes.functionalize.report import (
    RegionRejected,
    RegionReport,
    RejectionReason,
    region_rejected,
)
from cfgraph.passes.outcome import GraphState


def functionalize_regions(
    graph: Graph,
    mode: str,
    sizes: ClusterSizes,
    constraints_of: Callable[[Graph], ClusterConstraints],
) -> tuple[ClusterRegions, ClusterPlan]:
    """Functionalize, in place, the loops and conditionals that will be in clusters; plan these."""
    rejected: dict[str, RejectionReason] = {}
    causes: dict[str, RejectionReason] = {}
    while True:
        before = GraphState(graph)
        regions = ClusterRegions(graph, mode, constraints_of(graph), rejected, causes)
        regions.run()
        liveness = liveness_rule(graph, mode)
        plan = plan_clusters(graph, liveness, sizes, regions.cluster_constraints())
        new = _unclustered_regions(regions, plan, sizes)
        if not new:
            return regions, plan
        before.restore(graph)
        rejected.update(new)


def _unclustered_regions(
    trial: ClusterRegions, plan: ClusterPlan, sizes: ClusterSizes
) -> dict[str, RejectionReason]:
    """Return the regions that a plan leaves outside of clusters."""
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


def _lists_across_clusters(trial: ClusterRegions, plan: ClusterPlan) -> dict[str, RejectionReason]:
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
# nodes of a region that its reason names
_MOST_REASONS: Final = 8


class ClusterRegions:
    """Functionalizes the regions of one lowered graph, except those in `rejected`.

    `functionalized` contains the report of each call. What stays in lowered form is a reason
    against other regions, so that `causes` keeps the first reason against each.
    """

    def __init__(
        self,
        graph: Graph,
        mode: str,
        constraints: ClusterConstraints,
        rejected: Mapping[str, RejectionReason],
        causes: dict[str, RejectionReason],
    ) -> None:
        self.graph = graph
        self.mode = mode
        self.constraints = constraints
        self.rejected, self.causes = rejected, causes
        self.lists = FunctionalizedLists()
        self._original_nodes = set(graph)
        self._fetched_names = [node.name for node in constraints.fetched]
        self._functionalizer = Functionalizer(graph, CompiledRegionRules(self))

    @property
    def functionalized(self) -> dict[Node, RegionReport]:
        """Return the report of each call."""
        return self._functionalizer.functionalized

    def run(self) -> None:
        """Functionalize lists, then regions, innermost first."""
        if len(frames(self.graph).all) > 1:
            self.lists = functionalize_lists(
                self.graph,
                liveness_rule(self.graph, self.mode),
                self.rejected,
                self.constraints.fetched,
                traced=self.constraints.traced,
            )
        self._functionalizer.run(self.lists.original_ops())
        for name, report in self._functionalizer.rejected.items():
            if report.reason is not None:
                self.causes.setdefault(name, report.reason)

    @property
    def regions(self) -> tuple[RegionReport, ...]:
        """Return the reports of functionalized regions, followed by the reports of all others."""
        lowered = self._functionalizer.rejected.values()
        return (
            *self.functionalized.values(),
            *(replace(each, reason=self.causes[each.name]) for each in lowered),
            *self.lists.rejected.values(),
        )

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

    def original_ops(self) -> dict[Node, Mapping[str, str]]:
        """Return the names and ops of the original nodes that each new node replaces."""
        replaced: dict[Node, Mapping[str, str]] = {
            node: {} for node in self.graph if node not in self._original_nodes
        }
        replaced.update(self.lists.original_ops())
        replaced.update((node, region.ops) for node, region in self.functionalized.items())
        return replaced


class CompiledRegionRules(RegionRules):
    """Rules of regions that XLA compiles as a part of a cluster."""

    keep_devices = False
    drops_unread = False
    max_nesting = MAX_NESTED_CALLS

    def __init__(self, regions: ClusterRegions) -> None:
        fetched = regions.constraints.fetched
        is_named = regions.constraints.needed is not None
        super().__init__(fetched, fetched, fetched, has_named_fetches=is_named)
        self.regions = regions
        self._instances = FunctionInstances(regions.graph.functions)
        self._compilation: CompilationRules | None = None
        self._shapes: StaticShapes | None = None

    def begin_round(self, graph_frames: Frames) -> None:
        constraints = self.regions.cluster_constraints()
        graph = self.regions.graph
        self._compilation = CompilationRules(graph, graph_frames, constraints, self._instances)
        self._shapes = None

    def accept_call(self, call: Node) -> None:
        assert self._compilation is not None
        self._compilation.functionalized.add(call)

    def require_region(self, name: str, nodes: Sequence[Node]) -> None:
        """Raise RegionRejected unless nodes compile, on one device, none fed or fetched."""
        if name in self.regions.rejected:
            raise RegionRejected(self.regions.rejected[name])
        if len({DeviceName.parse(node.device) for node in nodes}) > 1:
            raise region_rejected("several devices", "its nodes are not on one device")
        reasons = [reason for node in nodes if (reason := self._rejection(node)) is not None]
        reasons = reasons or [*filter(None, map(self._list_rejection, nodes))]
        if reasons:
            named = first_names([reason.text for reason in reasons], _MOST_REASONS)
            raise RegionRejected(replace(reasons[0], text=named))

    def _rejection(self, node: Node) -> RejectionReason | None:
        """The reason against a node in a region, or None."""
        constraints = self.regions.constraints
        fetched = constraints.needed is not None and node in constraints.fetched
        if node in constraints.fed or (fetched and role_of(node) is not Role.MERGE):
            text = f"{node.name} is fed or fetched"
            return RejectionReason("fed", text, {"node": node.name})
        op = lookup(node.op)
        if op is not None and op.role:
            return None
        assert self._compilation is not None
        if op is not None and op.aliasing.is_identity and node in self.regions.lists:
            # an Exit or Merge until a loop or conditional became a call in this round
            self._compilation.functionalized.add(node)
        reason = self._compilation.rejection(node)
        if reason is not None and reason.kind not in _CLUSTER_ONLY_REASONS:
            data = {**reason.data, "node": node.name}
            return RejectionReason(reason.kind, f"{node.name}: {reason.text}", data)
        if op is None or (op.effects.stateful and not constraints.traced):
            text = f"{node.name}: {node.op} is stateful"
            return RejectionReason("effects", text, {"node": node.name})
        return None

    def _list_rejection(self, node: Node) -> RejectionReason | None:
        """The reason against a node that forwards a list which stays outside, or None."""
        types = (node.output_types or ()) if role_of(node) else ()
        if all(dtype.kind != "variant" for dtype in types) or node in self.regions.lists:
            return None
        text = f"{node.name} forwards a list that is in no cluster"
        return RejectionReason("list", text, {"node": node.name})

    def require_selector(self, merge: Node, *, is_index: bool) -> None:
        """Raise RegionRejected for a Case, which XLA compiles in no cluster."""
        if is_index:
            text = f"{merge.name} merges {len(merge.inputs)} tensors"
            raise region_rejected("form", text, node=merge.name)

    def require_loop(self, frame: Frame, call: LoopCall) -> None:
        """Raise RegionRejected if a shape, or a value that XLA needs as a constant, changes.

        A frame without a loop is no call."""
        if self._shapes is None:
            self._shapes = infer_shapes(self.regions.graph)
        _require_static_shapes(self._instances, call, self._shapes)


def _require_static_shapes(known: FunctionInstances, call: LoopCall, shapes: StaticShapes) -> None:
    """Raise RegionRejected if a shape, or a value that XLA needs as a constant, changes."""
    new = {call.cond.name: call.cond, call.body.name: call.body}
    instances = known.extended(new)
    cond, body = (instances.get(function.name, {}) for function in (call.cond, call.body))
    require_constant_arguments(instances, cond, body, call.operands)
    names = [inner[0].name for inner in call.inner]
    require_invariant_shapes(body, names, [shapes[tensor] for tensor in call.operands])


def require_constant_arguments(
    instances: FunctionInstances,
    cond: FunctionGraph,
    body: FunctionGraph,
    operands: Sequence[Output],
) -> None:
    """Raise RegionRejected for a loop that changes a value that XLA needs as a constant."""
    is_invariant = loop_invariant_arguments(body)
    for function in (cond, body):
        for index in sorted(constant_arguments(function, instances)):
            if not is_invariant[index]:
                text = f"XLA needs {operands[index].name} as a constant; the loop changes it"
                raise region_rejected("constant varies", text)


def require_invariant_shapes(
    body: FunctionGraph, names: Sequence[str], initial: Sequence[Shape]
) -> None:
    """Raise RegionRejected if a value changes its initial shape in a loop.

    `names` are those of the values inside of the loop.
    """
    fed = {
        argument.output().name: shape
        for argument, shape in zip(body.arguments, initial, strict=True)
    }
    inferred = infer_shapes(body.graph, fed)
    for name, shape, updated in zip(names, initial, body.returns, strict=True):
        try:
            shape.merge(inferred[updated])
        except ValueError:
            text = f"the shape of {name} changes from {shape} to {inferred[updated]}"
            raise region_rejected("shape changes", text) from None
