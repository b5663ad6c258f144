"""Constant folding: a node whose inputs are constants becomes a constant.

    Const(2)  Const(3)                      ^p
         \\    /            becomes          |         where Const(3) has the control input ^p
          Mul                             Const(6)

The constant keeps the name and device of the node. It waits for what the constants waited for, so
that it is live in the same branches and iterations: a constant Enter becomes a control input, and
so does the input of an op that depends on shapes alone, once its shape is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.limits import check_deadline
from cfgraph.ops.families.constants import Const, Identity
from cfgraph.ops.opdef.op import is_a, lookup, role_of
from cfgraph.ops.shape_inference import StaticShapes
from cfgraph.ops.static_values import run_kernel
from cfgraph.passes.optimize.arithmetic import equal_tensor
from cfgraph.passes.optimize.rewriting import (
    RewriteContext,
    inherited_annotations,
    is_function_of_inputs,
)

RULE: Final = "fold"
# constants beyond this size are not read; a larger result replaces constants of no smaller size
_MAX_CONSTANT_BYTES: Final = 16 << 20
_MAX_RESULT_BYTES: Final = 16 << 10
_MAX_FLOPS: Final = 1e8
_MAX_STEPS: Final = 100


class KnownValue(NamedTuple):
    """The value of an output, and the nodes whose control edges are live exactly when it is."""

    array: Any
    guards: tuple[Node, ...]


def fold(context: RewriteContext) -> None:
    """Replace nodes with constant inputs by constants."""
    for node in context.nodes():
        check_deadline()
        op = lookup(node.op)
        if op is None or not node.inputs or not context.is_pure(node):
            if node.controls and is_a(node, Const):
                _drop_guards(context, node)
            continue
        outputs = _shape_outputs(context, node) or _computed_outputs(context, node)
        if outputs is not None:
            _replace(context, node, *outputs)


Folded = tuple[list[Any], tuple[Node, ...]]


def _shape_outputs(context: RewriteContext, node: Node) -> Folded | None:
    """The outputs of an op that depends on static shapes alone, and their guards."""
    op = lookup(node.op)
    if op is None or not op.algebra.shape_only:
        return None
    values = [context.shapes.value(tensor) for tensor in node.outputs]
    if not values or any(value is None for value in values):
        return None
    guards: list[Node] = list(node.controls)
    for tensor in node.inputs:
        known = known_value(context, tensor, content=False)
        if known is not None:
            guards.extend(known.guards)
        elif context.frame_of(tensor) is not None and context.liveness.equal(tensor, tensor.node):
            guards.append(tensor.node)
        else:
            return None
    return values, tuple(dict.fromkeys(guards))


def _computed_outputs(context: RewriteContext, node: Node) -> Folded | None:
    """The outputs of a node whose inputs are constants, and their guards."""
    shapes = context.shapes  # before the first edit of the round
    if not all(map(_constant_path, node.inputs)):
        return None
    sizes = [_byte_count(shapes, tensor) for tensor in node.inputs]
    if any(size is None or size > _MAX_CONSTANT_BYTES for size in sizes):
        return None
    if _is_copy(context, node):
        return None
    # a constant with other readers stays beside the result
    ends = zip(node.inputs, sizes, strict=True)
    replaced = sum(size or 0 for tensor, size in ends if len(tensor.node.uses) == 1)
    limit = max(_MAX_RESULT_BYTES, replaced)
    count = node.output_count or 0
    results = [_byte_count(shapes, node.output(port)) for port in range(count)]
    if not results or any(size is None or size > limit for size in results):
        return None
    known = [known_value(context, tensor) for tensor in node.inputs]
    if any(item is None for item in known):
        return None
    arrays = [item.array for item in known if item is not None]
    values = _evaluate(context, node, arrays)
    if values is None:
        return None
    guards = [*node.controls, *(guard for item in known if item is not None for guard in item[1])]
    return values, tuple(dict.fromkeys(guards))


def _constant_path(tensor: Output) -> list[Node]:
    """The nodes from a tensor to its Const, all but the last constant Enters and Identities.

    It is empty without a Const.
    """
    path = [tensor.node]
    while not is_a(path[-1], Const):
        node = path[-1]
        is_constant = role_of(node) is Role.ENTER and node.attr("is_constant")
        if not (is_constant or _is_plain_identity(node)) or len(path) == _MAX_STEPS:
            return []
        path.append(node.inputs[0].node)
    return path


def _is_copy(context: RewriteContext, node: Node) -> bool:
    """True for a node with the value of a constant of several elements, which is stored once."""
    source = equal_tensor(context, node)
    return source is not None and context.shapes[source].elements != 1


def _is_plain_identity(node: Node) -> bool:
    return is_a(node, Identity) and is_function_of_inputs(node)


def known_value(
    context: RewriteContext, tensor: Output, *, content: bool = True
) -> KnownValue | None:
    """The value of a constant, or of one that enters a loop; None for any other tensor."""
    path = _constant_path(tensor)
    if not path or not context.frozen.isdisjoint(path):
        return None
    guards: list[Node] = []
    for node in path:
        if role_of(node) is Role.ENTER:
            guards.append(node)
            break
        guards += node.controls
    value = path[-1].attrs.get("value")
    if not isinstance(value, TensorValue):
        return None
    return KnownValue(value.array if content else None, tuple(dict.fromkeys(guards)))


def _byte_count(shapes: StaticShapes, tensor: Output) -> int | None:
    dtype, elements = tensor.dtype, shapes[tensor].elements
    if dtype is None or dtype.is_handle or dtype.kind in ("variant", "resource"):
        return None
    return None if elements is None else elements * max(dtype.numpy.itemsize, 1)


def _evaluate(context: RewriteContext, node: Node, arrays: Sequence[Any]) -> list[Any] | None:
    """The outputs of a node, or None if it fails or takes long."""
    op = lookup(node.op)
    assert op is not None
    count = node.output_count or 0
    shapes = [context.shapes[node.output(port)].dims for port in range(count)]
    known = [tuple(size or 0 for size in dims or ()) for dims in shapes]
    if op.flops([array.shape for array in arrays], known) > _MAX_FLOPS:
        return None
    values, types = run_kernel(op, node, arrays), node.output_types or []
    if values is None or len(values) != len(types):
        return None
    folded = [np.array(value) for value in values]
    exact = all(
        DType.from_numpy(value.dtype) is dtype and value.shape == dims
        for value, dtype, dims in zip(folded, types, known, strict=True)
    )
    return folded if exact else None


def _drop_guards(context: RewriteContext, node: Node) -> None:
    """Drop the control inputs of a constant that other guards imply."""
    guards = _required_guards(node.controls)
    if len(guards) < len(node.controls) and not {*node.controls} & context.frozen:
        dropped = [guard for guard in node.controls if guard not in guards]
        context.log(RULE, node, node.op, "Const")
        context.graph.set_controls(node, guards)
        context.discard(dropped)


def _required_guards(guards: tuple[Node, ...]) -> tuple[Node, ...]:
    """The guards that are neither constants of the whole graph nor implied by another guard."""
    implied = {
        source for guard in guards if role_of(guard) is None for source in guard.predecessors
    }
    return tuple(
        guard
        for guard in guards
        if guard not in implied and (guard.controls or not is_a(guard, Const))
    )


def _replace(
    context: RewriteContext, node: Node, values: Sequence[Any], guards: tuple[Node, ...]
) -> None:
    """Replace a node by one constant per output; the first has its name."""
    graph, op = context.graph, node.op
    guards = _required_guards(guards)
    if len(values) > 1 and (node in context.protected or node.control_readers):
        return
    types = node.output_types or []
    for port, value in enumerate(values[1:], 1):
        if node.readers(port):
            attrs = {"dtype": types[port], "value": TensorValue(value)} | inherited_annotations(
                node, port
            )
            name = graph.unique_name(f"{node.name}/output_{port}")
            constant = graph.create(name, "Const", (), guards, attrs, node.device)
            graph.replace_uses(node.output(port), constant.output())
            context.names[f"{node.name}:{port}"] = (f"{name}:0",)
    sources = [item.node for item in node.inputs]
    graph.connect(node, (), guards)
    attrs = {"dtype": types[0], "value": TensorValue(values[0])} | inherited_annotations(node)
    graph.set_op(node, "Const", attrs)
    context.log(RULE, node, op, "Const")
    context.discard(sources)
