"""A path condition: an immutable list of branch decisions, outermost first.

Lists with the same history are one object, so the conditions of a graph form a tree. Each has a
jump pointer (Myers, "An applicative random-access stack", 1983), with which a decision or a common
prefix takes logarithmic time.
"""

from __future__ import annotations

from typing import NamedTuple

from cfgraph.ir.graph import Output


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
