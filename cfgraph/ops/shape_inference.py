"""Static shape inference over a graph, including loops."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.ir import registry
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.names import split_tensor_name
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape
from cfgraph.ir.signature import MAX_COUNT
from cfgraph.ops.opdef.op import Op, lookup, role_of
from cfgraph.ops.opdef.shape_functions import LARGEST_RANK, InferenceContext
from cfgraph.ops.static_values import (
    PartialArray,
    StaticValue,
    decode_value,
    infer_values,
    join_values,
    same_value,
)


class StaticShapes:
    """What is known of every output of a graph before it runs.

    `errors` lists the nodes whose inputs cannot fit, with what their shape function says.
    """

    def __init__(
        self,
        outputs: dict[Node, Sequence[Shape]],
        values: dict[Output, StaticValue],
        errors: dict[Node, str],
    ) -> None:
        self._outputs = outputs
        self._values = values
        self.errors: list[tuple[Node, str]] = list(errors.items())

    def __getitem__(self, output: Output) -> Shape:
        outputs = self._outputs.get(output.node, ())
        return outputs[output.port] if 0 <= output.port < len(outputs) else UNKNOWN_SHAPE

    def of(self, node: Node) -> Sequence[Shape]:
        """The shapes of all outputs of a node."""
        return self._outputs.get(node, ())

    def value(self, output: Output) -> Any | None:
        """The value of an output as an array where it is known, else None."""
        value = decode_value(self._values.get(output))
        return None if value is None or value.known is not None else value.array


def infer_shapes(graph: Graph, feeds: Mapping[str, Any] | None = None) -> StaticShapes:
    """The static shapes of a graph; `feeds` are shapes, or arrays, by tensor name.

    A loop's Merge has the shape that comes in until another comes around; then each size that
    differs becomes unknown, and what depends on it is looked at again. A size is given up once,
    so that this ends, in time that grows with the graph.
    """
    return _ShapePropagation(graph, feeds or {}).run()


# roles whose nodes hand a token on as it is
_TOKEN_FORWARDING_ROLES: Final = (Role.SWITCH, Role.ENTER, Role.EXIT, Role.NEXT_ITERATION)


class _PartialContext(InferenceContext):
    """A node whose shape-valued inputs may be known in part."""

    __slots__ = ("_partial",)

    def __init__(
        self, node: Node, inputs: tuple[Shape, ...], values: Sequence[StaticValue], count: int
    ) -> None:
        # not the base's own, which would count the outputs once more
        self.node = node
        self.inputs = inputs
        self.output_count = count
        self._partial = values

    def value(self, slot: int) -> Any | None:
        value = decode_value(self._partial[slot])
        return None if value is None or value.known is not None else value.array

    def shape_value(self, slot: int) -> Shape:
        value = decode_value(self._partial[slot])
        if value is None or value.known is None or value.array.ndim != 1:
            return super().shape_value(slot)
        return Shape(
            size if known and size >= 0 else None
            for size, known in zip(value.array.tolist(), value.known.tolist(), strict=True)
        )


@dataclass(frozen=True, slots=True)
class _InferenceFacts:
    """What inference asks of an op for each of its nodes; `count` where all have as many outputs.

    `tells`: something may be known of what it gives though nothing is known of what it reads.
    """

    op: type[Op] | None
    role: Role | None
    hands_on: bool
    count: int | None
    always_infers: bool


class _InferenceFactsByOp(dict[str, _InferenceFacts]):
    """The facts of ops, by op name."""

    def __missing__(self, name: str) -> _InferenceFacts:
        op = lookup(name)
        role = op.role if op else None
        count = op.parsed().simple_outputs if op else None
        tells = op is not None and (op.algebra.shape_only or not op.parsed().inputs)
        facts = self[name] = _InferenceFacts(
            op, role, role in _TOKEN_FORWARDING_ROLES, count, tells
        )
        return facts


class _ShapePropagation:
    """The work list: nodes never looked at in order of arrival, changed ones before them."""

    def __init__(self, graph: Graph, feeds: Mapping[str, Any]) -> None:
        self.graph = graph
        self.shapes: dict[Node, Sequence[Shape]] = {}
        self.values: dict[Output, StaticValue] = {}
        self.errors: dict[Node, str] = {}
        self.rank: dict[Node, int] = {}
        self.waiting: dict[Node, int] = {}
        self.fresh: deque[Node] = deque()
        self.changed: list[tuple[int, Node]] = []
        self.queued: set[Node] = set()
        self.facts = _InferenceFactsByOp()
        self.fed: dict[Output, tuple[Shape, StaticValue]] = {}
        for name, feed in feeds.items():
            base, port = split_tensor_name(name)
            if base in graph and port is not None:
                self.fed[Output(graph[base], port)] = _read_feed(feed)

    def run(self) -> StaticShapes:
        for node in self.graph:
            count = len(node.inputs)
            if count > 1 and self.facts[node.op].role is Role.MERGE:
                count = 1
            if self.fed and self._fed_outputs(node) is not None:
                count = 0
            self.waiting[node] = count
            if not count:
                self.fresh.append(node)
        while self.changed or self.fresh:
            if self.changed:
                node = heapq.heappop(self.changed)[1]
                self.queued.discard(node)
                self._look_again(node)
            else:
                self._look_first(self.fresh.popleft())
        for node in self.graph:
            if node not in self.shapes:
                self.shapes[node] = [UNKNOWN_SHAPE] * _output_count(node)
        for output, (shape, value) in self.fed.items():
            shapes = list(self.shapes[output.node])
            if output.port < len(shapes):
                shapes[output.port] = shape
                self.shapes[output.node] = shapes
                self.values[output] = value
        return StaticShapes(self.shapes, self.values, self.errors)

    def _look_first(self, node: Node) -> None:
        """Infer a node's outputs; readers for which they were the last inputs come next."""
        self.rank[node] = len(self.rank)
        self.shapes[node], values = self._infer(node)
        for port, value in enumerate(values):
            if value is not None:
                self.values[Output(node, port)] = value
        waiting = self.waiting
        for reader, slot in node.uses:
            if slot >= 0:
                left = waiting[reader] = waiting[reader] - 1
                if not left:
                    self.fresh.append(reader)
                elif left < 0:
                    self._look_later(reader)

    def _look_again(self, node: Node) -> None:
        """Infer a node's outputs, weaken what was said before by it, and tell the readers."""
        before = self.shapes[node]
        shapes, values = self._infer(node)
        shapes = [a if a == b else a.generalize(b) for a, b in zip(before, shapes, strict=True)]
        ports = {port for port, shape in enumerate(shapes) if shape != before[port]}
        self.shapes[node] = shapes
        for port in range(len(shapes)):
            output = Output(node, port)
            old = self.values.get(output)
            new = join_values(old, values[port] if values else None)
            if not same_value(old, new):
                ports.add(port)
                if new is None:
                    self.values.pop(output, None)
                else:
                    self.values[output] = new
        for reader, slot in node.uses:
            if slot >= 0 and self.waiting[reader] <= 0 and reader.inputs[slot].port in ports:
                self._look_later(reader)

    def _look_later(self, node: Node) -> None:
        """Look at a node again, unless that is to come; one that is still fresh will see it all."""
        if node in self.rank and node not in self.queued:
            self.queued.add(node)
            heapq.heappush(self.changed, (self.rank[node], node))

    def _infer(self, node: Node) -> tuple[Sequence[Shape], Sequence[StaticValue]]:
        """The shapes of a node's outputs, and their values, or no value at all."""
        if self.errors:
            self.errors.pop(node, None)
        fed = self._fed_outputs(node) if self.fed else None
        if fed is not None:
            return [shape for shape, _ in fed], [value for _, value in fed]
        facts = self.facts[node.op]
        count = _output_count(node) if facts.count is None else facts.count
        if facts.role is Role.MERGE:
            return self._merge(node, count)
        have = self.shapes
        inputs = tuple(
            [
                have[source][port] if port < len(have[source]) else UNKNOWN_SHAPE
                for source, port in node.inputs
            ]
        )
        values = [self.values.get(item) for item in node.inputs]
        if facts.role is Role.LOOP_COND:
            return [SCALAR_SHAPE] * count, values[:1] * count
        if facts.hands_on and inputs:
            return [inputs[0]] * count, [values[0]] * count
        try:
            shapes = _shapes_of(facts.op, node, inputs, values, count)
        except ValueError as error:
            self.errors[node] = str(error)
            shapes = [UNKNOWN_SHAPE] * count
        if self.fed:
            return self._partly_fed(node, inputs, values, shapes)
        if not (facts.always_infers or any(values)):
            return shapes, ()
        return shapes, _values_of(node, inputs, values, shapes)

    def _partly_fed(
        self,
        node: Node,
        inputs: Sequence[Shape],
        values: Sequence[StaticValue],
        shapes: Sequence[Shape],
    ) -> tuple[Sequence[Shape], Sequence[StaticValue]]:
        """Shapes and values with those that are fed in their places."""
        shapes = list(shapes)
        for port in range(len(shapes)):
            here = self.fed.get(Output(node, port))
            if here is not None:
                shapes[port] = here[0]
        found = _values_of(node, inputs, values, shapes)
        for port in range(len(found)):
            here = self.fed.get(Output(node, port))
            if here is not None:
                found[port] = here[1]
        return shapes, found

    def _fed_outputs(self, node: Node) -> list[tuple[Shape, StaticValue]] | None:
        """The feeds of a node if all that it gives is fed."""
        ports = range(_output_count(node)) if self.fed else range(0)
        fed = [self.fed[output] for port in ports if (output := Output(node, port)) in self.fed]
        return fed if ports and len(fed) == len(ports) else None

    def _merge(self, node: Node, count: int) -> tuple[list[Shape], Sequence[StaticValue]]:
        """The join of what has come so far."""
        data = [item for item in node.inputs if item.node in self.shapes]
        shape, value = self._shape(data[0]), self._value(data[0])
        for item in data[1:]:
            shape = shape.generalize(self._shape(item))
            value = join_values(value, self._value(item))
        return [shape, *[SCALAR_SHAPE] * (count - 1)], [value, *[None] * (count - 1)]

    def _shape(self, output: Output) -> Shape:
        outputs = self.shapes[output.node]
        return outputs[output.port] if output.port < len(outputs) else UNKNOWN_SHAPE

    def _value(self, output: Output) -> StaticValue:
        return self.values.get(output)


def infer_node_shapes(
    node: Node, inputs: Sequence[Shape], values: Sequence[StaticValue]
) -> tuple[Sequence[Shape], Sequence[StaticValue]]:
    """What is known of one node's outputs, from what is known of its inputs.

    Of a Merge nothing is: other values may come around a loop. Raises ValueError where the inputs
    cannot fit.
    """
    count = _output_count(node)
    role = role_of(node)
    if role is Role.MERGE:
        return [UNKNOWN_SHAPE, *[SCALAR_SHAPE] * (count - 1)], [None] * count
    if role in _TOKEN_FORWARDING_ROLES and inputs:
        return [inputs[0]] * count, [None] * count
    shapes = _shapes_of(lookup(node.op), node, tuple(inputs), values, count)
    return shapes, _values_of(node, inputs, values, shapes)


def _shapes_of(
    op: type[Op] | None,
    node: Node,
    inputs: tuple[Shape, ...],
    values: Sequence[StaticValue],
    count: int,
) -> Sequence[Shape]:
    """What the op says of its outputs. Raises ValueError where the inputs cannot fit."""
    found: Sequence[Shape] = ()
    try:
        if op is not None:
            found = op.shape(_PartialContext(node, inputs, values, count))
    except ValueError:
        raise
    except Exception:
        # an attribute or an input is missing or of a wrong kind: verification says so
        found = ()
    return found if len(found) == count else [UNKNOWN_SHAPE] * count


def _values_of(
    node: Node, inputs: Sequence[Shape], values: Sequence[StaticValue], shapes: Sequence[Shape]
) -> list[StaticValue]:
    try:
        found = list(infer_values(node, inputs, values, shapes))
    except Exception:
        return [None] * len(shapes)
    return found if len(found) == len(shapes) else [None] * len(shapes)


def _output_count(node: Node) -> int:
    """The number of outputs; of an op that is not known, those that are read."""
    count = registry.output_count(node)
    if count is None:
        read = [use.node.inputs[use.slot].port for use in node.uses if use.slot >= 0]
        return min(max(read, default=-1) + 1, MAX_COUNT)
    return count


def _read_feed(feed: Any) -> tuple[Shape, StaticValue]:
    if isinstance(feed, Shape):
        return feed, None
    import numpy as np

    array = np.asarray(feed)
    small = array.dtype != object and array.size <= LARGEST_RANK
    return Shape(array.shape), PartialArray(array) if small else None
