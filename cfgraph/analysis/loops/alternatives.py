"""Path conditions of which any one may hold, as those of the inputs of a Merge.

They are a tree below the decisions with which all of them start. Where its conditions branch on the
same test, one pass answers the questions; else the branches of one predicate after the other are
tried, up to a bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property, reduce
from typing import Final

from cfgraph.analysis.loops.branch_decisions import BranchDecision, BranchTest, PathCondition
from cfgraph.limits import check_deadline

# bound on the cases of the test for exhaustive conditions
_MAX_CASES: Final = 1000


def whole(conditions: Sequence[PathCondition]) -> PathCondition | None:
    """The condition of which these have one branch each of one more test, or None."""
    decision, outer = conditions[0].decision, conditions[0].outer
    if decision is None or len(conditions) != decision.test.branches:
        return None
    branches = {
        other.decision.branch
        for other in conditions
        if other.outer is outer and other.decision and other.decision.test is decision.test
    }
    return outer if len(branches) == len(conditions) else None


class Alternatives:
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
        counts: Counter[tuple[BranchTest, int]] = Counter()
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
        return _is_exhaustive([condition.beyond(self.common) for condition in self._ends])

    def are_exclusive(self) -> bool:
        """True if no two of the conditions can hold together."""
        return all(map(self.excludes, self._ends))

    def excludes(self, condition: PathCondition) -> bool:
        """True if this one of the conditions and another one cannot hold together."""
        if self._is_separated:
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
                test, branch, _ = child.decision
                if condition.branch_of(test) in {None, branch}:
                    todo.append(child)
        return True

    @cached_property
    def _is_separated(self) -> bool:
        """True if the first difference of any two conditions excludes that both hold."""
        return self._is_decided and all(
            count == 1 and not self._children[end] for end, count in self._ends.items()
        )

    @cached_property
    def _is_decided(self) -> bool:
        """True if the first difference of any two conditions is the branch of one test."""
        return not any(end.is_contradictory for end in self._ends) and all(
            len({child.decision.test for child in children if child.decision}) < 2
            for children in self._children.values()
        )

    def _is_covered(self) -> bool:
        """True if the conditions branch to all sides of a test wherever they differ."""
        todo = [self.prefix]
        while todo:
            check_deadline()
            condition = todo.pop()
            if condition not in self._ends:
                if whole(self._children[condition]) is None:
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


def _is_exhaustive(rests: Sequence[Sequence[BranchDecision]]) -> bool:
    """True if one of the lists of decisions holds for all predicate values."""
    todo, looked = [_without_partial_tests(rests)], 0
    while todo:
        check_deadline()
        case = todo.pop()
        looked += 1
        if not case or looked > _MAX_CASES:
            return False
        if any(not rest for rest in case):
            continue
        test = case[0][0].test
        if not test.branches:
            return False
        for branch in range(test.branches):
            todo.append(
                [
                    [decision for decision in rest if decision.test is not test]
                    for rest in case
                    if all(known is not test or taken == branch for known, taken, _ in rest)
                ]
            )
    return True


def _without_partial_tests(
    rests: Sequence[Sequence[BranchDecision]],
) -> Sequence[Sequence[BranchDecision]]:
    """The lists that do not depend on a test of which a branch is in no list.

    For this branch none of the others holds, so the result must be exhaustive without them.
    """
    users: dict[tuple[BranchTest, int], set[int]] = {}
    for index, rest in enumerate(rests):
        for decision in rest:
            users.setdefault(decision[:2], set()).add(index)
    remaining = set(range(len(rests)))
    todo = list(dict.fromkeys(test for test, _ in users))
    while todo:
        check_deadline()
        test = todo.pop()
        groups = [users.get((test, branch), set()) for branch in range(test.branches)]
        if all(groups):
            continue
        for index in set().union(*groups) & remaining:
            remaining.discard(index)
            for decision in rests[index]:
                users[decision[:2]].discard(index)
                todo.append(decision.test)
    return [rest for index, rest in enumerate(rests) if index in remaining]
