"""Recurrences: liveness of loop tokens per iteration, and of the Exits after the last one.

A recurrence is a token that arrives in iteration 0 if its `start` holds (in the outer frame), and
in iteration i+1 if its `back` held in iteration i. If a class of recurrences of one frame has a
formula B such that each `back` is `start & B`, then each token is its start and a symbol that the
class shares, its back edge symbol, by induction on the iteration. All recurrences of a frame are
assumed to form one class until that is disproved; then the classes are split and the assumption is
tested again. A token whose `back` does not imply its `start` has a symbol of its own, shared only
with tokens whose start and back edge are equivalent.

An Exit is live if it was live in some iteration, and every loop ends. If a token of the loop is
live in its last iteration only together with the input of the Exit, the Exit is live where that
token starts. If the input in the first iteration does not depend on the loop, it is the condition.
Otherwise a symbol stands for it, shared by Exits with equal inputs: facts about one iteration are
never combined with facts about another.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cfgraph.analysis.deadness.formulas import FALSE, TRUE, Formulas, Symbol
from cfgraph.analysis.deadness.solver import Solver
from cfgraph.analysis.loops.frames import Frame
from cfgraph.ir.graph import Node

MAX_REFINEMENTS: Final = 100


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


Equivalence = Callable[[Recurrence, Recurrence, dict[Hashable, int]], bool | None]


class Recurrences:
    """The recurrences of all frames, and their classes."""

    def __init__(self, formulas: Formulas, solver: Solver, back: Callable[[Node], int]) -> None:
        self.formulas = formulas
        self.solver = solver
        self.of: dict[Frame, list[Recurrence]] = {}
        self._back = back
        self._known: dict[Hashable, Recurrence] = {}
        self._owners: dict[int, Recurrence] = {}

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
            one.turn = self._initial_symbol(one)
        one.start = start
        return self.value(one)

    def _initial_symbol(self, one: Recurrence) -> int:
        """The turn that is assumed for all tokens of a frame that can come again, or cannot."""
        for other in self.of[one.frame]:
            if other is not one and bool(other.sources) == bool(one.sources):
                return other.turn
        return self._new_back_edge_symbol(one)

    def _new_back_edge_symbol(self, one: Recurrence) -> int:
        symbol = Symbol(one.owner.name, "turn", one.frame.depth)
        turn = self.formulas.symbol(("turn", one.key), symbol)
        self._owners[turn] = one
        return turn

    # -- refinement ------------------------------------------------------------------------------

    def refine(self) -> list[Recurrence]:
        """Drop what was assumed and does not hold; returns the recurrences that changed."""
        changed = [one for members in self.of.values() for one in members if self._drop_bound(one)]
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

    def _drop_bound(self, one: Recurrence) -> bool:
        if not one.bounded or self.solver.implies(self.back(one), one.start):
            return False
        one.bounded = False
        return True

    def _split(self, alike: list[Recurrence]) -> list[Recurrence]:
        """Give those that differ from whom the turn is named by one of their own, or one that they
        share.
        """
        backs = {one.key: self.back(one) for one in alike}
        alike = sorted(alike, key=lambda one: self._rank(one, backs[one.key]))
        groups: list[list[Recurrence]] = []
        for group in self._grouped(alike, backs, self._have_equivalent_back_edges):
            if self._can_share_symbol(group, backs):
                groups.append(group)
            else:
                groups.extend(self._grouped(group, backs, self._are_equal))
        owner = self._owners[alike[0].turn]
        leaving = [group for group in groups if owner not in group]
        for group in leaving:
            turn = self._new_back_edge_symbol(group[0])
            for one in group:
                one.turn = turn
        return [one for group in leaving for one in group]

    def _rank(self, one: Recurrence, back: int) -> tuple[int, int, str, str]:
        """Those that are live most come first: whoever fits several groups joins the widest."""
        bits = self.formulas.signature
        wide = -bits(one.start).bit_count(), -bits(back).bit_count()
        return *wide, one.owner.name, str(one.key)

    def _grouped(
        self, alike: list[Recurrence], backs: dict[Hashable, int], fits: Equivalence
    ) -> list[list[Recurrence]]:
        """Put each where it fits the first of a group."""
        groups: list[list[Recurrence]] = []
        seen: dict[Hashable, list[Recurrence]] = {}
        for one in alike:
            key = one.start, backs[one.key], one.bounded
            group = seen.get(key)
            if group is None:
                found = (g for g in groups if fits(g[0], one, backs))
                group = seen[key] = next(found, [])
                if not group:
                    groups.append(group)
            group.append(one)
        return groups

    def _are_equal(
        self, one: Recurrence, other: Recurrence, backs: dict[Hashable, int]
    ) -> bool | None:
        """True if both start alike and come again alike."""
        if one.bounded != other.bounded or not self.solver.equal(one.start, other.start):
            return False
        return self.solver.equal(backs[one.key], backs[other.key])

    def _have_equivalent_back_edges(
        self, one: Recurrence, other: Recurrence, backs: dict[Hashable, int]
    ) -> bool | None:
        """True if they come again alike where both have started."""
        if not one.bounded or not other.bounded:
            return self._are_equal(one, other, backs)
        both = self.formulas.all_of
        return self.solver.equal(
            both([one.start, backs[other.key]]), both([other.start, backs[one.key]])
        )

    def _can_share_symbol(self, group: list[Recurrence], backs: dict[Hashable, int]) -> bool:
        """True if each comes again where it has started and any of the group comes again."""
        if len({one.start for one in group}) == 1:
            return True
        formulas = self.formulas
        turn = formulas.any_of({backs[one.key] for one in group})
        return all(
            self.solver.equal(formulas.all_of([one.start, turn]), backs[one.key]) for one in group
        )

    def name_back_edge_symbols(self) -> None:
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
            one.turn, one.bounded = self._new_back_edge_symbol(one), False
        return everything


_MAX_TRIED = 16


class ExitConditions:
    """Finds the formulas of Exits, in the frame around their loop."""

    def __init__(self, formulas: Formulas, solver: Solver, loops: Recurrences) -> None:
        self.formulas = formulas
        self.solver = solver
        self.loops = loops
        self._alike: dict[tuple[Frame, int], list[int]] = {}
        self._kept: dict[tuple[Frame, int], int] = {}

    def summary(self, node: Node, frame: Frame, inside: int) -> int:
        """The formula of an Exit, from that of its input in an iteration."""
        if self.formulas.depth(inside) < frame.depth and inside in (TRUE, FALSE):
            return inside
        members = self._members(frame)
        for one in members:
            if self._ends_with(one, inside):
                return one.start
        first = self._in_first_iteration(frame, inside)
        if self.formulas.depth(first) < frame.depth and self.solver.implies(inside, first):
            return first
        bounds = [
            one.start
            for one in members
            if one.bounded and one.start != TRUE and self.solver.implies(inside, one.start)
        ]
        return self.formulas.all_of([self._symbol(node, frame, inside), *bounds])

    def _members(self, frame: Frame) -> list[Recurrence]:
        """A recurrence of each class, some of them."""
        classes = {(one.turn, one.start): one for one in reversed(self.loops.of.get(frame, ()))}
        return list(classes.values())[::-1][:_MAX_TRIED]

    def _ends_with(self, one: Recurrence, inside: int) -> bool:
        """True if the last iteration of a token is one of the Exit's, and it has no others."""
        if not one.bounded or not self.solver.implies(inside, one.start):
            return False
        last = self.formulas.all_of([self.loops.value(one), -self.loops.back(one)])
        return self.solver.implies(last, inside) is True

    def _in_first_iteration(self, frame: Frame, inside: int) -> int:
        """The formula in the first iteration, as far as tokens of the loop go."""
        starts = {
            one.turn: TRUE if one.bounded else one.start for one in self.loops.of.get(frame, ())
        }
        return self.formulas.substitute(inside, starts, frame.depth)

    def _symbol(self, node: Node, frame: Frame, inside: int) -> int:
        """The symbol of all Exits of a frame whose inputs are equal to this one."""
        kept = self._kept.get((frame, inside))
        if kept is None:
            alike = self._alike.setdefault((frame, self.formulas.signature(inside)), [])
            found = [other for other in alike if self.solver.equal(other, inside)]
            kept = self._kept[frame, inside] = found[0] if found else inside
            if not found:
                alike.append(inside)
        return self.formulas.symbol(
            ("exit", frame, kept), Symbol(node.name, "exit", frame.depth - 1)
        )
