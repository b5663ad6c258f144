"""The functions of a StableHLO module as graphs, with one node per operation.

The regions of `while`, `case`, and `if` are graphs of their own, which the node names in its
attributes. A value that a region captures is a node `captured` there. Other regions, such as those
of `reduce`, are part of their operation. A child process reads the module, and sends the bodies as
documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cfgraph.ir.attrs import Func
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.shapes import Shape

# the ops of nodes that stand for no operation
ARGUMENT: Final = "argument"
CAPTURED: Final = "captured"
RETURN: Final = "return"
# the operations whose regions are bodies, with the attributes that name them; a case has several
REGIONS: Final = {
    "while": ("cond", "body"),
    "if": ("then_branch", "else_branch"),
    "case": (),
}


@dataclass(frozen=True, slots=True)
class TensorType:
    """A type of a module; `dtype` is None for one that is no tensor of a known type."""

    dtype: DType | None
    shape: Shape
    text: str

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> list[Any]:
        """The type in a document."""
        dims = self.shape.dims
        return [self.dtype and self.dtype.name, None if dims is None else list(dims), self.text]

    @classmethod
    def from_json(cls, fields: Sequence[Any]) -> TensorType:
        """The type of a document."""
        name, dims, text = fields
        dtype = None if name is None else DType.from_name(name)
        return cls(dtype, Shape(None if dims is None else tuple(dims)), str(text))


@dataclass(slots=True)
class ModuleBody:
    """A function of a module, or a region of an operation, whose node is the `caller`."""

    name: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...] = ()
    graph: Graph = field(default_factory=Graph)
    types: dict[Node, tuple[TensorType, ...]] = field(default_factory=dict)
    results: tuple[Output, ...] = ()
    caller: Node | None = None

    @property
    def signature(self) -> str:
        """The types of arguments and results."""
        return f"({', '.join(map(str, self.inputs))}) -> ({', '.join(map(str, self.outputs))})"

    @property
    def operations(self) -> int:
        """The number of operations."""
        return sum(node.op not in (ARGUMENT, CAPTURED, RETURN) for node in self.graph)

    def controls(self) -> Iterator[Node]:
        """The loops and conditionals."""
        return (node for node in self.graph if node.op in REGIONS)


def bodies_to_json(bodies: Sequence[ModuleBody]) -> list[Any]:
    """The document of the bodies of a module."""
    owners = {node: number for number, body in enumerate(bodies) for node in body.graph}
    documents = []
    for body in bodies:
        names = [None, None] if body.caller is None else [owners[body.caller], body.caller.name]
        documents.append(
            {
                "name": body.name,
                "inputs": [item.to_json() for item in body.inputs],
                "outputs": [item.to_json() for item in body.outputs],
                "nodes": [_node_to_json(body, node) for node in body.graph],
                "results": [[output.node.name, output.port] for output in body.results],
                "caller": names,
            }
        )
    return documents


def _node_to_json(body: ModuleBody, node: Node) -> list[Any]:
    attrs = {
        name: {"function": value.name} if isinstance(value, Func) else value
        for name, value in node.attrs.items()
    }
    inputs = [[output.node.name, output.port] for output in node.inputs]
    return [node.name, node.op, inputs, attrs, [item.to_json() for item in body.types[node]]]


def bodies_from_json(documents: Sequence[Mapping[str, Any]]) -> tuple[ModuleBody, ...]:
    """The bodies of a document."""
    bodies = [
        ModuleBody(
            document["name"],
            tuple(map(TensorType.from_json, document["inputs"])),
            tuple(map(TensorType.from_json, document["outputs"])),
        )
        for document in documents
    ]
    for body, document in zip(bodies, documents, strict=True):
        for fields in document["nodes"]:
            _add_node(body, *fields)
        body.results = _outputs(body.graph, document["results"])
    for body, document in zip(bodies, documents, strict=True):
        owner, name = document["caller"]
        body.caller = None if owner is None else bodies[owner].graph[name]
    return tuple(bodies)


def _add_node(
    body: ModuleBody, name: str, op: str, inputs: Any, attrs: Mapping[str, Any], types: Any
) -> None:
    values = {
        key: Func(value["function"]) if isinstance(value, dict) else str(value)
        for key, value in attrs.items()
    }
    node = body.graph.create(name, op, _outputs(body.graph, inputs), (), values)
    body.types[node] = tuple(map(TensorType.from_json, types))


def _outputs(graph: Graph, names: Sequence[Any]) -> tuple[Output, ...]:
    return tuple(Output(graph[name], int(port)) for name, port in names)
