"""Transfer functions of the deadness analysis: one rule of the executor per role.

| node | live if | rule |
| --- | --- | --- |
| Merge | any input is live | `merge_condition` decides if a Merge fires dead |
| Switch | its inputs are live; an output, if it is selected | `_switch` |
| Enter, Exit | as in the parent frame; in some iteration | `_enter`, `_exit` |
| Recv | its message is live | `_recv` |
| ControlTrigger | all inputs arrive, live or dead | `ArrivalConditions` |
| other | all inputs are live | `visit` |

At the end of a loop tokens do not arrive at all, and a node that waits for one neither runs nor is
dead. Only ControlTriggers, Merges with control inputs, and Merges that read a Recv with control
inputs distinguish that from deadness, so `ArrivalConditions` are computed only for graphs that
contain one of them.
"""

from __future__ import annotations

from collections.abc import Collection

from cfgraph.analysis.deadness.formulas import FALSE, TRUE, Formulas, Symbol
from cfgraph.analysis.deadness.predicate_values import PredicateValues
from cfgraph.analysis.deadness.recurrences import ExitConditions, Recurrences
from cfgraph.analysis.deadness.solver import Solver
from cfgraph.analysis.loops.frame import Frames
from cfgraph.analysis.loops.happens_before import unique_sends_by_recv
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import CONTROL_TRIGGER, ENTER, EXIT, MERGE, NEXT_ITERATION, RECV, SWITCH, Role


def _needs_arrival_analysis(frames: Frames) -> bool:
    """True if a node of a graph with loops distinguishes dead inputs from missing ones."""
    if len(frames.all) == 1:
        return False
    return any(
        ROLES[node.op] is CONTROL_TRIGGER
        or (node.controls and (ROLES[node.op] is MERGE or _is_read_by_merge(node)))
        for node in frames.of
    )


def _is_read_by_merge(node: Node) -> bool:
    """True for a Recv with a Merge among its readers."""
    return ROLES[node.op] is RECV and any(ROLES[use.node.op] is MERGE for use in node.uses)


class ArrivalConditions:
    """Conditions under which all inputs of a node arrive, live or dead; `of` caches them."""

    def __init__(self, rules: TransferFunctions) -> None:
        self.rules = rules
        self.formulas, self.frames = rules.formulas, rules.frames
        self.of: dict[Node, int] = {}

    def visit(self, node: Node, role: Role | None) -> None:
        """Compute the arrival condition of a node."""
        self.of[node] = self._all(node, role)

    def _all(self, node: Node, role: Role | None) -> int:
        controls = [self.after(source) for source in node.controls]
        if role is MERGE:
            return self.formulas.all_of([*controls, self._any(node)])
        return self.formulas.all_of([*controls, *map(self._arrival_of, node.inputs)])

    def _any(self, node: Node) -> int:
        """The condition for a live input of a Merge, or for all the dead ones that it needs."""
        kinds = [
            None if tensor in self.rules.cut else ROLES[tensor[0].op] for tensor in node.inputs
        ]
        formulas = self.formulas
        if ENTER not in kinds and NEXT_ITERATION not in kinds:
            everything = formulas.all_of(map(self._arrival_of, node.inputs))
            return formulas.any_of(
                [*map(self.rules.merge_input_condition, node.inputs), everything]
            )
        enters = [i[0] for i, kind in zip(node.inputs, kinds, strict=True) if kind is ENTER]
        if not self.rules.is_loop_merge(kinds, enters):
            return formulas.any_of(
                [*map(self.rules.merge_input_condition, node.inputs), self._edge_arrives(node)]
            )
        start = formulas.any_of(self._node_arrival(enter) for enter in enters)
        back = [i[0] for i, kind in zip(node.inputs, kinds, strict=True) if kind is not ENTER]
        return self.rules.loops.token(("heard", node), node, self.frames.of[node], start, back)

    def _arrival_of(self, output: Output) -> int:
        return TRUE if output in self.rules.cut else self.after(output[0])

    def after(self, node: Node) -> int:
        """The condition under which a node's tokens reach its readers, live or dead."""
        role = ROLES[node.op]
        if role is NEXT_ITERATION and node in self.rules.live:
            return self.rules.next(node)
        if role is ENTER and node in self.frames.of:
            return self.rules.entered(("heard", node), node, self._node_arrival(node))
        return self._exit(node) if role is EXIT else self._node_arrival(node)

    def _node_arrival(self, node: Node) -> int:
        if node not in self.frames.of:
            return TRUE
        condition = self.of.get(node)
        return self._edge_arrives(node) if condition is None else condition

    def _exit(self, node: Node) -> int:
        """A dead Exit is delivered when its loop ends, if it is dead in the last iteration."""
        frame = self.frames.of.get(node)
        if frame is None:
            return TRUE
        entered = [self._node_arrival(enter) for enter in frame.enters]
        start = self.formulas.any_of(entered)
        turns = self.rules.loops.token(
            ("turns", frame.enters[0]), frame.enters[0], frame, start, frame.next_iterations
        )
        dead = self._edge_arrives(node)
        if self.rules.solver.implies(turns, self._node_arrival(node)):
            dead = self.formulas.all_of(entered)
        return self.formulas.any_of([self.rules.control(node), dead])

    def _edge_arrives(self, node: Node) -> int:
        depth = self.frames.of_outputs[node].depth
        return self.formulas.symbol(("arrives", node), Symbol(node.name, "arrives", depth))


class TransferFunctions:
    """Computes the formulas of nodes, sources before readers.

    `live` has the formula of a node: of its control edges, and of its outputs that are not in
    `ports`. A NextIteration has the formula of the iteration that it runs in.
    """

    def __init__(
        self,
        frames: Frames,
        solver: Solver,
        cut: Collection[Output],
        *,
        free_constants: bool = False,
    ) -> None:
        self.frames = frames
        self.solver = solver
        self.formulas: Formulas = solver.formulas
        self.cut = frozenset(cut)
        self.senders = unique_sends_by_recv(frames)
        self.values = PredicateValues(
            solver,
            frames,
            self.merge_input_condition,
            self.cut,
            self.senders,
            free_constants=free_constants,
        )
        self.live: dict[Node, int] = {}
        self.ports: dict[Output, int] = {}
        self.messages: dict[Output, int] = {}
        self.stale_switches: list[Node] = []  # Switches whose predicate values changed
        self.is_ordinary = not self.cut and not any(map(self._has_non_merge_reader, frames.of))
        self.loops = Recurrences(self.formulas, solver, self._fires)
        self.exits = ExitConditions(self.formulas, solver, self.loops)
        self.arrivals = ArrivalConditions(self) if _needs_arrival_analysis(frames) else None

    def _has_non_merge_reader(self, node: Node) -> bool:
        """True for a NextIteration with a reader that is not a Merge."""
        return ROLES[node.op] is NEXT_ITERATION and any(
            use.slot < 0 or ROLES[use.node.op] is not MERGE for use in node.uses
        )

    def _fires(self, node: Node) -> int:
        return self.live.get(node, FALSE)

    # -- edges -----------------------------------------------------------------------------------

    def data(self, output: Output) -> int:
        """The formula of a data edge."""
        if self.cut and output in self.cut:
            return TRUE
        if ROLES[output[0].op] is NEXT_ITERATION and output[0] in self.live:
            return self.next(output[0])
        formula = self.ports.get(output)
        return self.live.get(output[0], TRUE) if formula is None else formula

    def merge_input_condition(self, output: Output) -> int:
        """The formula of a data edge into a Merge.

        A live message counts even if the control inputs of its Recv are dead.
        """
        if self.messages and output in self.messages and output not in self.cut:
            return self.messages[output]
        return self.data(output)

    def control(self, node: Node) -> int:
        """The formula of a control edge."""
        if ROLES[node.op] is NEXT_ITERATION and node in self.live:
            return self.next(node)
        return self.live.get(node, TRUE)

    def next(self, node: Node) -> int:
        """The formula of a NextIteration for a reader that is not the Merge of its loop."""
        return self.loops.token(("next", node), node, self.frames.of[node], FALSE, [node])

    def of_output(self, output: Output) -> int:
        """The formula of an output, for a NextIteration in the iteration in which it runs."""
        formula = self.ports.get(output)
        if output in self.cut:
            return TRUE
        return self.live.get(output.node, TRUE) if formula is None else formula

    def inputs(self, node: Node) -> set[int]:
        """The formulas of all edges into a node."""
        ports, live = self.ports, self.live
        formulas = set[int]()
        if not self.is_ordinary:
            return {*map(self.data, node.inputs), *map(self.control, node.controls)}
        for tensor in node.inputs:
            formula = ports.get(tensor)
            formulas.add(live.get(tensor[0], TRUE) if formula is None else formula)
        if node.controls:
            formulas.update(map(self.control, node.controls))
        return formulas

    # -- nodes -----------------------------------------------------------------------------------

    def visit(self, node: Node) -> bool:
        """Compute the formulas of a node and return true if one of them changed."""
        arrivals = self.arrivals
        before = self.live.get(node), arrivals and arrivals.of.get(node)
        role = ROLES[node.op]
        runs = FALSE if role is MERGE else self.formulas.all_of(self.inputs(node))
        if arrivals is not None:
            arrivals.visit(node, role)
        ports_changed = False
        if role is SWITCH:
            ports_changed = self._switch(node, runs)
        elif role is MERGE:
            runs = self.merge_condition(node)
            for port in range(2):
                self.stale_switches += self.values.invalidate(Output(node, port))
        elif role is ENTER:
            runs = self._enter(node, runs)
        elif role is EXIT:
            runs = self._exit(node, runs)
        elif role is NEXT_ITERATION:
            self.loops.drop_back_edges(self.frames.of[node])
        elif role is CONTROL_TRIGGER:
            runs = TRUE if arrivals is None else arrivals.of[node]
        elif role is RECV:
            ports_changed = self._recv(node, runs)
        self.live[node] = runs
        return ports_changed or before != (runs, arrivals and arrivals.of.get(node))

    def _set_port(self, output: Output, formula: int) -> bool:
        before = self.ports.get(output)
        self.ports[output] = formula
        return before != formula

    def _switch(self, node: Node, runs: int) -> bool:
        """One output is live: the one that the Boolean or the index selects."""
        count = node.output_count
        last = (2 if count is None else count) - 1
        selector = node.inputs[1]
        if last == 0:
            return self._set_port(Output(node, 0), runs)
        dtype = selector.dtype
        if dtype is not None and dtype.is_integer and node.input_types:
            taken = [self.values.equals(selector, branch, node) for branch in range(last)]
        else:
            taken = [-self.values.truth(selector, node)]
        taken.append(-self.formulas.any_of(taken))
        changed = False
        for port, formula in enumerate(taken):
            live = self.formulas.all_of([runs, formula])
            changed |= self._set_port(Output(node, port), live)
        return changed

    def _recv(self, node: Node, runs: int) -> bool:
        """A dead message makes the output dead, but not the control edges."""
        send, output = self.senders.get(node), Output(node, 0)
        if send is not None and send in self.live:
            message = self.data(send.inputs[0])
        else:
            symbol = Symbol(node.name, "message", self.frames.of[node].depth)
            message = self.formulas.symbol(("message", node), symbol)
        changed = self._set_port(output, self.formulas.all_of([runs, message]))
        if not node.controls:
            return changed
        if self.arrivals is not None:
            message = self.formulas.all_of([message, self.arrivals.of[node]])
        before, self.messages[output] = self.messages.get(output), message
        return changed or before != message

    def _enter(self, node: Node, runs: int) -> int:
        """Live in the first iteration; for a constant Enter, in every iteration."""
        return self.entered(("enter", node), node, runs)

    def entered(self, key: tuple[str, Node], node: Node, start: int) -> int:
        frame = self.frames.of_outputs[node]
        if node.attr("is_constant"):
            return self.loops.token(key, node, frame, start, frame.next_iterations, invariant=True)
        return self.loops.token(key, node, frame, start, ())

    def _exit(self, node: Node, runs: int) -> int:
        """Live if the input is live in some iteration."""
        return self.exits.summary(node, self.frames.of[node], runs)

    # -- Merge -----------------------------------------------------------------------------------

    def merge_condition(self, node: Node) -> int:
        """The condition under which a Merge fires live; otherwise it fires dead, or not at all.

        Any live input suffices. A dead Enter that arrives first makes the Merge of a loop dead.
        Control inputs must arrive, live or dead.
        """
        live = self._joined(node)
        if self.arrivals is None or not node.controls:
            return live
        return self.formulas.all_of([live, *map(self.arrivals.after, node.controls)])

    def _joined(self, node: Node) -> int:
        inputs = node.inputs
        kinds = [None if tensor in self.cut else ROLES[tensor[0].op] for tensor in inputs]
        if ENTER not in kinds and NEXT_ITERATION not in kinds:
            return self.formulas.any_of(map(self.merge_input_condition, inputs))
        enters = [tensor[0] for tensor, kind in zip(inputs, kinds, strict=True) if kind is ENTER]
        starts = [self.start(enter) for enter in enters]
        if not self.is_loop_merge(kinds, enters):
            race = self._race(node, starts, self.frames.of[node].depth)
            return self.formulas.all_of(
                [self.formulas.any_of(map(self.merge_input_condition, inputs)), race]
            )
        start = self.formulas.any_of(starts)
        if len(set(starts)) > 1:
            race = self._race(node, starts, self.frames.of[node].depth - 1)
            start = self.formulas.all_of([start, race])
        back = [tensor[0] for tensor, kind in zip(inputs, kinds, strict=True) if kind is not ENTER]
        return self.loops.token(("merge", node), node, self.frames.of[node], start, back)

    def is_loop_merge(self, kinds: list[Role | None], enters: list[Node]) -> bool:
        """True for a Merge that reads only non-constant Enters and NextIterations."""
        alike = all(kind in (ENTER, NEXT_ITERATION) for kind in kinds)
        return alike and not any(enter.attr("is_constant") for enter in enters)

    def start(self, node: Node) -> int:
        """The condition under which an Enter runs in the parent frame, or an Exit in its loop."""
        edges = [*map(self.data, node.inputs), *map(self.control, node.controls)]
        return self.formulas.all_of(edges)

    def _race(self, node: Node, starts: list[int], depth: int) -> int:
        """The condition that no dead Enter is the first to arrive."""
        symbol = self.formulas.symbol(("race", node), Symbol(node.name, "race", depth))
        return self.formulas.any_of([self.formulas.all_of(starts), symbol])
