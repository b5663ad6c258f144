"""Function bodies as graphs, with attribute placeholders substituted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from weakref import WeakKeyDictionary

from cfgraph.errors import InvalidInput, Unsupported
from cfgraph.ir import registry
from cfgraph.ir.attrs import AttrPlaceholder, Func
from cfgraph.ir.dtypes import DType
from cfgraph.ir.functions import BodyNode, Function, FunctionDefinition
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.signature import ArgDef, Signature
from cfgraph.ir.traversal import upstream
from cfgraph.limits import check_deadline, current_limits

UNKNOWN_OP_HINT: Final = "declare it: --op-def FILE, or cfgraph.load(path, op_defs=[FILE])"


class OutputPorts:
    """Conversion between flat ports and named outputs (`node:output:index`)."""

    def __init__(self, library: Mapping[str, Function]) -> None:
        self.library = library
        self._signatures: dict[str, Signature | None] = {}
        self._simple: dict[str, dict[str, int]] = {}
        self._checked: dict[int, tuple[Any, ...]] = {}

    def knows(self, op: str) -> bool:
        """True if `op` is an op or a function of the library."""
        return self.signature(op) is not None

    def signature(self, op: str) -> Signature | None:
        """The signature of an op or function, or None if unknown."""
        if op in self._signatures:
            return self._signatures[op]
        function, known = self.library.get(op), registry.lookup(op)
        signature: Signature | None = None
        if function is not None:
            body = function.definition
            signature = Signature.from_args(body.inputs, body.outputs, body.attr_defs)
        elif known is not None:
            signature = known.parsed()
        self._signatures[op] = signature
        if signature is not None and signature.simple_outputs is not None:
            self._simple[op] = {arg.name: port for port, arg in enumerate(signature.outputs)}
        return signature

    def find(self, node: Node, name: str, index: int) -> int | None:
        """The flat port of a node's output `name:index`, as function bodies write it, or None."""
        simple = self._simple.get(node.op)
        if simple is not None:
            return simple.get(name) if index == 0 else None
        for arg, start, count in self._spans(node):
            if arg.name == name:
                return start + index if index < count else None
        return None

    def text(self, output: Output) -> str:
        """An output as written in a function body.

        Raises Unsupported if the op is unknown.
        """
        node, port = output
        signature = self.signature(node.op)
        if signature is not None and 0 <= port < (signature.simple_outputs or 0):
            return f"{node.name}:{signature.outputs[port].name}:0"
        for arg, start, count in self._spans(node):
            if start <= port < start + count:
                return f"{node.name}:{arg.name}:{port - start}"
        message = f"op {node.op!r} is unknown, and so are the names of its outputs"
        raise Unsupported(message, node=node, hint=UNKNOWN_OP_HINT, code="CFG135")

    def dtype(self, output: Output) -> DType | None:
        """The type of an output, also of a function call, or None if unknown."""
        node, port = output
        if node.op not in self.library:
            return output.dtype
        for arg, start, count in self._spans(node):
            if start <= port < start + count:
                signature = self.signature(node.op)
                return signature.arg_type(arg, node.attrs, port - start) if signature else None
        return None

    def count(self, node: Node) -> int | None:
        """The number of outputs of a node, also of a function call, or None if unknown."""
        if node.op not in self.library:
            return node.output_count
        try:
            return sum(count for _, _, count in self._spans(node))
        except InvalidInput:  # an attribute that counts outputs is missing
            return None

    def _spans(self, node: Node) -> Iterator[tuple[ArgDef, int, int]]:
        signature = self.signature(node.op)
        start = 0
        for arg in signature.outputs if signature else ():
            try:
                count = self._count(signature, arg, node) if signature else 0
            except ValueError as error:
                raise InvalidInput(f"{node.op}: {error}", node=node, code="CFG110") from None
            yield arg, start, count
            start += count

    def _count(self, signature: Signature, arg: ArgDef, node: Node) -> int:
        """The number of tensors of an argument; the types of a list are checked once."""
        types = node.attrs.get(arg.type_attr or "")
        if arg.count or not isinstance(types, tuple):
            return signature.arg_count(arg, node.attrs)
        if id(types) not in self._checked:
            signature.arg_count(arg, node.attrs)
            self._checked[id(types)] = types
        return len(types)


ARG_OP: Final = "_Arg"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class FunctionGraph:
    """A function body as a graph, with attributes substituted.

    Each argument tensor is a node of the op `_Arg`. `returns` are the outputs; `control_returns`
    are nodes that run even if no output is read. A `spare` function runs nothing else; any other
    also runs all of its stateful nodes. `guessed` names nodes of unknown ops whose only output read
    was assumed to be the first.
    """

    name: str
    graph: Graph
    arguments: tuple[Node, ...]
    returns: tuple[Output, ...]
    control_returns: tuple[Node, ...]
    input_types: tuple[DType, ...]
    output_types: tuple[DType, ...]
    guessed: tuple[str, ...]
    spare: bool = False

    def needed(self) -> set[Node]:
        """Nodes that the outputs and the control outputs depend on."""
        return set(upstream([*(item.node for item in self.returns), *self.control_returns]))


# the graphs of functions that have only one instance
FunctionGraphs = dict[Function, FunctionGraph]


class FunctionInstances:
    """Library functions as graphs, instantiated once per set of attributes, or from `bodies`.

    `bodies` are the graphs of functions with one instance that were read before.

    `get` raises Unsupported once the instances have more nodes than the limit of the context.
    """

    def __init__(
        self, library: Mapping[str, Function], bodies: FunctionGraphs | None = None
    ) -> None:
        self.library = library
        self.bodies: FunctionGraphs = {} if bodies is None else bodies
        self._known: dict[tuple[str, bool, tuple[Any, ...]], FunctionGraph] = {}
        self._nodes = 0  # of all instances
        # the arguments of functions that need compile-time values, as far as they are known
        self.constants: dict[FunctionGraph, frozenset[int]] = {}

    def get(self, name: str, attrs: Mapping[str, Any], *, spare: bool = False) -> FunctionGraph:
        """The function instantiated with these attributes; a spare one runs only what it needs.

        Raises InvalidInput if there is no such function or its body is inconsistent.
        """
        function = self.library.get(name)
        if function is None:
            message = f"the library has no function {name!r}"
            raise InvalidInput(message, code="CFG133")
        key = (name, spare, tuple([attrs.get(attr) for attr in _instance_attrs(function)]))
        known = self._known.get(key)
        if known is None:
            known = replace(self.get(name, attrs), spare=True) if spare else None
            known = known or self.bodies.pop(function, None)
            known = self._known[key] = known or instantiate(function, attrs, self.library)
            # a function may have as many instances as its callers have attributes
            self._nodes += len(known.graph)
            current_limits().check_nodes(self._nodes, name)
        return known

    def clear(self) -> None:
        """Clear the graphs of all instances and bodies, which are no longer used."""
        for instance in (*self._known.values(), *self.bodies.values()):
            instance.graph.clear()
        self._known.clear()
        self.bodies.clear()

    def extended(self, functions: Mapping[str, Function]) -> FunctionInstances:
        """These instances with more functions, which are not in the library yet."""
        instances = FunctionInstances({**self.library, **functions}, self.bodies)
        instances._known = self._known
        instances.constants = self.constants
        return instances


def instantiate(
    function: Function, attrs: Mapping[str, Any], library: Mapping[str, Function]
) -> FunctionGraph:
    """The body of a function as a graph, with placeholders substituted from `attrs`.

    Raises InvalidInput if the body is inconsistent or an attribute is missing; Unsupported if an
    unknown op has several outputs, whose order is unknown.
    """
    check_deadline()
    return _FunctionInstantiator(function, attrs, library).make()


def is_polymorphic(function: Function) -> bool:
    """True if the body depends on attributes, which the function may fail to declare."""
    definition = function.definition
    # the name of an attribute may be empty
    return bool(definition.attr_defs or _instance_attrs(function))


# functions are never modified
_attrs_of_instances: WeakKeyDictionary[Function, tuple[str, ...]] = WeakKeyDictionary()
_WITH_PLACEHOLDERS: Final = frozenset((AttrPlaceholder, Func, tuple))


def _instance_attrs(function: Function) -> tuple[str, ...]:
    """Names of the attributes that an instance depends on."""
    names = _attrs_of_instances.get(function)
    if names is None:
        names = tuple(dict.fromkeys(_find_instance_attrs(function.definition)))
        _attrs_of_instances[function] = names
    return names


def _find_instance_attrs(definition: FunctionDefinition) -> Iterator[str]:
    for arg in (*definition.inputs, *definition.outputs):
        yield from (name for name in (arg.type_attr, arg.count) if name)
    for node in definition.nodes:
        for value in node.attrs.values():
            if type(value) in _WITH_PLACEHOLDERS:
                yield from _placeholder_names(value)


def _placeholder_names(value: Any) -> Iterator[str]:
    if type(value) is AttrPlaceholder:
        yield value.name
    elif type(value) is Func:
        for inner in value.attrs.values():
            yield from _placeholder_names(inner)
    elif type(value) is tuple:
        for inner in value:
            if type(inner) is Func:
                yield from _placeholder_names(inner)


class _FunctionInstantiator:
    """Builds one FunctionGraph: arguments, nodes, then edges."""

    def __init__(
        self, function: Function, attrs: Mapping[str, Any], library: Mapping[str, Function]
    ) -> None:
        self.name = function.name
        self.definition = function.definition
        self.attrs = attrs
        self.graph = Graph()
        self.ports = OutputPorts(library)
        self.arguments: dict[str, list[Node]] = {}
        self.read: dict[Node, str] = {}

    def make(self) -> FunctionGraph:
        """Build the graph of the body: arguments, nodes, then edges."""
        definition = self.definition
        signature = Signature.from_args(definition.inputs, definition.outputs, definition.attr_defs)
        taken = {node.name for node in definition.nodes}
        for arg in definition.inputs:
            self.arguments[arg.name] = [
                self.add_argument(arg, dtype, taken) for dtype in self.types(signature, arg)
            ]
        nodes = [self.add_node(node) for node in definition.nodes]
        for node, body in zip(nodes, definition.nodes, strict=True):
            self.connect(node, body)
        arguments = tuple(node for group in self.arguments.values() for node in group)
        for index, node in enumerate(arguments):
            node.attrs = {**node.attrs, "index": index}
        return FunctionGraph(
            self.name,
            self.graph,
            arguments,
            tuple(t for arg in definition.outputs for t in self.returned(arg, signature)),
            tuple(self.control_return(name) for name in definition.control_outputs),
            tuple(node.attrs["T"] for node in arguments),
            tuple(t for arg in definition.outputs for t in self.types(signature, arg)),
            tuple(node.name for node in self.read),
        )

    def types(self, signature: Signature, arg: ArgDef) -> list[DType]:
        """Types of the tensors of one argument."""
        try:
            return signature.arg_types(arg, self.attrs)
        except ValueError as error:
            message = f"function {self.name!r}: {error}"
            raise InvalidInput(message, node=self.name, code="CFG110") from None

    def add_argument(self, arg: ArgDef, dtype: DType, taken: set[str]) -> Node:
        """Add a node for one tensor of an argument."""
        name, number = arg.name, 0
        while name in self.graph or (number and name in taken):
            number += 1
            name = f"{arg.name}_{number}"
        return self.graph.create(name, ARG_OP, attrs={"T": dtype})

    def add_node(self, body: BodyNode) -> Node:
        """Add a node of the body without edges."""
        attrs = {key: self.filled(body, value) for key, value in body.attrs.items()}
        node = self.graph.create(body.name, body.op, attrs=attrs, device=body.device)
        node.origin = body.origin
        return node

    def filled(self, body: BodyNode, value: Any) -> Any:
        """An attribute value with its placeholders substituted."""
        if type(value) is AttrPlaceholder:
            return self.value_of(value.name, body)
        if type(value) is Func and value.attrs:
            return Func(value.name, {k: self.filled(body, v) for k, v in value.attrs.items()})
        if type(value) is tuple and any(type(inner) is Func for inner in value):
            return tuple(self.filled(body, inner) for inner in value)
        return value

    def value_of(self, attr: str, body: BodyNode) -> Any:
        """The value of one of the function's attributes."""
        if attr in self.attrs:
            return self.attrs[attr]
        declared = self.definition.attr_defs.get(attr)
        if declared is not None and declared.has_default:
            return declared.default
        message = f"function {self.name!r} requires the attribute {attr!r}, which the caller lacks"
        raise InvalidInput(message, node=f"{self.name}/{body.name}", code="CFG110")

    def connect(self, node: Node, body: BodyNode) -> None:
        """Set the input edges of a node."""
        inputs = [self.tensor(text, body.name) for text in body.inputs if text[:1] != "^"]
        # `^argument` needs no edge: arguments exist when the function starts
        names = [text[1:] for text in body.inputs if text[:1] == "^"]
        controls = [self.node(name, body.name) for name in names if name not in self.arguments]
        self.graph.connect(node, inputs, controls)

    def returned(self, arg: ArgDef, signature: Signature) -> Iterator[Output]:
        """Tensors of one output argument."""
        text = self.definition.returns.get(arg.name)
        if text is None:
            message = f"function {self.name!r} returns nothing for its output {arg.name!r}"
            raise InvalidInput(message, node=self.name, code="CFG131")
        count = len(self.types(signature, arg))
        if count == 1:
            yield self.tensor(text, self.name)
            return
        name, _, rest = text.partition(":")
        start = text if name in self.arguments or ":" in rest else f"{text}:0"
        base, _, first = start.rpartition(":") if ":" in start else (start, "", "0")
        for index in range(count):
            yield self.tensor(f"{base}:{int(first) + index}", self.name)

    def control_return(self, name: str) -> Node:
        """The node of one control output."""
        target = self.definition.control_returns.get(name, "")
        return self.node(target, self.name)

    def node(self, name: str, reader: str) -> Node:
        """A node of the body by name."""
        node = self.graph.nodes.get(name)
        if node is None or name in self.arguments:
            raise self.unresolved(f"^{name}", reader)
        return node

    def tensor(self, text: str, reader: str) -> Output:
        """The output named `arg`, `arg:i`, `node:name` or `node:name:i`."""
        name, *rest = text.split(":")
        index = rest[-1] if rest and rest[-1].isdecimal() else None
        group = self.arguments.get(name)
        if group is not None:
            position = int(index or 0)
            if position >= len(group) or len(rest) > 1:
                raise self.unresolved(text, reader)
            return Output(group[position])
        node = self.graph.nodes.get(name)
        if node is None or not rest or rest[0].isdecimal() or len(rest) > 2:
            raise self.unresolved(text, reader)
        if not self.ports.knows(node.op):
            return Output(node, self.guess(node, rest[0], int(index or 0)))
        port = self.ports.find(node, rest[0], int(index or 0))
        if port is None:
            raise self.unresolved(text, reader)
        return Output(node, port)

    def guess(self, node: Node, output: str, index: int) -> int:
        """The port of an unknown op's output, if only one output is read."""
        if self.read.setdefault(node, output) == output:
            return index
        message = (
            f"op {node.op!r} is unknown, and so is the order of its outputs "
            f"{self.read[node]!r} and {output!r}"
        )
        where = f"{self.name}/{node.name}"
        raise Unsupported(message, node=where, hint=UNKNOWN_OP_HINT, code="CFG135")

    def unresolved(self, text: str, reader: str) -> InvalidInput:
        """Error for an input that does not exist."""
        message = f"input {text!r} does not exist in the body of function {self.name!r}"
        return InvalidInput(message, node=reader, code="CFG130")
