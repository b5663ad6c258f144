"""Path conditions: the branch decisions under which a tensor is live, read from a bare graph.

The path condition of a tensor is a list of decisions, outermost first; each is a predicate, as its
frame reads it, and the branch that it must select. A Switch adds a decision; a Merge removes those
that its inputs exhaust together; any other node has the decisions of all its inputs. Inside a loop
a path condition covers one iteration: the LoopCond of the loop is a decision there. After the Exits
it is the condition under which the loop was entered.

Predicates are identified by their origin: through Identity, LoopCond, LogicalNot, and constant
Enters. Lists with the same history are one object, so the conditions of a graph form a tree. Each
has a jump pointer (Myers, "An applicative random-access stack", 1983), with which a decision or a
common prefix takes logarithmic time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property, reduce
from typing import Final

from cfgraph.analysis.loops.branch_decisions import BranchDecision, is_exhaustive
from cfgraph.ir import registry
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import CONTROL_TRIGGER, ENTER, LOOP_COND, MERGE, SWITCH, Role
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.op import back_edge_of, lookup


class PathCondition:
    """A list of decisions; lists with the same history are one object.

    `is_contradictory` is true if two of its decisions select different sides of one source, and
    `undecided` is the number of its decisions without sides.
    """

    __slots__ = (
        "_jump",
        "_more",
        "_recent",
        "decision",
        "depth",
        "is_contradictory",
        "outer",
        "undecided",
    )

    def __init__(
        self, outer: PathCondition | None = None, decision: BranchDecision | None = None
    ) -> None:
        self.outer = outer
        self.decision = decision
        self.depth: int = 0
        self.undecided: int = 0
        self.is_contradictory: bool = False
        self._more: dict[tuple[Output, int], PathCondition] = {}
        self._jump: PathCondition = self
        # sides by source of the decisions that follow those of `_jump`
        self._recent: dict[Output, int] = {}
        if outer is not None and decision is not None:
            self._extend(outer, decision)

    def _extend(self, outer: PathCondition, decision: BranchDecision) -> None:
        self.depth = outer.depth + 1
        self.undecided = outer.undecided + (not decision.sides)
        contradicts = outer.side_of(decision.source) is not None
        self.is_contradictory = outer.is_contradictory or contradicts
        self._jump, middle = outer, outer._jump
        if outer.depth - middle.depth == middle.depth - middle._jump.depth:
            self._jump = middle._jump
            self._recent |= middle._recent
            self._recent |= outer._recent
        self._recent[decision.source] = decision.side

    def decisions(self) -> list[BranchDecision]:
        """The decisions, outermost first."""
        return self._after(0)

    def side_of(self, source: Output) -> int | None:
        """The side that the last decision about a source selects, or None without any."""
        condition = self
        while condition.depth:
            side = condition._recent.get(source)
            if side is not None:
                return side
            condition = condition._jump
        return None

    def contains(self, decision: BranchDecision) -> bool:
        """True if a decision with the same source and side is in the list."""
        if self.is_contradictory:
            return any(mine[:2] == decision[:2] for mine in self.decisions())
        return self.side_of(decision.source) == decision.side

    def shared_prefix(self, other: PathCondition) -> PathCondition:
        """The longest list that both lists start with."""
        depth = min(self.depth, other.depth)
        first, second = self._at(depth), other._at(depth)
        while first is not second:
            if first._jump is not second._jump:
                first, second = first._jump, second._jump
            else:
                assert first.outer is not None
                assert second.outer is not None
                first, second = first.outer, second.outer
        return first

    def starts_with(self, prefix: PathCondition) -> bool:
        """True if the list starts with the decisions of another."""
        return self.depth >= prefix.depth and self._at(prefix.depth) is prefix

    def beyond(self, outer: PathCondition) -> list[BranchDecision]:
        """The decisions that are not part of another condition, outermost first."""
        prefix = self.shared_prefix(outer)
        rest = self._after(prefix.depth)
        if prefix is outer or not rest:
            return rest
        return [decision for decision in rest if not outer.contains(decision)]

    def is_decided_beyond(self, outer: PathCondition) -> bool:
        """True if each decision that is not part of another condition has sides."""
        if self.starts_with(outer):
            return self.undecided == outer.undecided
        return all(decision.sides for decision in self.beyond(outer))

    def also(self, decision: BranchDecision) -> PathCondition:
        """This condition with one more decision, unless it contains it."""
        longer = self._more.get(decision[:2])
        if longer is not None:
            return longer
        return self if self.contains(decision) else self._and_then(decision)

    def _and_then(self, decision: BranchDecision) -> PathCondition:
        """The conjunction of this condition and one more decision that it does not contain yet."""
        key = decision[:2]
        longer = self._more.get(key)
        if longer is None:
            longer = self._more[key] = PathCondition(self, decision)
        return longer

    def union(self, *conditions: PathCondition) -> PathCondition:
        """The decisions of all conditions; those of this one first."""
        result = self
        for condition in conditions:
            check_deadline()
            prefix = result.shared_prefix(condition)
            if prefix is result:
                result = condition
            elif prefix is not condition:
                for decision in condition._after(prefix.depth):
                    result = result.also(decision)
        return result

    def _at(self, depth: int) -> PathCondition:
        """The first decisions, `depth` of them."""
        condition = self
        while condition.depth > depth:
            jump = condition._jump
            if jump.depth < depth:
                assert condition.outer is not None
                jump = condition.outer
            condition = jump
        return condition

    def _after(self, depth: int) -> list[BranchDecision]:
        """The decisions without the first `depth` ones."""
        decisions: list[BranchDecision] = []
        condition = self
        while condition.depth > depth:
            assert condition.decision is not None
            assert condition.outer is not None
            decisions.append(condition.decision)
            condition = condition.outer
        return decisions[::-1]


class DecisionTree:
    """Path conditions below `prefix`, the decisions with which all of them start."""

    def __init__(self, conditions: Sequence[PathCondition]) -> None:
        self.prefix = reduce(PathCondition.shared_prefix, conditions)
        self._ends = Counter(conditions)
        self._children: dict[PathCondition, list[PathCondition]] = {self.prefix: []}
        for condition in conditions:
            check_deadline()
            self._insert(condition)

    def _insert(self, condition: PathCondition) -> None:
        children = self._children
        path: list[PathCondition] = []
        while condition not in children:
            path.append(condition)
            assert condition.outer is not None
            condition = condition.outer
        for inner in reversed(path):
            children[condition].append(inner)
            children[inner] = []
            condition = inner

    @cached_property
    def common(self) -> PathCondition:
        """The decisions that all conditions contain."""
        counts: Counter[tuple[Output, int]] = Counter()
        for condition, count in self._counts().items():
            if condition.decision is not None and condition is not self.prefix:
                counts[condition.decision[:2]] += count
        total = self._ends.total()
        first = next(iter(self._ends))
        shared = [item for item in first.beyond(self.prefix) if counts[item[:2]] == total]
        return reduce(PathCondition.also, shared, self.prefix)

    @cached_property
    def is_exhaustive(self) -> bool:
        """True if one of the conditions holds for all values of the predicates.

        False beyond a bound on the number of cases.
        """
        if self._is_covered():
            return True
        if self._is_decided and self.common is self.prefix:
            return False
        return is_exhaustive([condition.beyond(self.common) for condition in self._ends])

    @cached_property
    def is_exclusive(self) -> bool:
        """True if no two of the conditions can hold together, by their first difference."""
        return self._is_decided and all(
            count == 1 and not self._children[end] for end, count in self._ends.items()
        )

    def excludes(self, condition: PathCondition) -> bool:
        """True if this one of the conditions and another one cannot hold together."""
        if self.is_exclusive:
            return True
        if self._ends[condition] > 1:
            return False
        todo = [self.prefix]
        while todo:
            check_deadline()
            inner = todo.pop()
            if inner in self._ends and inner is not condition:
                return False
            for child in self._children[inner]:
                assert child.decision is not None
                if condition.side_of(child.decision.source) in {None, child.decision.side}:
                    todo.append(child)
        return True

    @cached_property
    def _is_decided(self) -> bool:
        """True if the first difference of any two conditions is the side of one predicate."""
        return not any(end.is_contradictory for end in self._ends) and all(
            len({child.decision.source for child in children if child.decision}) < 2
            for children in self._children.values()
        )

    def _is_covered(self) -> bool:
        """True if the conditions branch to all sides of a predicate wherever they differ."""
        todo = [self.prefix]
        while todo:
            check_deadline()
            condition = todo.pop()
            if condition in self._ends:
                continue
            decisions = [child.decision for child in self._children[condition] if child.decision]
            sources = {decision.source for decision in decisions}
            if len(sources) != 1 or len(decisions) != decisions[0].sides:
                return False
            todo += self._children[condition]
        return True

    def _counts(self) -> dict[PathCondition, int]:
        """The number of conditions that start with each node of the tree."""
        order = [self.prefix]
        for condition in order:
            order += self._children[condition]
        counts: dict[PathCondition, int] = {}
        for condition in reversed(order):
            inner = sum(counts[child] for child in self._children[condition])
            counts[condition] = self._ends[condition] + inner
        return counts


# roles of nodes that change a path condition
DECIDING_ROLES: Final = (SWITCH, MERGE)
# roles of nodes that are live whatever they read
_ALWAYS_LIVE_ROLES: Final = (CONTROL_TRIGGER, ENTER)


class PathConditions:
    """Path conditions of tensors, computed on demand for nodes that are added later.

    `put` sets a condition that is known from elsewhere, before any reader of the node is visited.
    """

    def __init__(self) -> None:
        self.none: Final = PathCondition()
        self._of: dict[Node, PathCondition] = {}
        self._sources: dict[Output, tuple[Output, bool]] = {}
        self._trees: dict[Node, DecisionTree] = {}

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
        return guard.also(self.decision(x)) if ROLES[node.op] is SWITCH else guard

    def of_node(self, node: Node) -> PathCondition:
        """The condition under which all inputs of a node are live; for a Merge, any input."""
        condition = self._of.get(node)
        if condition is not None:
            return condition
        known, todo = self._of, [node]
        while todo:
            check_deadline()
            current = todo[-1]
            kind = ROLES[current.op]
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
            check_deadline()
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

    def shared_by_inputs(self, merge: Node) -> PathCondition:
        """The decisions that the conditions of all inputs of a Merge contain."""
        return self._tree(merge).common

    def alone(self, merge: Node, slot: int) -> bool:
        """True if no other input of a Merge can be live together with this one."""
        return self._tree(merge).excludes(self.of(merge.inputs[slot]))

    def _tree(self, merge: Node) -> DecisionTree:
        tree = self._trees.get(merge)
        if tree is None:
            tree = self._trees[merge] = DecisionTree([self.of(tensor) for tensor in merge.inputs])
        return tree

    def _all(self, node: Node) -> PathCondition:
        """The condition of a node that waits for all its inputs."""
        guards = dict.fromkeys(map(self.of, node.inputs))
        if node.controls:
            guards.update(dict.fromkeys(map(self.of_node, node.controls)))
        return self.none.union(*guards)

    def _behind(self, merge: Node) -> PathCondition:
        """The condition of a Merge: what its inputs share, if the rest is exhaustive."""
        tree = self._tree(merge)
        if tree.is_exhaustive:
            return tree.common
        output = merge.output()
        return tree.common.also(BranchDecision(output, 0, 0, output, 0))


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
