"""Summary of a SavedModel: its signatures and variables, and commands to try next."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from cfgraph.analysis.feeds_and_fetches import example_feed, format_type
from cfgraph.analysis.resource_handles import is_variable, variable_key
from cfgraph.analysis.summary import op_support
from cfgraph.analysis.verify.function_rules import functions_in_attrs
from cfgraph.cli.output import OutputTable
from cfgraph.ir.dtypes import DType
from cfgraph.ir.functions import BodyNode
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.node import node_name
from cfgraph.ir.serde.saved_model import SavedModelContents, SavedSignature, SignatureTensor
from cfgraph.ir.shapes import Shape
from cfgraph.ir.traversal import ancestors
from cfgraph.ir.units import format_byte_size
from cfgraph.ops.families.constants import PreventGradient
from cfgraph.ops.families.stablehlo import XlaCallModule
from cfgraph.ops.opdef.op import lookup
from cfgraph.reports import Column, Record

# the scope of added gradients, unless the graph has such a scope
_GRADIENTS: Final = "gradients"
_UNRUNNABLE: Final = ("unknown", "no kernel")
_SIZED_KINDS: Final = ("float", "int", "uint", "complex", "bool")


def signatures_table(contents: SavedModelContents) -> OutputTable:
    """Return one row per input and output of each signature."""
    columns = [
        Column("signature", style="cyan"),
        Column("direction", ""),
        Column("name", style="cyan"),
        Column("type"),
        Column("tensor", style="dim"),
    ]
    rows: list[Any] = []
    for name, signature in contents.signatures.items():
        titles = iter([name])
        for direction in ("inputs", "outputs"):
            for item in getattr(signature, direction):
                kind = format_type(item.dtype, item.shape)
                rows.append((next(titles, ""), direction[:-1], item.name, kind, item.tensor))
        rows.extend((title, "", "", "", "") for title in titles)
    return OutputTable(columns, rows)


class SignatureTensorReport(Record):
    """An input or output of a signature."""

    name: str
    tensor: str
    type: str


class SignatureReport(Record):
    """A signature of a SavedModel."""

    name: str
    inputs: Sequence[SignatureTensorReport]
    outputs: Sequence[SignatureTensorReport]


def signature_reports(contents: SavedModelContents) -> list[SignatureReport]:
    """Return the signatures for a document."""
    return [
        SignatureReport(item.name, _tensor_reports(item.inputs), _tensor_reports(item.outputs))
        for item in contents.signatures.values()
    ]


def _tensor_reports(tensors: Iterable[SignatureTensor]) -> list[SignatureTensorReport]:
    return [
        SignatureTensorReport.from_attributes(item, type=format_type(item.dtype, item.shape))
        for item in tensors
    ]


class VariableTotals(NamedTuple):
    """Number of variables, and the number and bytes of their values of known shape."""

    variables: int
    values: int
    bytes: int

    def __str__(self) -> str:
        known = f", {self.values:,} values, {format_byte_size(self.bytes)}" if self.values else ""
        return f"{self.variables}{known}"


def variable_totals(nodes: Iterable[Node]) -> VariableTotals:
    """Return the totals of variables; nodes that share a variable count once."""
    variables = {variable_key(node): node for node in nodes if is_variable(node)}
    sizes = [_size(node) for node in variables.values()]
    return VariableTotals(
        len(variables), sum(count for count, _ in sizes), sum(bytes for _, bytes in sizes)
    )


def _size(node: Node) -> tuple[int, int]:
    shape, dtype = node.attrs.get("shape"), node.attrs.get("dtype")
    if not (isinstance(shape, Shape) and isinstance(dtype, DType)):
        return 0, 0
    if shape.dims is None or not shape.is_full or dtype.kind not in _SIZED_KINDS:
        return 0, 0
    count = math.prod(size or 0 for size in shape.dims)
    return count, count * dtype.numpy.itemsize


class SavedModelSummary(NamedTuple):
    """Signatures, variables of the default one, and commands to try; the last one runs it."""

    contents: SavedModelContents
    variables: VariableTotals
    commands: list[str]


def summarize_saved_model(
    graph: Graph, path: str, contents: SavedModelContents
) -> SavedModelSummary:
    """Summarize a SavedModel."""
    commands = saved_model_commands(graph, path, contents)
    signature = contents.default_signature
    names = [node_name(item.tensor) for item in signature.outputs] if signature else []
    needed = ancestors(graph, [graph[name] for name in names if name in graph]) or graph
    return SavedModelSummary(contents, variable_totals(needed), commands)


def saved_model_commands(graph: Graph, path: str, contents: SavedModelContents) -> list[str]:
    """Return commands to try; the last one runs the default signature.

    Empty if there is no such signature, or if an op that it needs cannot run.
    """
    signature = contents.default_signature
    if signature is None or not signature.outputs:
        return []
    ops = _needed_ops(graph, signature)
    if ops is None or any(op_support(graph, op) in _UNRUNNABLE for op in ops):
        return []
    path = f"./{path}" if path.startswith("-") else path
    folder = shlex.quote(path)
    name = shlex.quote(signature.name)
    strings = [item for item in signature.inputs if item.dtype.kind == "string"]
    values = f" --variables {folder}" if contents.saver else ""
    commands = [
        f"cfgraph show {folder} --html model.html",
        f"cfgraph lower {folder} -o lowered.pb",
        f"cfgraph diff {folder} lowered.pb --run --signature {name}{values}{_feeds(strings)}",
    ]
    ys, xs = _floats(signature.outputs), _floats(signature.inputs)
    if ys and xs and not any(map(_has_no_gradient, ops)):
        names = f"--ys {shlex.quote(ys[0].name)} --xs {shlex.quote(xs[0].name)}"
        commands.append(f"cfgraph grad {folder} {names} -o gradients.pb")
        gradient = f"{_GRADIENTS}/{node_name(xs[0].tensor)}"
        if not any(node.name.split("/")[0] == _GRADIENTS for node in graph):
            feeds = _feeds(signature.inputs)
            options = f"--variables {folder}{feeds} --fetch {shlex.quote(gradient)}"
            commands.append(f"cfgraph run gradients.pb {options}")
    return [*commands, f"cfgraph run {folder}{_feeds(signature.inputs)}"]


def _feeds(tensors: Iterable[SignatureTensor]) -> str:
    """Return the options that feed example values."""
    values = [f"{item.name}={example_feed(item.dtype, item.shape, item.name)}" for item in tensors]
    return "".join(f" --feed {shlex.quote(value)}" for value in values)


def _floats(tensors: Iterable[SignatureTensor]) -> list[SignatureTensor]:
    return [item for item in tensors if item.dtype.kind == "float"]


def _has_no_gradient(op: str) -> bool:
    """True for an op through which a function of jax prevents gradients, or has none."""
    definition = lookup(op)
    return definition is not None and issubclass(definition, (PreventGradient, XlaCallModule))


def _needed_ops(graph: Graph, signature: SavedSignature) -> set[str] | None:
    """The ops that the outputs need, or None if the graph lacks an output."""
    names = [node_name(item.tensor) for item in signature.outputs]
    if not all(name in graph for name in names):
        return None
    fed = {node_name(item.tensor) for item in signature.inputs}
    needed = ancestors(graph, [graph[name] for name in names])
    return set(_all_ops(graph, [node for node in needed if node.name not in fed]))


def _all_ops(graph: Graph, nodes: Iterable[Node]) -> Iterator[str]:
    """Yield the ops of nodes and of the functions that they call."""
    pending: list[Node | BodyNode] = [*nodes]
    seen: set[str] = set()
    while pending:
        node = pending.pop()
        yield node.op
        for name in (node.op, *(item.name for _, item in functions_in_attrs(node.attrs))):
            if name in graph.functions and name not in seen:
                seen.add(name)
                pending += graph.functions[name].definition.nodes
