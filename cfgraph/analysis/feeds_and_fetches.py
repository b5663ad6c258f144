"""Tensors that a run feeds and fetches: inputs, missing feeds, and lookup by name.

In a graph that was pruned for one run, TensorFlow replaces feeds and fetches by `_Arg` and
`_Retval` nodes with an index, or by transfers from and to the client. They are found by the name of
the tensor that they stand for, or by their index.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from cfgraph.analysis.resource_handles import variable_of_handle
from cfgraph.errors import UsageError
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.node import node_name, split_tensor_name
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ir.traversal import ancestors, rendezvous_key
from cfgraph.ops.opdef.op import lookup

# the most feeds that a message or a suggested command lists
MAX_LISTED_FEEDS: Final = 8
# in graphs of older producers the shape [] of a Placeholder means any shape
_LAST_LOOSE_PRODUCER: Final = 21


def is_input(node: Node) -> bool:
    """True for an input of the graph."""
    op = lookup(node.op)
    return bool(op and (op.effects.is_input or _from_client(op.role, node)))


def are_inputs(graph: Graph, names: Iterable[str]) -> bool:
    """True if all names are of inputs, or of their tensors."""
    nodes = [graph.nodes.get(node_name(name)) for name in names]
    return all(node is not None and is_input(node) for node in nodes)


def _from_client(role: Role | None, node: Node) -> bool:
    return role is Role.RECV and bool(node.attrs.get("client_terminated"))


def must_be_fed(node: Node) -> bool:
    """True for an input without a default value."""
    return is_input(node) and not node.inputs


def declared_type(graph: Graph, tensor: Output) -> tuple[DType | None, Shape]:
    """The element type and shape that a tensor's node declares.

    If the node does not declare a type, as an unknown op, it is the one that all readers expect.
    """
    dtype = tensor.dtype
    if dtype is None:
        expected = expected_types(tensor)
        dtype = expected.pop() if len(expected) == 1 else None
    shape = tensor.node.attrs.get("shape") if is_input(tensor.node) else None
    if not isinstance(shape, Shape) or (
        shape.dims == () and 0 < graph.versions.producer <= _LAST_LOOSE_PRODUCER
    ):
        shape = UNKNOWN_SHAPE
    return (dtype.base if dtype else None), shape


def expected_types(tensor: Output) -> set[DType]:
    """The types that the readers of a tensor expect."""
    types = set[DType]()
    for use in tensor.node.readers(tensor.port):
        expected = use.node.input_types or ()
        if use.slot < len(expected):
            types.add(expected[use.slot].base)
    return types


def require_feeds(
    graph: Graph,
    fetches: Iterable[Output],
    targets: Iterable[Node],
    fed: Collection[Output],
    names: Mapping[str, str] | None = None,
) -> None:
    """Raise UsageError, listing all missing feeds, if a run needs an input that is not fed.

    An input with control inputs is exempt: it may be dead. `names` are the tensors of names to use
    in the message.
    """
    needed = [source.node for source in fetches if source not in fed]
    nodes = ancestors(graph, [*needed, *targets], fed, {source.node for source in fed})
    lacking = [
        node.output()
        for node in nodes
        if must_be_fed(node) and not node.controls and node.output() not in fed
    ]
    if lacking:
        raise missing_feeds_error(graph, lacking, names)


def missing_feeds_error(
    graph: Graph, lacking: list[Output], names: Mapping[str, str] | None = None
) -> UsageError:
    """The error that lists missing feeds, with the options to add."""
    name_of = {graph.tensor(tensor): name for name, tensor in (names or {}).items()}
    listed = lacking[:MAX_LISTED_FEEDS]
    names_text = ", ".join(
        f"{name_of.get(tensor, tensor.name)} ({describe_type(graph, tensor)})" for tensor in listed
    )
    hint = " ".join(feed_option(graph, tensor, name_of.get(tensor)) for tensor in listed)
    if more := len(lacking) - len(listed):
        names_text += f", and {more} more"
        hint = "--feeds FILE.npz, which has an array for each name"
    message = f"{len(lacking)} feeds are missing" if len(lacking) > 1 else "a feed is missing"
    return UsageError(f"{message}: {names_text}", hint=f"add {hint}", code="CFG036")


def describe_type(graph: Graph, tensor: Output) -> str:
    """Declared type and shape of a tensor, as in `float32[?,4]`."""
    dtype, shape = declared_type(graph, tensor)
    held = variable_of_handle(graph, tensor)[0] if dtype and dtype.kind == "resource" else None
    return format_type(dtype, shape) if held is None else f"the value of a variable, {held}"


def format_type(dtype: DType | None, shape: Shape) -> str:
    """Type and shape, as in `float32[?,4]`; `?` stands for an unknown type."""
    return f"{dtype or '?'}{'' if shape.dims is None else shape}"


def feed_option(graph: Graph, tensor: Output, name: str | None = None) -> str:
    """An example `--feed` option for a tensor, quoted for a shell."""
    if name is None:
        name = tensor.node.name if tensor.port == 0 else tensor.name
    return f"--feed {shlex.quote(f'{name}={example_feed(*declared_type(graph, tensor), name)}')}"


def example_feed(dtype: DType | None, shape: Shape, name: str) -> str:
    """An example VALUE of `--feed` for a type, or a file called like `name` if there is none."""
    if dtype is None or dtype.kind not in _SCALARS:
        return f"@{name.rpartition('/')[2]}.npy"
    if shape.dims == ():
        return _SCALARS[dtype.kind]
    sizes = ",".join("1" if size is None else str(size) for size in shape.dims or ())
    short = _SHORT_TYPES.get(dtype.name, dtype.name)
    return f"{short}[{sizes}]:{_GENERATORS.get(dtype.kind, 'zeros')}"


_SCALARS: Final = {
    "float": "1.0",
    "int": "3",
    "uint": "3",
    "bool": "true",
    "complex": "1+2j",
    "string": '"text"',
}
_GENERATORS: Final = {"float": "uniform(-1,1)", "complex": "uniform(-1,1)"}
_SHORT_TYPES: Final = {"float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64"}


def fed_tensor(graph: Graph, name: str) -> Output:
    """The tensor to feed under a name. Raises UsageError for an unknown name."""
    return _run_tensor(graph, name, (Role.ARG, Role.RECV), "_arg_")


def fetched_tensor(graph: Graph, name: str) -> Output:
    """The tensor to fetch under a name. Raises UsageError for an unknown name."""
    return _run_tensor(graph, name, (Role.RETVAL, Role.SEND), "_retval_")


def _run_tensor(graph: Graph, name: str, role: tuple[Role, Role], prefix: str) -> Output:
    try:
        return graph.tensor(name)
    except UsageError:
        tensor = _run_stand_in(graph, name, role, prefix)
        if tensor is None:
            raise
        return tensor.inputs[0] if tensor.inputs else Output(tensor, 0)


def _run_stand_in(graph: Graph, name: str, kind: tuple[Role, Role], prefix: str) -> Node | None:
    """The `_Arg`, `_Retval`, or client transfer with an index or for a tensor name."""
    base, port = split_tensor_name(name)
    indexed, client = kind
    for node in graph:
        role = ROLES[node.op]
        if role is indexed:
            index = node.attrs.get("index")
            if name in (node.name, str(index)) or node.name == f"{prefix}{base}_{port}_{index}":
                return node
        elif role is client and node.attrs.get("client_terminated"):
            tensor = rendezvous_key(node).tensor_name
            if tensor in (name, f"{base}:{port}"):
                return node
    return None
