"""Function libraries: copies of graphs, called functions, and functions made from nodes.

A function may have several implementations, one of which is selected for the device of a call.
Functions with an equal attribute `api_implements` compute the same; `api_preferred_device` names
the type of device that one of them is written for. TensorFlow's implementation selector replaces
the function that a call names by the sibling for the device that the call runs on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final
from weakref import WeakKeyDictionary

from cfgraph.errors import InvalidInput, Unsupported, UsageError
from cfgraph.ir import registry
from cfgraph.ir.attrs import Func
from cfgraph.ir.devices import DeviceName
from cfgraph.ir.function_graph import FunctionGraph, OutputPorts, instantiate, is_polymorphic
from cfgraph.ir.functions import (
    CUSTOM_GRADIENT_ATTR,
    BodyNode,
    Function,
    FunctionDefinition,
)
from cfgraph.ir.graph import Graph, Node, Output, require_graph
from cfgraph.ir.names import decode_text, known_names_hint
from cfgraph.ir.signature import ArgDef


def copy_graph(graph: Graph, nodes: Iterable[Node] | None = None) -> Graph:
    """A graph with the same nodes, library and versions; attribute values are shared.

    `nodes` restricts it to a subset, which must contain all inputs of its nodes.
    """
    copy = Graph()
    copy.functions = dict(graph.functions)
    copy.gradient_functions = dict(graph.gradient_functions)
    copy.registered_gradients = graph.registered_gradients
    copy.versions, copy.origin = graph.versions, graph.origin
    copy.named_tensors = graph.named_tensors
    copy.add_copies(graph if nodes is None else nodes)
    return copy


def called_functions(
    graph: Graph, more: Iterable[str] = (), nodes: Iterable[Node] | None = None
) -> set[str]:
    """Names of the functions that a graph, or some of its nodes, calls, also through other calls.

    `more` are names of functions that count as called. Other implementations of a called function
    (see the module) count too, since the device of the call may select one of them.
    """
    if not graph.functions:
        return set()
    chosen = graph if nodes is None else nodes
    todo = [*more, *_names_called_by(chosen)]
    names: set[str] = set()
    while todo:
        name = todo.pop()
        registered = graph.registered_gradients.get(name)
        name = name if registered is None else registered.function
        function = graph.functions.get(name)
        if function is None or name in names:
            continue
        names.add(name)
        if name in graph.gradient_functions:
            todo.append(graph.gradient_functions[name])
        todo.extend(siblings(graph.functions, name))
        todo.extend(body_calls(function))
    return names


def _names_called_by(nodes: Iterable[Node | BodyNode]) -> set[str]:
    """The ops of nodes, and the functions and custom gradients that their attributes name."""
    names: set[str] = set()
    for node in nodes:
        names.add(node.op)
        if CUSTOM_GRADIENT_ATTR in node.attrs:
            names.add(custom_gradient_name(node) or "")
        for value in node.attrs.values():
            kind = type(value)
            if kind is Func or (kind is tuple and Func in map(type, value)):
                names.update(_called_names(node.op, node.attrs))
                break
    return names


def custom_gradient_name(node: Node | BodyNode) -> str | None:
    """The name under which the program that wrote a node registered its gradient, or None."""
    name = node.attrs.get(CUSTOM_GRADIENT_ATTR)
    return decode_text(name) if isinstance(name, bytes) and name else None


# functions are never modified
_calls_by_body: WeakKeyDictionary[Function, frozenset[str]] = WeakKeyDictionary()


def body_calls(function: Function) -> frozenset[str]:
    """The ops of the body of a function, and the functions and custom gradients it names."""
    calls = _calls_by_body.get(function)
    if calls is None:
        calls = frozenset(_names_called_by(function.definition.nodes))
        _calls_by_body[function] = calls
    return calls


def expanded_size(graph: Graph, nodes: Iterable[Node]) -> int:
    """An upper bound of the number of nodes after all calls are replaced by bodies.

    A recursive call counts once.
    """
    calls = {
        name: [
            called
            for node in function.definition.nodes
            for called in _called_names(node.op, node.attrs)
            if called in graph.functions
        ]
        for name, function in graph.functions.items()
    }
    sizes: dict[str, int] = {}
    called = [name for node in nodes for name in _called_names(node.op, node.attrs)]
    todo, entered = [name for name in called if name in calls], set[str]()
    while todo:
        name = todo[-1]
        if name not in entered:
            entered.add(name)
            todo.extend(callee for callee in calls[name] if callee not in entered)
            continue
        todo.pop()
        bodies = sum(sizes.get(callee, 0) for callee in calls[name])
        sizes[name] = len(graph.functions[name].definition.nodes) + bodies
    return len(graph.nodes) + sum(sizes.get(name, 0) for name in called)


def calls_of(node: Node | BodyNode) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The functions that a node may call, by its op or an attribute, and their attributes.

    Some of the names may be ops.
    """
    yield node.op, node.attrs
    todo = [*node.attrs.values()]
    while todo:
        value = todo.pop()
        if type(value) is tuple:
            todo.extend(element for element in value if type(element) is Func)
        elif type(value) is Func:
            yield value.name, value.attrs
            todo.extend(value.attrs.values())


def remove_uncalled_functions(graph: Graph, more: Iterable[str] = ()) -> None:
    """Remove functions and gradients that `called_functions` does not return."""
    for name in graph.functions.keys() - called_functions(graph, more):
        del graph.functions[name]
        graph.gradient_functions.pop(name, None)


def _called_names(op: str, attrs: Mapping[str, Any]) -> Iterator[str]:
    yield op
    for value in attrs.values():
        for element in value if type(value) is tuple else (value,):
            if type(element) is Func:
                yield element.name
                yield from _called_names(element.name, element.attrs)


def function_from_nodes(
    name: str,
    nodes: Iterable[Node],
    inputs: Mapping[str, Output],
    outputs: Mapping[str, Output],
    control_outputs: Mapping[str, Node] | None = None,
    library: Mapping[str, Function] | None = None,
) -> Function:
    """A function with the body `nodes` (or all nodes of a Graph); the graph is not modified.

    Readers of one of the `inputs` read that argument instead. A node whose outputs are all inputs
    is omitted, so that a body may be written with placeholders. `control_outputs` are nodes that
    must run even if no output is read.

    Raises InvalidInput if the body reads a tensor that is neither inside nor an input; Unsupported
    if an op, and thus the names of its outputs, is unknown.
    """
    members = list(nodes)
    arguments = {output: arg for arg, output in inputs.items()}
    stand_ins = {output.node for output in arguments if _is_stand_in(output.node, arguments)}
    controls = dict(control_outputs or {})
    writer = _BodyNodeWriter(name, arguments, OutputPorts(library or {}), set(members) - stand_ins)
    body = tuple(writer.body_node(node) for node in members if node not in stand_ins)
    definition = FunctionDefinition(
        inputs=tuple(writer.arg(arg, output) for arg, output in inputs.items()),
        outputs=tuple(writer.arg(arg, output) for arg, output in outputs.items()),
        nodes=body,
        returns={arg: writer.text(output) for arg, output in outputs.items()},
        control_outputs=tuple(controls),
        control_returns={arg: node.name for arg, node in controls.items()},
        stateful=any(_is_stateful(node, library or {}) for node in writer.inside),
    )
    return Function(name, definition)


def function_from_body(
    name: str,
    body: FunctionGraph,
    definition: FunctionDefinition,
    library: Mapping[str, Function],
) -> Function:
    """The function of an edited body, whose arguments and outputs have the names of `definition`.

    Raises as `function_from_nodes`.
    """
    arguments = zip(definition.inputs, body.arguments, strict=True)
    outputs = zip(definition.outputs, body.returns, strict=True)
    return function_from_nodes(
        name,
        body.graph,
        {arg.name: node.output() for arg, node in arguments},
        {arg.name: tensor for arg, tensor in outputs},
        dict(zip(definition.control_outputs, body.control_returns, strict=True)),
        library,
    )


def with_body(function: Function, body: FunctionGraph, library: Mapping[str, Function]) -> Function:
    """The function with an edited body; its signature and attributes stay."""
    definition = function.definition
    made = function_from_body(function.name, body, definition, library).definition
    changed = replace(
        definition, nodes=made.nodes, returns=made.returns, control_returns=made.control_returns
    )
    return Function(function.name, changed)


_RESULT_OP: Final = "_Retval"


@contextmanager
def edit_function(graph: Graph, name: str) -> Iterator[Graph]:
    """The body of a function as a graph, which replaces the body at the end of the `with` block.

    Arguments are nodes of the op `_Arg`, results nodes of the op `_Retval`, and both must stay.
    Functions that are added to the body are added to the library of `graph`. An error in the block
    changes nothing.

    Raises UsageError if the library has no such function, Unsupported for a function whose body
    depends on attributes of its calls, InvalidInput for an edited body that is no function.
    """
    require_graph(graph)
    function = graph.functions.get(name)
    if function is None:
        message = f"the library has no function {name!r}"
        raise UsageError(message, hint=known_names_hint(name, graph.functions, "it"))
    if is_polymorphic(function):
        message = f"the body of function {name!r} depends on attributes of its calls"
        raise Unsupported(message, hint="lower the graph, and edit the result", code="CFG135")
    body = instantiate(function, {}, graph.functions)
    edited = body.graph
    edited.functions.update(graph.functions)
    results = [
        edited.add(_RESULT_OP, tensor, name=output.name, index=index)
        for index, (output, tensor) in enumerate(
            zip(function.definition.outputs, body.returns, strict=True)
        )
    ]
    yield edited
    for node in (*body.arguments, *results, *body.control_returns):
        if edited.nodes.get(node.name) is not node:
            message = f"{node.name!r} was removed, but callers of function {name!r} depend on it"
            raise InvalidInput(message, node=node, code="CFG131")
    body = replace(body, returns=tuple(node.inputs[0] for node in results))
    edited.remove(*results)
    changed = with_body(function, body, edited.functions)
    added = {key: item for key, item in edited.functions.items() if key not in graph.functions}
    graph.functions.update(added)
    graph.functions[name] = changed


def _is_stand_in(node: Node, arguments: Mapping[Output, str]) -> bool:
    count = node.output_count
    return count is not None and all(Output(node, port) in arguments for port in range(count))


class _BodyNodeWriter:
    """Converts nodes to nodes of a function body."""

    def __init__(
        self, name: str, arguments: Mapping[Output, str], ports: OutputPorts, inside: set[Node]
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.ports = ports
        self.inside = inside

    def body_node(self, node: Node) -> BodyNode:
        """One node of the body; control edges from outside are dropped."""
        texts = [self.text(output, node) for output in node.inputs]
        texts.extend(f"^{control.name}" for control in node.controls if control in self.inside)
        attrs = dict(node.attrs)
        return BodyNode(node.name, node.op, tuple(texts), node.device, attrs, node.origin)

    def text(self, output: Output, reader: Node | None = None) -> str:
        """A tensor as written in the body."""
        argument = self.arguments.get(output)
        if argument is not None:
            return argument
        if output.node in self.inside:
            return self.ports.text(output)
        message = (
            f"{output.name} is neither in the body of function {self.name!r} nor one of its inputs"
        )
        raise InvalidInput(message, node=reader or output.node, code="CFG130")

    def arg(self, name: str, output: Output) -> ArgDef:
        """An argument with the type of a tensor."""
        dtype = self.ports.dtype(output)
        if dtype is None:
            message = (
                f"the type of {output.name} is unknown, so it cannot cross a function boundary"
            )
            raise Unsupported(message, node=output.node, code="CFG135")
        return ArgDef(name, dtype.base, None)


def _is_stateful(node: Node, library: Mapping[str, Function]) -> bool:
    function = library.get(node.op)
    if function is not None:
        return function.definition.stateful
    known = registry.lookup(node.op)
    return bool(known is None or known.effects.stateful)


_INTERFACE: Final = "api_implements"
_PREFERENCE: Final = "api_preferred_device"
# attributes by which the three functions of a differentiated call name each other
_PASSES: Final = ("forward_function_name", "backward_function_name")
_DEFAULT_TYPE: Final = "CPU"


def select_implementation(library: Mapping[str, Function], name: str, device: str) -> str:
    """The function that a call of `name` on a device runs: a sibling that prefers the device.

    A call without a device counts as a call on a CPU. The function itself, if it is the only one
    of its interface or no sibling prefers the device.
    """
    function = library.get(name)
    if function is None or _INTERFACE not in function.definition.attrs:
        return name
    parts = DeviceName.parse(device)
    wanted = (parts and parts.kind) or _DEFAULT_TYPE
    if _preferred_type(function.definition) == wanted:
        return name
    return next(
        (
            key
            for key in siblings(library, name)
            if _preferred_type(library[key].definition) == wanted
        ),
        name,
    )


def called_implementation(graph: Graph, node: Node) -> str | None:
    """The function that a call runs, or None if it names no function with several ones."""
    called = node.attrs.get("f")
    name = called.name if isinstance(called, Func) else node.op
    function = graph.functions.get(name)
    if function is None or next(siblings(graph.functions, name), None) is None:
        return None
    return select_implementation(graph.functions, name, node.device)


def siblings(library: Mapping[str, Function], name: str) -> Iterator[str]:
    """Names of the other implementations of a function: same interface, direction, and types."""
    definition = library[name].definition
    if _INTERFACE in definition.attrs:
        for key, function in library.items():
            if key != name and _identity(function.definition) == _identity(definition):
                yield key


def _identity(definition: FunctionDefinition) -> tuple[Any, ...]:
    """Facts that equivalent implementations share."""
    return (
        definition.attrs.get(_INTERFACE),
        tuple(key in definition.attrs for key in _PASSES),
        tuple((arg.dtype, arg.type_attr) for arg in definition.inputs),
        tuple((arg.dtype, arg.type_attr) for arg in definition.outputs),
    )


def _preferred_type(definition: FunctionDefinition) -> str:
    value = definition.attrs.get(_PREFERENCE, b"")
    return value.decode("utf-8", "replace").upper() if isinstance(value, bytes) else ""
