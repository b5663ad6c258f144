"""Context of a verification: the graph or function body, its signatures, types, and frames."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

from cfgraph.analysis.findings import Finding
from cfgraph.analysis.loops.frame import Frames
from cfgraph.analysis.loops.frames import LOOP_ROLES, frames
from cfgraph.ir import registry
from cfgraph.ir.attrs import AttrPlaceholder
from cfgraph.ir.colocation import COLOCATION_ATTR
from cfgraph.ir.dtypes import DType
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.names import did_you_mean
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import RECV, SEND
from cfgraph.ir.signature import MAX_COUNT, ArgDef, Signature
from cfgraph.ir.traversal import is_transfer, topological_order
from cfgraph.limits import reserve

# types and the number of their repetitions
TypeRun = tuple[tuple[DType | None, ...], int]
_MAX_EXPANDED: Final = 1024
# approximate memory of an output of a long list in all analyses of a graph
_OUTPUT_BYTES: Final = 1024


class TypeRuns(Sequence[DType | None]):
    """Run-length encoded sequence of types; a file may claim millions of inputs."""

    def __init__(self, runs: Iterable[TypeRun]) -> None:
        self.runs = tuple(runs)

    def __len__(self) -> int:
        return min(sum(len(types) * count for types, count in self.runs), sys.maxsize)

    def __iter__(self) -> Iterator[DType | None]:
        for types, count in self.runs:
            for _ in range(count):
                yield from types

    def __getitem__(self, index: Any) -> Any:
        for types, count in self.runs:
            if index < len(types) * count:
                return types[index % len(types)]
            index -= len(types) * count
        raise IndexError(index)


TypeRow = Sequence[DType | None]


class NodeTypes(NamedTuple):
    """Input and output types of a node: None for an unknown tensor, or for an unknown list."""

    inputs: TypeRow | None
    outputs: TypeRow | None


_UNKNOWN_TYPES: Final = NodeTypes(None, None)


TypesOfNodes = Callable[[Mapping[str, Any]], NodeTypes]
# types of the nodes of registered ops as functions of their attributes
_types_of_ops: dict[str, TypesOfNodes] = {}
_MAX_CACHED: Final = 256
_MAX_CACHED_TYPES: Final = 64

Suggest = Callable[[str, Iterable[str]], str | None]
# hints per verification, all functions together
_MAX_HINTS: Final = 10


class _KnownSignatures(dict[str, Signature | None]):
    """Signatures of ops and library functions by name, found when first read."""

    def __init__(self, library: Mapping[str, Function]) -> None:
        self.library = library

    def __missing__(self, op: str) -> Signature | None:
        definition, function = registry.lookup(op), self.library.get(op)
        signature: Signature | None = None
        if definition is not None:
            signature = definition.parsed()
        elif function is not None:
            body = function.definition
            signature = Signature.from_args(body.inputs, body.outputs, body.attr_defs)
        self[op] = signature
        return signature


class Signatures:
    """Signatures of ops and library functions, and the types of nodes, cached by op."""

    def __init__(self, library: Mapping[str, Function]) -> None:
        self.library = library
        self._hints_left = _MAX_HINTS
        # the signature of an op or function, or None if it is unknown
        self.find: Callable[[str], Signature | None] = _KnownSignatures(library).__getitem__
        self._types_of_functions: dict[str, TypesOfNodes] = {}

    def suggest(self, name: str, known: Iterable[str], rule: Suggest = did_you_mean) -> str | None:
        """A did-you-mean hint, for the first findings alone because it is slow."""
        self._hints_left -= 1
        return rule(name, known) if self._hints_left >= 0 else None

    @contextmanager
    def without_hints(self) -> Iterator[None]:
        """Suggest nothing: the findings are not reported."""
        left, self._hints_left = self._hints_left, 0
        try:
            yield
        finally:
            self._hints_left = left

    def types_of_op(self, op: str) -> TypesOfNodes:
        """The types of an op's nodes as a function of their attributes."""
        known = _types_of_ops if registry.lookup(op) is not None else self._types_of_functions
        types_of = known.get(op)
        if types_of is None:
            types_of = known[op] = _make_types_of_op(self.find(op))
        return types_of


def _make_types_of_op(signature: Signature | None) -> TypesOfNodes:
    if signature is None:
        return lambda attrs: _UNKNOWN_TYPES
    args = (*signature.inputs, *signature.outputs)
    names = tuple(dict.fromkeys(n for arg in args for n in (arg.type_attr, arg.count) if n))
    if not names:
        types = signature_types(signature, {})
        return lambda attrs: types
    known: dict[Any, NodeTypes] = {}
    if len(names) > 1:
        return partial(_cached_types, signature, names, known)
    name, fallback = names[0], partial(_cached_types, signature, names, known)

    def types_of(attrs: Mapping[str, Any]) -> NodeTypes:
        try:
            return known[attrs.get(name)]
        except (KeyError, TypeError):
            return fallback(attrs)

    return types_of


def _cached_types(
    signature: Signature,
    names: tuple[str, ...],
    known: dict[Any, NodeTypes],
    attrs: Mapping[str, Any],
) -> NodeTypes:
    key = attrs.get(names[0]) if len(names) == 1 else tuple([attrs.get(name) for name in names])
    try:
        return known[key]
    except (KeyError, TypeError):
        types = signature_types(signature, attrs)
        inputs, outputs = types
        # otherwise an attribute is neither type nor count, and may be costly to hash
        if inputs is not None and outputs is not None:
            if len(known) >= _MAX_CACHED:
                known.clear()
            if len(inputs) + len(outputs) <= _MAX_CACHED_TYPES:
                known[key] = types
        return types


def signature_types(signature: Signature, attrs: Mapping[str, Any]) -> NodeTypes:
    """The types of a signature under attributes."""
    return NodeTypes(
        _expand(signature, signature.inputs, attrs), _expand(signature, signature.outputs, attrs)
    )


def _expand(
    signature: Signature, args: Iterable[ArgDef], attrs: Mapping[str, Any]
) -> TypeRow | None:
    runs = []
    for arg in args:
        run = arg_types(signature, arg, attrs)
        if run is None:
            return None
        runs.append(run)
    if sum([len(types) * count for types, count in runs]) > _MAX_EXPANDED:
        return TypeRuns(runs)
    return tuple([dtype for types, count in runs for dtype in types * count])


def arg_types(signature: Signature, arg: ArgDef, attrs: Mapping[str, Any]) -> TypeRun | None:
    """The types of one argument's tensors, or None if their number is unknown."""
    types = _element_types(signature, arg, attrs)
    if types is None:
        return None
    if arg.is_ref:
        types = tuple(t.ref if t else None for t in types)
    count = _attr_value(signature, arg.count, attrs) if arg.count else 1
    return (types, count) if type(count) is int and count >= 0 else None


def _element_types(
    signature: Signature, arg: ArgDef, attrs: Mapping[str, Any]
) -> tuple[DType | None, ...] | None:
    if arg.dtype is not None:
        return (arg.dtype,)
    name = arg.type_attr or ""
    value = _attr_value(signature, name, attrs)
    if isinstance(value, tuple):
        return value if all(isinstance(item, DType) for item in value) else None
    if isinstance(value, DType):
        return (value,)
    declared = signature.attrs.get(name)
    listed = declared is not None and declared.kind == "list(type)"
    # in a generic function: one tensor whose type the caller decides
    return (None,) if isinstance(value, AttrPlaceholder) and not listed else None


def _attr_value(signature: Signature, name: str, attrs: Mapping[str, Any]) -> Any:
    try:
        return signature.value(name, attrs)
    except ValueError:
        return None


@dataclass(eq=False)
class VerifyContext:
    """A graph under verification; `function` names the function whose body it is.

    `arguments` are the `_Arg` nodes of a function body, with their types; the file does not contain
    them.
    """

    graph: Graph
    signatures: Signatures
    function: str = ""
    arguments: Mapping[Node, NodeTypes] = field(default_factory=dict)

    @cached_property
    def nodes(self) -> list[Node]:
        """The nodes that the file contains, in order."""
        arguments = self.arguments
        return [node for node in self.graph if node not in arguments]

    @cached_property
    def by_op(self) -> dict[str, list[Node]]:
        """The nodes of each op, in order."""
        nodes_by_op: dict[str, list[Node]] = defaultdict(list)
        for node in self.nodes:
            nodes_by_op[node.op].append(node)
        return dict(nodes_by_op)

    @cached_property
    def functional_nodes(self) -> dict[str, list[Node]]:
        """The nodes of each op whose attributes may name functions."""
        return {op: nodes for op, nodes in self.by_op.items() if self._may_name_functions(op)}

    def _may_name_functions(self, op: str) -> bool:
        signature = self.signatures.find(op)
        return signature is None or signature.names_functions

    @cached_property
    def colocated(self) -> list[Node]:
        """The nodes with colocation constraints."""
        return [node for node in self.nodes if COLOCATION_ATTR in node.attrs]

    @cached_property
    def devices(self) -> set[str]:
        """The devices that nodes name."""
        return {node.device for node in self.nodes} - {""}

    @cached_property
    def transfers(self) -> list[Node]:
        """The nodes that send to another device, or receive from one, by op."""
        ops = [op for op in self.by_op if ROLES[op] in (SEND, RECV)]
        return [node for op in ops for node in self.by_op[op] if is_transfer(node)]

    @cached_property
    def types(self) -> dict[Node, NodeTypes]:
        """The input and output types of each node."""
        types = dict(self.arguments)
        for op, nodes in self.by_op.items():
            types_of = self.signatures.types_of_op(op)
            for node in nodes:
                types[node] = types_of(node.attrs)
        runs = [len(row) for _, row in types.values() if type(row) is TypeRuns]
        outputs = sum(count for count in runs if count <= MAX_COUNT)  # more is a finding
        reserve(outputs * _OUTPUT_BYTES, f"a graph whose nodes declare {outputs} outputs")
        return types

    @cached_property
    def loop_ops(self) -> list[str]:
        """The ops that loops consist of; without them there is only the root frame."""
        return [op for op in self.by_op if ROLES[op] in LOOP_ROLES]

    @cached_property
    def frames(self) -> Frames:
        """The frames of the graph."""
        return frames(self.graph)

    @property
    def cycles(self) -> tuple[tuple[Node, ...], ...]:
        """The cycles without a NextIteration; passes read the frames of a graph, not of a body."""
        needs_frames = self.loop_ops or not self.function
        return self.frames.cycles if needs_frames else topological_order(self.graph).cycles


VerifyRule = Callable[[VerifyContext], Iterator[Finding]]
