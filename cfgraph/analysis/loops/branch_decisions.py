"""Branch decisions, and the test whether lists of them are exhaustive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from cfgraph.ir.graph import Output
from cfgraph.limits import check_deadline

# bound on the cases of the test for exhaustive lists
_MAX_CASES: Final = 1000


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


def is_exhaustive(rests: Sequence[Sequence[BranchDecision]]) -> bool:
    """True if one of the lists of decisions holds for all predicate values.

    False beyond a bound on the number of cases.
    """
    todo, looked = [_without_partial_sources(rests)], 0
    while todo:
        check_deadline()
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
        check_deadline()
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
