"""Deadness by TensorFlow's own rules, for comparison with the exact analysis in `deadness`.

Predicates are equal only if they have the same form; a symbol stands for the tensor wired to a
Switch. Loops are analyzed optimistically first (all variables of a loop are live together), and
again without that assumption if it fails for one variable of a nest. Nodes are visited in
TensorFlow's order, one outermost loop after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby

from cfgraph.analysis.deadness.deadness_tf_formulas import (
    TfPredicate,
    TfPredicates,
    contains_predicate,
    format_predicate,
)
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.frames import frames
from cfgraph.errors import Unsupported
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import CONTROL, Graph, Node, Output
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role


def _tf_frame(node: Node, graph_frames: Frames) -> Frame:
    """The frame of a node in TensorFlow's terms; an Enter belongs to the frame that it enters."""
    frame = graph_frames.of[node]
    output_frame = graph_frames.of_outputs[node]
    return output_frame if output_frame.depth > frame.depth else frame


def _outermost_loop(frame: Frame) -> Frame:
    """The outermost loop that contains a frame; the root frame itself."""
    while frame.parent is not None and frame.parent.parent is not None:
        frame = frame.parent
    return frame


def _visiting_batches(graph: Graph, graph_frames: Frames) -> Iterator[tuple[Frame, list[Node]]]:
    """All nodes in topological order, grouped by outermost loop.

    Nodes outside loops form separate groups. Raises Unsupported if two loops wait for each other,
    which TensorFlow's analysis does not support.
    """
    order = _BatchOrder(graph, graph_frames).run()
    for loop, nodes in groupby(order, lambda node: _outermost_loop(_tf_frame(node, graph_frames))):
        yield loop, list(nodes)


class _BatchOrder:
    """Breadth-first order; the Enters of a loop wait for each other, its Exits for all its
    nodes.
    """

    def __init__(self, graph: Graph, graph_frames: Frames) -> None:
        self.graph = graph
        self.frames = graph_frames
        self.ready: deque[Node] = deque()
        self.enters: dict[Frame, list[Node]] = {}
        self.exits: list[Node] = []

    def run(self) -> list[Node]:
        order: list[Node] = []
        missing = {node: self.waits(node) for node in self.graph}
        for node, count in missing.items():
            if not count:
                self.park(node)
        while self.ready or self.release():
            node = self.ready.popleft()
            order.append(node)
            for use in node.uses:
                if use.slot < 0 or not self.is_back_edge(node, use.node):
                    missing[use.node] -= 1
                    if not missing[use.node]:
                        self.park(use.node)
        if len(order) < len(missing):
            remaining = next(node for node in missing if node not in set(order))
            message = "loops wait for each other, which TensorFlow's analysis does not support"
            raise Unsupported(message, node=remaining)
        return order

    def waits(self, node: Node) -> int:
        """The number of edges that a node waits for."""
        data = sum(not self.is_back_edge(tensor.node, node) for tensor in node.inputs)
        return data + len(node.controls)

    def is_back_edge(self, source: Node, reader: Node) -> bool:
        return ROLES[source.op] is Role.NEXT_ITERATION and ROLES[reader.op] is Role.MERGE

    def park(self, node: Node) -> None:
        """Queue a ready node; an Enter or Exit of an outermost loop is held back."""
        output_frame = _tf_frame(node, self.frames)
        role = ROLES[node.op]
        if output_frame.depth == 1 and role is Role.ENTER:
            self.enters.setdefault(output_frame, []).append(node)
        elif output_frame.depth == 1 and role is Role.EXIT:
            self.exits.append(node)
        else:
            self.ready.append(node)

    def release(self) -> bool:
        """Release the Exits that are held back, or the Enters of one loop."""
        if self.exits:
            self.ready.extend(self.exits)
            self.exits = []
            return True
        for frame, waiting in self.enters.items():
            if len(waiting) == len(frame.enters):
                self.ready.extend(self.enters.pop(frame))
                return True
        return False


class TfDeadness:
    """Predicates of all outputs and control edges (port -1), as TensorFlow computes them."""

    def __init__(self, predicates: dict[Output, TfPredicate]) -> None:
        self._of = predicates

    def of(self, output: Output) -> TfPredicate:
        """The predicate of an output: the condition under which TensorFlow considers it live."""
        return self._of[output]

    def equal(self, a: Output, b: Output) -> bool:
        """True if TensorFlow considers two outputs live under the same conditions."""
        return self._of[a] is self._of[b]

    def text(self, output: Output) -> str:
        """The predicate as TensorFlow prints it, except for the order of operands."""
        return format_predicate(self._of[output])


def deadness_tf(graph: Graph, *, optimistic: bool = True) -> TfDeadness:
    """Analyze a lowered graph.

    Raises InvalidInput for loops that are not well nested, Unsupported if TensorFlow's visiting
    order does not reach all nodes.
    """
    graph_frames = frames(graph)
    graph_frames.require_valid()
    rules = _TfTransferFunctions({node: _tf_frame(node, graph_frames) for node in graph})
    for loop, nodes in _visiting_batches(graph, graph_frames):
        rules.batch(nodes, optimistic=optimistic and loop.parent is not None)
    return TfDeadness(rules.of)


class _TfTransferFunctions:
    def __init__(self, frame: dict[Node, Frame]) -> None:
        self.frame = frame
        self.predicates = TfPredicates()
        self.of: dict[Output, TfPredicate] = {}
        self.first_merges: dict[str, Node] | None = None
        self.again: set[Node] | None = None

    def batch(self, nodes: Sequence[Node], *, optimistic: bool) -> None:
        """Compute the predicates of one outermost loop, or of nodes outside loops."""
        if optimistic:
            self.populate(nodes, {})
            if self.converged(nodes):
                return
            for node in nodes:
                for port in self.ports(node):
                    self.of.pop(Output(node, port), None)
        self.populate(nodes, None)

    def populate(self, nodes: Sequence[Node], first_merges: dict[str, Node] | None) -> None:
        """Visit all nodes, then the Merges of loops again, with the dependents of changed nodes."""
        self.first_merges, self.again = first_merges, None
        for node in nodes:
            self.visit(node)
        self.again = {node for node in nodes if self.back_edges(node)}
        for node in nodes:
            if node in self.again:
                self.visit(node)

    def converged(self, nodes: Sequence[Node]) -> bool:
        """True if all variables of each loop have the same recurrence."""
        by_frame: dict[str, TfPredicate] = {}
        for node in nodes:
            if self.back_edges(node):
                predicate = self.of[node.output()]
                if predicate.kind != "recurrence":
                    return False
                if by_frame.setdefault(self.frame[node].name, predicate) is not predicate:
                    return False
        return True

    def back_edges(self, node: Node) -> list[Output]:
        """The inputs of a Merge that are NextIterations."""
        if ROLES[node.op] is not Role.MERGE:
            return []
        return [tensor for tensor in node.inputs if ROLES[tensor.node.op] is Role.NEXT_ITERATION]

    # -- nodes -----------------------------------------------------------------------------------

    def visit(self, node: Node) -> None:
        """Compute the predicates of a node from the predicates of its inputs."""
        role = ROLES[node.op]
        if role is Role.MERGE:
            self.merge(node)
        elif role is Role.SWITCH:
            self.switch(node)
        elif role is Role.CONTROL_TRIGGER:
            self.set_all(node, self.predicates.true)
        elif role is Role.RECV:
            live = self.predicates.symbol(node.output().name, must_be_true=False)
            self.set_all(node, self.predicates.all_of([*self.inputs(node), live]))
        else:
            self.set_all(node, self.predicates.all_of(self.inputs(node)))

    def inputs(self, node: Node) -> list[TfPredicate]:
        """The predicates of all edges into a node."""
        controls = [self.of[Output(source, CONTROL)] for source in node.controls]
        return [self.of[tensor] for tensor in node.inputs] + controls

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
        # as in TensorFlow, the control edges have the predicate of the last output
        self.set(node, last, make.all_of(inputs))
        self.set(node, CONTROL, make.all_of(inputs))

    def is_true(self, test: Output) -> TfPredicate:
        value = _scalar_constant(test)
        if value is None:
            return self.predicates.symbol(test.name, must_be_true=True)
        return self.predicates.true if value else self.predicates.false

    def is_value(self, test: Output, value_index: int) -> TfPredicate:
        value = _scalar_constant(test)
        if value is None:
            return self.predicates.number_symbol(test.name, value_index)
        return self.predicates.true if value == value_index else self.predicates.false

    def merge(self, node: Node) -> None:
        back = self.back_edges(node)
        if not back:
            self.set_all(node, self.predicates.any_of(self.of[tensor] for tensor in node.inputs))
        elif self.again is not None:
            if len(back) == 1 and (recurrence := self.recurrence(node, back[0])) is not None:
                self.set_all(node, recurrence)
        else:
            named = node
            if self.first_merges is not None:
                named = self.first_merges.setdefault(self.frame[node].name, node)
            name = named.output().name
            self.set_all(node, self.predicates.symbol(name, must_be_true=False))

    def recurrence(self, node: Node, back: Output) -> TfPredicate | None:
        """The recurrence of a Merge whose back edge is its own symbol and a predicate without
        it.
        """
        symbol, step = self.of[node.output()], self.of[back]
        if symbol.kind != "symbol" or step.kind != "and" or symbol not in step.parts:
            return None
        rest = [operand for operand in step.parts if operand is not symbol]
        if any(contains_predicate(operand, symbol) for operand in rest):
            return None
        starts = [self.of[tensor] for tensor in node.inputs if tensor != back]
        starts.extend(self.of[Output(source, CONTROL)] for source in node.controls)
        make = self.predicates
        path = ";".join(frame.name for frame in reversed(self.frame[node].loops))
        return make.recurrence(make.any_of(starts), make.all_of(rest), path)

    # -- results ---------------------------------------------------------------------------------

    def ports(self, node: Node) -> range:
        """The ports of a node; -1 stands for its control edges."""
        return range(CONTROL, node.assumed_output_count)

    def set_all(self, node: Node, predicate: TfPredicate) -> None:
        for port in self.ports(node):
            self.set(node, port, predicate)

    def set(self, node: Node, port: int, predicate: TfPredicate) -> None:
        """Set one predicate; if it changed, schedule its readers for another visit."""
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


def _scalar_constant(output: Output) -> int | None:
    """The value of a scalar Const, or None."""
    value = output.node.attrs.get("value")
    if output.node.op != "Const" or not isinstance(value, TensorValue):
        return None
    return (
        int(value.array[()])
        if value.shape.dims == () and value.dtype.kind in ("bool", "int")
        else None
    )
