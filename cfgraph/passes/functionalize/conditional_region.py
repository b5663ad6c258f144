"""Find the region of a lowered conditional: what runs only where one predicate selects it.

    x ──▶ Switch ──false──▶ … ──▶ Merge
    pred ──▶ ┘  └──true──▶ … ──▶  ┘

The context of a Merge is the condition under which it is live. Whatever it depends on, and is not
live in all of its context, is inside the region. One predicate must say for each input of the Merge
where it is live; predicates are compared by their formulas, so that it makes no difference how
they are computed. An effect that no Merge waits for is a region as well.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cfgraph.analysis.deadness.deadness import Deadness, Predicate, TokenSource
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of, strip_identities
from cfgraph.passes.functionalize.function_body import (
    is_cheap_constant,
    must_run_once,
    unread_effects,
)
from cfgraph.passes.functionalize.report import RegionRejected, region_rejected

_OPAQUE_ROLES: Final[dict[Role, tuple[str, str]]] = {
    Role.MERGE: ("conditional", "the conditional of {} in it keeps its form"),
    Role.EXIT: ("inner loop", "the loop of {} in it keeps its form"),
    Role.ENTER: ("form", "{} has a value only in the first iteration"),
    Role.NEXT_ITERATION: ("form", "{} is read by a node that is no Merge"),
    Role.LOOP_COND: ("form", "{} is in it"),
    Role.SEND: ("form", "{} is in it: the graph is partitioned"),
    Role.RECV: ("form", "{} is in it: the graph is partitioned"),
}


_MERGE_NAME: Final = re.compile(r"Merge(_\d+)?")


class ContextBoundary:
    """The nodes that are live wherever a context is; all others are inside of its regions."""

    def __init__(self, conditions: Deadness, context: Predicate) -> None:
        self.conditions = conditions
        self.context = context
        # a tensor that is live exactly in the context, if one is known
        self.anchor: Output | None = None
        self._implied: dict[Predicate, bool] = {}
        self._triggers: dict[Node, bool] = {}

    def is_outside(self, source: TokenSource) -> bool:
        """Return true for a source that is live wherever the context is.

        A ControlTrigger is live everywhere, but inside if it waits for a node inside.
        """
        if not isinstance(source, Output) and role_of(source) is Role.CONTROL_TRIGGER:
            known = self._triggers.get(source)
            if known is None:
                self._triggers[source] = True  # in a cycle of a loop
                known = self._triggers[source] = all(map(self.is_outside, source.controls))
            return known
        return self.implies(self.conditions.predicate(source))

    def implies(self, condition: Predicate) -> bool:
        """Return true if a condition holds wherever the context does."""
        known = self._implied.get(condition)
        if known is None:
            known = self.conditions.solver.implies(self.context, condition) is True
            self._implied[condition] = known
        return known


class RegionCone(NamedTuple):
    """Nodes inside, tensors read from outside, control inputs from outside, and top Switches.

    A top Switch is live in all of the context, and one of its outputs is inside.
    """

    inside: list[Node]
    outside: list[Output]
    controls: list[Node]
    top_switches: list[Node]


def region_cone(boundary: ContextBoundary, targets: Sequence[Node]) -> RegionCone:
    """Return what Merges and effects depend on, down to the boundary of their context.

    Raises RegionRejected if there is a node inside that no function can contain.
    """
    inside: dict[Node, None] = {}
    outside: dict[Output, None] = {}
    controls: dict[Node, None] = {}
    top: dict[Node, None] = {}
    todo: list[TokenSource] = []
    for target in targets:
        if role_of(target) is Role.MERGE:
            todo += [*target.inputs, *target.controls]
        else:
            todo.append(target)
    for source in todo:
        is_tensor = isinstance(source, Output)
        node = source.node if isinstance(source, Output) else source
        if node in inside:
            continue
        if boundary.is_outside(source):
            if isinstance(source, Output):
                outside[source] = None
                if is_cheap_constant(node):
                    # it is copied, and may be live only in some runs
                    todo += node.controls
            elif role_of(node) is Role.SWITCH:
                # a call that waits for the sources of a Switch need not wait for it
                todo += node.predecessors
            else:
                controls[node] = None
            continue
        inside[node] = None
        role = role_of(node)
        if role in _OPAQUE_ROLES:
            kind, text = _OPAQUE_ROLES[role]
            raise region_rejected(kind, text.format(node.name), node=node.name)
        if role is Role.SWITCH:
            if is_tensor and boundary.is_outside(node):
                top[node] = None
            todo += [node.inputs[0], *node.controls]
        else:
            todo += [*node.inputs, *node.controls]
    for node in top:
        if (dtype := node.inputs[0].dtype) is None or dtype.is_ref:
            text = f"{node.name} selects a reference"
            raise region_rejected("reference", text, node=node.name)
    return RegionCone(list(inside), list(outside), list(controls), list(top))


@dataclass(slots=True, eq=False)
class BranchSelector:
    """The predicate or index of a conditional, and the condition of each branch.

    The conditions include that of the context.
    """

    tensor: Output
    branches: tuple[Predicate, ...]
    is_index: bool = False


def selectors(conditions: Deadness, context: Predicate, cone: RegionCone) -> list[BranchSelector]:
    """Return the distinct predicates and indices that the top Switches of a region read."""
    found: dict[frozenset[Predicate], BranchSelector] = {}
    for switch in cone.top_switches:
        selector = branch_selector(conditions, context, switch)
        found.setdefault(frozenset(selector.branches), selector)
    return list(found.values())


def branch_selector(conditions: Deadness, context: Predicate, switch: Node) -> BranchSelector:
    """Return the selector of a Switch in a context."""
    tensor = switch.inputs[1]
    count = switch.output_count or 2
    is_index = tensor.dtype is not None and tensor.dtype.is_integer
    if is_index:
        taken = [conditions.equals(tensor, branch) for branch in range(count - 1)]
    else:
        taken = [-conditions.truth(tensor)]
    formulas = conditions.formulas
    taken.append(-formulas.any_of(taken))
    branches = tuple(formulas.all_of([context, formula]) for formula in taken)
    return BranchSelector(tensor, branches, is_index)


@dataclass(slots=True, eq=False)
class ConditionalRegion:
    """Merges and effects of one context that a predicate selects, which become one call.

    `slots` has, for each Merge, the input that is live in each branch. `scope` is the name of the
    conditional, if the name of the Merge tells it.
    """

    boundary: ContextBoundary
    selector: BranchSelector
    slots: dict[Node, tuple[int, ...]] = field(default_factory=dict)
    effects: list[Node] = field(default_factory=list)
    scope: str | None = None

    @property
    def targets(self) -> list[Node]:
        """The Merges and effects."""
        return [*self.slots, *self.effects]

    def cone(self) -> RegionCone:
        """Return the nodes of the branches and their inputs."""
        return region_cone(self.boundary, self.targets)

    def unread_effects(self, graph: Graph, cone: RegionCone) -> list[Node]:
        """Return the nodes outside that the region waits for, after effects, and does not read."""
        predicate = self.selector.tensor
        effects = [n for n in cone.inside if must_run_once(n) and role_of(n) is None]
        nodes = dict.fromkeys((*cone.inside, *self.slots))
        return unread_effects(
            graph,
            nodes,
            lambda node: node in nodes or not self.boundary.is_outside(node),
            (predicate.node, strip_identities(predicate).node, *effects),
        )

    def branch_of(self, node: Node) -> int:
        """Return the branch in which a node inside runs.

        Raises RegionRejected if it also runs elsewhere, or only in some cases of the branch.
        """
        conditions = self.boundary.conditions
        live = conditions.of_control(node)
        for number, branch in enumerate(self.selector.branches):
            if live == branch or conditions.solver.equal(live, branch) is True:
                return number
        text = f"{node.name} has effects, and does not run exactly where a branch does"
        raise region_rejected("effects", text, node=node.name)

    def absorb(self, other: ConditionalRegion) -> None:
        """Add the Merges and effects of another region."""
        self.slots.update(other.slots)
        self.effects += other.effects


def merge_region(boundary: ContextBoundary, merge: Node) -> tuple[ConditionalRegion, RegionCone]:
    """Return the region of a Merge. Raises RegionRejected if no one predicate decides it."""
    dtype = merge.inputs[0].dtype if merge.inputs else None
    if dtype is None or dtype.is_ref:
        raise region_rejected("reference", f"{merge.name} merges references", node=merge.name)
    cone = region_cone(boundary, [merge])
    for selector in selectors(boundary.conditions, boundary.context, cone):
        slots = _slots_by_branch(boundary.conditions, merge, selector)
        if slots is not None:
            scope = _conditional_name(merge, cone.top_switches)
            return ConditionalRegion(boundary, selector, {merge: slots}, scope=scope), cone
    raise _undecided(merge, cone)


def _conditional_name(merge: Node, switches: Sequence[Node]) -> str | None:
    """Return the name of a conditional: `lower` and TensorFlow call its Merges `name/Merge_1`."""
    prefix = f"{merge.name}/"
    if any(switch.name.startswith(prefix) for switch in switches):
        return merge.name
    scope, _, last = merge.name.rpartition("/")
    return scope if scope and _MERGE_NAME.fullmatch(last) else None


def split_merge(
    graph: Graph, boundary: ContextBoundary, merge: Node
) -> list[tuple[Node, ContextBoundary]]:
    """Replace the inputs of a Merge that one branch of a predicate selects by a Merge of them.

        Merge(a, b, c)      becomes      Merge(a, Merge(b, c))

    Return the new Merges, each with the boundary of its context; none if no predicate splits them.
    """
    conditions = boundary.conditions
    if merge.readers(1):
        return []
    cone = region_cone(boundary, [merge])
    for switch in cone.top_switches:
        selector = branch_selector(conditions, boundary.context, switch)
        groups = _slot_groups(conditions, merge, selector)
        if groups is not None:
            return _with_inner_merges(graph, conditions, merge, switch, selector, groups)
    return []


def _slot_groups(
    conditions: Deadness, merge: Node, selector: BranchSelector
) -> list[list[int]] | None:
    """Return the inputs that are live in each branch only, or None if they do not divide."""
    groups: list[list[int]] = [[] for _ in selector.branches]
    for slot, tensor in enumerate(merge.inputs):
        live = conditions.merge_input_condition(tensor)
        numbers = [
            number
            for number, branch in enumerate(selector.branches)
            if conditions.solver.implies(live, branch) is True
        ]
        if len(numbers) != 1:
            return None
        groups[numbers[0]].append(slot)
    return groups if all(groups) and any(len(group) > 1 for group in groups) else None


def _with_inner_merges(
    graph: Graph,
    conditions: Deadness,
    merge: Node,
    switch: Node,
    selector: BranchSelector,
    groups: list[list[int]],
) -> list[tuple[Node, ContextBoundary]]:
    added: list[tuple[Node, ContextBoundary]] = []
    inputs: list[Output] = []
    frame = conditions.frames.of[merge]
    for number, group in enumerate(groups):
        if len(group) == 1:
            inputs.append(merge.inputs[group[0]])
            continue
        name = f"{merge.name}/branch{number}"
        sources = [merge.inputs[slot] for slot in group]
        inner = graph.add("Merge", *sources, name=name, device=merge.device)
        branch = selector.branches[number]
        conditions.adopt(inner, branch, frame)
        boundary = ContextBoundary(conditions, branch)
        boundary.anchor = Output(switch, number)
        added.append((inner, boundary))
        inputs.append(inner.output())
    graph.set_attr(merge, "N", len(inputs))
    graph.set_inputs(merge, inputs)
    return added


def flatten_merge(
    graph: Graph, merge: Node, lowered: Collection[str], fetched: Collection[Node]
) -> bool:
    """Replace inputs that are Merges in lowered form by the inputs of those; true if any is.

    A fetched Merge remains.
    """
    inputs: list[Output] = []
    for tensor in merge.inputs:
        inner = tensor.node
        is_merge = role_of(inner) is Role.MERGE and inner.name in lowered
        is_only_use = len(inner.uses) == 1 and not inner.controls and inner not in fetched
        if is_merge and tensor.port == 0 and is_only_use:
            inputs += inner.inputs
        else:
            inputs.append(tensor)
    if len(inputs) == len(merge.inputs) or merge.readers(1):
        return False
    removed = [tensor.node for tensor in merge.inputs if tensor not in inputs]
    graph.set_attr(merge, "N", len(inputs))
    graph.set_inputs(merge, inputs)
    graph.remove(*removed)
    return True


def _undecided(merge: Node, cone: RegionCone) -> RegionRejected:
    if not cone.top_switches:
        text = f"the inputs of {merge.name} are not selected by a Switch"
    else:
        text = f"no single predicate decides the inputs of {merge.name}"
    return region_rejected("form", text, node=merge.name)


def _slots_by_branch(
    conditions: Deadness, merge: Node, selector: BranchSelector
) -> tuple[int, ...] | None:
    """Return the input of a Merge that is live in each branch, or None unless there is one each."""
    equal = conditions.solver.equal
    slots: dict[int, int] = {}
    outer: list[int] = []
    for slot, tensor in enumerate(merge.inputs):
        live = conditions.merge_input_condition(tensor)
        if live in selector.branches:
            number: int | None = selector.branches.index(live)
        else:
            matches = (n for n, each in enumerate(selector.branches) if equal(live, each) is True)
            number = next(matches, None)
        if number is not None and number not in slots:
            slots[number] = slot
        elif number is None and conditions.solver.implies(conditions.of_control(merge), live):
            outer.append(slot)
        else:
            return None
    missing = [number for number in range(len(selector.branches)) if number not in slots]
    if len(missing) != len(outer) or len(outer) > 1:
        return None
    # a value of the outer scope is that of the branch without one, where it competes with no other
    slots.update(zip(missing, outer, strict=True))
    return tuple(slots[number] for number in range(len(selector.branches)))


def effect_region(conditions: Deadness, effect: Node) -> ConditionalRegion:
    """Return the region of an effect that no Merge waits for: its innermost Switch decides it."""
    if conditions.never_live(effect):
        raise region_rejected("form", f"{effect.name} never runs", node=effect.name)
    tensor = deciding_switch(conditions, effect, conditions.of_control(effect))
    if tensor is None:
        text = f"no single predicate decides whether {effect.name} runs"
        raise region_rejected("form", text, node=effect.name)
    context = conditions.of_control(tensor.node)
    boundary = ContextBoundary(conditions, context)
    selector = branch_selector(conditions, context, tensor.node)
    region = ConditionalRegion(boundary, selector, effects=[effect])
    region.branch_of(effect)
    return region


def deciding_switch(conditions: Deadness, node: Node, live: Predicate) -> Output | None:
    """Return the nearest output of a Switch before a node that is live under a condition.

    The Switch itself is live in more runs.
    """
    seen = {node}
    todo: list[Node] = [node]
    implies = conditions.solver.implies
    for current in todo:
        for tensor in current.inputs:
            if role_of(tensor.node) is not Role.SWITCH:
                continue
            is_selected = conditions.solver.equal(conditions.of_output(tensor), live) is True
            if is_selected and not implies(conditions.of_control(tensor.node), live):
                return tensor
        for source in current.predecessors:
            if source not in seen and role_of(source) not in _OPAQUE_ROLES:
                seen.add(source)
                todo.append(source)
    return None
