"""Type and count attributes that the text format may omit because inputs determine them.

The line `y = Mul(x, two)` stands for `y = Mul(x, two:output:0) {T=float32}`. Nodes of a graph have
edges to infer types from; nodes of a function body have input strings (`node:output:index`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from cfgraph.ir import registry
from cfgraph.ir.dtypes import DType
from cfgraph.ir.functions import BodyNode
from cfgraph.ir.graph import Node
from cfgraph.ir.node import port_number
from cfgraph.ir.signature import ArgDef, Signature

_INITIAL_ATTEMPTS: Final = 4


@cache
def _inferable_attr_names(definition: Any) -> frozenset[str]:
    """Names of an op's attributes that the types and number of its inputs determine."""
    inputs = definition.parsed().inputs
    names = [name for arg in inputs for name in (arg.type_attr, arg.count) if name]
    return frozenset(names)


def lacks_inferable_attrs(node: Node | BodyNode) -> bool:
    """True if the node lacks an attribute that its inputs may determine."""
    definition = registry.lookup(node.op)
    return definition is not None and not _inferable_attr_names(definition) <= node.attrs.keys()


def infer_node_attrs(node: Node) -> dict[str, Any]:
    """Attributes that a node lacks and its inputs determine, except for defaults."""
    return _infer_missing_attrs(node.op, node.attrs, [source.dtype for source in node.inputs])


def _infer_missing_attrs(
    op: str, known: Mapping[str, Any], types: Sequence[DType | None]
) -> dict[str, Any]:
    """Attributes that an op lacks and inputs of these types determine, except for defaults."""
    definition = registry.lookup(op)
    if definition is None:
        return {}
    signature = definition.parsed()
    try:
        attrs = signature.infer(types, known)
    except (OverflowError, TypeError, ValueError):  # a count may be infinite
        return {}
    return {
        key: value
        for key, value in attrs.items()
        if key not in known
        and not (signature.attrs[key].has_default and signature.attrs[key].default == value)
    }


def complete_node_attrs(nodes: Iterable[Node]) -> None:
    """Infer missing attributes of nodes, repeatedly as their inputs become known.

    A node is tried at the start and again after each of its first few inputs, then at exponentially
    growing intervals, and after the last.
    """
    waiting = deque(node for node in nodes if lacks_inferable_attrs(node))
    incomplete = set(waiting)
    missing = {node: sum(source.node in incomplete for source in node.inputs) for node in waiting}
    known = dict.fromkeys(waiting, 0)
    while waiting:
        node = waiting.popleft()
        inferred = infer_node_attrs(node) if node in incomplete else {}
        if not inferred:
            continue
        node.attrs = {**node.attrs, **inferred}
        incomplete.discard(node)
        for use in node.uses:
            if use.slot >= 0 and use.node in incomplete:
                known[use.node] += 1
                if _should_retry(known[use.node], missing[use.node]):
                    waiting.append(use.node)


def _should_retry(known: int, missing: int) -> bool:
    return known <= _INITIAL_ATTEMPTS or known == missing or known & (known - 1) == 0


class BodyTensors:
    """Tensors of a function body: its arguments, and the outputs of its nodes."""

    def __init__(self, arguments: Iterable[ArgDef], ops: Mapping[str, str]) -> None:
        self.arguments = {arg.name: arg for arg in arguments}
        self.ops = ops

    def full(self, text: str) -> str:
        """The full name of a tensor: `x` and `x:0` are `x:z:0` if `x` is a node with the output
        `z`.
        """
        name, colon, port = text.partition(":")
        index = port_number(port) if colon else 0
        if name in self.arguments or name not in self.ops or index is None:
            return text
        signature = _op_signature(self.ops[name])
        outputs = signature.outputs if signature else ()
        if signature and outputs and _is_list_arg(signature, outputs[0]):
            return f"{name}:{outputs[0].name}:{index}"
        if index >= len(outputs):
            return text
        return f"{name}:{outputs[index].name}:0"


def infer_body_attrs(names: BodyTensors, nodes: Iterable[BodyNode]) -> dict[str, dict[str, Any]]:
    """Missing attributes of body nodes that their inputs determine, by node name."""
    inferred: dict[str, dict[str, Any]] = {}
    attrs = {node.name: node.attrs for node in nodes}
    waiting = [node for node in nodes if lacks_inferable_attrs(node)]
    while waiting:
        incomplete = []
        for node in waiting:
            types = [_tensor_dtype(names, attrs, text) for text in node.inputs if text[:1] != "^"]
            new = _infer_missing_attrs(node.op, node.attrs, types)
            if new:
                inferred[node.name] = new
                attrs[node.name] = {**node.attrs, **new}
            else:
                incomplete.append(node)
        if len(incomplete) == len(waiting):
            break
        waiting = incomplete
    return inferred


def _tensor_dtype(
    names: BodyTensors, attrs: Mapping[str, Mapping[str, Any]], text: str
) -> DType | None:
    name, *rest = names.full(text).split(":")
    argument = names.arguments.get(name)
    if argument is not None:
        return None if argument.count else argument.dtype
    signature = _op_signature(names.ops.get(name, ""))
    if signature is None or not rest:
        return None
    index = port_number(rest[1]) if rest[1:] else 0
    for arg in signature.outputs:
        if arg.name == rest[0]:
            try:
                types = signature.arg_types(arg, attrs.get(name, {}))
            except ValueError:
                return None
            return types[index] if index is not None and index < len(types) else None
    return None


def _op_signature(op: str) -> Signature | None:
    definition = registry.lookup(op)
    return None if definition is None else definition.parsed()


def _is_list_arg(signature: Signature, arg: ArgDef) -> bool:
    return bool(arg.count) or (
        arg.type_attr is not None and signature.attrs[arg.type_attr].kind == "list(type)"
    )
