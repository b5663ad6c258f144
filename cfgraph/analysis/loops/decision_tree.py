"""The path conditions of a Merge's inputs as a tree: do they exhaust, do they exclude each other?

The tree has a node per decision. The lists of decisions are n times as long where each input adds
one decision to those of the input before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property, reduce
from typing import Final

from cfgraph.analysis.loops.path_condition import BranchDecision, PathCondition
from cfgraph.ir.graph import Output

# bound on the cases of the test for exhaustive lists
_MAX_CASES: Final = 1000


class DecisionTree:
    """Path conditions below `prefix`, the decisions with which all of them start."""

    def __init__(self, conditions: Sequence[PathCondition]) -> None:
        self.prefix = reduce(PathCondition.shared_prefix, conditions)
        self._ends = Counter(conditions)
        self._children: dict[PathCondition, list[PathCondition]] = {self.prefix: []}
        for condition in conditions:
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
        return _is_exhaustive([condition.beyond(self.common) for condition in self._ends])

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


def _is_exhaustive(rests: Sequence[Sequence[BranchDecision]]) -> bool:
    """True if one of the lists of decisions holds for all predicate values.

    False beyond a bound on the number of cases.
    """
    todo, looked = [_without_partial_sources(rests)], 0
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


def _without_partial_sources(
    rests: Sequence[Sequence[BranchDecision]],
) -> Sequence[Sequence[BranchDecision]]:
    """The lists that do not depend on a predicate of which a side is in no list.

    For this side none of the others holds, so the result must be exhaustive without them.
    """
    users: dict[tuple[Output, int], set[int]] = {}
    sides: dict[Output, int] = {}
    for index, rest in enumerate(rests):
        for decision in rest:
            users.setdefault(decision[:2], set()).add(index)
            sides[decision.source] = decision.sides
    remaining = set(range(len(rests)))
    todo = list(sides)
    while todo:
        source = todo.pop()
        groups = [users.get((source, side), set()) for side in range(sides[source])]
        if all(groups):
            continue
        for index in set().union(*groups) & remaining:
            remaining.discard(index)
            for decision in rests[index]:
                users[decision[:2]].discard(index)
                todo.append(decision.source)
    return [rest for index, rest in enumerate(rests) if index in remaining]
