"""Turn the region of a lowered conditional into a call with one function per branch.

    x ──▶ Switch ──false──▶ … ──▶ Merge         If(pred, x)
    pred ──▶ ┘  └──true──▶ … ──▶  ┘

Two branches selected by a Boolean are an If; branches selected by an index are a Case. The call is
stateful if a function is. Effects of a branch move into its function, in their order; what waits
for one outside waits for the call.

Merges of one predicate share a call unless that closes a cycle of dependencies. Of a row of n
conditionals each depends on all before it. Paths are transitive, so that one search, to or from the
last call, excludes all others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cfgraph.analysis.loops.cycle_graph import CycleGraph
from cfgraph.ir import registry
from cfgraph.ir.attrs import Func, TensorValue
from cfgraph.ir.dtypes import int32
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import CONTROL, Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of
from cfgraph.ops.opdef.random_streams import call_annotations
from cfgraph.passes.functionalize.conditional_region import ConditionalRegion, RegionCone
from cfgraph.passes.functionalize.function_body import (
    ArgumentNames,
    FunctionBodyWriter,
    base_dtypes,
    must_run_once,
    ordered_nodes,
)
from cfgraph.passes.functionalize.region_rules import RegionRules
from cfgraph.passes.functionalize.report import region_rejected

_BRANCH_NAMES: Final = ("else", "then")


@dataclass(slots=True, eq=False)
class PlannedCall:
    """A region that becomes a call: its cone, the nodes inside that are ordered, and by branch.

    `effects` has the nodes of each branch that run once. They exist only in the call then.
    """

    region: ConditionalRegion
    cone: RegionCone
    ordered: Mapping[Node, None]
    effects: tuple[list[Node], ...]
    inside: frozenset[Node]

    @classmethod
    def of_region(cls, region: ConditionalRegion, rules: RegionRules) -> PlannedCall:
        """Plan the call of a region. Raises RegionRejected if an effect is used elsewhere."""
        cone = region.cone()
        sources = (*(tensor.node for tensor in cone.outside), *cone.controls)
        if cycle := next((node for node in sources if node in region.targets), None):
            text = f"effects of one call are used before and after {cycle.name}"
            raise region_rejected("effects", text, node=cycle.name)
        ordered = ordered_nodes(cone.inside)
        effects: tuple[list[Node], ...] = tuple([] for _ in region.selector.branches)
        for node in cone.inside:
            if must_run_once(node) and role_of(node) is None:
                effects[region.branch_of(node)].append(node)
        plan = cls(region, cone, ordered, effects, frozenset(cone.inside))
        if ordered:
            plan._require_inner_uses(rules)
        return plan

    def _require_inner_uses(self, rules: RegionRules) -> None:
        inside, targets = self.inside, {*self.region.targets}
        for node in self.cone.inside:
            if node not in self.ordered:
                continue
            for user, slot in node.uses:
                if user in inside or user in targets:
                    continue
                if slot != CONTROL or not self._can_wait_for_call(user, node):
                    text = f"{user.name} reads {node.name}, which runs once, in one branch"
                    raise region_rejected("effects", text, node=node.name)
            fetched = rules.fetched_values if node in targets else rules.fetched
            if must_run_once(node) and node in fetched:
                text = f"{node.name} is fetched, and may be dead"
                raise region_rejected("dead value", text, node=node.name)

    def _can_wait_for_call(self, user: Node, node: Node) -> bool:
        """Return true if a node stays live where it is after it waits for the call instead."""
        if role_of(user) in (Role.MERGE, Role.CONTROL_TRIGGER):
            return True
        conditions = self.region.boundary.conditions
        live = conditions.of_control(node)
        others = [*map(conditions.of_output, user.inputs)]
        others += [conditions.of_control(each) for each in user.controls if each is not node]
        rest = conditions.formulas.all_of(others)
        return conditions.solver.implies(rest, live) is True


@dataclass(frozen=True, slots=True)
class ConditionalCall:
    """The call that replaced a region, and the nodes that it has copies of."""

    node: Node
    inside: list[Node]
    copied: list[Node]


def functionalize_cond(
    graph: Graph, plan: PlannedCall, name: str, rules: RegionRules
) -> ConditionalCall:
    """Add a call whose results the Merges of a conditional forward from then on.

    An effect that is no input of a Merge becomes the call, and keeps its name.
    """
    region, cone, fetched = plan.region, plan.cone, rules.fetched_indices
    arguments = [tensor for tensor in cone.outside if not rules.copies_constant(tensor.node)]
    copied = [tensor for tensor in cone.outside if rules.copies_constant(tensor.node)]
    read = {tensor.node for tensor in (region.selector.tensor, *arguments)}
    controls = [control for control in cone.controls if control not in read]
    controls += region.unread_effects(graph, cone)
    controls += _liveness_anchors(graph, plan, arguments, controls)
    ports = [Output(merge, port) for merge in region.slots for port in _used_ports(merge, fetched)]
    functions = [
        _branch_function(graph, plan, branch, name, arguments, copied, ports, rules.keep_devices)
        for branch in range(len(region.selector.branches))
    ]
    graph.functions.update((function.name, function) for function in functions)
    stateful = any(function.definition.stateful for function in functions)
    op, attrs = _op_of_call(functions, stateful, region.selector.is_index)
    attrs = {"Tin": base_dtypes(arguments), "Tout": base_dtypes(ports), **attrs}
    attrs.update(rules.call_attrs(ports) | call_annotations(functions, graph.functions))
    inputs = [region.selector.tensor, *arguments]
    if not region.slots:
        call = region.effects[0]
        attrs = registry.infer_attrs(call.name, op, tuple(inputs), attrs)
        graph.connect(call, inputs, dict.fromkeys(controls))
        graph.set_op(call, op, attrs)
    else:
        call = graph.add(
            op,
            *inputs,
            name=name,
            controls=dict.fromkeys(controls),
            device=region.targets[0].device,
            attrs=attrs,
        )
    result_of = {port: call.output(number) for number, port in enumerate(ports)}
    for merge in region.slots:
        results = [result_of[Output(merge, port)] for port in _used_ports(merge, fetched)]
        _forward_results(graph, merge, results, fetched)
    _move_effects(graph, plan, call)
    return ConditionalCall(call, [*cone.inside], [tensor.node for tensor in copied])


def _op_of_call(
    functions: list[Function], stateful: bool, is_index: bool
) -> tuple[str, dict[str, Any]]:
    if is_index:
        branches = tuple(Func(function.name) for function in functions)
        return "Case" if stateful else "StatelessCase", {"branches": branches}
    otherwise, then = (Func(function.name) for function in functions)
    attrs = {"then_branch": then, "else_branch": otherwise}
    return "If" if stateful else "StatelessIf", attrs


def _liveness_anchors(
    graph: Graph, plan: PlannedCall, arguments: list[Output], controls: list[Node]
) -> list[Node]:
    """Return nodes for which a call must wait so that it is dead where its Merges are."""
    boundary = plan.region.boundary
    conditions, context = boundary.conditions, boundary.context
    sources = [plan.region.selector.tensor, *arguments]
    live = [*map(conditions.of_output, sources), *map(conditions.of_control, controls)]
    if context in live:
        return []
    if conditions.solver.implies(conditions.formulas.all_of(live), context) is True:
        return []
    candidates = [tensor for switch in plan.cone.top_switches for tensor in switch.inputs]
    if boundary.anchor is not None:
        candidates.append(boundary.anchor)
    for tensor in candidates:
        if conditions.solver.equal(conditions.of_output(tensor), context) is not True:
            continue
        if role_of(tensor.node) is not Role.SWITCH:
            return [tensor.node]
        pivot = graph.add("Identity", tensor, name=f"{tensor.node.name}/pivot")
        conditions.adopt(pivot, context, conditions.frames.of[tensor.node])
        return [pivot]
    text = f"{plan.region.targets[0].name} may be dead when all of its inputs are live"
    raise region_rejected("entered apart", text, of=[plan.region.targets[0].name])


def _used_ports(merge: Node, fetched: Collection[Node]) -> range:
    """Return the outputs of a Merge that are read; of the index, also those that are fetched."""
    return range(2 if merge in fetched or merge.readers(1) else 1)


def _forward_results(
    graph: Graph, merge: Node, results: list[Output], fetched: Collection[Node]
) -> None:
    """Turn a Merge into an Identity of the results of the call."""
    if len(results) > 1 and merge not in fetched:
        graph.replace_uses(merge.output(1), results.pop())
    dtypes = base_dtypes(results)
    if len(results) == 1:
        graph.set_op(merge, "Identity", {"T": dtypes[0]})
    else:
        graph.set_op(merge, "IdentityN", {"T": dtypes})
    graph.connect(merge, results, [])


def _move_effects(graph: Graph, plan: PlannedCall, call: Node) -> None:
    """Let what waits for effects of the branches wait for the call; remove the effects."""
    inside = plan.inside
    for node in plan.cone.inside:
        if node not in plan.ordered or node is call:
            continue
        for user in [use.node for use in node.uses if use.slot == CONTROL]:
            if user not in inside:
                graph.remove_control(user, node)
                if user is not call:
                    graph.add_control(user, call)
    for effect in plan.region.effects:
        if effect is call:
            continue
        graph.set_op(effect, "NoOp", {})
        graph.connect(effect, [], [call])


def _branch_function(
    graph: Graph,
    plan: PlannedCall,
    branch: int,
    name: str,
    arguments: list[Output],
    copied: list[Output],
    ports: list[Output],
    keep_devices: bool,
) -> Function:
    region = plan.region
    label = f"branch{branch}" if region.selector.is_index else _BRANCH_NAMES[branch]
    inside = plan.inside

    def value_in_branch(tensor: Output) -> Output:
        while role_of(tensor.node) is Role.SWITCH and tensor.node in inside:
            tensor = tensor.node.inputs[0]
        return tensor

    body = FunctionBodyWriter(
        graph.functions, value_in_branch, plan.ordered, keep_devices=keep_devices
    )
    names = ArgumentNames(())
    for tensor in arguments:
        dtype = tensor.dtype
        if dtype is None:
            text = f"the type of {tensor.name} is unknown"
            raise region_rejected("type", text, node=tensor.node.name)
        if dtype.is_ref:
            text = f"{tensor.name} is a reference"
            raise region_rejected("reference", text, node=tensor.node.name)
        body.argument(names.new(tensor), dtype.base, tensor)
    for tensor in copied:
        body.constant(tensor, tensor.node)
    body.effects(plan.effects[branch])
    outputs = {}
    for merge, port in ports:
        key = names.new(Output(merge, port), "out")
        slot = region.slots[merge][branch]
        if port:
            value = TensorValue(np.array(slot, np.int32))
            outputs[key] = body.graph.add(
                "Const", name=f"{key}_index", dtype=int32, value=value
            ).output()
        else:
            outputs[key] = body.value(merge.inputs[slot])
    return body.function(f"{name}_{label}", outputs)


class SharedCalls:
    """The calls to add for one predicate in one context: regions that can share a call do."""

    def __init__(self, dependencies: CycleGraph) -> None:
        self.regions: list[ConditionalRegion] = []
        self._dependencies = dependencies
        # bit k: a path leads from, or to, region k
        self._before: list[int] = []
        self._after: list[int] = []
        # the region of each effect; exclusive regions share a call only to share an effect
        self._owners: dict[Node, int] = {}
        self._exclusive = 0

    def add(
        self, region: ConditionalRegion, once: Mapping[Node, None], *, is_exclusive: bool
    ) -> None:
        """Add a region to the first call that it is independent of, or to a new call.

        `once` are its nodes that follow effects; regions that have one in common share a call.
        Raises RegionRejected if they cannot.
        """
        first = region.targets[0]
        before, after = self._order(first)
        owners = {self._owners[node] for node in once if node in self._owners}
        candidates = self._all() & ~(before | after)
        if owners:
            number = owners.pop()
            if owners:
                text = f"{first.name} depends on effects of several calls"
                raise region_rejected("effects", text, node=first.name)
            self._join_effects(number, region, once)
            self._before[number] |= before & ~(1 << number)
            self._after[number] |= after & ~(1 << number)
            return
        candidates &= 0 if is_exclusive else ~self._exclusive
        while candidates:
            number = (candidates & -candidates).bit_length() - 1
            if self._join(number, region, once):
                self._before[number] |= before
                self._after[number] |= after
                return
            candidates &= candidates - 1
        self._require_merged(region.targets, once)
        self._owners.update(dict.fromkeys(once, len(self.regions)))
        self._exclusive |= is_exclusive << len(self.regions)
        self.regions.append(region)
        self._before.append(before)
        self._after.append(after)

    def _require_merged(self, targets: list[Node], once: Mapping[Node, None]) -> None:
        """Make the effects of a region, and what follows them, one vertex with it."""
        first = targets[0]
        left = self._dependencies.merge_nodes(first, reversed([*targets[1:], *once]))
        if left:
            text = f"what waits for {left[0].name} leads back to {first.name}"
            raise region_rejected("effects", text, node=left[0].name)

    def _all(self) -> int:
        return (1 << len(self.regions)) - 1

    def _order(self, merge: Node) -> tuple[int, int]:
        """Return calls before and after a Merge, from the last to one that is neither."""
        rank, vertex_of = self._dependencies.rank, self._dependencies.vertex_of
        before = after = 0
        current = vertex_of[merge]
        while candidates := self._all() & ~(before | after):
            number = candidates.bit_length() - 1
            vertex = vertex_of[self.regions[number].targets[0]]
            if vertex == current:
                break
            early, late = sorted((vertex, current), key=rank.__getitem__)
            if not self._dependencies.has_path(early, late):
                break
            if early == vertex:
                before |= self._before[number] | 1 << number
            else:
                after |= self._after[number] | 1 << number
        return before, after

    def _join_effects(
        self, number: int, region: ConditionalRegion, once: Mapping[Node, None]
    ) -> None:
        """Add a region to the call that has some of its effects, or raise RegionRejected."""
        self._require_merged(region.targets, once)
        self._owners.update(dict.fromkeys(once, number))
        self.regions[number].absorb(region)

    def _join(self, number: int, region: ConditionalRegion, once: Mapping[Node, None]) -> bool:
        """Add a region to a call; return false if a cycle closes."""
        call, vertex_of = self.regions[number], self._dependencies.vertex_of
        a, b = vertex_of[call.targets[0]], vertex_of[region.targets[0]]
        successors = self._dependencies.successors
        if a == b or b in successors[a] or a in successors[b]:
            return False
        if self._dependencies.merge(a, b) is None:
            return False
        self._require_merged(call.targets, once)
        self._owners.update(dict.fromkeys(once, number))
        call.absorb(region)
        return True
