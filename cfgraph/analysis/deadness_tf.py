"""Deadness by TensorFlow's own rules, to compare with: what its clustering would take for equal.

Predicates are equal only in form; a symbol is whatever tensor is wired to a Switch. Loops are tried
optimistically, all variables of a loop taken to be live together, and again without that where it
does not come out even for one variable of a nest. See `deadness` for the exact analysis.
"""

from __future__ import annotations

from collections.abc import Sequence

from cfgraph.analysis.deadness_tf_formulas import Predicate, Predicates, contains, text_of
from cfgraph.analysis.deadness_tf_order import batches, place
from cfgraph.analysis.frames import Frame, frames
from cfgraph.ir import registry
from cfgraph.ir.attrs import Tensor
from cfgraph.ir.graph import CONTROL, Graph, Node, Output
from cfgraph.ir.walk import Roles


class TfDeadness:
    """The predicate of every output, and of the control edges of every node (port -1)."""

    def __init__(self, predicates: dict[Output, Predicate]) -> None:
        self._of = predicates

    def of(self, output: Output) -> Predicate:
        """The predicate of an output."""
        return self._of[output]

    def equal(self, one: Output, other: Output) -> bool:
        """True if TensorFlow takes two outputs to be live under the same conditions."""
        return self._of[one] is self._of[other]

    def text(self, output: Output) -> str:
        """The predicate as TensorFlow writes it, but for the order of operands."""
        return text_of(self._of[output])


def deadness_tf(graph: Graph, *, optimistic: bool = True) -> TfDeadness:
    """Analyse a graph whose control flow is lowered.

    Raises InvalidInput where its nodes do not make well-nested loops, Unsupported where
    TensorFlow's order of visits does not reach all nodes.
    """
    found = frames(graph)
    found.require_valid()
    rules = _Rules({node: place(node, found) for node in graph})
    for loop, nodes in batches(graph, found):
        rules.batch(nodes, optimistic=optimistic and loop.parent is not None)
    return TfDeadness(rules.of)


class _Rules:
    def __init__(self, frame: dict[Node, Frame]) -> None:
        self.frame = frame
        self.roles = Roles()
        self.predicates = Predicates()
        self.of: dict[Output, Predicate] = {}
        self.first_merges: dict[str, Node] | None = None
        self.again: set[Node] | None = None

    def batch(self, nodes: Sequence[Node], *, optimistic: bool) -> None:
        """Find the predicates of one outermost loop, or of nodes in none."""
        if optimistic:
            self.populate(nodes, {})
            if self.converged(nodes):
                return
            for node in nodes:
                for port in self.ports(node):
                    self.of.pop(Output(node, port), None)
        self.populate(nodes, None)

    def populate(self, nodes: Sequence[Node], first_merges: dict[str, Node] | None) -> None:
        """All nodes once; then the Merges that close loops, and what hangs on those that change."""
        self.first_merges, self.again = first_merges, None
        for node in nodes:
            self.visit(node)
        self.again = {node for node in nodes if self.back_edges(node)}
        for node in nodes:
            if node in self.again:
                self.visit(node)

    def converged(self, nodes: Sequence[Node]) -> bool:
        """True if all variables of each loop came out with one recurrence."""
        by_frame: dict[str, Predicate] = {}
        for node in nodes:
            if self.back_edges(node):
                found = self.of[node.output()]
                if found.kind != "recurrence":
                    return False
                if by_frame.setdefault(self.frame[node].name, found) is not found:
                    return False
        return True

    def back_edges(self, node: Node) -> list[Output]:
        """The inputs of a Merge that come from the iteration before."""
        if self.roles[node.op] != "merge":
            return []
        return [item for item in node.inputs if self.roles[item.node.op] == "next_iteration"]

    # -- nodes -----------------------------------------------------------------------------------

    def visit(self, node: Node) -> None:
        """Set the predicates of a node from those of its inputs."""
        role = self.roles[node.op]
        if role == "merge":
            self.merge(node)
        elif role == "switch":
            self.switch(node)
        elif role == "trigger":
            self.set_all(node, self.predicates.true)
        elif role == "recv":
            live = self.predicates.symbol(node.output().name, must_be_true=False)
            self.set_all(node, self.predicates.all_of([*self.inputs(node), live]))
        else:
            self.set_all(node, self.predicates.all_of(self.inputs(node)))

    def inputs(self, node: Node) -> list[Predicate]:
        """The predicates of all edges into a node."""
        controls = [self.of[Output(source, CONTROL)] for source in node.controls]
        return [self.of[item] for item in node.inputs] + controls

    def switch(self, node: Node) -> None:
        make = self.predicates
        inputs, test = self.inputs(node), node.inputs[1]
        if len(self.ports(node)) == 3 and node.op != "_SwitchN":
            true = self.is_true(test)
            self.set(node, 0, make.all_of([*inputs, make.negation(true)]))
            self.set(node, 1, make.all_of([*inputs, true]))
            self.set(node, CONTROL, make.all_of(inputs))
            return
        last = len(self.ports(node)) - 2
        for port in range(last):
            chosen = self.is_value(test, port)
            self.set(node, port, make.all_of([*inputs, chosen]))
            inputs.append(make.negation(chosen))
        # TensorFlow gives the control edges what belongs to the last output
        self.set(node, last, make.all_of(inputs))
        self.set(node, CONTROL, make.all_of(inputs))

    def is_true(self, test: Output) -> Predicate:
        value = _constant(test)
        if value is None:
            return self.predicates.symbol(test.name, must_be_true=True)
        return self.predicates.true if value else self.predicates.false

    def is_value(self, test: Output, wanted: int) -> Predicate:
        value = _constant(test)
        if value is None:
            return self.predicates.number_symbol(test.name, wanted)
        return self.predicates.true if value == wanted else self.predicates.false

    def merge(self, node: Node) -> None:
        back = self.back_edges(node)
        if not back:
            self.set_all(node, self.predicates.any_of(self.of[item] for item in node.inputs))
        elif self.again is not None:
            if len(back) == 1 and (found := self.recurrence(node, back[0])) is not None:
                self.set_all(node, found)
        else:
            named = node
            if self.first_merges is not None:
                named = self.first_merges.setdefault(self.frame[node].name, node)
            name = named.output().name
            self.set_all(node, self.predicates.symbol(name, must_be_true=False))

    def recurrence(self, node: Node, back: Output) -> Predicate | None:
        """The recurrence of a Merge whose back edge is its own symbol and something free of it."""
        symbol, step = self.of[node.output()], self.of[back]
        if symbol.kind != "symbol" or step.kind != "and" or symbol not in step.parts:
            return None
        rest = [part for part in step.parts if part is not symbol]
        if any(contains(part, symbol) for part in rest):
            return None
        starts = [self.of[item] for item in node.inputs if item != back]
        starts.extend(self.of[Output(source, CONTROL)] for source in node.controls)
        make = self.predicates
        path = ";".join(_names(self.frame[node]))
        return make.recurrence(make.any_of(starts), make.all_of(rest), path)

    # -- results ---------------------------------------------------------------------------------

    def ports(self, node: Node) -> range:
        """The outputs of a node, and -1 for its control edges."""
        count = registry.output_count(node)
        if count is None:
            read = [use.node.inputs[use.slot].port for use in node.uses if use.slot >= 0]
            count = max(read, default=-1) + 1
        return range(CONTROL, count)

    def set_all(self, node: Node, predicate: Predicate) -> None:
        for port in self.ports(node):
            self.set(node, port, predicate)

    def set(self, node: Node, port: int, predicate: Predicate) -> None:
        """Set one predicate; what reads it is looked at again if it changed."""
        output = Output(node, port)
        before = self.of.get(output)
        self.of[output] = predicate
        if self.again is not None and before is not predicate:
            readers = (
                node.control_readers
                if port == CONTROL
                else [use.node for use in node.readers(port)]
            )
            self.again.update(readers)


def _constant(output: Output) -> int | None:
    """The value of a scalar constant."""
    value = output.node.attrs.get("value")
    if output.node.op != "Const" or not isinstance(value, Tensor):
        return None
    return int(value.array[()])


def _names(frame: Frame) -> list[str]:
    """The names of a frame and those around it."""
    names = []
    while frame.parent is not None:
        names.append(frame.name)
        frame = frame.parent
    return names
