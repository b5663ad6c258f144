"""State shared by one gradient computation: the graph, its static shapes, and names of new nodes.

with ctx.scope(node):
    ctx.add("Mul", (dz, y), "dx")      adds gradients/<node>_grad/dx on the node's device
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from cfgraph.analysis.gradient_paths import GradientFlow
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.resource_handles import popped_values
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.names import unused_name
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ir.traversal import postorder
from cfgraph.limits import current_limits
from cfgraph.ops.opdef.gradient_api import InputGradients
from cfgraph.ops.opdef.op import lookup, role_of
from cfgraph.ops.shape_inference import infer_node_shapes, infer_shapes
from cfgraph.ops.static_values import PartialArray, StaticValue, decode_value


class StaticInfo:
    """Static shapes and values of a graph, including nodes added to it since."""

    def __init__(self, graph: Graph) -> None:
        self._initial = infer_shapes(graph, received=popped_values(graph))
        self._pending: set[Node] = set()
        self._shapes: dict[Output, Shape] = {}
        # shapes of pending nodes that are known from elsewhere
        self._declared: dict[Output, Shape] = {}
        self._values: dict[Output, StaticValue] = {}

    def shape(self, x: Output) -> Shape:
        """Static shape of a tensor."""
        if x.node in self._pending:
            self._infer_with_sources(x.node)
        added = self._shapes.get(x)
        return self._initial[x] if added is None else added

    def value(self, x: Output) -> Any | None:
        """Static value of a tensor as an array, or None."""
        value = self._partial_value(x)
        return None if value is None or value.known is not None else value.array

    def infer(self, node: Node) -> None:
        """Register a new node; its outputs are inferred when first requested."""
        self._pending.add(node)

    def set_shape(self, x: Output, shape: Shape) -> None:
        """Merge a shape known from elsewhere into the shape of a new tensor, once inferred."""
        is_pending = x.node in self._pending
        have = self._declared.get(x, UNKNOWN_SHAPE) if is_pending else self.shape(x)
        with contextlib.suppress(ValueError):
            (self._declared if is_pending else self._shapes)[x] = have.merge(shape)

    def copy(self, clone: Node, node: Node) -> None:
        """Copy the shapes and values of a node's outputs to its clone."""
        for x in node.outputs:
            copied = clone.output(x.port)
            self._shapes[copied] = self.shape(x)
            value = self._partial_value(x)
            if value is not None:
                self._values[copied] = value

    def _infer_with_sources(self, node: Node) -> None:
        """Infer a new node after the new nodes that it reads."""
        trail, inferred = [node], set[Node]()
        while trail:
            node = trail[-1]
            # an input that is read many times is inferred once
            sources = {x.node: None for x in node.inputs if x.node in self._pending}
            self._pending.discard(node)
            sources.pop(node, None)
            if sources and role_of(node) is not Role.MERGE:
                trail.extend(sources)
                continue
            trail.pop()
            if node not in inferred:
                inferred.add(node)
                self._infer_outputs(node)
                for x in node.outputs:
                    if x in self._declared:
                        self.set_shape(x, self._declared.pop(x))

    def _infer_outputs(self, node: Node) -> None:
        inputs = [self._shapes.get(x) or self._initial[x] for x in node.inputs]
        try:
            shapes, values = infer_node_shapes(
                node, inputs, [self._partial_value(x) for x in node.inputs]
            )
        except ValueError:
            return
        for port, (shape, value) in enumerate(zip(shapes, values, strict=True)):
            self._shapes[node.output(port)] = shape
            if value is not None:
                self._values[node.output(port)] = value

    def _partial_value(self, x: Output) -> PartialArray | None:
        if x.node in self._pending:
            self._infer_with_sources(x.node)
        if x in self._values:
            return decode_value(self._values[x])
        array = self._initial.value(x)
        return None if array is None else PartialArray(array)


class ShapeSources:
    """The tensors that others of the same iteration get their shapes from at run time.

    x = Placeholder(); y = Tanh(x); z = Mul(y, x)     all three have the shape of x

    TensorFlow's constant folding finds such equal shapes too, before it replaces
    BroadcastGradientArgs. The tensors in `fed` may have another shape than the graph gives them.
    """

    def __init__(self, static: StaticInfo, fed: Iterable[Output]) -> None:
        self._static = static
        self._sources = {x: x for x in fed}

    def source_of(self, x: Output) -> Output:
        """The source of the shape of a tensor: one computed before it, or the tensor itself."""
        sources = self._sources
        for tensor in postorder(x, lambda item: self._shape_inputs(item.node), sources):
            found = {sources[item] for item in self._shape_inputs(tensor.node)}
            sources[tensor] = found.pop() if len(found) == 1 else tensor
        return sources[x]

    def _shape_inputs(self, node: Node) -> list[Output]:
        """The inputs that a node gets its shape from if their shapes are equal."""
        op = lookup(node.op)
        if op is None or op.role not in (None, Role.SWITCH):
            return []
        inputs = [node.inputs[slot] for slot in op.shape_slots(node)]
        if any(x.dtype is None or x.dtype.is_ref for x in inputs):
            return []  # the shape of a variable may change between two reads
        if len(inputs) > 1:
            # a scalar broadcasts to any shape
            inputs = [x for x in inputs if self._static.shape(x).rank != 0]
        return inputs


# name prefix and device of new nodes
Naming = tuple[str, str]


class _Scope:
    """A `with` block whose new nodes get a naming; the enclosing naming is restored at its end."""

    __slots__ = ("_ctx", "_enclosing", "_naming")

    def __init__(self, ctx: GradientContext, naming: Naming) -> None:
        self._ctx = ctx
        self._naming = naming

    def __enter__(self) -> None:
        ctx = self._ctx
        self._enclosing = ctx.naming
        ctx.naming = self._naming

    def __exit__(self, *error: object) -> None:
        self._ctx.naming = self._enclosing


class GradientContext:
    """Shared state of one gradient computation: graph, static shapes, names, and added nodes.

    `name` is the first component of the names of all new nodes. `gradient_nodes` are the new nodes
    that belong to the gradients; others, such as the trip counter of a forward loop, belong to the
    graph that is differentiated. `added_nodes` are both. No gradient passes the nodes in `stops`.
    If the graph is the body of a `function`, it may not have more nodes than the limit. `flow`
    records where gradients end; `call_rules` are the gradients of calls, by function name.
    """

    def __init__(
        self,
        graph: Graph,
        frames: Frames,
        xs: Iterable[Output],
        stops: Collection[Node],
        *,
        swap_memory: bool,
        ignore_custom: bool,
        function: str = "",
        flow: GradientFlow | None = None,
        added_nodes: list[Node] | None = None,
        call_rules: Mapping[str, Callable[..., InputGradients]] | None = None,
    ) -> None:
        self.graph = graph
        self.call_rules = call_rules or {}
        self.flow = flow
        self.function = function
        self.stops = stops
        self.swap_memory = swap_memory
        self.ignore_custom = ignore_custom
        self.static = StaticInfo(graph)
        self.sources_of_shapes = ShapeSources(self.static, xs)
        self.name = _unique_name(graph)
        self.gradient_nodes: set[Node] = set()
        self.added_nodes: list[Node] = [] if added_nodes is None else added_nodes
        self.naming: Naming = (self.name, "")
        self._last_naming: Naming = (self.name, "")
        self._frame_names = {frame.name for frame in frames.all}

    # -- naming ----------------------------------------------------------------------------------

    def scope(self, node: Node) -> AbstractContextManager[None]:
        """Name new nodes after this one, and put them on its device."""
        self._last_naming = naming = (f"{self.name}/{node.name}_grad", node.device)
        return _Scope(self, naming)

    def frame_scope(self, frame: Frame) -> AbstractContextManager[None]:
        """Name new nodes after a loop, and put them on the device of its LoopCond."""
        self._last_naming = naming = (f"{self.name}/{frame.name}", frame.loop_conds[0].device)
        return _Scope(self, naming)

    def result_scope(self, x: Output) -> AbstractContextManager[None]:
        """Name new nodes directly below `name`, and put them on the device of a tensor."""
        self._last_naming = naming = (self.name, x.node.device)
        return _Scope(self, naming)

    def last_scope(self, device: str = "") -> AbstractContextManager[None]:
        """Name new nodes as in the scope entered last, and put them on a device if there is one.

        For nodes that belong to no single node, such as the sum of the partial gradients from
        several readers: it is named after the last node differentiated before it.
        """
        name, last_device = self._last_naming
        return _Scope(self, (name, device or last_device))

    def on_device(self, device: str) -> AbstractContextManager[None]:
        """Put new nodes on a device, without renaming them."""
        return _Scope(self, (self.naming[0], device))

    def frame_name(self, name: str) -> str:
        """A new name for the backward frame of a frame."""
        unique = unused_name(f"{self.name}/{name}", self._frame_names)
        self._frame_names.add(unique)
        return unique

    # -- nodes -----------------------------------------------------------------------------------

    def add(
        self,
        op: str,
        inputs: Iterable[Output],
        name: str,
        controls: Iterable[Node] = (),
        **attrs: Any,
    ) -> Node:
        """Add a node of the gradients."""
        node = self.add_forward(op, inputs, name, controls, **attrs)
        self.gradient_nodes.add(node)
        return node

    def add_forward(
        self,
        op: str,
        inputs: Iterable[Output],
        name: str,
        controls: Iterable[Node] = (),
        **attrs: Any,
    ) -> Node:
        """Add a node to the graph that is differentiated."""
        prefix, device = self.naming
        full = f"{prefix}/{name}"
        if self.function:
            current_limits().check_nodes(len(self.graph), self.function)
        node = self.graph.add(op, *inputs, name=full, controls=controls, device=device, attrs=attrs)
        self.added_nodes.append(node)
        self.static.infer(node)
        return node

    def undo(self) -> None:
        """Remove all nodes that were added."""
        added = set(self.added_nodes)
        for node in self.graph:
            if node not in added and not added.isdisjoint(node.controls):
                self.graph.set_controls(node, [c for c in node.controls if c not in added])
        self.graph.remove(*self.added_nodes)


def _unique_name(graph: Graph) -> str:
    """`gradients`, or `gradients_1`, … if node names of the graph start with it."""
    return unused_name("gradients", {name.split("/", 1)[0] for name in graph.nodes})
