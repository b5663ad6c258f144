"""Path conditions: the branch decisions under which a tensor is live, read from a bare graph.

The path condition of a tensor is a list of decisions, outermost first; each is a predicate, as its
frame reads it, and the branch that it must select. A Switch adds a decision; a Merge removes those
that its inputs exhaust together; any other node has the decisions of all its inputs. Inside a loop
a path condition covers one iteration: the LoopCond of the loop is a decision there. After the Exits
it is the condition under which the loop was entered.

Predicates are identified by their origin: through Identity, LoopCond, LogicalNot, and constant
Enters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final, NamedTuple

from cfgraph.ir import registry
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import CONTROL_TRIGGER, ENTER, LOOP_COND, MERGE, SWITCH, Role
from cfgraph.ir.topological_order import OpRoles
from cfgraph.ops.opdef.op import back_edge_of, lookup

# bound on the cases of the test for exhaustive inputs of a Merge
_MAX_CASES: Final = 1000
# roles of nodes that change a path condition
DECIDING_ROLES: Final = (SWITCH, MERGE)
# roles of nodes that are live whatever they read
_ALWAYS_LIVE_ROLES: Final = (CONTROL_TRIGGER, ENTER)


class BranchDecision(NamedTuple):
    """Decision that Switches on `pred` forward their data to output `port`.

    `source` is the origin of the predicate, `side` the branch in terms of the origin, out of
    `sides` branches. `sides` is 0 for a Merge whose inputs do not exhaust any predicate.
    """

    source: Output
    side: int
    sides: int
    pred: Output
    port: int


class PathCondition:
    """A list of decisions; lists with the same history are one object."""

    __slots__ = ("_more", "decision", "depth", "outer")

    def __init__(
        self, outer: PathCondition | None = None, decision: BranchDecision | None = None
    ) -> None:
        self.outer = outer
        self.decision = decision
        self.depth: int = 0 if outer is None else outer.depth + 1
        self._more: dict[tuple[Output, int], PathCondition] = {}

    def decisions(self) -> list[BranchDecision]:
        """The decisions, outermost first."""
        decisions: list[BranchDecision] = []
        condition: PathCondition | None = self
        while condition is not None and condition.decision is not None:
            decisions.append(condition.decision)
            condition = condition.outer
        return decisions[::-1]

    def beyond(self, outer: PathCondition) -> list[BranchDecision]:
        """The decisions that are not part of another condition, outermost first."""
        if self is outer or self._leads_to(outer):
            return []
        if outer._leads_to(self):
            return self.decisions()[outer.depth :]
        known = {decision[:2] for decision in outer.decisions()}
        return [decision for decision in self.decisions() if decision[:2] not in known]

    def also(self, decision: BranchDecision) -> PathCondition:
        """This condition with one more decision, unless it contains it."""
        condition: PathCondition | None = self
        while condition is not None and condition.decision is not None:
            if condition.decision[:2] == decision[:2]:
                return self
            condition = condition.outer
        return self._and_then(decision)

    def _and_then(self, decision: BranchDecision) -> PathCondition:
        """The conjunction of this condition and one more decision that it does not contain yet."""
        key = decision[:2]
        longer = self._more.get(key)
        if longer is None:
            longer = self._more[key] = PathCondition(self, decision)
        return longer

    def union(self, *conditions: PathCondition) -> PathCondition:
        """The decisions of all conditions, in linear time."""
        result = self
        known: set[tuple[Output, int]] = set()
        for condition in conditions:
            if not known and condition._leads_to(result):
                continue
            if not known and result._leads_to(condition):
                result = condition
                continue
            known = known or {decision[:2] for decision in result.decisions()}
            for decision in condition.decisions():
                if decision[:2] not in known:
                    known.add(decision[:2])
                    result = result._and_then(decision)
        return result

    def _leads_to(self, deeper: PathCondition) -> bool:
        """True if the decisions of this condition are a prefix of the decisions of `deeper`."""
        condition: PathCondition | None = deeper
        while condition is not None and condition.depth > self.depth:
            condition = condition.outer
        return condition is self


class PathConditions:
    """Path conditions of tensors, computed on demand for nodes that are added later.

    `put` sets a condition that is known from elsewhere, before any reader of the node is visited.
    """

    def __init__(self) -> None:
        self.none: Final = PathCondition()
        self._roles = OpRoles()
        self._of: dict[Node, PathCondition] = {}
        self._sources: dict[Output, tuple[Output, bool]] = {}

    def put(self, guard: PathCondition, *nodes: Node) -> None:
        """Set the path condition of nodes."""
        self._of.update(dict.fromkeys(nodes, guard))

    def forget(self, node: Node) -> None:
        """Recompute the path condition of a node whose edges changed."""
        del self._of[node]

    def of(self, x: Output) -> PathCondition:
        """The path condition of a tensor."""
        node = x[0]
        guard = self._of.get(node) or self.of_node(node)
        return guard.also(self.decision(x)) if self._roles[node.op] is SWITCH else guard

    def of_node(self, node: Node) -> PathCondition:
        """The condition under which all inputs of a node are live; for a Merge, any input."""
        condition = self._of.get(node)
        if condition is not None:
            return condition
        known, todo = self._of, [node]
        while todo:
            current = todo[-1]
            kind = self._roles[current.op]
            sources = _condition_sources(current, kind)
            unknown = [source for source in sources if source not in known]
            if unknown:
                todo += unknown
            elif kind is MERGE and sources:
                known[todo.pop()] = self._behind(current)
            else:
                known[todo.pop()] = self._all(current) if sources else self.none
        return known[node]

    def decision(self, x: Output) -> BranchDecision:
        """The decision of the Switch that outputs a tensor."""
        pred = x.node.inputs[1]
        source, negated = self.source(pred)
        sides = registry.output_count(x.node) or 2
        side = sides - 1 - x.port if negated else x.port
        return BranchDecision(source, side, sides, pred, x.port)

    def source(self, pred: Output) -> tuple[Output, bool]:
        """The origin of a predicate, and True if it is negated on the way."""
        trail: list[Output] = []
        current = pred
        while current not in self._sources:
            trail.append(current)
            before = _forwarded_input(current)
            if before is None:
                self._sources[current] = (current, False)
                break
            current = before
        origin, negated = self._sources[current]
        for tensor in reversed(trail):
            if tensor is not current and _is_negation(tensor.node):
                negated = not negated
            self._sources[tensor] = (origin, negated)
        return self._sources[pred]

    def rest(self, merge: Node, slot: int) -> list[BranchDecision]:
        """The decisions under which an input of a Merge is live, beyond those of the Merge
        itself.
        """
        return self.of(merge.inputs[slot]).beyond(self.of_node(merge))

    def alone(self, merge: Node, slot: int) -> bool:
        """True if no other input of a Merge can be live together with this one."""
        lists = [self.of(tensor).decisions() for tensor in merge.inputs]
        mine = {item.source: item.side for item in lists.pop(slot)}
        return all(
            any(mine.get(i.source, i.side) != i.side for i in decisions) for decisions in lists
        )

    def _all(self, node: Node) -> PathCondition:
        """The condition of a node that waits for all its inputs."""
        guards = dict.fromkeys(map(self.of, node.inputs))
        if node.controls:
            guards.update(dict.fromkeys(map(self.of_node, node.controls)))
        return self.none.union(*guards)

    def _behind(self, merge: Node) -> PathCondition:
        """The condition of a Merge: what its inputs share, if the rest is exhaustive."""
        lists = [self.of(tensor).decisions() for tensor in merge.inputs]
        shared = {decision[:2] for decision in lists[0]}.intersection(
            *({decision[:2] for decision in decisions} for decisions in lists)
        )
        common = [decision for decision in lists[0] if decision[:2] in shared]
        guard = reduce(PathCondition._and_then, common, self.none)
        rests = [
            [decision for decision in decisions if decision[:2] not in shared]
            for decisions in lists
        ]
        if _is_exhaustive(rests):
            return guard
        output = merge.output()
        return guard.also(BranchDecision(output, 0, 0, output, 0))


def _is_exhaustive(rests: Sequence[Sequence[BranchDecision]]) -> bool:
    """True if one of the lists of decisions holds for all predicate values.

    False beyond a bound on the number of cases.
    """
    todo, looked = [rests], 0
    while todo:
        case = todo.pop()
        looked += 1
        if not case or looked > _MAX_CASES:
            return False
        if any(not rest for rest in case):
            continue
        source, _, sides, _, _ = case[0][0]
        if not sides:
            return False
        for side in range(sides):
            todo.append(
                [
                    [decision for decision in rest if decision.source != source]
                    for rest in case
                    if all(decision.source != source or decision.side == side for decision in rest)
                ]
            )
    return True


def _forwarded_input(x: Output) -> Output | None:
    """The input that a node forwards to an output, possibly negated."""
    node = x.node
    op = lookup(node.op)
    if op is None or not node.inputs:
        return None
    if op.aliasing.is_identity:
        return node.inputs[x.port]
    constant = op.role is ENTER and bool(node.attrs.get("is_constant"))
    if constant or op.role is LOOP_COND or op.algebra.boolean_semantics == "not":
        return node.inputs[0]
    return None


def _condition_sources(node: Node, kind: Role | None) -> list[Node]:
    """The nodes that determine the condition of a node of a role.

    Empty for a node that is live in every iteration.
    """
    sources = [tensor[0] for tensor in node.inputs]
    if kind is MERGE:
        return sources if back_edge_of(node) is None else []
    if kind in _ALWAYS_LIVE_ROLES:
        return []
    sources += node.controls
    return sources


def _is_negation(node: Node) -> bool:
    op = lookup(node.op)
    return op is not None and op.algebra.boolean_semantics == "not"
