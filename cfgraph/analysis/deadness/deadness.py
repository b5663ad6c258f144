"""Deadness: the condition under which each output and each control edge is live.

The conditions are formulas over the values of Switch predicates, exact within an iteration, where
the predicates are taken as free; across iterations they are sound, and complete up to classes of
tokens that go round together (`loops`). A loop is taken to end, and not to starve. What is equal
by meaning is found to be equal, however it is written; where the bounds of `proof` are reached,
an answer is the cautious one, and `limits` says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from cfgraph.analysis.deadness import words
from cfgraph.analysis.deadness.evaluate import Rules
from cfgraph.analysis.deadness.formulas import TRUE, Formulas
from cfgraph.analysis.deadness.loops import MAX_ROUNDS, Recurrence
from cfgraph.analysis.deadness.order import loops_first
from cfgraph.analysis.deadness.proof import MAX_CONFLICTS, MAX_FORMULAS, Prover
from cfgraph.analysis.frames import Frame, Frames, frames
from cfgraph.errors import InvalidInput
from cfgraph.ir.graph import Graph, Node, Output

Place = Output | Node
Predicate = int


class Deadness:
    """The predicates of a graph, and questions about them.

    A place is an Output, or a Node for its control edges. Questions about two places are about
    one iteration of one loop; places in different frames are never equal.
    """

    def __init__(self, rules: Rules, limits: list[str]) -> None:
        self._rules = rules
        self._limits = limits
        self.frames: Frames = rules.frames
        self.formulas: Formulas = rules.formulas
        self.prover: Prover = rules.prover

    @property
    def limits(self) -> tuple[str, ...]:
        """What could not be decided within the bounds, in words; empty if everything could."""
        count = self.prover.unknown
        if not count:
            return tuple(self._limits)
        told = f"{count} question{'s' * (count > 1)} about predicates left open at the bound"
        return (*self._limits, told)

    # -- predicates ------------------------------------------------------------------------------

    def of(self, output: Output) -> Predicate:
        """The predicate of an output."""
        return self._rules.of(output)

    def of_control(self, node: Node) -> Predicate:
        """The predicate of a node's control edges."""
        return self._rules.live.get(node, TRUE)

    def predicate(self, place: Place) -> Predicate:
        """The predicate of an output, or of a node's control edges."""
        return self.of(place) if isinstance(place, Output) else self.of_control(place)

    def runs(self, node: Node) -> Predicate:
        """The predicate of a node itself, in the frame that it runs in.

        For an Enter and an Exit it is not that of what they hand on, which is in another frame.
        """
        if self._rules.roles[node.op] in ("enter", "exit") and node in self.frames.of:
            return self._rules.start(node)
        return self.of_control(node)

    def inputs(self, node: Node) -> tuple[Predicate, ...]:
        """The predicates of all edges into a node, data first."""
        of = self.offered if self._rules.roles[node.op] == "merge" else self.of
        return (*map(of, node.inputs), *map(self.of_control, node.controls))

    def offered(self, output: Output) -> Predicate:
        """The predicate of an edge from this output into a Merge.

        It is that of the output, but for a Recv with control inputs: a message that is live counts
        even where they are dead.
        """
        of = self.of(output)
        return of if output in self._rules.cut else self._rules.messages.get(output, of)

    def _frame(self, place: Place) -> Frame:
        node = place.node if isinstance(place, Output) else place
        return self.frames.of_outputs.get(node, self.frames.root)

    # -- questions -------------------------------------------------------------------------------

    def equal(self, one: Place, other: Place) -> bool:
        """True if both are proven to be live in the same runs and iterations."""
        if self._frame(one) is not self._frame(other):
            return self.never_live(one) and self.never_live(other)
        return self.prover.equal(self.predicate(one), self.predicate(other)) is True

    def implies(self, one: Place, other: Place) -> bool:
        """True if `other` is proven to be live wherever `one` is."""
        if self._frame(one) is not self._frame(other):
            return self.never_live(one)
        return self.prover.implies(self.predicate(one), self.predicate(other)) is True

    def can_both_live(self, one: Place, other: Place) -> bool:
        """False if they are proven never to be live together."""
        both = self.formulas.all_of([self.predicate(one), self.predicate(other)])
        return self.prover.can_hold(both) is not False

    def always_live(self, place: Place) -> bool:
        """True if it is proven to be live in every run (and every iteration of its loop)."""
        return self.prover.always(self.predicate(place)) is True

    def never_live(self, place: Place) -> bool:
        """True if it is proven to be dead in every run."""
        return self.prover.can_hold(self.predicate(place)) is False

    def mismatched_inputs(self, node: Node) -> bool:
        """True if its inputs may differ in liveness: the rule of the second seed."""
        first, *others = self.inputs(node) or (TRUE,)
        return any(self.prover.equal(first, other) is not True for other in others)

    def witness(self, *live: Place, dead: Sequence[Place] = ()) -> dict[str, words.Value] | None:
        """Values of predicates, by name, for which all these are live, and those dead.

        None where there are none, or none were found.
        """
        wanted = [*map(self.predicate, live), *(-self.predicate(place) for place in dead)]
        return self.example(self.formulas.all_of(wanted))

    def example(self, formula: Predicate) -> dict[str, words.Value] | None:
        """Values of predicates, by name, for which a formula holds; None as for a witness."""
        if not self.prover.can_hold(formula):
            return None
        model = self.prover.model(formula)
        return None if model is None else words.values(self.formulas, formula, model)

    # -- words -----------------------------------------------------------------------------------

    def text(self, predicate: Predicate) -> str:
        """A predicate as a formula: `P0 & ~P1`."""
        return words.text(self.formulas, predicate)

    def describe(self, predicate: Predicate, subject: str = "") -> str:
        """A predicate in words: runs when `p` is true and `q` is false.

        `subject` is the name of the node that it is about.
        """
        return words.describe(self.formulas, predicate, subject)


def deadness(
    graph: Graph,
    nodes: Iterable[Node] | None = None,
    cut: Collection[Output] = (),
    *,
    max_formulas: int = MAX_FORMULAS,
    max_conflicts: int = MAX_CONFLICTS,
) -> Deadness:
    """Find the predicate of every output and control edge.

    `nodes` restricts the analysis to some nodes, `cut` holds the outputs that are fed; both are
    live. Raises InvalidInput where the graph has cycles, or loops that are not well nested.
    """
    found = frames(graph, nodes, frozenset(cut))
    _require_order(found)
    prover = Prover(Formulas(), max_formulas, max_conflicts)
    rules = Rules(found, prover, cut)
    limits: list[str] = []
    order = loops_first(found, frozenset(cut), rules.roles, rules.senders)
    _settle(rules, order, limits)
    rules.loops.name_turns()
    return Deadness(rules, limits)


def _require_order(found: Frames) -> None:
    found.require_valid()
    for cycle in found.cycles:
        names = " -> ".join(repr(node.name) for node in cycle[:3])
        message = f"nodes wait for each other in a cycle: {names}"
        raise InvalidInput(message, node=cycle[0], code="CFG109")


def _settle(rules: Rules, order: list[Node], limits: list[str]) -> None:
    """Find all formulas, and again what depends on assumptions that turned out wrong."""
    for node in order:
        rules.visit(node)
    if len(rules.frames.all) == 1:
        return
    for _ in range(MAX_ROUNDS):
        changed = rules.loops.refine()
        if not changed:
            return
        _revisit(rules, order, changed)
    limits.append(f"the tokens of the loops were told apart after {MAX_ROUNDS} rounds")
    _revisit(rules, order, rules.loops.give_up())


def _revisit(rules: Rules, order: list[Node], changed: Sequence[Recurrence]) -> None:
    """Visit again, in order, what is not what it was, and what depends on it."""
    owners = {one.owner for one in changed}
    stale = set(owners)
    for frame in {one.frame: None for one in changed}:
        stale.update(_leaving(rules, frame))
    hears = {send: recv for recv, send in rules.senders.items()}
    for node in order:
        if node not in stale:
            continue
        changed_here = rules.visit(node)
        stale.update(rules.void)
        rules.void.clear()
        if changed_here or node in owners:
            stale.update(use.node for use in node.uses)
            if rules.roles[node.op] in ("enter", "next_iteration"):
                stale.update(_leaving(rules, rules.frames.of_outputs[node]))
            if node in hears:
                stale.add(hears[node])


def _leaving(rules: Rules, frame: Frame) -> Iterator[Node]:
    """What depends on whether a loop goes on: its Exits, and whoever hears of their deadness."""
    for leaving in frame.exits:
        yield leaving
        if rules.heard is not None:
            yield from (use.node for use in leaving.uses)
