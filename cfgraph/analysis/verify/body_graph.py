"""Function bodies as graphs, so that the same rules apply to them."""

from __future__ import annotations

from typing import Any, NamedTuple

from cfgraph.analysis.findings import Finding
from cfgraph.analysis.verify.context import NodeTypes, Signatures, VerifyContext, arg_types
from cfgraph.ir import registry
from cfgraph.ir.attrs import AttrPlaceholder
from cfgraph.ir.functions import BodyNode, Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.node import port_number
from cfgraph.ir.role import Role
from cfgraph.ir.signature import ArgDef, Signature


class BodyGraph(NamedTuple):
    """A function body as a graph, with the returned tensors and the findings on its references."""

    subject: VerifyContext
    returns: dict[str, Output]
    faults: tuple[Finding, ...]


def body_graph(function: Function, signatures: Signatures) -> BodyGraph:
    """The body of a function as a graph; its arguments become `_Arg` nodes."""
    return _BodyReader(function, signatures).read()


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
        return BodyGraph(subject, self.returns, tuple(self.faults))

    def fault(self, code: str, message: str, node: str | None, hint: str | None = None) -> None:
        """Record a finding."""
        self.faults.append(Finding(code, "error", message, node, hint))

    def add_argument(self, arg: ArgDef) -> None:
        """Add the `_Arg` node of an argument."""
        if arg.name in self.graph:
            self.fault("CFG104", f"two arguments have the name {arg.name!r}", arg.name)
            return
        node = self.graph.create(arg.name, "_Arg")
        declared = Signature.from_args((arg,), (), self.definition.attr_defs)
        waiting = {name: AttrPlaceholder(name) for name in declared.attrs}
        self.arguments[node] = NodeTypes((), _row(declared, arg, waiting))

    def add_node(self, body: BodyNode) -> Node | None:
        """Add a node of the body without its edges."""
        if body.name in self.graph:
            message = f"two nodes have the name {body.name!r}"
            self.fault("CFG104", message, body.name)
            return None
        definition = registry.lookup(body.op)
        if definition is not None and definition.role is Role.ARG:
            message = f"{body.op} is not allowed in the body of a function"
            hint = "read the argument by its name in the signature"
            self.fault("CFG138", message, body.name, hint)
        return self.graph.create(body.name, body.op, attrs=dict(body.attrs), device=body.device)

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
            tensor = self.resolve(text)
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
        signature = self.signatures.of(known.op)
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
            return _indexed(node, 0, rest)
        if not rest:
            return None
        signature = self.signatures.of(node.op)
        if signature is None:
            # the output names of an unknown op are unknown; assume its first output
            return _indexed(node, 0, rest[1:])
        port = 0
        for arg in signature.outputs:
            if arg.name == rest[0]:
                return _indexed(node, port, rest[1:])
            run = arg_types(signature, arg, node.attrs)
            port += len(run[0]) * run[1] if run else 1
        return None

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
                message = f"output {name!r} of the function is {text!r}, which does not exist"
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
