"""Nodes of a graph as a function: the reverse of `function_graph`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cfgraph.errors import InvalidInput, Unsupported
from cfgraph.ir import registry
from cfgraph.ir.functions import BodyNode, Definition, Function
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.ports import Ports
from cfgraph.ir.signature import Arg


def define(
    name: str,
    nodes: Iterable[Node],
    inputs: Mapping[str, Output],
    outputs: Mapping[str, Output],
    control_outputs: Mapping[str, Node] | None = None,
    library: Mapping[str, Function] | None = None,
) -> Function:
    """A function whose body is `nodes` (a Graph is its nodes), unchanged in the graph.

    Whatever reads one of the `inputs` reads that argument instead; a node all of whose outputs
    are inputs stays out, so a body may be written with placeholders. `control_outputs` are the
    nodes that must run even if nobody reads the outputs.

    Raises InvalidInput where the body reads a tensor that is neither inside nor an input;
    Unsupported where an op is not known, since the names of its outputs are not either.
    """
    members = list(nodes)
    arguments = {output: arg for arg, output in inputs.items()}
    stand_ins = {output.node for output in arguments if _stands_in(output.node, arguments)}
    controls = dict(control_outputs or {})
    writer = _Writer(name, arguments, Ports(library or {}), set(members) - stand_ins)
    body = tuple(writer.body_node(node) for node in members if node not in stand_ins)
    definition = Definition(
        inputs=tuple(writer.arg(arg, output) for arg, output in inputs.items()),
        outputs=tuple(writer.arg(arg, output) for arg, output in outputs.items()),
        nodes=body,
        returns={arg: writer.text(output) for arg, output in outputs.items()},
        control_outputs=tuple(controls),
        control_returns={arg: node.name for arg, node in controls.items()},
        stateful=any(_stateful(node, library or {}) for node in writer.inside),
    )
    return Function(name, definition)


def _stands_in(node: Node, arguments: Mapping[Output, str]) -> bool:
    count = registry.output_count(node)
    return count is not None and all(Output(node, port) in arguments for port in range(count))


class _Writer:
    """Writes nodes the way that function bodies have them."""

    def __init__(
        self, name: str, arguments: Mapping[Output, str], ports: Ports, inside: set[Node]
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.ports = ports
        self.inside = inside

    def body_node(self, node: Node) -> BodyNode:
        """One node of the body; a control edge from outside stays outside."""
        texts = [self.text(output, node) for output in node.inputs]
        texts.extend(f"^{control.name}" for control in node.controls if control in self.inside)
        attrs = dict(node.attrs)
        return BodyNode(node.name, node.op, tuple(texts), node.device, attrs, node.origin)

    def text(self, output: Output, reader: Node | None = None) -> str:
        """A tensor as the body writes it."""
        argument = self.arguments.get(output)
        if argument is not None:
            return argument
        if output.node in self.inside:
            return self.ports.text(output)
        message = f"{output.name} is neither inside of function {self.name!r} nor one of its inputs"
        raise InvalidInput(message, node=reader or output.node, code="CFG130")

    def arg(self, name: str, output: Output) -> Arg:
        """An argument of the type of a tensor."""
        dtype = self.ports.dtype(output)
        if dtype is None:
            message = (
                f"the type of {output.name} is not known, so it cannot enter or leave a function"
            )
            raise Unsupported(message, node=output.node, code="CFG135")
        return Arg(name, dtype.base, None)


def _stateful(node: Node, library: Mapping[str, Function]) -> bool:
    function = library.get(node.op)
    if function is not None:
        return function.definition.stateful
    known = registry.lookup(node.op)
    return bool(known is None or known.stateful)
