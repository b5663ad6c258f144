"""Loops: what is live in iteration i, by what was live in the iteration before.

A recurrence is a token that comes in at iteration 0 if its `start` holds (in the frame around),
and at iteration i+1 if its `back` held in iteration i. Recurrences of one frame with equal starts
and equal backs are live together, by induction on the iteration: so all are assumed to be the same
until that is disproved, the classes are split, and the assumption is tried again.

Where `back` implies `start`, which is assumed and tried likewise, the token is `start` and the
turn of the class; otherwise a symbol says whether it is live.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from cfgraph.analysis.deadness.formulas import FALSE, Formulas, Symbol
from cfgraph.analysis.deadness.proof import Prover
from cfgraph.analysis.frames import Frame
from cfgraph.ir.graph import Node

MAX_ROUNDS = 100


@dataclass(slots=True, eq=False)
class Recurrence:
    """One token of a loop. `turn` is the symbol of its class; `sources` feed the next iteration.

    What is `held` comes again in every iteration, as long as there is one, if it came in the first.
    """

    key: Hashable
    owner: Node
    frame: Frame
    sources: Sequence[Node]
    held: bool = False
    start: int = FALSE
    turn: int = FALSE
    bounded: bool = True


class Loops:
    """The recurrences of all frames, and their classes."""

    def __init__(self, formulas: Formulas, prover: Prover, back: Callable[[Node], int]) -> None:
        self.formulas = formulas
        self.prover = prover
        self.of: dict[Frame, list[Recurrence]] = {}
        self._back = back
        self._known: dict[Hashable, Recurrence] = {}

    def value(self, one: Recurrence) -> int:
        """The formula of the token, in any iteration."""
        return self.formulas.all_of([one.start, one.turn]) if one.bounded else one.turn

    def back(self, one: Recurrence) -> int:
        """The formula of the token of the next iteration, in this one."""
        back = self.formulas.any_of(self._back(node) for node in one.sources)
        return self.formulas.all_of([back, one.start]) if one.held else back

    def token(
        self,
        key: Hashable,
        owner: Node,
        frame: Frame,
        start: int,
        sources: Sequence[Node],
        *,
        held: bool = False,
    ) -> int:
        """The formula of a token of this start; its recurrence is made if it is new."""
        one = self._known.get(key)
        if one is None:
            one = self._known[key] = Recurrence(key, owner, frame, sources, held)
            self.of.setdefault(frame, []).append(one)
            one.turn = self._first_turn(one, start)
        one.start = start
        return self.value(one)

    def _first_turn(self, one: Recurrence, start: int) -> int:
        """The turn of those that start alike."""
        for other in self.of[one.frame]:
            alike = other is not one and bool(other.sources) == bool(one.sources)
            if alike and self.prover.equal(other.start, start):
                return other.turn
        return self._new_turn(one)

    def _new_turn(self, one: Recurrence) -> int:
        symbol = Symbol(one.owner.name, "turn", one.frame.depth)
        return self.formulas.symbol(("turn", one.key), symbol)

    # -- refinement ------------------------------------------------------------------------------

    def refine(self) -> list[Recurrence]:
        """Drop what was assumed and does not hold; returns the recurrences that changed."""
        changed = [one for members in self.of.values() for one in members if self._unbound(one)]
        if changed:
            return changed
        for members in self.of.values():
            classes: dict[int, list[Recurrence]] = {}
            for one in members:
                classes.setdefault(one.turn, []).append(one)
            for alike in classes.values():
                if len(alike) > 1:
                    changed.extend(self._split(alike))
        return changed

    def _unbound(self, one: Recurrence) -> bool:
        if not one.bounded or self.prover.implies(self.back(one), one.start):
            return False
        one.bounded = False
        return True

    def _split(self, alike: list[Recurrence]) -> list[Recurrence]:
        """Give those that differ from the first a turn of their own, or one that they share."""
        groups: list[tuple[Recurrence, int]] = []
        seen: dict[tuple[int, int, bool], int] = {}
        changed: list[Recurrence] = []
        for one in alike:
            back = self.back(one)
            key = (one.start, back, one.bounded)
            place = seen.get(key)
            if place is None:
                place = seen[key] = self._group(groups, one, back)
            if place:
                first = groups[place][0]
                one.turn = self._new_turn(first)
                changed.append(one)
        return changed

    def _group(self, groups: list[tuple[Recurrence, int]], one: Recurrence, back: int) -> int:
        equal = self.prover.equal
        for place, (other, its_back) in enumerate(groups):
            alike = one.bounded == other.bounded and equal(one.start, other.start)
            if alike and equal(back, its_back):
                return place
        groups.append((one, back))
        return len(groups) - 1

    def name_turns(self) -> None:
        """Let the symbol of a class have the name of the Merge that people know it by."""
        symbols, named = self.formulas.symbols, set[int]()
        for members in self.of.values():
            for one in members:
                if len(one.owner.inputs) > 1 and one.turn not in named:
                    named.add(one.turn)
                    symbols[one.turn] = replace(symbols[one.turn], name=one.owner.name)

    def give_up(self) -> list[Recurrence]:
        """Tell all recurrences apart, which assumes nothing."""
        everything = [one for members in self.of.values() for one in members]
        for one in everything:
            one.turn, one.bounded = self._new_turn(one), False
        return everything
