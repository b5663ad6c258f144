"""Custom gradients of a file: nodes that name a function of the library as their gradient.

    y, x' = IdentityN(f(x), x)    gradient of x' = g(gradient of y, gradient of x', captures)

The function g may read tensors of the forward pass, which only the objects of a SavedModel name.
They become inputs of the node before anything is lowered, so that each is available where the
node is; a tensor from outside a function becomes an argument of it:

    y, x', w' = IdentityN(f(x), x, w)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from cfgraph.errors import Unsupported
from cfgraph.ir.attrs import Func
from cfgraph.ir.dtypes import DType
from cfgraph.ir.function_graph import ARG_OP, FunctionGraph, instantiate, is_polymorphic
from cfgraph.ir.functions import Function, RegisteredGradient
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import called_functions, custom_gradient_name, with_body
from cfgraph.ir.names import unused_name
from cfgraph.ir.node import split_tensor_name
from cfgraph.ir.shapes import UNKNOWN_SHAPE
from cfgraph.ir.signature import ArgDef
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients
from cfgraph.ops.opdef.op import function_calls

# on a node whose gradient function reads captures: their number, and the inputs with a gradient
_CAPTURES_ATTR: Final = "_gradient_captures"
_SLOTS_ATTR: Final = "_gradient_slots"
_TYPES_ATTRS: Final = {"if": "Tin", "case": "Tin", "call": "Tin", "while": "T"}
_SHAPES_ATTRS: Final = ("_output_shapes", "_input_shapes")

# -- gradients of nodes ------------------------------------------------------------------------


def custom_gradient(graph: Graph, node: Node) -> Callable[..., InputGradients] | None:
    """The gradient that a node names, or None if it is not in the library."""
    registered = graph.registered_gradients.get(custom_gradient_name(node) or "")
    if registered is None or registered.function not in graph.functions:
        return None
    return partial(_call_custom_gradient, graph.functions[registered.function])


def _call_custom_gradient(
    function: Function, g: GradientBuilder, node: Node, *grads: Output | None
) -> InputGradients:
    """Call a gradient function with the gradients of the outputs and the captures."""
    definition = function.definition
    captures = node.attrs.get(_CAPTURES_ATTR, 0)
    count = len(grads) - captures
    if len(definition.inputs) != len(grads):
        message = f"{node.op} has a custom gradient that reads tensors which the file does not name"
        hint = "add gradients to the SavedModel itself, or use those of the op: --ignore-custom"
        raise Unsupported(message, node=node, hint=hint, code="CFG507")
    slots = _gradient_slots(node, count, len(definition.outputs))
    dys = [_gradient_or_zeros(g, node.output(port), grads[port]) for port in range(count)]
    types = tuple(arg.dtype for arg in definition.outputs)
    tensors = [*dys, *node.inputs[count:]]
    call = g.StatefulPartitionedCall(*tensors, Tout=types, f=Func(function.name)).node
    gradients: list[Output | None] = [None] * len(grads)
    for port, slot in enumerate(slots):
        gradients[slot] = call.output(port)
    return gradients


def _gradient_slots(node: Node, count: int, results: int) -> tuple[int, ...]:
    """The inputs of a node that its gradient function returns a gradient of."""
    slots = node.attrs.get(_SLOTS_ATTR)
    if isinstance(slots, tuple) and len(slots) == results:
        return slots
    if results < count - 1:
        # one of the inputs is the result of the forward function, which has no gradient
        message = f"the custom gradient of {node.op} returns {results} gradients of {count} inputs"
        hint = "add gradients to the SavedModel itself, which says which, or use --ignore-custom"
        raise Unsupported(message, node=node, hint=hint, code="CFG507")
    return tuple(range(count - results, count))


def _gradient_or_zeros(g: GradientBuilder, y: Output, dy: Output | None) -> Output:
    if dy is not None:
        return dy
    # the function has an argument of the type of the output, which it cannot use for an opaque one
    return y if y.dtype is not None and y.dtype.is_opaque else g.zeros_like(y)


# -- captures ----------------------------------------------------------------------------------

# the function that contains a tensor, or "" for the graph, and the name of the tensor
Capture = tuple[str, str]


def bind_captures(graph: Graph) -> None:
    """Make the captures of custom gradients inputs of the nodes that name them, in place.

    Raises Unsupported if a tensor cannot be passed to the node.
    """
    if not any(item.slots or item.captures for item in graph.registered_gradients.values()):
        return
    bodies = {"": _Body("", graph, FunctionGraph("", graph, (), (), (), (), (), ()))}
    for name in called_functions(graph):
        if not is_polymorphic(graph.functions[name]):
            instance = instantiate(graph.functions[name], {}, graph.functions)
            bodies[name] = _Body(name, graph, instance)
    _propagate(graph, bodies)
    for body in bodies.values():
        body.bind()
    for name, body in bodies.items():
        if name and body.is_changed:
            graph.functions[name] = body.function()


def _propagate(graph: Graph, bodies: dict[str, _Body]) -> None:
    """Find the captures that each function receives as arguments: from the node to the owner."""
    sites = [(body, node, names) for body in bodies.values() for node, names in body.calls()]
    is_changed = True
    while is_changed:
        is_changed = False
        for body, node, names in sites:
            called = [bodies[name] for name in names if name in bodies]
            wanted = {capture: dtype for item in called for capture, dtype in item.received.items()}
            body.passed[node] = wanted
            is_body = function_calls(node.op).kind == "while"
            for index, item in enumerate(called):
                is_changed |= item.receive(wanted, returns=is_body and index == len(called) - 1)
            outside = {key: dtype for key, dtype in wanted.items() if key[0] != body.name}
            is_changed |= body.receive(outside)
    if bodies[""].received:
        owner, tensor = next(iter(bodies[""].received))
        message = f"a custom gradient reads {tensor} of {owner!r}, which does not call its node"
        raise Unsupported(message, code="CFG507")


@dataclass(slots=True, eq=False)
class _Body:
    """A function, or the graph itself, with the captures that it receives and passes on."""

    name: str
    graph: Graph
    body: FunctionGraph
    received: dict[Capture, DType] = field(default_factory=dict)
    passed: dict[Node, dict[Capture, DType]] = field(default_factory=dict)
    returns_captures: bool = False
    is_changed: bool = False

    def __post_init__(self) -> None:
        for _, registered in self._custom_nodes():
            types = self._capture_types(registered)
            outside = ((key, dtype) for key, dtype in types if key[0] != self.name)
            self.received.update(outside)

    def _custom_nodes(self) -> Iterator[tuple[Node, RegisteredGradient]]:
        for node in self.body.graph:
            registered = self.graph.registered_gradients.get(custom_gradient_name(node) or "")
            known = registered is not None and registered.function in self.graph.functions
            if registered is not None and known and _CAPTURES_ATTR not in node.attrs:
                yield node, registered

    def _capture_types(self, registered: RegisteredGradient) -> list[tuple[Capture, DType]]:
        """The captures of a gradient function, and their types: those of its last arguments."""
        captures = registered.captures or ()
        inputs = self.graph.functions[registered.function].definition.inputs
        arguments = inputs[len(inputs) - len(captures) :]
        pairs = zip(captures, arguments, strict=True)
        return [(capture, arg.dtype) for capture, arg in pairs if arg.dtype is not None]

    def calls(self) -> Iterator[tuple[Node, list[str]]]:
        """The nodes that call functions, and the names of these."""
        for node in self.body.graph:
            if node.op in self.graph.functions:
                yield node, [node.op]
            elif names := [func.name for func in function_calls(node.op).named_in(node.attrs)]:
                yield node, names

    def receive(self, captures: dict[Capture, DType], *, returns: bool = False) -> bool:
        """Add arguments for captures; true if there are new ones."""
        before = len(self.received), self.returns_captures
        self.received.update(captures)
        self.returns_captures |= returns and bool(captures)
        return before != (len(self.received), self.returns_captures)

    def bind(self) -> None:
        """Add the inputs and arguments, in place."""
        tensors: dict[Capture, Output] = {}
        for index, (capture, dtype) in enumerate(self.received.items(), len(self.body.arguments)):
            name = self.body.graph.unique_name("captured")
            attrs = {"T": dtype, "index": index}
            tensors[capture] = self.body.graph.create(name, ARG_OP, attrs=attrs).output()
        for node, registered in list(self._custom_nodes()):
            captures = self._capture_types(registered)
            more = [tensors.get(capture) or self._tensor(capture, node) for capture, _ in captures]
            attrs = {_CAPTURES_ATTR: len(more)}
            if registered.slots is not None:
                attrs[_SLOTS_ATTR] = registered.slots
            self._extend(node, more, "T", attrs)
        for node, wanted in self.passed.items():
            if wanted:
                more = [tensors.get(capture) or self._tensor(capture, node) for capture in wanted]
                self._extend(node, more, _types_attr(node, self.graph), {})
        self.is_changed |= bool(tensors)
        self.body = self._extended_body(tuple(tensors.values()))

    def _extended_body(self, arguments: tuple[Output, ...]) -> FunctionGraph:
        returns = arguments if self.returns_captures else ()
        return replace(
            self.body,
            arguments=(*self.body.arguments, *(x.node for x in arguments)),
            returns=(*self.body.returns, *returns),
        )

    def _extend(self, node: Node, more: list[Output], types: str, attrs: dict[str, Any]) -> None:
        """Add inputs to a node whose attribute `types` lists those of its inputs."""
        self.is_changed = True
        graph = self.body.graph
        known = {key: value for key, value in node.attrs.items() if key not in _SHAPES_ATTRS}
        if more and types:
            if not isinstance(known.get(types), tuple):
                message = f"{node.op} has a custom gradient that reads other tensors"
                hint = "only IdentityN can have more inputs; use --ignore-custom"
                raise Unsupported(message, node=node, hint=hint, code="CFG507")
            known[types] = (*known[types], *(x.dtype for x in more))
        if known.get("output_shapes"):
            known["output_shapes"] = (*known["output_shapes"], *[UNKNOWN_SHAPE] * len(more))
        graph.set_op(node, node.op, {**known, **attrs})
        graph.set_inputs(node, (*node.inputs, *more))

    def _tensor(self, capture: Capture, node: Node) -> Output:
        """A captured tensor of this body."""
        name, graph = capture[1], self.body.graph
        base, port = split_tensor_name(name)
        variables = [item for item in graph if item.attrs.get("shared_name") == name.encode()]
        if not self.name and base not in graph and len(variables) == 1:
            return variables[0].output()
        found = graph.nodes.get(base) or graph.nodes.get(_argument_name(base))
        if found is None or (found.output_count or 1) <= (port or 0):
            message = f"a custom gradient reads {name or 'a resource'}, which is not in the graph"
            raise Unsupported(message, node=node, code="CFG507")
        return found.output(port or 0)

    def function(self) -> Function:
        """The function with the new arguments, results, and inputs of its nodes."""
        old = self.graph.functions[self.name].definition
        taken = {arg.name for arg in (*old.inputs, *old.outputs)}
        taken |= {node.name for node in old.nodes}
        added: list[ArgDef] = []
        for dtype in self.received.values():
            name = unused_name("captured", taken)
            taken.add(name)
            added.append(ArgDef(name, dtype, None))
        returned = [replace(arg, name=f"{arg.name}_out") for arg in added]
        definition = replace(
            old,
            inputs=(*old.inputs, *added),
            outputs=(*old.outputs, *(returned if self.returns_captures else ())),
            attrs={key: value for key, value in old.attrs.items() if key not in _SHAPES_ATTRS},
        )
        return with_body(Function(self.name, definition), self.body, self.graph.functions)


def _types_attr(node: Node, graph: Graph) -> str:
    """The attribute with the types of a call's arguments; empty for a node whose op it is."""
    if node.op in graph.functions:
        return ""
    kind = function_calls(node.op).kind
    if kind not in _TYPES_ATTRS:
        message = f"a custom gradient in a function of {node.op} reads tensors from outside"
        raise Unsupported(message, node=node, hint="use --ignore-custom", code="CFG507")
    return _TYPES_ATTRS[kind]


def _argument_name(name: str) -> str:
    """The name of an argument, as TensorFlow makes it of that of a node."""
    return re.sub(r"[^a-z0-9]", "_", name.lower())
