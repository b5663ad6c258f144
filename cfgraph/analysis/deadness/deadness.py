"""Deadness: the condition under which each output and each control edge is live.

The conditions are formulas over the values of Switch predicates. Within an iteration they are
exact, with the predicates as free variables; across iterations they are sound, and complete up to
classes of tokens with equivalent back edges (`recurrences`). Loops are assumed to terminate, and
not to starve. Conditions with equal meaning compare equal in any form; beyond the bounds of
`solver` the answer is conservative, and `limits` reports it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from cfgraph.analysis.deadness import pretty
from cfgraph.analysis.deadness.formulas import TRUE, Formulas
from cfgraph.analysis.deadness.recurrences import MAX_REFINEMENTS, Recurrence
from cfgraph.analysis.deadness.solver import MAX_CONFLICTS, MAX_FORMULAS, Solver
from cfgraph.analysis.deadness.transfer import TransferFunctions
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.frames import valid_frames
from cfgraph.analysis.loops.happens_before import loop_aware_postorder
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import ENTER, EXIT, MERGE, NEXT_ITERATION
from cfgraph.limits import check_deadline

TokenSource = Output | Node
Predicate = int


class Deadness:
    """Liveness conditions of a graph, and comparisons between them.

    A token source is an Output, or a Node for its control edges. Two sources are compared within
    one iteration of one loop; sources in different frames are never equal.
    """

    def __init__(self, rules: TransferFunctions, limits: list[str]) -> None:
        self._rules = rules
        self._limits = limits
        self.frames: Frames = rules.frames
        self.formulas: Formulas = rules.formulas
        self.solver: Solver = rules.solver
        self._is_false: dict[Predicate, bool] = {}

    @property
    def limits(self) -> tuple[str, ...]:
        """Descriptions of all questions left undecided within the bounds."""
        count = self.solver.unknown
        if not count:
            return tuple(self._limits)
        message = (
            f"{count} quer{'ies' if count > 1 else 'y'} about predicates undecided within the bound"
        )
        return (*self._limits, message)

    # -- conditions ------------------------------------------------------------------------------

    def of_output(self, output: Output) -> Predicate:
        """The liveness condition of an output."""
        return self._rules.of_output(output)

    def of_control(self, node: Node) -> Predicate:
        """The liveness condition of a node's control edges."""
        return self._rules.live.get(node, TRUE)

    def predicate(self, source: TokenSource) -> Predicate:
        """The liveness condition of an output, or of a node's control edges."""
        return self.of_output(source) if isinstance(source, Output) else self.of_control(source)

    def runs(self, node: Node) -> Predicate:
        """The condition under which a node runs, in the frame that it runs in.

        The outputs of an Enter and an Exit are in another frame and have another condition.
        """
        if ROLES[node.op] in (ENTER, EXIT) and node in self.frames.of:
            return self._rules.start(node)
        return self.of_control(node)

    def inputs(self, node: Node) -> tuple[Predicate, ...]:
        """The conditions of all edges into a node, data edges first."""
        of = self.merge_input_condition if ROLES[node.op] is MERGE else self.of_output
        return (*map(of, node.inputs), *map(self.of_control, node.controls))

    def merge_input_condition(self, output: Output) -> Predicate:
        """The condition of an edge from an output into a Merge.

        It differs from the condition of the output only for a Recv with control inputs: a live
        message makes the edge live even if the control inputs are dead.
        """
        of = self.of_output(output)
        return of if output in self._rules.cut else self._rules.messages.get(output, of)

    def truth(self, tensor: Output) -> Predicate:
        """The formula under which a Boolean tensor is true."""
        return self._rules.values.truth(tensor, tensor.node)

    def equals(self, tensor: Output, constant: int) -> Predicate:
        """The formula under which a tensor equals a constant."""
        return self._rules.values.equals(tensor, constant, tensor.node)

    def in_next_iteration(self, predicate: Predicate, loop: Frame) -> Predicate:
        """A condition under which a predicate is certain to hold in the next iteration of a loop.

        It is false if that depends on a value that may change.
        """
        return self._rules.loops.in_next_iteration(predicate, loop)

    def adopt(self, node: Node, condition: Predicate, frame: Frame) -> None:
        """Record the liveness condition of a new node, and the frame that it runs in."""
        self._rules.live[node] = condition
        self.frames.of[node] = self.frames.of_outputs[node] = frame

    def _frame(self, source: TokenSource) -> Frame:
        node = source.node if isinstance(source, Output) else source
        return self.frames.of_outputs.get(node, self.frames.root)

    # -- comparisons -----------------------------------------------------------------------------

    def equal(self, a: TokenSource, b: TokenSource) -> bool:
        """True if both are proven to be live in the same runs and iterations."""
        if self._frame(a) is not self._frame(b):
            return self.never_live(a) and self.never_live(b)
        return self.solver.equal(self.predicate(a), self.predicate(b)) is True

    def implies(self, a: TokenSource, b: TokenSource) -> bool:
        """True if `b` is proven to be live wherever `a` is."""
        if self._frame(a) is not self._frame(b):
            return self.never_live(a)
        return self.solver.implies(self.predicate(a), self.predicate(b)) is True

    def can_both_live(self, a: TokenSource, b: TokenSource) -> bool:
        """False if the two are proven never to be live together."""
        both = self.formulas.all_of([self.predicate(a), self.predicate(b)])
        return self.solver.is_satisfiable(both) is not False

    def can_follow(self, a: Node, b: Node, loop: Frame) -> bool:
        """False if `b` is proven not to be live in the iteration of a loop after one with `a`."""
        formulas = self.formulas
        goes_on = formulas.any_of([self.of_output(node.inputs[0]) for node in loop.next_iterations])
        later = formulas.in_next_iteration(self.predicate(b), loop.depth)
        both = formulas.all_of([self.predicate(a), goes_on, later])
        return self.solver.is_satisfiable(both) is not False

    def always_live(self, source: TokenSource) -> bool:
        """True if a source is proven to be live in every run and every iteration."""
        return self.solver.always(self.predicate(source)) is True

    def never_live(self, source: TokenSource) -> bool:
        """True if a source is proven to be dead in every run."""
        return self.is_false(self.predicate(source))

    def never_runs(self, node: Node) -> bool:
        """True if a node is proven not to run in any run."""
        return self.is_false(self.runs(node))

    def is_false(self, condition: Predicate) -> bool:
        """True if a condition is proven not to hold in any run; asked once for each."""
        known = self._is_false.get(condition)
        if known is None:
            known = self._is_false[condition] = self.solver.is_satisfiable(condition) is False
        return known

    def has_mismatched_inputs(self, node: Node) -> bool:
        """True if the inputs of a node may differ in liveness."""
        first, *conditions = self.inputs(node) or (TRUE,)
        return any(self.solver.equal(first, condition) is not True for condition in conditions)

    def witness(
        self, *live: TokenSource, dead: Sequence[TokenSource] = ()
    ) -> dict[str, pretty.AssignedValue] | None:
        """Predicate values, by name, for which all of `live` are live and all of `dead` are dead.

        None if there are none, or if the solver found none within its bound.
        """
        conditions = [*map(self.predicate, live), *(-self.predicate(source) for source in dead)]
        return self.example(self.formulas.all_of(conditions))

    def example(self, formula: Predicate) -> dict[str, pretty.AssignedValue] | None:
        """Predicate values by name for which a formula holds, or None as for `witness`."""
        if not self.solver.is_satisfiable(formula):
            return None
        model = self.solver.model(formula)
        return None if model is None else pretty.assignment_values(self.formulas, formula, model)

    # -- text ------------------------------------------------------------------------------------

    def text(self, predicate: Predicate) -> str:
        """A condition as a formula: `P0 & ~P1`."""
        return pretty.format_formula(self.formulas, predicate)

    def describe(self, predicate: Predicate, subject: str = "") -> str:
        """A condition as a sentence: runs when `p` is true and `q` is false.

        `subject` is the name of the node that the sentence describes.
        """
        return pretty.describe_condition(self.formulas, predicate, subject)


def deadness(
    graph: Graph,
    nodes: Iterable[Node] | None = None,
    cut: Collection[Output] = (),
    *,
    max_formulas: int = MAX_FORMULAS,
    max_conflicts: int = MAX_CONFLICTS,
    free_constants: bool = False,
) -> Deadness:
    """Compute the liveness condition of every output and control edge.

    `nodes` restricts the analysis; tensors from other nodes and `cut` outputs (fed ones) are live.
    With `free_constants`, a constant predicate counts as one that may have any value, so that the
    conditional of it is one like all others.
    Raises InvalidInput for a graph with cycles or with loops that are not well nested.
    """
    graph_frames = valid_frames(graph, nodes, frozenset(cut))
    solver = Solver(Formulas(), max_formulas, max_conflicts)
    rules = TransferFunctions(graph_frames, solver, cut, free_constants=free_constants)
    limits: list[str] = []
    order = loop_aware_postorder(graph_frames, frozenset(cut), rules.senders)
    _solve_to_fixpoint(rules, order, limits)
    rules.loops.name_back_edge_symbols()
    return Deadness(rules, limits)


def _solve_to_fixpoint(rules: TransferFunctions, order: list[Node], limits: list[str]) -> None:
    """Visit all nodes, then revisit what depends on assumptions that were disproved."""
    for node in order:
        check_deadline()
        rules.visit(node)
    if len(rules.frames.all) == 1:
        return
    for _ in range(MAX_REFINEMENTS):
        check_deadline()
        changed = rules.loops.refine()
        if not changed:
            return
        _revisit(rules, order, changed)
    limits.append(f"loop tokens were widened after {MAX_REFINEMENTS} refinements")
    _revisit(rules, order, rules.loops.widen())


def _revisit(rules: TransferFunctions, order: list[Node], changed: Sequence[Recurrence]) -> None:
    """Visit, in order, the owners of changed recurrences and everything that depends on them."""
    owners = {recurrence.owner for recurrence in changed}
    stale = set(owners)
    for frame in {recurrence.frame: None for recurrence in changed}:
        stale.update(_exit_dependents(rules, frame))
    recvs = {send: recv for recv, send in rules.senders.items()}
    for node in order:
        if node not in stale:
            continue
        changed_here = rules.visit(node)
        stale.update(rules.stale_switches)
        rules.stale_switches.clear()
        if changed_here or node in owners:
            stale.update(use.node for use in node.uses)
            if ROLES[node.op] in (ENTER, NEXT_ITERATION):
                stale.update(_exit_dependents(rules, rules.frames.of_outputs[node]))
            if node in recvs:
                stale.add(recvs[node])


def _exit_dependents(rules: TransferFunctions, frame: Frame) -> Iterator[Node]:
    """Nodes that depend on the LoopCond of a frame: its Exits, and readers that observe dead
    Exits.
    """
    for leaving in frame.exits:
        yield leaving
        if rules.arrivals is not None:
            yield from (use.node for use in leaving.uses)


HOW_OFTEN: Final = ("always", "sometimes", "never")


class LivenessCondition(NamedTuple):
    """Frequency (`always`, `sometimes`, or `never`) and condition of a node's execution.

    Nodes of one `group` are live in the same runs and iterations; it is 0 for `always`.
    """

    how_often: str
    predicate: str
    group: int

    @property
    def text(self) -> str:
        """The formula of a node that runs sometimes, otherwise `always` or `never`."""
        return self.predicate if self.how_often == "sometimes" else self.how_often

    def matches(self, pattern: str) -> bool:
        """True if the frequency or the formula matches a glob."""
        return fnmatchcase(self.how_often, pattern) or fnmatchcase(self.predicate, pattern)


def liveness_conditions(graph: Graph) -> Mapping[Node, LivenessCondition]:
    """The liveness condition of each node.

    Raises InvalidInput for a graph with cycles.
    """
    analysis = deadness(graph)
    groups: dict[int, int] = {}
    conditions: dict[Node, LivenessCondition] = {}
    for node in graph:
        predicate = analysis.runs(node)
        if analysis.solver.always(predicate):
            conditions[node] = LivenessCondition("always", "true", 0)
            continue
        group = groups.setdefault(predicate, len(groups) + 1)
        how_often = "never" if analysis.solver.is_satisfiable(predicate) is False else "sometimes"
        conditions[node] = LivenessCondition(how_often, analysis.text(predicate), group)
    return conditions
