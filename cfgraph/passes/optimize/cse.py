"""Common subexpressions: of nodes that compute the same from the same, one remains.

    a = Mul(x, y) on device d      becomes      a = Mul(x, y) on device d
    b = Mul(y, x) on device d                   readers of b read a

Nodes with the same op, attributes, inputs, control inputs, and device have the same values and are
live under the same condition. A random or stateful node is equal to no other, and neither is one
that reads a reference, whose value changes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final

from cfgraph.ir.attrs import TensorValue, content_key
from cfgraph.ir.graph import Node
from cfgraph.ir.role import Role
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.op import lookup
from cfgraph.passes.optimize.rewriting import RewriteContext, is_function_of_inputs

RULE: Final = "cse"
_SMALL_CONSTANT: Final = 1024
_SHARED_ROLES: Final = (None, Role.SWITCH)


def cse(context: RewriteContext) -> None:
    """Replace nodes by earlier ones that compute the same."""
    known: dict[Hashable, Node] = {}
    merged: dict[Node, Node] = {}
    attributes = _AttributeKeys()
    for node in context.nodes():
        check_deadline()
        if not _is_candidate(node):
            continue
        key = _expression(node, merged, attributes)
        first = known.setdefault(key, node)
        if first is node:
            continue
        if node not in context.protected:
            _redirect_readers(context, node, first)
            merged[node] = first
        elif first not in context.protected:
            known[key] = node
            _redirect_readers(context, first, node)
            merged[first] = node
    _redirect_controls(context, merged)
    context.discard(merged)


def _is_candidate(node: Node) -> bool:
    """True for a node whose values may be shared: no list, which kernels may change in place."""
    op = lookup(node.op)
    if op is None or not is_function_of_inputs(node):
        return False
    if op.role not in _SHARED_ROLES and not (op.role is Role.ENTER and node.attr("is_constant")):
        return False
    types = node.output_types
    return bool(types) and all(t.kind not in ("variant", "resource") for t in types or ())


class _AttributeKeys:
    """Keys that are equal for equal attributes; nodes share dictionaries of these."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Mapping[str, Any], Hashable]] = {}

    def key(self, attrs: Mapping[str, Any]) -> Hashable:
        """The key of attributes, which are kept, so that no others have their identity."""
        known = self._known.get(id(attrs))
        if known is None:
            key = frozenset((name, _hashable(value)) for name, value in attrs.items())
            known = self._known[id(attrs)] = attrs, key
        return known[1]


def _expression(node: Node, merged: Mapping[Node, Node], attributes: _AttributeKeys) -> Hashable:
    """A key that is equal for nodes that compute the same."""
    inputs = [(id(item.node), item.port) for item in node.inputs]
    if _commutes(node):
        inputs.sort()
    controls = frozenset([id(_remaining(control, merged)) for control in node.controls])
    return node.op, tuple(inputs), controls, node.device, attributes.key(node.attrs)


def _commutes(node: Node) -> bool:
    """True if the value is the same, bit by bit, with exchanged inputs.

    A sum of three numbers is rounded twice, in an order; so is a complex product with fused
    multiplication and addition.
    """
    op = lookup(node.op)
    if op is None or not op.algebra.commutes or len(node.inputs) != 2:
        return False
    return not any(item.dtype is not None and item.dtype.is_complex for item in node.inputs)


def _hashable(value: Any) -> Hashable:
    if isinstance(value, TensorValue):
        size = value.shape.elements
        if size is not None and size <= _SMALL_CONSTANT:
            return value.dtype, value.shape, content_key(value.array)
    if isinstance(value, float):
        return value.hex()
    return value if isinstance(value, Hashable) else id(value)


def _redirect_readers(context: RewriteContext, node: Node, remaining: Node) -> None:
    """Make the readers of a node read another one; its control edges come later."""
    context.log(RULE, node, node.op, remaining.name)
    for tensor in node.outputs:
        new = remaining.output(tensor.port)
        if context.graph.replace_uses(tensor, new):
            context.names[tensor.name] = (new.name,)


def _redirect_controls(context: RewriteContext, merged: Mapping[Node, Node]) -> None:
    """Make each node wait for what remains of its control inputs."""
    readers = (reader for node in merged for reader in node.control_readers)
    for reader in dict.fromkeys(readers):
        controls = [_remaining(control, merged) for control in reader.controls]
        context.graph.set_controls(reader, controls)


def _remaining(node: Node, merged: Mapping[Node, Node]) -> Node:
    while node in merged:
        node = merged[node]
    return node
