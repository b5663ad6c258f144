"""Recurrences: liveness of loop tokens per iteration, and of the Exits after the last one.

A recurrence is a token that arrives in iteration 0 if its `start` holds (in the outer frame), and
in iteration i+1 if its `back` held in iteration i. If a class of recurrences of one frame has a
formula B such that each `back` is `start & B`, then each token is its start and a symbol that the
class shares, its back edge symbol, by induction on the iteration. All recurrences of a frame are
assumed to form one class until that is disproved; then the classes are split and the assumption is
tested again. A token whose `back` does not imply its `start` has a separate symbol, shared only
with tokens whose start and back edge are equivalent.

An Exit is live if it was live in some iteration, and every loop ends. If a token of the loop is
live in its last iteration only together with the input of the Exit, the Exit is live where that
token starts. If the input in the first iteration does not depend on the loop, it is the condition.
Otherwise a symbol stands for it, shared by Exits with equal inputs: facts about one iteration are
never combined with facts about another.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cfgraph.analysis.deadness.formulas import FALSE, TRUE, Formulas, Symbol
from cfgraph.analysis.deadness.solver import Solver
from cfgraph.analysis.loops.frame import Frame
from cfgraph.ir.graph import Node

MAX_REFINEMENTS: Final = 100
# classes of a frame that are compared with the condition of an Exit
_MAX_TRIED: Final = 16


@dataclass(slots=True, eq=False)
class Recurrence:
    """One token of a loop. `turn` is the symbol of its class; `sources` feed the next iteration.

    An `invariant` token arrives in every iteration of a loop that it arrives in at all.
    """

    key: Hashable
    owner: Node
    frame: Frame
    sources: Sequence[Node]
    invariant: bool = False
    start: int = FALSE
    turn: int = FALSE
    bounded: bool = True


Equivalence = Callable[[Recurrence, Recurrence, dict[Hashable, int]], bool | None]


class Recurrences:
    """The recurrences of all frames, partitioned into classes that share a back edge symbol."""

    def __init__(self, formulas: Formulas, solver: Solver, back: Callable[[Node], int]) -> None:
        self.formulas = formulas
        self.solver = solver
        self.of: dict[Frame, list[Recurrence]] = {}
        self._back = back
        self._known: dict[Hashable, Recurrence] = {}
        self._owners: dict[int, Recurrence] = {}
        # of each frame, the first recurrence with a back edge, and the first without
        self._first: dict[tuple[Frame, bool], Recurrence] = {}
        # the disjunction of all back edges of a frame
        self._any_back: dict[Frame, int] = {}
        # computed when an Exit needs them, and dropped when a recurrence of the frame changes
        self._representatives: dict[Frame, list[Recurrence]] = {}
        self._starts: dict[Frame, dict[int, int]] = {}

    def value(self, recurrence: Recurrence) -> int:
        """The formula of a token in an arbitrary iteration."""
        return (
            self.formulas.all_of([recurrence.start, recurrence.turn])
            if recurrence.bounded
            else recurrence.turn
        )

    def back(self, recurrence: Recurrence) -> int:
        """The formula, in the current iteration, of the token of the next iteration."""
        frame, sources = recurrence.frame, recurrence.sources
        if sources is not frame.next_iterations:
            back = self.formulas.any_of(map(self._back, sources))
        elif frame in self._any_back:
            back = self._any_back[frame]
        else:
            back = self._any_back[frame] = self.formulas.any_of(map(self._back, sources))
        return self.formulas.all_of([back, recurrence.start]) if recurrence.invariant else back

    def drop_back_edges(self, frame: Frame) -> None:
        """Forget the condition of all back edges of a frame, since that of one may change."""
        self._any_back.pop(frame, None)

    def token(
        self,
        key: Hashable,
        owner: Node,
        frame: Frame,
        start: int,
        sources: Sequence[Node],
        *,
        invariant: bool = False,
    ) -> int:
        """The formula of a token that starts under `start`; a new key adds a recurrence."""
        recurrence = self._known.get(key)
        if recurrence is None:
            recurrence = self._known[key] = Recurrence(key, owner, frame, sources, invariant)
            self.of.setdefault(frame, []).append(recurrence)
            recurrence.turn = self._initial_symbol(recurrence)
            self._drop_summaries(frame)
        if recurrence.start != start:
            recurrence.start = start
            self._drop_summaries(frame)
        return self.value(recurrence)

    def _drop_summaries(self, frame: Frame) -> None:
        self._representatives.pop(frame, None)
        self._starts.pop(frame, None)

    def representatives(self, frame: Frame) -> list[Recurrence]:
        """One recurrence per class of a frame, up to a bound."""
        known = self._representatives.get(frame)
        if known is None:
            classes = {
                (recurrence.turn, recurrence.start): recurrence
                for recurrence in reversed(self.of.get(frame, ()))
            }
            known = self._representatives[frame] = list(classes.values())[::-1][:_MAX_TRIED]
        return known

    def starts(self, frame: Frame) -> Mapping[int, int]:
        """The formula of each back edge symbol of a frame in the first iteration."""
        known = self._starts.get(frame)
        if known is None:
            known = self._starts[frame] = {
                recurrence.turn: TRUE if recurrence.bounded else recurrence.start
                for recurrence in self.of.get(frame, ())
            }
        return known

    def in_next_iteration(self, formula: int, frame: Frame) -> int:
        """A formula as a condition on the iteration before; FALSE if it depends on a value that
        may change.
        """
        formulas = self.formulas
        cone = formulas.cone([formula], frame.depth)
        backs: dict[int, list[int]] = {at: [] for at in cone if at in formulas.symbols}
        for recurrence in self.of.get(frame, ()):
            if recurrence.turn in backs:
                backs[recurrence.turn].append(self.back(recurrence))
        if not all(backs.values()):
            return FALSE
        arriving = {turn: formulas.any_of(conditions) for turn, conditions in backs.items()}
        return formulas.substitute(formula, arriving, frame.depth)

    def _initial_symbol(self, recurrence: Recurrence) -> int:
        """The symbol assumed for all tokens of a frame that have, or do not have, a back edge."""
        key = recurrence.frame, bool(recurrence.sources)
        first = self._first.setdefault(key, recurrence)
        return self._new_back_edge_symbol(recurrence) if first is recurrence else first.turn

    def _new_back_edge_symbol(self, recurrence: Recurrence) -> int:
        symbol = Symbol(recurrence.owner.name, "turn", recurrence.frame.depth)
        turn = self.formulas.symbol(("turn", recurrence.key), symbol)
        self._owners[turn] = recurrence
        return turn

    # -- refinement ------------------------------------------------------------------------------

    def refine(self) -> list[Recurrence]:
        """Drop assumptions that do not hold; returns the recurrences that changed."""
        changed = [
            recurrence
            for members in self.of.values()
            for recurrence in members
            if self._drop_bound(recurrence)
        ]
        if changed:
            return changed
        for members in self.of.values():
            classes: dict[int, list[Recurrence]] = {}
            for recurrence in members:
                classes.setdefault(recurrence.turn, []).append(recurrence)
            for alike in classes.values():
                if len(alike) > 1:
                    changed.extend(self._split(alike))
        return changed

    def _drop_bound(self, recurrence: Recurrence) -> bool:
        if not recurrence.bounded or self.solver.implies(self.back(recurrence), recurrence.start):
            return False
        recurrence.bounded = False
        self._drop_summaries(recurrence.frame)
        return True

    def _split(self, alike: list[Recurrence]) -> list[Recurrence]:
        """Split a class; groups without the owner of its symbol get new symbols."""
        backs = {recurrence.key: self.back(recurrence) for recurrence in alike}
        alike = sorted(alike, key=lambda recurrence: self._rank(recurrence, backs[recurrence.key]))
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
            for recurrence in group:
                recurrence.turn = turn
        self._drop_summaries(alike[0].frame)
        return [recurrence for group in leaving for recurrence in group]

    def _rank(self, recurrence: Recurrence, back: int) -> tuple[int, int, str, str]:
        """Sort key: recurrences that are live more often come first, so that others join them."""
        bits = self.formulas.signature
        wide = -bits(recurrence.start).bit_count(), -bits(back).bit_count()
        return *wide, recurrence.owner.name, str(recurrence.key)

    def _grouped(
        self, alike: list[Recurrence], backs: dict[Hashable, int], fits: Equivalence
    ) -> list[list[Recurrence]]:
        """Group recurrences that `fits` relates to the first one of a group."""
        groups: list[list[Recurrence]] = []
        seen: dict[Hashable, list[Recurrence]] = {}
        for recurrence in alike:
            key = recurrence.start, backs[recurrence.key], recurrence.bounded
            group = seen.get(key)
            if group is None:
                fitting = (g for g in groups if fits(g[0], recurrence, backs))
                group = seen[key] = next(fitting, [])
                if not group:
                    groups.append(group)
            group.append(recurrence)
        return groups

    def _are_equal(self, a: Recurrence, b: Recurrence, backs: dict[Hashable, int]) -> bool | None:
        """True if both have equivalent starts and equivalent back edges."""
        if a.bounded != b.bounded or not self.solver.equal(a.start, b.start):
            return False
        return self.solver.equal(backs[a.key], backs[b.key])

    def _have_equivalent_back_edges(
        self, a: Recurrence, b: Recurrence, backs: dict[Hashable, int]
    ) -> bool | None:
        """True if their back edges are equivalent where both have started."""
        if not a.bounded or not b.bounded:
            return self._are_equal(a, b, backs)
        both = self.formulas.all_of
        return self.solver.equal(both([a.start, backs[b.key]]), both([b.start, backs[a.key]]))

    def _can_share_symbol(self, group: list[Recurrence], backs: dict[Hashable, int]) -> bool:
        """True if each back edge is the start and the disjunction of all back edges of the
        group.
        """
        if len({recurrence.start for recurrence in group}) == 1:
            return True
        formulas = self.formulas
        turn = formulas.any_of({backs[recurrence.key] for recurrence in group})
        return all(
            self.solver.equal(formulas.all_of([recurrence.start, turn]), backs[recurrence.key])
            for recurrence in group
        )

    def name_back_edge_symbols(self) -> None:
        """Name the symbol of each class after a Merge of the class."""
        symbols, named = self.formulas.symbols, set[int]()
        for members in self.of.values():
            for recurrence in members:
                if len(recurrence.owner.inputs) > 1 and recurrence.turn not in named:
                    named.add(recurrence.turn)
                    symbols[recurrence.turn] = replace(
                        symbols[recurrence.turn], name=recurrence.owner.name
                    )

    def widen(self) -> list[Recurrence]:
        """Widen: assign every recurrence its own symbol (sound, loses precision)."""
        everything = [recurrence for members in self.of.values() for recurrence in members]
        for recurrence in everything:
            recurrence.turn, recurrence.bounded = self._new_back_edge_symbol(recurrence), False
            self._drop_summaries(recurrence.frame)
        return everything


class ExitConditions:
    """Formulas of Exits, in the parent frame of their loop."""

    def __init__(self, formulas: Formulas, solver: Solver, loops: Recurrences) -> None:
        self.formulas = formulas
        self.solver = solver
        self.loops = loops
        self._alike: dict[tuple[Frame, int], list[int]] = {}
        self._kept: dict[tuple[Frame, int], int] = {}

    def summary(self, node: Node, frame: Frame, condition: int) -> int:
        """The formula of an Exit whose input has the formula `condition` in an iteration."""
        if self.formulas.depth(condition) < frame.depth and condition in (TRUE, FALSE):
            return condition
        members = self.loops.representatives(frame)
        for recurrence in members:
            if self._ends_with(recurrence, condition):
                return recurrence.start
        first = self._in_first_iteration(frame, condition)
        if self.formulas.depth(first) < frame.depth and self.solver.implies(condition, first):
            return first
        bounds = [
            recurrence.start
            for recurrence in members
            if recurrence.bounded
            and recurrence.start != TRUE
            and self.solver.implies(condition, recurrence.start)
        ]
        return self.formulas.all_of([self._symbol(node, frame, condition), *bounds])

    def _ends_with(self, recurrence: Recurrence, condition: int) -> bool:
        """True if the Exit's input is live in the last iteration of a token and in no other loop
        run.
        """
        if not recurrence.bounded or not self.solver.implies(condition, recurrence.start):
            return False
        last = self.formulas.all_of([self.loops.value(recurrence), -self.loops.back(recurrence)])
        return self.solver.implies(last, condition) is True

    def _in_first_iteration(self, frame: Frame, condition: int) -> int:
        """The formula in the first iteration, with the loop's tokens replaced by their starts."""
        return self.formulas.substitute(condition, self.loops.starts(frame), frame.depth)

    def _symbol(self, node: Node, frame: Frame, condition: int) -> int:
        """The symbol shared by all Exits of a frame with equivalent inputs."""
        representative = self._kept.get((frame, condition))
        if representative is None:
            alike = self._alike.setdefault((frame, self.formulas.signature(condition)), [])
            equal = [candidate for candidate in alike if self.solver.equal(candidate, condition)]
            representative = self._kept[frame, condition] = equal[0] if equal else condition
            if not equal:
                alike.append(condition)
        return self.formulas.symbol(
            ("exit", frame, representative), Symbol(node.name, "exit", frame.depth - 1)
        )
