"""What a loop hands out: an Exit is live if it was in some iteration, and every loop ends.

If some token of the loop is live in its last iteration only together with the Exit's input, then
the Exit is live where that token starts. If the input in the first iteration says nothing of the
loop, that is it. Otherwise a symbol stands for it, the same for inputs that are equal: what is
true of one iteration is never mixed with what is true of another.
"""

from __future__ import annotations

from cfgraph.analysis.deadness.formulas import FALSE, TRUE, Formulas, Symbol
from cfgraph.analysis.deadness.loops import Loops, Recurrence
from cfgraph.analysis.deadness.proof import Prover
from cfgraph.analysis.frames import Frame
from cfgraph.ir.graph import Node

_MAX_TRIED = 16


class Exits:
    """Finds the formulas of Exits, in the frame around their loop."""

    def __init__(self, formulas: Formulas, prover: Prover, loops: Loops) -> None:
        self.formulas = formulas
        self.prover = prover
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
        first = self._at_first(frame, inside)
        if self.formulas.depth(first) < frame.depth and self.prover.implies(inside, first):
            return first
        bounds = [
            one.start
            for one in members
            if one.bounded and one.start != TRUE and self.prover.implies(inside, one.start)
        ]
        return self.formulas.all_of([self._symbol(node, frame, inside), *bounds])

    def _members(self, frame: Frame) -> list[Recurrence]:
        """A recurrence of each class, some of them."""
        classes = {(one.turn, one.start): one for one in reversed(self.loops.of.get(frame, ()))}
        return list(classes.values())[::-1][:_MAX_TRIED]

    def _ends_with(self, one: Recurrence, inside: int) -> bool:
        """True if the last iteration of a token is one of the Exit's, and it has no others."""
        if not one.bounded or not self.prover.implies(inside, one.start):
            return False
        last = self.formulas.all_of([self.loops.value(one), -self.loops.back(one)])
        return self.prover.implies(last, inside) is True

    def _at_first(self, frame: Frame, inside: int) -> int:
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
            found = [other for other in alike if self.prover.equal(other, inside)]
            kept = self._kept[frame, inside] = found[0] if found else inside
            if not found:
                alike.append(inside)
        return self.formulas.symbol(
            ("exit", frame, kept), Symbol(node.name, "exit", frame.depth - 1)
        )
