"""Static shape inference over a graph, including loops."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.node import make_pair, split_tensor_name
from cfgraph.ir.role import ENTER, EXIT, LOOP_COND, MERGE, NEXT_ITERATION, RECV, SWITCH, Role
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape, ShapeError
from cfgraph.ir.traversal import reachable
from cfgraph.limits import check_deadline
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
    """Static shapes and values of all outputs of a graph.

    `errors` lists the nodes with invalid inputs, and the messages of their shape functions.
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

    def node_shapes(self, node: Node) -> Sequence[Shape]:
        """The static shapes of all outputs of a node."""
        return self._outputs.get(node, ())

    def value(self, output: Output) -> Any | None:
        """The static value of an output as an array, or None."""
        value = decode_value(self._values.get(output))
        return None if value is None or value.known is not None else value.array


def infer_shapes(
    graph: Graph,
    feeds: Mapping[str, Any] | None = None,
    *,
    sent: Collection[Output] | None = None,
    received: Mapping[Node, Output] | None = None,
) -> StaticShapes:
    """Infer the static shapes of a graph; `feeds` are shapes or arrays by tensor name.

    With `sent`, only the nodes that these outputs depend on are visited. `received` maps a Recv, or
    another node that restores a value, to the output that it receives.

    The Merge of a loop has the shape of its Enter until the back edge has a different one. Each
    size that differs then becomes unknown, and dependent nodes are visited again. A size becomes
    unknown only once, so that inference terminates in time linear in the graph.
    """
    with graph.paused_gc():
        return _ShapePropagation(graph, feeds or {}, sent, received or {}).run()


# roles whose nodes forward input 0; a Merge needs the join of its inputs instead
_TOKEN_FORWARDING_ROLES: Final = (SWITCH, ENTER, EXIT, NEXT_ITERATION, RECV)


class _PartialContext(InferenceContext):
    """An inference context with partially known values of shape inputs."""

    __slots__ = ("_partial",)

    def __init__(
        self, node: Node, inputs: tuple[Shape, ...], values: Sequence[StaticValue], count: int
    ) -> None:
        # does not call the constructor of the base, which would count the outputs again
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
    """Facts of an op that inference needs for each of its nodes.

    `count` is the number of outputs, if all nodes have the same. `always_infers`: values may be
    known without any known input.
    """

    op: type[Op] | None
    role: Role | None
    forwards: bool
    count: int | None
    always_infers: bool


class _InferenceFactsByOp(dict[str, _InferenceFacts]):
    """Inference facts by op name."""

    def __missing__(self, name: str) -> _InferenceFacts:
        op = lookup(name)
        role = op.role if op else None
        count = op.parsed().simple_outputs if op else None
        always_infers = op is not None and (op.algebra.shape_only or not op.parsed().inputs)
        facts = self[name] = _InferenceFacts(
            op, role, role in _TOKEN_FORWARDING_ROLES, count, always_infers
        )
        return facts


_MANY_INPUTS: Final = 32


class _ShapePropagation:
    """Work list of inference: new nodes in order of arrival, changed nodes before them.

    Changed nodes with many inputs come last, so that they are visited once for many changes.
    """

    def __init__(
        self,
        graph: Graph,
        feeds: Mapping[str, Any],
        sent: Collection[Output] | None,
        received: Mapping[Node, Output],
    ) -> None:
        self.received = received
        self.receivers: dict[Node, list[tuple[Node, int]]] = {}
        for recv, output in received.items():
            self.receivers.setdefault(output.node, []).append((recv, output.port))
        self.nodes = graph if sent is None else self._data_ancestors(graph, sent)
        self.shapes: dict[Node, Sequence[Shape]] = {}
        self.values: dict[Output, StaticValue] = {}
        self.errors: dict[Node, str] = {}
        self.rank: dict[Node, int] = {}
        self.waiting: dict[Node, int] = {}
        self.fresh: deque[Node] = deque()
        self.changed: list[tuple[int, Node]] = []
        self.changed_wide: list[tuple[int, Node]] = []
        self.queued: set[Node] = set()
        self.facts = _InferenceFactsByOp()
        self.fed: dict[Output, tuple[Shape, StaticValue]] = {}
        for name, feed in feeds.items():
            base, port = split_tensor_name(name)
            if base in graph and port is not None:
                self.fed[Output(graph[base], port)] = _read_feed(feed)

    def _data_ancestors(self, graph: Graph, outputs: Iterable[Output]) -> list[Node]:
        """The nodes that outputs depend on by their values, in graph order."""
        needed = reachable(
            (output.node for output in outputs),
            lambda node: [output.node for output in self._inputs(node)],
        )
        return [node for node in graph if node in needed]

    def _inputs(self, node: Node) -> Sequence[Output]:
        output = self.received.get(node)
        return node.inputs if output is None else (*node.inputs, output)

    def run(self) -> StaticShapes:
        for node in self.nodes:
            count = len(self._inputs(node))
            if count > 1 and self.facts[node.op].role is MERGE:
                count = self._forward_input_count(node)
            if self.fed and self._fed_outputs(node) is not None:
                count = 0
            self.waiting[node] = count
            if not count:
                self.fresh.append(node)
        self._visit_all()
        for node in self.nodes:
            # in a cycle that no back edge closes, a Merge waits for itself
            if node not in self.rank and self._is_partly_known_merge(node):
                self.waiting[node] = 0
                self.fresh.append(node)
                self._visit_all()
        for node in self.nodes:
            if node not in self.shapes:
                self.shapes[node] = [UNKNOWN_SHAPE] * node.assumed_output_count
        for output, (shape, value) in self.fed.items():
            shapes = list(self.shapes[output.node])
            if output.port < len(shapes):
                shapes[output.port] = shape
                self.shapes[output.node] = shapes
                self.values[output] = value
        return StaticShapes(self.shapes, self.values, self.errors)

    def _forward_input_count(self, merge: Node) -> int:
        """The number of inputs that are not back edges, at least 1."""
        back_edges = [self.facts[item[0].op].role is NEXT_ITERATION for item in merge.inputs]
        return max(1, back_edges.count(False))

    def _is_partly_known_merge(self, node: Node) -> bool:
        return self.facts[node.op].role is MERGE and any(
            item[0] in self.shapes for item in node.inputs
        )

    def _visit_all(self) -> None:
        while self.changed or self.fresh or self.changed_wide:
            check_deadline()
            if self.fresh and not self.changed:
                self._look_first(self.fresh.popleft())
                continue
            node = heapq.heappop(self.changed or self.changed_wide)[1]
            self.queued.discard(node)
            self._look_again(node)

    def _look_first(self, node: Node) -> None:
        """Infer the outputs of a node, and queue readers whose inputs are now complete."""
        self.rank[node] = len(self.rank)
        self.shapes[node], values = self._infer(node)
        for port, value in enumerate(values):
            if value is not None:
                self.values[make_pair(Output, (node, port))] = value
        readers = [use[0] for use in node.uses if use[1] >= 0]
        if self.receivers:
            readers += [reader for reader, _ in self.receivers.get(node, ())]
        self._complete_inputs(readers)

    def _complete_inputs(self, nodes: Iterable[Node]) -> None:
        """Count one more input of each node, and queue those whose inputs are complete."""
        waiting = self.waiting
        for node in nodes:
            # a node that is not to be visited waits for nothing, and has no rank
            left = waiting[node] = waiting.get(node, 0) - 1
            if not left:
                self.fresh.append(node)
            elif left < 0:
                self._look_later(node)

    def _look_again(self, node: Node) -> None:
        """Infer the outputs of a node again, generalize the previous result, and queue readers."""
        before = self.shapes[node]
        general = [*before]
        shapes, values = self._infer(node)
        ports = self._generalize_values(node, values) if self.values else set[int]()
        for port, (old, new) in enumerate(zip(before, shapes, strict=True)):
            if old is new or old == new:
                continue
            general[port] = old.generalize(new)
            if general[port] != old:
                ports.add(port)
        if not ports:
            return
        self.shapes[node] = general
        for reader, slot in node.uses:
            if slot >= 0 and self.waiting[reader] <= 0 and reader.inputs[slot].port in ports:
                self._look_later(reader)
        for reader, port in self.receivers.get(node, ()):
            if port in ports:
                self._look_later(reader)

    def _generalize_values(self, node: Node, values: Sequence[StaticValue]) -> set[int]:
        """Join the values of a node with the previous ones; returns the ports that changed."""
        ports = set[int]()
        for port in range(len(self.shapes[node])):
            output = make_pair(Output, (node, port))
            old = self.values.get(output)
            if old is None:
                continue
            new = join_values(old, values[port] if values else None)
            if not same_value(old, new):
                ports.add(port)
                if new is None:
                    del self.values[output]
                else:
                    self.values[output] = new
        return ports

    def _look_later(self, node: Node) -> None:
        """Queue a node for another visit, unless it is queued or was never visited."""
        if node in self.rank and node not in self.queued:
            self.queued.add(node)
            changed = self.changed_wide if len(node.inputs) > _MANY_INPUTS else self.changed
            heapq.heappush(changed, (self.rank[node], node))

    def _infer(self, node: Node) -> tuple[Sequence[Shape], Sequence[StaticValue]]:
        """The shapes and values of the outputs of a node; no values if none is known."""
        if self.errors:
            self.errors.pop(node, None)
        fed = self._fed_outputs(node) if self.fed else None
        if fed is not None:
            return [shape for shape, _ in fed], [value for _, value in fed]
        facts = self.facts[node.op]
        count = node.assumed_output_count if facts.count is None else facts.count
        if facts.role is MERGE:
            return self._merge(node, count)
        is_received = bool(self.received) and node in self.received
        have, sources = self.shapes, self._inputs(node) if is_received else node.inputs
        if facts.role is LOOP_COND:
            return [SCALAR_SHAPE] * count, [self.values.get(item) for item in sources[:1]] * count
        if sources and (facts.forwards or is_received):
            source = sources[-1 if is_received else 0]
            return [self._shape(source)] * count, [self.values.get(source)] * count
        inputs = tuple(
            [
                have[source][port] if port < len(have[source]) else UNKNOWN_SHAPE
                for source, port in sources
            ]
        )
        values = [self.values.get(item) for item in sources]
        try:
            shapes = _shapes_of(facts.op, node, inputs, values, count)
        except ShapeError as error:
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
        """Replace shapes and values of fed outputs."""
        shapes = list(shapes)
        for port in range(len(shapes)):
            feed = self.fed.get(Output(node, port))
            if feed is not None:
                shapes[port] = feed[0]
        merged = _values_of(node, inputs, values, shapes)
        for port in range(len(merged)):
            feed = self.fed.get(Output(node, port))
            if feed is not None:
                merged[port] = feed[1]
        return shapes, merged

    def _fed_outputs(self, node: Node) -> list[tuple[Shape, StaticValue]] | None:
        """The feeds of a node if all its outputs are fed."""
        ports = range(node.assumed_output_count) if self.fed else range(0)
        fed = [self.fed[output] for port in ports if (output := Output(node, port)) in self.fed]
        return fed if ports and len(fed) == len(ports) else None

    def _merge(self, node: Node, count: int) -> tuple[list[Shape], Sequence[StaticValue]]:
        """Join the inputs of a Merge that were visited."""
        data = [item for item in node.inputs if item.node in self.shapes]
        shape, value = self._shape(data[0]), self.values.get(data[0])
        for item in data[1:]:
            shape = shape.generalize(self._shape(item))
            value = join_values(value, self.values.get(item))
        return [shape, *[SCALAR_SHAPE] * (count - 1)], [value, *[None] * (count - 1)]

    def _shape(self, output: Output) -> Shape:
        outputs = self.shapes[output.node]
        return outputs[output.port] if output.port < len(outputs) else UNKNOWN_SHAPE


def infer_node_shapes(
    node: Node, inputs: Sequence[Shape], values: Sequence[StaticValue]
) -> tuple[Sequence[Shape], Sequence[StaticValue]]:
    """Infer the shapes and values of a node's outputs from its inputs.

    The outputs of a Merge are unknown, since a back edge may change them. Raises ShapeError for
    invalid inputs.
    """
    count = node.assumed_output_count
    role = role_of(node)
    if role is MERGE:
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
    """Call the shape function of an op. Raises ShapeError for invalid inputs."""
    shapes: Sequence[Shape] = ()
    try:
        if op is not None:
            shapes = op.shape(_PartialContext(node, inputs, values, count))
    except ShapeError:
        raise
    except ValueError:  # of Python or NumPy, which do not know the op
        raise ShapeError("the inputs do not fit the op") from None
    except Exception:
        # an attribute or input is missing or of the wrong kind, which verification reports
        shapes = ()
    return shapes if len(shapes) == count else [UNKNOWN_SHAPE] * count


def _values_of(
    node: Node, inputs: Sequence[Shape], values: Sequence[StaticValue], shapes: Sequence[Shape]
) -> list[StaticValue]:
    try:
        known = list(infer_values(node, inputs, values, shapes))
    except Exception:
        return [None] * len(shapes)
    return known if len(known) == len(shapes) else [None] * len(shapes)


def _read_feed(feed: Any) -> tuple[Shape, StaticValue]:
    if isinstance(feed, Shape):
        return feed, None
    import numpy as np

    array = np.asarray(feed)
    small = array.dtype != object and array.size <= LARGEST_RANK
    return Shape(array.shape), PartialArray(array) if small else None
