"""The inputs of a graph: which nodes are to be fed, with what, and which feeds a run lacks."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable
from typing import Final

from cfgraph.analysis.handles import variable_behind
from cfgraph.analysis.needed import needed
from cfgraph.errors import UsageError
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.shapes import UNKNOWN, Shape
from cfgraph.ops.op import lookup

# up to this version of the producer a Placeholder says shape [] where it means any shape
_LOOSE_SCALARS: Final = 21


def is_input(node: Node) -> bool:
    """True for a node that is there to be fed."""
    op = lookup(node.op)
    return bool(op and (op.is_input or _from_client(op.role, node)))


def _from_client(role: str, node: Node) -> bool:
    return role == "recv" and bool(node.attrs.get("client_terminated"))


def must_be_fed(node: Node) -> bool:
    """True for a node that has no value unless it is fed."""
    return is_input(node) and not node.inputs


def declared(graph: Graph, tensor: Output) -> tuple[DType | None, Shape]:
    """The element type and the shape that a tensor has by its node's word."""
    dtype = tensor.dtype
    shape = tensor.node.attrs.get("shape") if is_input(tensor.node) else None
    if not isinstance(shape, Shape) or (
        shape.dims == () and 0 < graph.versions.producer <= _LOOSE_SCALARS
    ):
        shape = UNKNOWN
    return (dtype.base if dtype else None), shape


def require_feeds(
    graph: Graph, fetches: Iterable[Output], targets: Iterable[Node], fed: Collection[Output]
) -> None:
    """Raise UsageError, listing them all, if inputs that the run needs are not fed.

    An input that waits for a control edge is passed over: it may turn out to be dead.
    """
    wanted = [item.node for item in fetches if item not in fed]
    nodes = needed(graph, [*wanted, *targets], fed, {item.node for item in fed})
    lacking = [
        node.output()
        for node in nodes
        if must_be_fed(node) and not node.controls and node.output() not in fed
    ]
    if lacking:
        raise missing_feeds(graph, lacking)


def missing_feeds(graph: Graph, lacking: list[Output]) -> UsageError:
    """The error that lists all missing feeds, with options to paste."""
    names = ", ".join(f"{item.name} ({described(graph, item)})" for item in lacking)
    options = " ".join(feed_option(graph, item) for item in lacking)
    what = f"{len(lacking)} feeds are missing" if len(lacking) > 1 else "a feed is missing"
    return UsageError(f"{what}: {names}", hint=f"add {options}", code="CFG036")


def described(graph: Graph, tensor: Output) -> str:
    """Type and shape of a tensor by its node's word, as in `float32[?,4]`."""
    dtype, shape = declared(graph, tensor)
    held = variable_behind(graph, tensor)[0] if dtype and dtype.kind == "resource" else None
    return type_text(dtype, shape) if held is None else f"the value of a variable, {held}"


def type_text(dtype: DType | None, shape: Shape) -> str:
    """Type and shape, as in `float32[?,4]`; a `?` where the type is not known."""
    return f"{dtype or '?'}{'' if shape.dims is None else shape}"


def feed_option(graph: Graph, tensor: Output) -> str:
    """A `--feed` option that would do for a tensor, quoted for a shell."""
    name = tensor.node.name if tensor.port == 0 else tensor.name
    return f"--feed {shlex.quote(f'{name}={_sample(*declared(graph, tensor), name)}')}"


def _sample(dtype: DType | None, shape: Shape, name: str) -> str:
    if dtype is None or dtype.kind not in _SCALARS:
        return f"@{name.rpartition('/')[2]}.npy"
    if shape.dims == ():
        return _SCALARS[dtype.kind]
    sizes = ",".join("1" if size is None else str(size) for size in shape.dims or ())
    short = _SHORT.get(dtype.name, dtype.name)
    return f"{short}[{sizes}]:{_MADE.get(dtype.kind, 'zeros')}"


_SCALARS: Final = {
    "float": "1.0",
    "int": "3",
    "uint": "3",
    "bool": "true",
    "complex": "1+2j",
    "string": '"text"',
}
_MADE: Final = {"float": "uniform(-1,1)", "complex": "uniform(-1,1)"}
_SHORT: Final = {"float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64"}
