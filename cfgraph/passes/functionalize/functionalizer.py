"""Turn lowered loops and conditionals into calls, innermost first.

    Enter ▸ Merge ▸ Switch ▸ … ▸ Exit      becomes      While
    Switch ▸ … ▸ Merge                     becomes      If or Case

A call is dead if any input is dead, so all inputs of a region must have the same liveness. A region
that cannot be a call keeps its form; those inside it and beside it become calls.

One analysis serves all frames: a call is live as its Merges or Exits were. It is repeated for the
outer loops only if it could not prove when an inner loop ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cfgraph.analysis.deadness.deadness import Deadness, deadness
from cfgraph.analysis.effects import EffectAnalysis
from cfgraph.analysis.loops.cycle_graph import CycleGraph
from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.run_requirements import RunRequirements
from cfgraph.ir.graph import CONTROL, Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import topological_order
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.op import back_edge_of, has_effect, role_of
from cfgraph.passes.functionalize.conditional_region import (
    ConditionalRegion,
    ContextBoundary,
    RegionCone,
    effect_region,
    flatten_merge,
    merge_region,
    split_merge,
)
from cfgraph.passes.functionalize.function_body import ordered_nodes
from cfgraph.passes.functionalize.functionalize_cond import (
    PlannedCall,
    SharedCalls,
    functionalize_cond,
)
from cfgraph.passes.functionalize.functionalize_while import (
    entry_condition,
    functionalizable_loop,
    functionalize_while,
    loop_call,
)
from cfgraph.passes.functionalize.region_rules import LoopCall, RegionRules
from cfgraph.passes.functionalize.report import (
    RegionRejected,
    RegionReport,
    RejectionReason,
    region_rejected,
)
from cfgraph.passes.functionalize.unneeded_nodes import (
    always_has_value,
    is_input,
)

_SUFFIXES: Final = ("cond", "body", "then", "else")
# context, branches, and name of a conditional
CallKey = tuple[int, tuple[int, ...], str | None]


@dataclass(slots=True, eq=False)
class OpenFrame:
    """A frame whose inner loops were tried: its nodes, in order, and the depth of their branches.

    The depth of a node is the number of Switches, without Merge, on the way to it.
    """

    frame: Frame
    nodes: Sequence[Node]
    depths: dict[Node, int] = field(default_factory=dict)
    effects: defaultdict[int, list[Node]] = field(default_factory=lambda: defaultdict(list))
    deepest: int = 0

    @classmethod
    def of_nodes(cls, frame: Frame, nodes: Sequence[Node]) -> OpenFrame:
        """Sort the nodes of a frame and compute their depths."""
        opened = cls(frame, topological_order(nodes).nodes)
        members = set(opened.nodes)
        for node in opened.nodes:
            opened.put(node, opened._depth(node, members))
        return opened

    def put(self, node: Node, depth: int) -> None:
        """Record the depth of a node."""
        self.depths[node] = depth
        self.deepest = max(self.deepest, depth)
        if role_of(node) is None and has_effect(node):
            self.effects[depth].append(node)

    def _depth(self, node: Node, members: set[Node]) -> int:
        role = role_of(node)
        if role is Role.MERGE:
            if back_edge_of(node) is not None:
                return 0
            below = [self._depth_of(tensor, members) for tensor in node.inputs]
            return max(0, min(below, default=0) - 1)
        if role is Role.CONTROL_TRIGGER:
            return 0
        below = [self._depth_of(tensor, members) for tensor in node.inputs]
        below += [self.depths.get(control, 0) for control in node.controls if control in members]
        return max(below, default=0)

    def _depth_of(self, tensor: Output, members: set[Node]) -> int:
        if tensor.node not in members:
            return 0
        return self.depths.get(tensor.node, 0) + (role_of(tensor.node) is Role.SWITCH)


class Functionalizer:
    """Functionalizes the regions of one lowered graph, as `rules` permit.

    `functionalized` contains the report of each call, and `rejected` the report of each other
    region.
    """

    def __init__(self, graph: Graph, rules: RegionRules) -> None:
        self.graph = graph
        self.rules = rules
        self.functionalized: dict[Node, RegionReport] = {}
        self.rejected: dict[str, RegionReport] = {}
        self.nested: list[RegionReport] = []
        self.accepted = 0
        # Merges that were flattened or added
        self.divided = 0
        self._used_names = {*graph.nodes, *graph.functions}
        self._last_numbers: dict[str, int] = {}
        self._original_nodes = set(graph)
        self._original_ops: dict[Node, Mapping[str, str]] = {}
        self._nesting: dict[Node, int] = {}

    def run(
        self,
        original_ops: Mapping[Node, Mapping[str, str]] | None = None,
        conditions: Deadness | None = None,
    ) -> None:
        """Functionalize regions, innermost first, until nothing changes.

        `original_ops` has the names and ops that a node replaces already, and `conditions` is the
        analysis of the graph with free constants, if there is one.
        """
        self._original_ops.update(original_ops or {})
        while self._run_round(conditions):
            conditions = None
            check_deadline()

    def _run_round(self, conditions: Deadness | None) -> bool:
        """Functionalize what one analysis allows; return true if another one may allow more."""
        self.rejected = {}
        work = _AnalysisRound(self, conditions)
        return work.run()

    def call_name(self, kind: str, region: str) -> str:
        """Return a node name that is unused, also with the suffixes of its functions."""
        base = region.rpartition("/")[0] or kind
        name, number = base, self._last_numbers.get(base, 0)
        while self._is_used(name):
            number += 1
            name = f"{base}_{number}"
        self._last_numbers[base] = number
        self._used_names.add(name)
        return name

    def _is_used(self, name: str) -> bool:
        names = [name, *[f"{name}_{suffix}" for suffix in _SUFFIXES]]
        return not (
            self._used_names.isdisjoint(names)
            and self.graph.functions.keys().isdisjoint(names)
            and self.graph.nodes.keys().isdisjoint(names)
        )

    def nesting_in(self, nodes: Iterable[Node]) -> int:
        """Return the depth of the calls among nodes. Raises RegionRejected if too deep."""
        depth = max((self._nesting.get(node, 0) for node in nodes), default=0)
        limit = self.rules.max_nesting
        if limit is not None and depth >= limit:
            raise region_rejected("nesting", f"it contains {limit} regions in each other")
        return depth

    def accept(self, call: Node, report: RegionReport, nesting: int) -> None:
        """Record that a region became a call, which has calls of a depth in its functions."""
        self.functionalized[call] = report
        self.accepted += 1
        self._nesting[call] = nesting + 1
        self.rules.accept_call(call)

    def ops_of(self, node: Node) -> Mapping[str, str]:
        """Return the names and ops of the original nodes that a node stands for."""
        inner = self.functionalized.pop(node, None)
        if inner is not None:
            self.nested.append(inner)
            return inner.ops
        original = {node.name: node.op} if node in self._original_nodes else {}
        return self._original_ops.get(node, original)

    def is_droppable(self, node: Node, conditions: Deadness) -> bool:
        """Return true for an unread node without effects that no run can fetch."""
        role = role_of(node)
        if role is not None:
            return role in (Role.SWITCH, Role.CONTROL_TRIGGER)
        if has_effect(node) or is_input(node) or not self.rules.drops_unread:
            return False
        return not self.must_stay(node, conditions)

    def must_stay(self, node: Node, conditions: Deadness) -> bool:
        """Return true for a node outside of regions, which any run can fetch."""
        if self.rules.has_named_fetches:
            return False
        return node in self.rules.outside or always_has_value(conditions, node)

    def regions(self) -> tuple[RegionReport, ...]:
        """Return the reports on all regions."""
        called = [call for node, call in self.functionalized.items() if node.name in self.graph]
        return (*called, *self.nested, *self.rejected.values())

    def reject(self, kind: str, name: str, ops: Mapping[str, str], reason: RejectionReason) -> None:
        """Record that a region keeps its form."""
        self.rejected[name] = RegionReport(kind, name, ops, None, reason)


class _AnalysisRound:
    """Functionalization over one analysis."""

    def __init__(self, functionalizer: Functionalizer, conditions: Deadness | None) -> None:
        self.owner = functionalizer
        self.graph, self.rules = functionalizer.graph, functionalizer.rules
        self.conditions = conditions or deadness(self.graph, free_constants=True)
        self.frames = self.conditions.frames
        self.dependencies = CycleGraph(self.frames)
        self.added: defaultdict[Frame, list[Node]] = defaultdict(list)
        self.changed = False
        self.stale = False
        self._open_inside: set[Frame] = set()
        self._key_of_effect: dict[Node, CallKey] = {}
        self._requirements = self._run_requirements()
        self.rules.begin_round(self.frames)

    def _run_requirements(self) -> RunRequirements:
        """Return what runs need; any node outside of loops may be fetched by itself."""
        if self.rules.has_named_fetches:
            return RunRequirements((), (), EffectAnalysis())
        root, frame_of = self.frames.root, self.frames.of_outputs
        outside = {node for node in self.frames.order if frame_of[node] is root}
        return RunRequirements(self.frames.order, outside, EffectAnalysis())

    def run(self) -> bool:
        """Functionalize frames, inner ones first; return true if another round may help."""
        depth = max(frame.depth for frame in self.frames.all)
        for frame in sorted(self.frames.all, key=lambda each: -each.depth):
            if self.stale and frame.depth < depth:
                break
            depth = frame.depth
            check_deadline()
            self._functionalize_frame(frame)
        return self.stale

    def _functionalize_frame(self, frame: Frame) -> None:
        opened = OpenFrame.of_nodes(frame, self._present(frame))
        self._functionalize_conditionals(opened)
        if self.changed:
            # what only the Switches and effects read that are in calls now
            present = self._present(frame)
            self._remove_unread([node for node in present if role_of(node) is Role.SWITCH])
        if frame.parent is None:
            return
        frame.nodes = self._present(frame)
        frame.merges = [node for node in frame.merges if role_of(node) is Role.MERGE]
        try:
            self._functionalize_loop(frame)
        except RegionRejected as error:
            self._open_inside.add(frame.parent)
            self.owner.reject("loop", frame.path, _ops_by_name(frame.nodes), error.reason)

    def _present(self, frame: Frame) -> list[Node]:
        nodes = [*frame.nodes, *self.added[frame]]
        return [node for node in nodes if self.graph.nodes.get(node.name) is node]

    # -- loops -----------------------------------------------------------------------------------

    def _functionalize_loop(self, frame: Frame) -> None:
        nodes = self._present(frame)
        if frame in self.dependencies.tangled:
            raise region_rejected("tangled loops", "an exit of the loop is needed to enter it")
        if frame in self._open_inside:
            raise region_rejected("inner loop", "a loop in it keeps its form")
        exits = set(frame.exits)
        inside = [node for node in nodes if node not in exits]
        self.rules.require_region(frame.path, inside)
        for node in inside:
            if self.rules.has_named_fetches and node in self.rules.fetched:
                text = f"{node.name} is fetched"
                raise region_rejected("fed", text, node=node.name)
        order = topological_order(nodes).nodes
        form = functionalizable_loop(frame, order, self.graph.functions)
        nesting = self.owner.nesting_in(nodes)
        condition = entry_condition(form, self.conditions, self.rules)
        cond = frame.loop_conds[0].name
        name = self.owner.call_name("while", cond)
        call = loop_call(self.graph, form, name, self.rules)
        self._require_needed_effects(frame, call)
        self.rules.require_loop(frame, call)
        copied = self._droppable_copied(enter.inputs[0].node for enter in call.copied)
        unused = [enter for enter in frame.enters if not enter.uses]
        sources = [node for enter in unused for node in (enter.inputs[0].node, *enter.controls)]
        ops = self._absorbed_ops([*inside, *frame.enters])
        before = [self.conditions.of_output(x.output()) for x in frame.exits if x.uses]
        loop, new = functionalize_while(self.graph, form, call, name, self.rules)
        for node in new:
            self._requirements.adopt(node, (*inside, *call.controls))
        droppable = [n for n in sources if self.owner.is_droppable(n, self.conditions)]
        outside = [*copied, *droppable]
        ops.update(self._absorbed_ops(self._remove_unread(outside)))
        parent = frame.parent
        assert parent is not None
        for node in new:
            self.conditions.adopt(node, condition, parent)
        self.added[parent] += new
        self.dependencies.add_nodes(self.dependencies.loop_vertex(frame), new)
        self.owner.accept(loop, RegionReport("loop", frame.path, ops, loop), nesting)
        self.changed = True
        equal = self.conditions.solver.equal
        if any(old != condition and equal(old, condition) is not True for old in before):
            self.stale = True

    def _require_needed_effects(self, frame: Frame, call: LoopCall) -> None:
        """Raise RegionRejected if a run needs a result without an effect that the call runs."""
        for cause in (*call.effects, *call.controls):
            required = self._requirements.upstream([cause])
            for leaving in frame.exits:
                if required & ~self._requirements[leaving]:
                    text = f"a run that fetches {leaving.name} may not need {cause.name}"
                    raise region_rejected("effects", text, node=cause.name)

    # -- conditionals ----------------------------------------------------------------------------

    def _functionalize_conditionals(self, opened: OpenFrame) -> None:
        """Functionalize the conditionals of a frame, inner ones first.

        Those that contain another one which is not as deep as it seems are tried again.
        """
        pending = [
            node
            for node in opened.nodes
            if role_of(node) is Role.MERGE and back_edge_of(node) is None
        ]
        progress = -1
        while progress != self.owner.accepted:
            progress = self.owner.accepted
            check_deadline()
            self._functionalize_levels(opened, pending)
            lowered = self.owner.rejected
            pending = [
                node
                for node in pending
                if (report := lowered.get(node.name)) is not None
                and report.reason is not None
                and report.reason.kind == "conditional"
            ]
            if not pending:
                return

    def _functionalize_levels(self, opened: OpenFrame, merges: Sequence[Node]) -> None:
        """Functionalize the regions of Merges and of effects, deepest first."""
        by_depth: defaultdict[int, list[Node]] = defaultdict(list)
        for merge in merges:
            by_depth[opened.depths[merge]].append(merge)
        for depth in range(opened.deepest, -1, -1):
            shared: dict[CallKey, SharedCalls] = {}
            self._plan_merges(opened, by_depth[depth], shared, depth)
            self._plan_effects(opened, shared, depth, read_by_merge=False)
            self._carry_out(opened, shared.values(), depth)
            left: dict[CallKey, SharedCalls] = {}
            self._plan_effects(opened, left, depth, read_by_merge=True)
            self._carry_out(opened, left.values(), depth)

    def _plan_merges(
        self,
        opened: OpenFrame,
        merges: Sequence[Node],
        shared: dict[CallKey, SharedCalls],
        depth: int,
    ) -> None:
        boundaries: dict[int, ContextBoundary] = {}
        for merge in merges:
            context = self.conditions.of_control(merge)
            if context not in boundaries:
                boundaries[context] = ContextBoundary(self.conditions, context)
            try:
                if merge in self.dependencies.in_cycle:
                    raise region_rejected("tangled loops", "it depends on itself")
                self._plan_merge(opened, merge, boundaries[context], shared, depth)
            except RegionRejected as error:
                self.owner.reject("conditional", merge.name, {merge.name: merge.op}, error.reason)

    def _plan_merge(
        self,
        opened: OpenFrame,
        merge: Node,
        boundary: ContextBoundary,
        shared: dict[CallKey, SharedCalls],
        depth: int,
    ) -> None:
        try:
            region, cone = merge_region(boundary, merge)
        except RegionRejected:
            if not self._divide_merge(opened, merge, boundary, depth):
                raise
            region, cone = merge_region(boundary, merge)
        self.rules.require_region(merge.name, [merge, *cone.inside])
        self.rules.require_selector(merge, is_index=region.selector.is_index)
        self.owner.nesting_in(cone.inside)
        self._share(region, cone, shared)

    def _divide_merge(
        self, opened: OpenFrame, merge: Node, boundary: ContextBoundary, depth: int
    ) -> bool:
        """Divide a Merge into Merges of two branches each, and functionalize the inner ones."""
        if merge in self.rules.fetched_indices:
            return False
        lowered = self.owner.rejected
        flattened = flatten_merge(self.graph, merge, lowered, self.rules.fetched)
        inner = split_merge(self.graph, boundary, merge)
        self.owner.divided += flattened + len(inner)
        for node, inner_boundary in inner:
            self.dependencies.add_nodes(self.dependencies.vertex_of[merge], [node])
            opened.put(node, depth + 1)
            self.added[opened.frame].append(node)
            shared: dict[CallKey, SharedCalls] = {}
            self._plan_merge(opened, node, inner_boundary, shared, depth + 1)
            self._carry_out(opened, shared.values(), depth + 1)
        return flattened or bool(inner)

    def _share(
        self, region: ConditionalRegion, cone: RegionCone, shared: dict[CallKey, SharedCalls]
    ) -> None:
        key = (region.boundary.context, region.selector.branches, region.scope)
        once = ordered_nodes(cone.inside)
        for node in once:
            # what shares effects shares a call, whatever its name
            owner = self._key_of_effect.setdefault(node, key)
            key = owner if owner[:2] == key[:2] and owner in shared else key
        if key not in shared:
            shared[key] = SharedCalls(self.dependencies)
        is_exclusive = not self.rules.has_named_fetches and (
            bool(once) or self._needs_more_than_it_reads(region, cone)
        )
        shared[key].add(region, once, is_exclusive=is_exclusive)

    def _needs_more_than_it_reads(self, region: ConditionalRegion, cone: RegionCone) -> bool:
        """Return true if a call waits for effects or variables that its predicate does not."""
        if not self._requirements:
            return False
        waited = (*cone.controls, *region.unread_effects(self.graph, cone))
        needs = self._requirements.upstream
        return bool(needs(waited) & ~needs([region.selector.tensor.node]))

    def _plan_effects(
        self,
        opened: OpenFrame,
        shared: dict[CallKey, SharedCalls],
        depth: int,
        *,
        read_by_merge: bool,
    ) -> None:
        """Plan calls for the effects one level deeper that nothing in their branch waits for."""
        for node in opened.effects[depth + 1]:
            if self.graph.nodes.get(node.name) is not node:
                continue
            if not has_effect(node) or _is_final(node) is not read_by_merge:
                continue
            try:
                region = effect_region(self.conditions, node)
                if self._is_loop_condition(opened.frame, region):
                    continue
                cone = region.cone()
                self.rules.require_region(node.name, cone.inside)
                self.owner.nesting_in(cone.inside)
                self._share(region, cone, shared)
            except RegionRejected as error:
                self.owner.reject("conditional", node.name, {node.name: node.op}, error.reason)

    def _is_loop_condition(self, frame: Frame, region: ConditionalRegion) -> bool:
        """Return true for a branch that is the body of a loop, or what follows its end."""
        truths = [self.conditions.truth(cond.output()) for cond in frame.loop_conds]
        if region.selector.is_index or not truths:
            return False
        truth = self.conditions.truth(region.selector.tensor)
        return truth in truths or -truth in truths

    def _carry_out(self, opened: OpenFrame, groups: Iterable[SharedCalls], depth: int) -> None:
        for region in (region for group in groups for region in group.regions):
            try:
                self._functionalize_region(opened, region, depth)
            except RegionRejected as error:
                for target in region.targets:
                    ops = {target.name: target.op}
                    self.owner.reject("conditional", target.name, ops, error.reason)

    def _functionalize_region(
        self, opened: OpenFrame, region: ConditionalRegion, depth: int
    ) -> None:
        plan = PlannedCall.of_region(region, self.rules)
        nesting = self.owner.nesting_in(plan.cone.inside)
        first = region.targets[0]
        name = self.owner.call_name("cond", first.name)
        call = functionalize_cond(self.graph, plan, name, self.rules)
        self._requirements.adopt(call.node, (*plan.cone.inside, *call.node.predecessors))
        self.conditions.adopt(call.node, region.boundary.context, opened.frame)
        self.dependencies.add_nodes(self.dependencies.vertex_of[first], [call.node])
        self.added[opened.frame].append(call.node)
        for node in (*region.targets, call.node):
            opened.put(node, depth)
            self.owner.rejected.pop(node.name, None)
        inside = [node for node in call.inside if node not in region.effects]
        removed = self._remove_unread([*inside, *self._droppable_copied(call.copied)])
        self.dependencies.merge_nodes(first, removed)
        ops = self._absorbed_ops(removed)
        report = RegionReport("conditional", first.name, ops, call.node)
        self.owner.accept(call.node, report, nesting)
        self.changed = True

    # -- reports ---------------------------------------------------------------------------------

    def _remove_unread(self, inside: Iterable[Node]) -> list[Node]:
        """Remove nodes of a region that nothing reads any more, and what only they read.

        Return the removed nodes. Outside of the region, those without effects are removed.
        """
        candidates = dict.fromkeys(inside)
        fetched = self.rules.fetched

        def is_unneeded(node: Node) -> bool:
            return node not in fetched and (
                node in candidates or self.owner.is_droppable(node, self.conditions)
            )

        return self.graph.remove_unread(candidates, is_unneeded)

    def _droppable_copied(self, constants: Iterable[Node]) -> list[Node]:
        """Return the constants with copies in functions that need not stay outside."""
        return [node for node in constants if not self.owner.must_stay(node, self.conditions)]

    def _absorbed_ops(self, nodes: Iterable[Node]) -> dict[str, str]:
        """Return the ops of nodes by name, and those of the calls among them."""
        ops: dict[str, str] = {}
        for node in nodes:
            ops.update(self.owner.ops_of(node))
        return ops


def _is_final(effect: Node) -> bool | None:
    """Return true if Merges wait for an effect, false if no node of its branch does.

    Otherwise return None: the effect belongs to the region of what waits for it.
    """
    roles = {role_of(use.node) if use.slot == CONTROL else None for use in effect.uses}
    if not roles <= {Role.MERGE, Role.CONTROL_TRIGGER}:
        return None
    return Role.MERGE in roles


def _ops_by_name(nodes: Iterable[Node]) -> dict[str, str]:
    return {node.name: node.op for node in nodes}
