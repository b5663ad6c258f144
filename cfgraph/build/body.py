"""Bodies under construction: the graph itself, a branch, a loop condition, or a function."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cfgraph.build.tensor import BuilderTensor, Operation
from cfgraph.build.user_frame import misuse_error, user_line, with_user_line
from cfgraph.errors import CfgraphError, InvalidInput
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import function_from_nodes
from cfgraph.ir.names import NODE_NAME, unused_name
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.opdef.op import lookup, may_write
from cfgraph.ops.shape_inference import infer_node_shapes
from cfgraph.ops.static_values import StaticValue

if TYPE_CHECKING:
    from cfgraph.build.builder import Builder
    from cfgraph.ir.dtypes import DType


class BodyBuilder:
    """Nodes that become one function, or the graph itself if there is no `parent`.

    `arguments` are the parameters of the function; `captures` maps tensors of the parent to the
    arguments that stand for them. `label` names the body in errors. A `graph` with nodes may be in
    the middle of a loop, where constants need controls.
    """

    def __init__(
        self,
        builder: Builder,
        parent: BodyBuilder | None,
        label: str,
        graph: Graph | None = None,
    ) -> None:
        self.builder = builder
        self.parent = parent
        self.label = label
        self.line = user_line()
        self.graph = Graph() if graph is None else graph
        self.is_extension = graph is not None
        self.shapes: dict[Output, Shape] = {}
        self.values: dict[Output, StaticValue] = {}
        self.arguments: list[Output] = []
        self.captures: dict[Output, Output] = {}
        self.effects = SideEffectOrder()
        self.outer_controls: dict[Node, Operation] = {}
        self.prefix = ""
        self.device: str = parent.device if parent else ""
        self.controls: tuple[Operation, ...] = parent.controls if parent else ()
        self._scopes: dict[str, int] = {}

    # -- names -----------------------------------------------------------------------------------

    def name_for(self, label: str) -> str:
        """A unique node name in the current scope. Raises UsageError for an invalid name."""
        return self.graph.unique_name(self._checked(label, "a node"))

    def scope_for(self, label: str) -> str:
        """A unique prefix for a new name scope inside the current one."""
        base = self._checked(label, "a scope")
        number = self._scopes.get(base, 0)
        self._scopes[base] = number + 1
        return f"{base}_{number}/" if number else f"{base}/"

    def _checked(self, label: str, kind: str) -> str:
        name = f"{self.prefix}{label}"
        if not NODE_NAME(name) or name.startswith("_"):
            message = f"{label!r} is not a valid name for {kind}"
            raise misuse_error(
                message, hint="use letters, digits, and . _ / > -, and do not start with _"
            )
        return name

    # -- nodes -----------------------------------------------------------------------------------

    def add(self, op: str, inputs: Sequence[Output], name: str, attrs: Mapping[str, Any]) -> Node:
        """Add a node under the current device and controls, and infer its shapes.

        Raises UsageError or InvalidInput, with the line of the user, if it is invalid.
        """
        try:
            node = self.graph.add(op, *inputs, name=name, device=self.device, attrs=attrs)
        except CfgraphError as error:
            error.node = name
            raise with_user_line(error) from None
        try:
            self._infer(node)
        except ValueError as error:
            self.graph.remove(node)
            message = f"{op}: {error}"
            raise with_user_line(InvalidInput(message, node=name, code="CFG303")) from None
        self.graph.set_controls(node, self._controls())
        if self.parent is not None:
            for before in self.effects.order(node):
                self.graph.add_control(node, before)
        return node

    def const(self, tensor: Any, name: str) -> Output:
        """Add a constant. It has no control inputs, so that it is computed once.

        In a graph that is extended, controls say in which loop it is.
        """
        attrs = {"value": tensor, "dtype": tensor.dtype}
        node = self.graph.add("Const", name=name, device=self.device, attrs=attrs)
        self._infer(node)
        if self.is_extension:
            self.graph.set_controls(node, self._controls())
        return Output(node)

    def _infer(self, node: Node) -> None:
        shapes = [self.shapes.get(tensor, UNKNOWN_SHAPE) for tensor in node.inputs]
        values = [self.values.get(tensor) for tensor in node.inputs]
        shapes_out, values_out = infer_node_shapes(node, shapes, values)
        for port, (shape, value) in enumerate(zip(shapes_out, values_out, strict=True)):
            output = Output(node, port)
            self.shapes[output] = shape
            if value is not None:
                self.values[output] = value

    def _controls(self) -> list[Node]:
        """Control inputs of a new node in this body; outer ones delay the entire body."""
        nodes: list[Node] = []
        for operation in self.controls:
            if operation.body is self:
                nodes.append(operation.node)
            else:
                self.owner_of(operation.body, operation.name)
                self.outer_controls[operation.node] = operation
        return nodes

    # -- outer tensors ---------------------------------------------------------------------------

    def owner_of(self, owner: BodyBuilder, name: str) -> list[BodyBuilder]:
        """Bodies from this one out to the owner of a tensor, innermost first.

        Raises UsageError if the owner does not enclose this body.
        """
        chain: list[BodyBuilder] = []
        body: BodyBuilder | None = self
        while body is not None and body is not owner:
            chain.append(body)
            body = body.parent
        if body is None:
            origin = f"{name!r} was created in {owner.label} ({owner.line})"
            message = f"{origin} and cannot be read in {self.label}"
            hint = f"return it from {owner.label}"
            if owner.builder is not self.builder:
                message, hint = f"{name!r} belongs to the graph of another Builder", ""
            raise misuse_error(message, hint=hint or None)
        return chain

    def resolve(self, tensor: BuilderTensor) -> Output:
        """The tensor in this body; an outer tensor is captured as an argument."""
        source, output = tensor.body, tensor.output
        if source is self:
            return output
        for body in reversed(self.owner_of(source, output.name)):
            output, source = body.capture(output, source), body
        return output

    def capture(self, outer: Output, source: BodyBuilder) -> Output:
        """The argument that stands for a tensor of the parent."""
        known = self.captures.get(outer)
        if known is None:
            dtype = outer.dtype
            assert dtype is not None
            shape = source.shapes.get(outer, UNKNOWN_SHAPE)
            known = self.captures[outer] = self.argument(outer.node.name, dtype.base, shape)
            if outer in source.values:
                self.values[known] = source.values[outer]
        return known

    def argument(self, name: str, dtype: DType, shape: Shape) -> Output:
        """Append an argument to the function, and return its placeholder in the body."""
        attrs = {"dtype": dtype, "shape": shape}
        output = Output(self.graph.add("Placeholder", name=_argument_name(name), attrs=attrs))
        self.shapes[output] = shape
        self.arguments.append(output)
        return output

    def require(self, operation: Operation) -> None:
        """Make a node run even if nothing reads it."""
        if operation.body is not self:
            self.owner_of(operation.body, operation.name)
        else:
            self.effects.must_run[operation.node] = None

    # -- the function ----------------------------------------------------------------------------

    def define(
        self,
        name: str,
        arguments: Iterable[Output],
        outputs: Sequence[Output],
        names: Sequence[str],
        library: Mapping[str, Function],
    ) -> Function:
        """A function with this body, whose outputs are called `names`."""
        inputs = {output.node.name: output for output in arguments}
        returned: dict[str, Output] = {}
        for label, output in zip(names, outputs, strict=True):
            returned[unused_name(_argument_name(label), returned, inputs)] = output
        control = {node.name: node for node in self.effects.to_run(outputs)}
        return function_from_nodes(name, self.graph, inputs, returned, control, library)


def _argument_name(name: str) -> str:
    """An argument name by TensorFlow's rule: lower case, letters, digits and `_`."""
    cleaned = re.sub(r"\W", "_", name.lower(), flags=re.ASCII).strip("_")
    return cleaned if cleaned[:1].isalpha() else f"arg_{cleaned}".rstrip("_")


class SideEffectOrder:
    """Nodes of a body that must run, and the order of their side effects.

    Reads and writes of one resource run in program order; so do external effects (printing,
    assertions).
    """

    def __init__(self) -> None:
        self.must_run: dict[Node, None] = {}
        self._reads: list[Node] = []
        self._written: dict[Output | None, Node] = {}
        self._read: dict[Output | None, list[Node]] = {}

    def order(self, node: Node) -> list[Node]:
        """Register a new node and return the nodes that must run before it."""
        op = lookup(node.op)
        if op is None or not op.effects.stateful:
            return []
        keys: list[Output | None] = [tensor for tensor in node.inputs if _is_handle(tensor)]
        if not keys and (op.effects.random or _is_handle(Output(node))):
            return []
        if not keys or op.calls.kind:
            keys.append(None)
        before: dict[Node, None] = {}
        for key in keys:
            if key in self._written:
                before[self._written[key]] = None
            if may_write(node):
                before.update(dict.fromkeys(self._read.pop(key, ())))
                self._written[key] = node
            else:
                self._read.setdefault(key, []).append(node)
        if may_write(node):
            self.must_run[node] = None
        else:
            self._reads.append(node)
        before.pop(node, None)
        return list(before)

    def to_run(self, returned: Iterable[Output]) -> list[Node]:
        """Nodes that must run before the body ends: all side effects, and all reads that are used.

        Without the reads, a write after the body could precede a read inside it.
        """
        returned_nodes = {output.node for output in returned}
        reads = [node for node in self._reads if node.uses or node in returned_nodes]
        return [*self.must_run, *reads]


def _is_handle(tensor: Output) -> bool:
    dtype = tensor.dtype
    return dtype is not None and dtype.is_handle
