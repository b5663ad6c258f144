"""Runs without values: only values that affect control flow are computed.

Predicates, stateful ops, resources, and shapes need values, and so do their ancestors, also across
devices. Every other kernel returns abstract tensors: dtype and shape alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from cfgraph.analysis.resource_handles import stacks
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import AbstractTensor, Shape
from cfgraph.ir.traversal import reachable, sends_by_recv
from cfgraph.ops.opdef.op import OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext
from cfgraph.runtime.engine.plan import NodePlan, Plan


def use_abstract_values(graph: Graph, plans: Sequence[Plan], *, distinct: bool = False) -> None:
    """Give abstract kernels to the nodes whose values cannot affect control flow.

    With `distinct` each result is a distinct object, as memory accounting requires.
    """
    nodes = {node: plan for device_plan in plans for node, plan in device_plan.nodes.items()}
    computed = _nodes_with_values(graph, nodes)
    for node, plan in nodes.items():
        if node not in computed and node.inputs and not (plan.op.role or plan.op.effects.stateful):
            plan.kernel = _distinct_abstract_kernel(plan) if distinct else _abstract_kernel(plan)


def _nodes_with_values(graph: Graph, nodes: dict[Node, NodePlan]) -> set[Node]:
    """Nodes that compute values: needed nodes, and those whose type has no abstract tensor."""
    sends, uses = sends_by_recv(nodes), stacks(graph)
    opaque = [node for node in nodes if _is_opaque(node)]
    roots = [output for plan in nodes.values() for output in _required_inputs(plan)]
    roots += [output for node in opaque for output in _inspected_inputs(nodes[node])]

    def sources(node: Node) -> Iterator[Node]:
        yield from (output.node for output in node.inputs if output.node in nodes)
        if node in sends:
            yield sends[node]
        if nodes[node].op.placement.swap_role == "pop" and node in uses:
            yield from filter(nodes.__contains__, uses[node].pushes)

    needed = reachable([output.node for output in roots if output.node in nodes], sources)
    return {*needed, *opaque}


def _required_inputs(plan: NodePlan) -> Iterator[Output]:
    """The inputs whose values a node needs regardless of its consumers."""
    node, op = plan.node, plan.op
    if op.role in (Role.SWITCH, Role.LOOP_COND):
        yield node.inputs[-1]
    elif op.effects.stateful and not op.role:
        yield from _inspected_inputs(plan)
    else:
        yield from (node.inputs[slot] for slot in op.constant_slots(node))


def _inspected_inputs(plan: NodePlan) -> Sequence[Output]:
    """The inputs of a node, without the value that it pushes on a stack."""
    return plan.node.inputs[:1] if plan.op.placement.swap_role == "push" else plan.node.inputs


def _is_opaque(node: Node) -> bool:
    """True for a node that handles a resource, variant, string, or reference."""
    types = [*(node.input_types or []), *(node.output_types or [])]
    return any(dtype.is_ref or dtype.is_object for dtype in types)


def _abstract_kernel(plan: NodePlan) -> Callable[..., Any]:
    """A kernel that returns abstract tensors; results for abstract inputs are cached."""
    node, op = plan.node, plan.op
    types = [dtype.base.numpy for dtype in node.output_types or []]
    known: dict[tuple[tuple[int, ...], ...], Any] = {}

    def kernel_of_shapes(*inputs: Any) -> Any:
        if op.aliasing.is_identity:
            return inputs[0] if len(types) == 1 else inputs[: len(types)]
        shapes = tuple(value.shape for value in inputs)
        is_abstract = all(isinstance(value, AbstractTensor) for value in inputs)
        if is_abstract and shapes in known:
            return known[shapes]
        results = _abstract_outputs(node, op.shape(_shape_context(node, inputs)), types)
        result = results[0] if len(results) == 1 else results
        if is_abstract:
            known[shapes] = result
        return result

    return kernel_of_shapes


def _distinct_abstract_kernel(plan: NodePlan) -> Callable[..., Any]:
    """A kernel that returns a new abstract tensor each time, unless it forwards an input."""
    kernel_of_shapes, is_alias = _abstract_kernel(plan), plan.op.aliasing.aliases_input
    if plan.op.aliasing.is_identity:
        return kernel_of_shapes

    def distinct_kernel(*inputs: Any) -> Any:
        result = kernel_of_shapes(*inputs)
        if isinstance(result, tuple):
            return tuple(AbstractTensor(value.dtype, value.shape) for value in result)
        source = inputs[0] if is_alias and isinstance(inputs[0], AbstractTensor) else None
        return AbstractTensor(result.dtype, result.shape, source and (source.base or source))

    return distinct_kernel


def _shape_context(node: Node, inputs: tuple[Any, ...]) -> InferenceContext:
    def value(slot: int) -> Any | None:
        return None if isinstance(inputs[slot], AbstractTensor) else inputs[slot]

    return InferenceContext(node, tuple(Shape(value.shape) for value in inputs), value)


def _abstract_outputs(
    node: Node, shapes: Sequence[Shape], types: Sequence[np.dtype[Any]]
) -> tuple[AbstractTensor, ...]:
    results = []
    for port, (shape, dtype) in enumerate(zip(shapes, types, strict=True)):
        if shape.dims is None or None in shape.dims:
            message = (
                f"the shape of {node.name}:{port} depends on values that this run does not compute"
            )
            raise OpError(message, hint="run it with values")
        results.append(
            AbstractTensor(dtype, tuple(size for size in shape.dims if size is not None))
        )
    return tuple(results)
