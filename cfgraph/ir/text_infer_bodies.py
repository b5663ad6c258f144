"""What a function's body may leave out in the readable form: names of outputs, and types.

A body names a tensor `node:output:index`, and has no edges yet that would tell a type. Who writes
`y = Mul(x, two)` means `y = Mul(x, two:output:0) {T=float32}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from cfgraph.ir import registry
from cfgraph.ir.dtypes import DType
from cfgraph.ir.names import port_number
from cfgraph.ir.signature import Arg, Signature
from cfgraph.ir.text_infer import attrs_told, lacks_attrs


class _Node(Protocol):
    """A node of a body, as it is written."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def op(self) -> str:
        """The name of its op."""

    @property
    def inputs(self) -> Iterable[str]:
        """What it reads and waits for."""

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Its attributes."""


class Names:
    """The tensors of a body: those of its arguments, and the outputs of its nodes by their ops."""

    def __init__(self, arguments: Iterable[Arg], ops: Mapping[str, str]) -> None:
        self.arguments = {arg.name: arg for arg in arguments}
        self.ops = ops

    def full(self, text: str) -> str:
        """A tensor by the name of the output: `x` and `x:0` are `x:z:0` where `x` is a node."""
        name, colon, port = text.partition(":")
        index = port_number(port) if colon else 0
        if name in self.arguments or name not in self.ops or index is None:
            return text
        signature = _signature(self.ops[name])
        outputs = signature.outputs if signature else ()
        if signature and outputs and _is_list(signature, outputs[0]):
            return f"{name}:{outputs[0].name}:{index}"
        if index >= len(outputs):
            return text
        return f"{name}:{outputs[index].name}:0"


def attrs_from_types(names: Names, nodes: Iterable[_Node]) -> dict[str, dict[str, Any]]:
    """The attributes, by node, that nodes lack and the types of what they read tell."""
    found: dict[str, dict[str, Any]] = {}
    attrs = {node.name: node.attrs for node in nodes}
    waiting = [node for node in nodes if lacks_attrs(node)]
    while waiting:
        left = []
        for node in waiting:
            types = [_type(names, attrs, text) for text in node.inputs if text[:1] != "^"]
            told = attrs_told(node.op, node.attrs, types)
            if told:
                found[node.name] = told
                attrs[node.name] = {**node.attrs, **told}
            else:
                left.append(node)
        if len(left) == len(waiting):
            break
        waiting = left
    return found


def _type(names: Names, attrs: Mapping[str, Mapping[str, Any]], text: str) -> DType | None:
    name, *rest = names.full(text).split(":")
    argument = names.arguments.get(name)
    if argument is not None:
        return None if argument.count else argument.dtype
    signature = _signature(names.ops.get(name, ""))
    if signature is None or not rest:
        return None
    index = port_number(rest[1]) if rest[1:] else 0
    for types in _types_of(signature, rest[0], attrs.get(name, {})):
        return types[index] if index is not None and index < len(types) else None
    return None


def _types_of(signature: Signature, output: str, attrs: Mapping[str, Any]) -> Iterator[list[DType]]:
    for arg in signature.outputs:
        if arg.name == output:
            try:
                yield signature.arg_types(arg, attrs)
            except ValueError:
                return


def _signature(op: str) -> Signature | None:
    definition = registry.lookup(op)
    return None if definition is None else definition.parsed()


def _is_list(signature: Signature, arg: Arg) -> bool:
    return bool(arg.count) or (
        arg.type_attr is not None and signature.attrs[arg.type_attr].kind == "list(type)"
    )
