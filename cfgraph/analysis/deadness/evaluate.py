"""The rules of the executor as formulas: when a node is live, and when it hears at all.

A node is dead if any input is. Where loops end, tokens do not even come, and what waits for one
neither runs nor is dead; `hearing` knows of that.
"""

from __future__ import annotations

from collections.abc import Collection

from cfgraph.analysis.deadness.exits import Exits
from cfgraph.analysis.deadness.formulas import FALSE, TRUE, Formulas, Symbol
from cfgraph.analysis.deadness.hearing import Hearing, must_hear
from cfgraph.analysis.deadness.loops import Loops
from cfgraph.analysis.deadness.proof import Prover
from cfgraph.analysis.deadness.rendezvous import senders
from cfgraph.analysis.deadness.values import Values
from cfgraph.analysis.frames import Frames
from cfgraph.ir import registry
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.walk import Roles


class Rules:
    """Finds the formulas of nodes, sources first.

    `live` is the formula of a node: of its control edges, and of those outputs that are not in
    `ports`. That of a NextIteration says when it runs, in the iteration that it runs in.
    """

    def __init__(self, frames: Frames, prover: Prover, cut: Collection[Output]) -> None:
        self.frames = frames
        self.prover = prover
        self.formulas: Formulas = prover.formulas
        self.cut = frozenset(cut)
        self.roles = Roles()
        self.senders = senders(frames, self.roles)
        self.values = Values(prover, frames, self.offered, self.cut, self.senders)
        self.live: dict[Node, int] = {}
        self.ports: dict[Output, int] = {}
        self.messages: dict[Output, int] = {}
        self.void: list[Node] = []  # the Switches whose predicates are not what they were
        self.is_plain = not self.cut and not any(map(self._is_read_late, frames.of))
        self.loops = Loops(self.formulas, prover, self._runs)
        self.exits = Exits(self.formulas, prover, self.loops)
        self.heard = Hearing(self) if must_hear(frames, self.roles) else None

    def _is_read_late(self, node: Node) -> bool:
        """True for a NextIteration that others than Merges read."""
        roles = self.roles
        return roles[node.op] == "next_iteration" and any(
            use.slot < 0 or roles[use.node.op] != "merge" for use in node.uses
        )

    def _runs(self, node: Node) -> int:
        return self.live.get(node, FALSE)

    # -- edges -----------------------------------------------------------------------------------

    def data(self, output: Output) -> int:
        """The formula of a data edge."""
        if self.cut and output in self.cut:
            return TRUE
        if self.roles[output[0].op] == "next_iteration" and output[0] in self.live:
            return self.next(output[0])
        found = self.ports.get(output)
        return self.live.get(output[0], TRUE) if found is None else found

    def offered(self, output: Output) -> int:
        """The formula of a data edge into a Merge, for which a value counts, whoever brings it.

        That is so of a message to a Recv which is dead by its control inputs.
        """
        if self.messages and output in self.messages and output not in self.cut:
            return self.messages[output]
        return self.data(output)

    def control(self, node: Node) -> int:
        """The formula of a control edge."""
        if self.roles[node.op] == "next_iteration" and node in self.live:
            return self.next(node)
        return self.live.get(node, TRUE)

    def next(self, node: Node) -> int:
        """What a NextIteration hands to a reader that is no Merge of a loop."""
        return self.loops.token(("next", node), node, self.frames.of[node], FALSE, [node])

    def of(self, output: Output) -> int:
        """The formula of an output, for people: that of a NextIteration says when it runs."""
        found = self.ports.get(output)
        if output in self.cut:
            return TRUE
        return self.live.get(output.node, TRUE) if found is None else found

    def inputs(self, node: Node) -> set[int]:
        """The formulas of all edges into a node."""
        ports, live = self.ports, self.live
        found = set[int]()
        if not self.is_plain:
            return {*map(self.data, node.inputs), *map(self.control, node.controls)}
        for item in node.inputs:
            formula = ports.get(item)
            found.add(live.get(item[0], TRUE) if formula is None else formula)
        if node.controls:
            found.update(map(self.control, node.controls))
        return found

    # -- nodes -----------------------------------------------------------------------------------

    def visit(self, node: Node) -> bool:
        """Find the formulas of a node; returns whether one is not what it was."""
        heard = self.heard
        before = self.live.get(node), heard and heard.of.get(node)
        role = self.roles[node.op]
        runs = FALSE if role == "merge" else self.formulas.all_of(self.inputs(node))
        if heard is not None:
            heard.visit(node, role)
        ports_changed = False
        if role == "switch":
            ports_changed = self._switch(node, runs)
        elif role == "merge":
            runs = self._merge(node)
            self.void += self.values.renew(Output(node, 0))
        elif role == "enter":
            runs = self._enter(node, runs)
        elif role == "exit":
            runs = self._exit(node, runs)
        elif role == "trigger":
            runs = TRUE if heard is None else heard.of[node]
        elif role == "recv":
            ports_changed = self._recv(node, runs)
        self.live[node] = runs
        return ports_changed or before != (runs, heard and heard.of.get(node))

    def _set_port(self, output: Output, formula: int) -> bool:
        before = self.ports.get(output)
        self.ports[output] = formula
        return before != formula

    def _switch(self, node: Node, runs: int) -> bool:
        """One output is live: for a Boolean that of its value, else that of its number."""
        count = registry.output_count(node)
        last = (2 if count is None else count) - 1
        selector = node.inputs[1]
        if last == 0:
            return self._set_port(Output(node, 0), runs)
        if registry.input_types(node) and selector.dtype is not None and selector.dtype.is_integer:
            taken = [self.values.equals(selector, place, node) for place in range(last)]
        else:
            taken = [-self.values.truth(selector, node)]
        taken.append(-self.formulas.any_of(taken))
        changed = False
        for port, formula in enumerate(taken):
            live = self.formulas.all_of([runs, formula])
            changed |= self._set_port(Output(node, port), live)
        return changed

    def _recv(self, node: Node, runs: int) -> bool:
        """The message may be dead; then the output is, and the control edges are not."""
        send, output = self.senders.get(node), Output(node, 0)
        if send is not None and send in self.live:
            message = self.data(send.inputs[0])
        else:
            symbol = Symbol(node.name, "message", self.frames.of[node].depth)
            message = self.formulas.symbol(("message", node), symbol)
        changed = self._set_port(output, self.formulas.all_of([runs, message]))
        if not node.controls:
            return changed
        if self.heard is not None:
            message = self.formulas.all_of([message, self.heard.of[node]])
        before, self.messages[output] = self.messages.get(output), message
        return changed or before != message

    def _enter(self, node: Node, runs: int) -> int:
        """Live in the first iteration, or in all that there are."""
        return self.entered(("enter", node), node, runs)

    def entered(self, key: tuple[str, Node], node: Node, start: int) -> int:
        frame = self.frames.of_outputs[node]
        if node.attr("is_constant"):
            return self.loops.token(key, node, frame, start, frame.next_iterations, held=True)
        return self.loops.token(key, node, frame, start, ())

    def _exit(self, node: Node, runs: int) -> int:
        """Live if it was in some iteration."""
        return self.exits.summary(node, self.frames.of[node], runs)

    # -- Merge -----------------------------------------------------------------------------------

    def _merge(self, node: Node) -> int:
        """Live if any input is; a dead Enter may come first, and then it is not."""
        live = self._joined(node)
        if self.heard is None or not node.controls:
            return live
        return self.formulas.all_of([live, *map(self.heard.after, node.controls)])

    def _joined(self, node: Node) -> int:
        roles, inputs = self.roles, node.inputs
        kinds = ["" if item in self.cut else roles[item[0].op] for item in inputs]
        if "enter" not in kinds and "next_iteration" not in kinds:
            return self.formulas.any_of(map(self.offered, inputs))
        enters = [item[0] for item, kind in zip(inputs, kinds, strict=True) if kind == "enter"]
        starts = [self.start(enter) for enter in enters]
        if not self.is_loop(kinds, enters):
            race = self._race(node, starts, self.frames.of[node].depth)
            return self.formulas.all_of([self.formulas.any_of(map(self.offered, inputs)), race])
        start = self.formulas.any_of(starts)
        if len(set(starts)) > 1:
            race = self._race(node, starts, self.frames.of[node].depth - 1)
            start = self.formulas.all_of([start, race])
        back = [item[0] for item, kind in zip(inputs, kinds, strict=True) if kind != "enter"]
        return self.loops.token(("merge", node), node, self.frames.of[node], start, back)

    def is_loop(self, kinds: list[str], enters: list[Node]) -> bool:
        """True for a Merge of tokens that come in one iteration only, as that of every variable."""
        alike = all(kind in ("enter", "next_iteration") for kind in kinds)
        return alike and not any(enter.attr("is_constant") for enter in enters)

    def start(self, node: Node) -> int:
        """When an Enter runs, in the frame around; or an Exit, in its loop."""
        edges = [*map(self.data, node.inputs), *map(self.control, node.controls)]
        return self.formulas.all_of(edges)

    def _race(self, node: Node, starts: list[int], depth: int) -> int:
        """That no dead Enter is the first to come."""
        symbol = self.formulas.symbol(("race", node), Symbol(node.name, "race", depth))
        return self.formulas.any_of([self.formulas.all_of(starts), symbol])
