"""Common subexpressions: of nodes that compute the same from the same, one remains.

    a = Mul(x, y) on device d      becomes      a = Mul(x, y) on device d
    b = Mul(y, x) on device d                   readers of b read a

Nodes with the same op, attributes, inputs, control inputs, and device have the same values and are
live under the same condition. A random or stateful node is equal to no other, and neither is one
that reads a reference, whose value changes.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from cfgraph.ir import registry
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
    for node in context.nodes():
        check_deadline()
        if not _is_candidate(node):
            continue
        key = _expression(node)
        first = known.setdefault(key, node)
        if first is node:
            continue
        if node not in context.protected:
            _merge(context, first, node)
        elif first not in context.protected:
            known[key] = node
            _merge(context, node, first)


def _is_candidate(node: Node) -> bool:
    """True for a node whose values may be shared: no list, which kernels may change in place."""
    op = lookup(node.op)
    if op is None or not is_function_of_inputs(node):
        return False
    if op.role not in _SHARED_ROLES and not (op.role is Role.ENTER and node.attr("is_constant")):
        return False
    types = registry.output_types(node)
    return bool(types) and all(t.kind not in ("variant", "resource") for t in types or ())


def _expression(node: Node) -> Hashable:
    """A key that is equal for nodes that compute the same."""
    op = lookup(node.op)
    inputs = [(id(item.node), item.port) for item in node.inputs]
    if op is not None and op.algebra.commutes:
        inputs.sort()
    attrs = frozenset((key, _hashable(value)) for key, value in node.attrs.items())
    controls = frozenset(map(id, node.controls))
    return node.op, tuple(inputs), controls, node.device, attrs


def _hashable(value: Any) -> Hashable:
    if isinstance(value, TensorValue):
        size = value.shape.elements
        if size is not None and size <= _SMALL_CONSTANT:
            return value.dtype, value.shape, content_key(value.array)
    if isinstance(value, float):
        return value.hex()
    return value if isinstance(value, Hashable) else id(value)


def _merge(context: RewriteContext, first: Node, second: Node) -> None:
    """Make the readers of `second` read `first`."""
    graph = context.graph
    context.log(RULE, second, second.op, first.name)
    for port in range(registry.output_count(second) or 0):
        if graph.replace_uses(second.output(port), first.output(port)):
            context.names[f"{second.name}:{port}"] = (first.output(port).name,)
    for reader in second.control_readers:
        controls = [first if control is second else control for control in reader.controls]
        graph.set_controls(reader, controls)
    context.discard([second])
