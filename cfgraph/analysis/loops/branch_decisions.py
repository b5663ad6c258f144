"""Branch decisions and their conjunctions, of which equal ones are one object.

A decision is a test, a predicate that selects one of several branches, and the branch that it must
select. A path condition is a list of decisions that all must hold, outer ones first: the predicate
of each can be read where those before it hold. The conditions of an analysis form a tree with a
jump pointer in each (Myers, "An applicative random-access stack", 1983), with which a decision or a
common prefix takes logarithmic time. The list of a condition is the first that had its decisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from cfgraph.ir.graph import Output
from cfgraph.limits import check_deadline


@dataclass(slots=True, eq=False)
class BranchTest:
    """A predicate, by its origin, and the number of branches that it selects from.

    0 branches stand for an unknown condition: that `source` is live.
    """

    source: Output
    branches: int


class BranchDecision(NamedTuple):
    """The decision that a test selects a branch.

    `output` is a tensor with this decision: an output of a Switch, or of a node whose condition is
    unknown.
    """

    test: BranchTest
    branch: int
    output: Output

    @property
    def pred(self) -> Output:
        """The predicate, as the frame of the Switch reads it."""
        return self.output.node.inputs[1]


class PathCondition:
    """A list of decisions, without repetition.

    `is_contradictory` is true if two of its decisions select different branches of one test, and
    `undecided` is the number of its decisions that no predicate makes.
    """

    __slots__ = (
        "_all",
        "_jump",
        "_key",
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
        # the conditions of the tree, by a hash of their decisions in any order
        self._all: dict[int, PathCondition] = {} if outer is None else outer._all
        self._key: int = 0
        self._jump: PathCondition = self
        # branches by test of the decisions that follow those of `_jump`
        self._recent: dict[BranchTest, int] = {}
        if outer is not None and decision is not None:
            self._extend(outer, decision)

    def _extend(self, outer: PathCondition, decision: BranchDecision) -> None:
        test, branch, _ = decision
        self.depth = outer.depth + 1
        self.undecided = outer.undecided + (not test.branches)
        self.is_contradictory = outer.is_contradictory or outer.branch_of(test) is not None
        self._key = outer._key ^ hash((test, branch))
        self._jump, middle = outer, outer._jump
        if outer.depth - middle.depth == middle.depth - middle._jump.depth:
            self._jump = middle._jump
            self._recent |= middle._recent
            self._recent |= outer._recent
        self._recent[test] = branch

    def decisions(self) -> list[BranchDecision]:
        """The decisions, outermost first."""
        return self._after(0)

    def branch_of(self, test: BranchTest) -> int | None:
        """The branch that the last decision about a test selects, or None without any."""
        condition = self
        while condition.depth:
            branch = condition._recent.get(test)
            if branch is not None:
                return branch
            condition = condition._jump
        return None

    def contains(self, decision: BranchDecision) -> bool:
        """True if a decision for the same branch is in the list."""
        if self.is_contradictory:
            return any(mine[:2] == decision[:2] for mine in self.decisions())
        return self.branch_of(decision.test) == decision.branch

    def excludes(self, other: PathCondition) -> bool:
        """True if a decision of another condition contradicts this one."""
        return any(
            self.branch_of(test) not in {None, branch}
            for test, branch, _ in other._after(self.shared_prefix(other).depth)
        )

    def shared_prefix(self, other: PathCondition) -> PathCondition:
        """The longest list that both lists start with."""
        depth = min(self.depth, other.depth)
        first, second = self.first(depth), other.first(depth)
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
        return self.depth >= prefix.depth and self.first(prefix.depth) is prefix

    def beyond(self, outer: PathCondition) -> list[BranchDecision]:
        """The decisions that are not part of another condition, outermost first."""
        prefix = self.shared_prefix(outer)
        rest = self._after(prefix.depth)
        if prefix is outer or not rest:
            return rest
        return [decision for decision in rest if not outer.contains(decision)]

    def implies(self, other: PathCondition) -> bool:
        """True if the decisions of another condition are all in this one."""
        return self is other or not other.beyond(self)

    def is_decided_beyond(self, outer: PathCondition) -> bool:
        """True if a predicate makes each decision that is not part of another condition."""
        if self.starts_with(outer):
            return self.undecided == outer.undecided
        return all(decision.test.branches for decision in self.beyond(outer))

    def also(self, decision: BranchDecision) -> PathCondition:
        """This condition with one more decision, unless it contains it or it cannot fail."""
        key = self._key ^ hash(decision[:2])
        known = self._all.get(key)
        if known is not None and known._is_union(self, decision):
            return known
        if decision.test.branches == 1 or self.contains(decision):
            return self
        longer = self._all[key] = PathCondition(self, decision)
        return longer

    def _is_union(self, outer: PathCondition, decision: BranchDecision) -> bool:
        """True if the condition has the decisions of another, this one, and no more."""
        if self.outer is outer:
            return self.decision is not None and self.decision[:2] == decision[:2]
        return self.depth == outer.depth + 1 and self.contains(decision) and self.implies(outer)

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

    def without(self, test: BranchTest) -> PathCondition:
        """This condition without the decisions about a test."""
        if self.branch_of(test) is None:
            return self
        rest = [decision for decision in self.decisions() if decision.test is not test]
        return reduce(PathCondition.also, rest, self.first(0))

    def first(self, depth: int) -> PathCondition:
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
