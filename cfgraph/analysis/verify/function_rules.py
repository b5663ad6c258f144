"""Rules for the function library, and function bodies as graphs, to which all other rules apply.

Functions exist, are called as declared, and resolve.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from cfgraph.analysis.findings import Finding
from cfgraph.analysis.verify.context import (
    NodeTypes,
    Signatures,
    TypeRow,
    VerifyContext,
    arg_types,
    signature_types,
)
from cfgraph.ir import dtypes, registry
from cfgraph.ir.attrs import AttrPlaceholder, Func, functions_in
from cfgraph.ir.dtypes import DType
from cfgraph.ir.function_graph import FunctionGraph, is_polymorphic
from cfgraph.ir.functions import BodyNode, Function
from cfgraph.ir.graph import CONTROL, Graph, Node, Output
from cfgraph.ir.library import body_calls
from cfgraph.ir.load_faults import name_taken_error
from cfgraph.ir.node import make_pair, port_number
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.ir.signature import ArgDef, Signature
from cfgraph.ir.traversal import strong_components
from cfgraph.ops.opdef.facts import FunctionCalls
from cfgraph.ops.opdef.op import function_calls


class BodyGraph(NamedTuple):
    """A function body as a graph, with the returned tensors and the findings on its references."""

    subject: VerifyContext
    returns: dict[str, Output]
    faults: tuple[Finding, ...]
    crosses_lists: bool

    def as_function(self, function: Function) -> FunctionGraph | None:
        """The body as the only instance of a function, if it has no findings.

        None if the function has other instances, or if instantiation would give another graph: it
        rejects indices beyond a list of outputs, drops control edges from arguments, and prefers a
        function to an op of the same name.
        """
        if self.crosses_lists or is_polymorphic(function):
            return None
        arguments, definition = tuple(self.subject.arguments), function.definition
        nodes, library = self.subject.graph.nodes, self.subject.signatures.library
        awaited = [nodes[definition.control_returns[name]] for name in definition.control_outputs]
        used = {use.slot for node in arguments for use in node.uses}
        if CONTROL in used or {*awaited}.intersection(arguments):
            return None
        if any(op in library and registry.lookup(op) for op in self.subject.by_op):
            return None
        signature = Signature.from_args(definition.inputs, definition.outputs, {})
        types = signature.input_types({})
        for index, (node, dtype) in enumerate(zip(arguments, types, strict=True)):
            node.attrs = {**node.attrs, "T": dtype, "index": index}
        returns = tuple([self.returns[arg.name] for arg in definition.outputs])
        outputs = tuple(signature.output_types({}))
        graph = self.subject.graph
        return FunctionGraph(
            function.name, graph, arguments, returns, tuple(awaited), tuple(types), outputs, ()
        )


def body_graph(function: Function, signatures: Signatures) -> BodyGraph:
    """The body of a function as a graph; its arguments become `_Arg` nodes."""
    return _BodyReader(function, signatures).read()


def union_of_bodies(bodies: Sequence[BodyGraph], signatures: Signatures) -> VerifyContext:
    """The nodes of several bodies as one graph, in which names are no names of nodes."""
    graph, arguments = Graph(), dict[Node, NodeTypes]()
    nodes = chain.from_iterable(body.subject.graph for body in bodies)
    graph.nodes = {str(number): node for number, node in enumerate(nodes)}
    for body in bodies:
        arguments.update(body.subject.arguments)
    return VerifyContext(graph, signatures, bodies[0].subject.function, arguments)


class _BodyReader:
    """Reader that resolves the textual inputs of a body."""

    def __init__(self, function: Function, signatures: Signatures) -> None:
        self.function = function
        self.definition = function.definition
        self.signatures = signatures
        self.graph = Graph()
        self.arguments: dict[Node, NodeTypes] = {}
        self.returns: dict[str, Output] = {}
        self.faults: list[Finding] = []
        # the name of the outputs that are read of an unknown op
        self.output_names: dict[Node, str] = {}
        self.crosses_lists = False  # an index is beyond the named list of outputs
        self.resolved: dict[str, Output] = {}

    def read(self) -> BodyGraph:
        """Read the arguments, then the nodes, then the edges."""
        for arg in self.definition.inputs:
            self.add_argument(arg)
        made = [(body, self.add_node(body)) for body in self.definition.nodes]
        for body, node in made:
            if node is not None:
                self.connect(body, node)
        self.read_returns()
        subject = VerifyContext(self.graph, self.signatures, self.function.name, self.arguments)
        return BodyGraph(subject, self.returns, tuple(self.faults), self.crosses_lists)

    def fault(self, code: str, message: str, node: str | None, hint: str | None = None) -> None:
        """Record an error in the body, by its code in the catalog."""
        self.faults.append(Finding(code, "error", message, node, hint))

    def add_argument(self, arg: ArgDef) -> None:
        """Add the `_Arg` node of an argument."""
        if arg.name in self.graph:
            self.fault("CFG104", f"two arguments have the name {arg.name!r}", arg.name)
            return
        node = self.graph.create(arg.name, "_Arg")
        if arg.dtype is not None and not arg.count:
            row: Any = (arg.dtype.ref if arg.is_ref else arg.dtype,)
        else:
            declared = Signature.from_args((arg,), (), self.definition.attr_defs)
            row = _row(declared, arg, {name: AttrPlaceholder(name) for name in declared.attrs})
        self.arguments[node] = NodeTypes((), row)

    def add_node(self, body: BodyNode) -> Node | None:
        """Add a node of the body without its edges."""
        if body.name in self.graph:
            self.fault("CFG104", name_taken_error(body.name).message, body.name)
            return None
        if ROLES[body.op] is Role.ARG:
            message = f"{body.op} is not allowed in the body of a function"
            hint = "read the argument by its name in the signature"
            self.fault("CFG138", message, body.name, hint)
        node = self.graph.create(body.name, body.op, attrs=dict(body.attrs), device=body.device)
        node.origin = body.origin
        return node

    def connect(self, body: BodyNode, node: Node) -> None:
        """Set the edges of a node."""
        inputs: list[Output] = []
        controls: list[Node] = []
        for text in body.inputs:
            if text.startswith("^"):
                source = self.graph.nodes.get(text[1:])
                if source is None:
                    self.unresolved(text, node.name)
                else:
                    controls.append(source)
                continue
            if controls:
                message = f"data input {text!r} comes after control inputs"
                self.fault("CFG106", message, node.name)
            tensor = self.resolved.get(text) or self.resolve(text)
            if tensor is None:
                self.unresolved(text, node.name)
            else:
                inputs.append(tensor)
        self.graph.connect(node, inputs, controls)

    def unresolved(self, text: str, node: str) -> None:
        """Record an input that does not resolve."""
        message = f"input {text!r} does not name a tensor of the function's body"
        self.fault("CFG130", message, node, self.suggestion(text))

    def suggestion(self, text: str) -> str | None:
        """A hint for an input that does not resolve."""
        base = text.lstrip("^").partition(":")[0]
        known = self.graph.nodes.get(base)
        if known is None or known in self.arguments:
            return self.signatures.suggest(base, self.graph.nodes)
        signature = self.signatures.find(known.op)
        names = ", ".join(arg.name for arg in signature.outputs) if signature else ""
        hint = f"the outputs of {base!r} ({known.op}): {names or 'none'}"
        if text == base and names:
            hint += f"; in a function write {base}:{names.partition(',')[0]}:0"
        return hint

    def resolve(self, text: str) -> Output | None:
        """The tensor of `arg`, `arg:i`, `node:out`, or `node:out:i`, or None if it is unknown."""
        name, *rest = text.split(":", 2)
        node = self.graph.nodes.get(name)
        if node is None:
            return None
        if node in self.arguments:
            return self.output(text, node, 0) if not rest else _indexed(node, 0, rest)
        if not rest:
            return None
        signature = self.signatures.find(node.op)
        if signature is None:
            # the output names of an unknown op are unknown; assume its first output
            if self.output_names.setdefault(node, rest[0]) != rest[0]:
                message = (
                    f"op {node.op!r} is unknown, and so is the order of its outputs "
                    f"{self.output_names[node]!r} and {rest[0]!r}"
                )
                self.fault("CFG135", message, node.name)
            return _indexed(node, 0, rest[1:])
        port = 0
        for arg in signature.outputs:
            is_named = arg.name == rest[0]
            if is_named and (len(rest) == 1 or rest[1] == "0"):
                return self.output(text, node, port)
            run = arg_types(signature, arg, node.attrs)
            count = len(run[0]) * run[1] if run else 1
            if is_named:
                output = _indexed(node, port, rest[1:])
                self.crosses_lists |= output is not None and output.port >= port + count
                return output
            port += count
        return None

    def output(self, text: str, node: Node, port: int) -> Output:
        """The output of a node that a text names, also for the next time."""
        tensor: Output = make_pair(Output, (node, port))
        self.resolved[text] = tensor
        return tensor

    def read_returns(self) -> None:
        """Resolve the returned tensors of the function."""
        definition, returns = self.definition, self.definition.returns
        for arg in definition.outputs:
            if arg.name not in returns:
                message = f"the function returns nothing for its output {arg.name!r}"
                self.fault("CFG131", message, None)
        for name, text in returns.items():
            found = self.resolve(text)
            if found is not None:
                self.returns[name] = found
            else:
                expected = "expected a tensor of its body"
                message = f"output {name!r} of the function is {text!r}, {expected}"
                self.fault("CFG131", message, None, self.suggestion(text))
        for name in definition.control_outputs:
            node = definition.control_returns.get(name)
            if node is None or node not in self.graph:
                message = (
                    f"control output {name!r} of the function does not name a node of its body"
                )
                self.fault("CFG131", message, None)


def _row(signature: Signature, arg: ArgDef, attrs: dict[str, Any]) -> Any:
    run = arg_types(signature, arg, attrs)
    return run[0] * run[1] if run else None


def _indexed(node: Node, first: int, rest: list[str]) -> Output | None:
    """The output of a text's final index; 0 if it has none."""
    if not rest:
        return Output(node, first)
    index = port_number(rest[0]) if len(rest) == 1 else None
    return None if index is None else Output(node, first + index)


_SHOWN = 8


def check_named_functions(subject: VerifyContext) -> Iterator[Finding]:
    """Every function that an attribute names is in the library or is an op."""
    signatures = subject.signatures
    for nodes in subject.functional_nodes.values():
        for node in nodes:
            for key, func in functions_in_attrs(node.attrs):
                if not key.startswith("_") and signatures.find(func.name) is None:
                    message = (
                        f"attribute {key!r} names a function that does not exist, {func.name!r}"
                    )
                    hint = subject.signatures.suggest(func.name, signatures.library)
                    yield Finding("CFG133", "error", message, node.name, hint)


def functions_in_attrs(attrs: Mapping[str, Any]) -> Iterator[tuple[str, Func]]:
    """The functions that attributes name, existing or not, with the attribute."""
    for key, value in attrs.items():
        for func in functions_in(value):
            yield key, func


def check_calls(subject: VerifyContext) -> Iterator[Finding]:
    """Called functions accept and return the types that the calling node expects."""
    for op, nodes in subject.functional_nodes.items():
        calls = function_calls(op)
        if calls.kind in _CONTRACTS:
            for node in nodes:
                yield from _check_call(subject, node, calls)


def _check_call(subject: VerifyContext, node: Node, calls: FunctionCalls) -> Iterator[Finding]:
    reads, returns = subject.types[node]
    if reads is None or returns is None or len(reads) != len(node.inputs):
        return
    for key, func in functions_in_attrs({key: node.attrs.get(key) for key in calls.functions}):
        signature = subject.signatures.find(func.name)
        if signature is None:
            continue
        passed = tuple(reads)[calls.first_argument :]
        wanted = _CONTRACTS[calls.kind](key, passed, returns)
        have = signature_types(signature, func.attrs)
        for what, mine, types in (
            ("take", have.inputs, wanted.inputs),
            ("return", have.outputs, wanted.outputs),
        ):
            if mine is not None and types is not None and not _are_compatible(mine, types):
                message = (
                    f"function {func.name!r} ({key}) {what}s {_format_types(mine)}, "
                    f"{node.op} expects it to {what} {_format_types(types)}"
                )
                yield Finding("CFG132", "error", message, node.name)


def _unchanged_contract(key: str, passed: TypeRow, returns: TypeRow) -> NodeTypes:
    return NodeTypes(passed, returns)


def _while_contract(key: str, passed: TypeRow, returns: TypeRow) -> NodeTypes:
    return NodeTypes(passed, (None,) if key == "cond" else returns)


def _for_contract(key: str, passed: TypeRow, returns: TypeRow) -> NodeTypes:
    return NodeTypes((dtypes.int32, *passed), returns)


def _gradient_contract(key: str, passed: TypeRow, returns: TypeRow) -> NodeTypes:
    """The types of a function that SymbolicGradient differentiates.

    Its inputs are the first ones of the node, as many as the node has outputs; the other inputs are
    the gradients of its outputs.
    """
    count = len(returns)
    return NodeTypes(tuple(passed)[:count], tuple(passed)[count:])


_CONTRACTS: Final = {
    "if": _unchanged_contract,
    "case": _unchanged_contract,
    "call": _unchanged_contract,
    "launch": _unchanged_contract,
    "while": _while_contract,
    "for": _for_contract,
    "gradient": _gradient_contract,
}


def _are_compatible(actual: TypeRow, expected: TypeRow) -> bool:
    return len(actual) == len(expected) and all(
        a is None or b is None or a.base is b.base for a, b in zip(actual, expected, strict=True)
    )


def _format_types(row: Sequence[DType | None]) -> str:
    if not row:
        return "nothing"
    names = ["any type" if dtype is None else str(dtype) for dtype in islice(row, _SHOWN)]
    more = f", … ({len(row)} in all)" if len(row) > _SHOWN else ""
    return f"({', '.join(names)}{more})"


def check_returned_types(body: BodyGraph, types: Mapping[Node, NodeTypes]) -> Iterator[Finding]:
    """Returned tensors have the declared types; `types` are those of the nodes of the body."""
    subject = body.subject
    signature = subject.signatures.find(subject.function)
    if signature is None:
        return
    for arg in signature.outputs:
        tensor = body.returns.get(arg.name)
        if tensor is None or arg.dtype is None or arg.count:
            continue
        outputs = types[tensor.node].outputs
        if outputs is None:
            continue
        if tensor.port >= len(outputs):
            message = (
                f"output {arg.name!r} of the function is output {tensor.port} of "
                f"{tensor.node.name!r}, which has {len(outputs)}"
            )
            yield Finding("CFG131", "error", message)
        elif (have := outputs[tensor.port]) is not None and have.base is not arg.dtype:
            message = f"output {arg.name!r} of the function is {have}, declared is {arg.dtype}"
            yield Finding("CFG301", "error", message)


def check_returned_frames(body: BodyGraph) -> Iterator[Finding]:
    """Returned tensors are outside of loops, in the frame of the call."""
    if not body.subject.loop_ops:
        return
    frames = body.subject.frames
    if frames.cycles or frames.faults:
        return
    for name, tensor in body.returns.items():
        frame = frames.of_outputs.get(tensor.node)
        if frame is not None and frame is not frames.root:
            message = f"output {name!r} of the function is in frame {frame.path!r}, expected none"
            hint = "return the loop's Exit"
            yield Finding("CFG201", "error", message, tensor.node.name, hint)


def check_gradient_functions(graph: Graph, signatures: Signatures) -> Iterator[Finding]:
    """Both functions of every gradient registration exist."""
    for name, gradient in graph.gradient_functions.items():
        for function in (name, gradient):
            if function not in graph.functions:
                message = f"the gradient {gradient!r} of {name!r}: no function {function!r}"
                hint = signatures.suggest(function, graph.functions)
                yield Finding("CFG136", "error", message, None, hint)


def check_recursion(graph: Graph) -> Iterator[Finding]:
    """Functions are not recursive, directly or through others."""
    called = {name: tuple(dict.fromkeys(_callees(graph, name))) for name in graph.functions}
    callees = {name: names for name, names in called.items() if names}
    for cycle in _components(callees):
        message = f"function {cycle[0]!r} calls itself"
        if len(cycle) > 1:
            message += f" through {', '.join(map(repr, cycle[1:_SHOWN]))}"
        hint = "a recursive call cannot be lowered and stays a call"
        yield Finding("CFG134", "note", message, cycle[0], hint, tuple(cycle[1:]))


def _callees(graph: Graph, name: str) -> Iterator[str]:
    # not isdisjoint, which would visit all functions
    if not any(called in graph.functions for called in body_calls(graph.functions[name])):
        return
    for node in graph.functions[name].definition.nodes:
        if node.op in graph.functions:
            yield node.op
        for _, func in functions_in_attrs(node.attrs):
            if func.name in graph.functions:
                yield func.name


def _components(callees: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Strongly connected components of the call graph, in library order."""
    places = {name: index for index, name in enumerate(callees)}
    calling = {name: [each for each in names if each in places] for name, names in callees.items()}
    groups = [sorted(group, key=places.__getitem__) for group in strong_components(calling)]
    cycles = [group for group in groups if len(group) > 1 or group[0] in callees[group[0]]]
    return sorted(cycles, key=lambda group: places[group[0]])
