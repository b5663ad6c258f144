"""Nodes of a plan that compute matrix products jointly with the node that reads them.

All executors run the kernels that are chosen here, so that they agree bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from cfgraph.ir.devices import is_gpu
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import ENTER, EXIT, MERGE, NEXT_ITERATION, SWITCH
from cfgraph.ops.families.constants import identity
from cfgraph.ops.kernels.matrix_products import evaluated
from cfgraph.runtime.engine.joint_products import (
    adding,
    concatenating,
    deferring,
    multiplying_rows,
    popping,
    pushing,
    reading,
    slicing,
)

if TYPE_CHECKING:
    from cfgraph.runtime.engine.plan import KernelWrapper, NodePlan, Plan

_OPERANDS: Final = 2
# of one node: many products may read a node with many readers, or a long chain
_MAX_READERS: Final = 256
_MAX_IDENTITIES: Final = 16


def defer_products(plans: Sequence[Plan]) -> None:
    """Replace the kernels of products that only a slice or the sum of a loop variable reads.

    GPUs compute each product where it is.
    """
    for plan in plans:
        if not is_gpu(plan.device):
            _defer_products_of(plan)


def _defer_products_of(plan: Plan) -> None:
    for known in plan.nodes.values():
        if known.op.algebra.product_role != "computes" or not _is_float(known.node):
            continue
        _multiply_rows(plan, known)
        if known.wrapper is None:
            _defer_to_reader(plan, known)
        if known.wrapper is None and _is_of_invariant(plan, known):
            _replace_kernels({known: multiplying_rows})


def _defer_to_reader(plan: Plan, known: NodePlan) -> None:
    reader = _only_reader(plan, known.node)
    if reader is None:
        return
    role = reader.op.algebra.product_role
    if role == "slices" and reader.node.inputs[0].node is known.node:
        _replace_kernels({known: deferring, reader: slicing})
    elif role == "adds" and len(reader.node.inputs) == _OPERANDS:
        exits = _exits_of_sum(plan, reader.node)
        if exits is not None:
            _replace_kernels({known: deferring, reader: adding} | _pops_of(plan, known))
            for node in exits:
                plan.nodes[node].kernel = evaluated


def defer_products_like(devices: Sequence[Plan], merged: Plan) -> None:
    """Replace the kernels in the merged plan of several devices that their plans have replaced.

    A merged plan has patterns that no device has: of messages it sees the edges.
    """
    replaced = {known.node.name: known for plan in devices for known in plan.nodes.values()}
    for node, known in merged.nodes.items():
        model = replaced.get(node.name)
        if model is None:
            continue
        if model.wrapper is not None:
            _replace_kernels({known: model.wrapper})
        elif model.kernel is evaluated:
            known.kernel = evaluated


def _pops_of(plan: Plan, product: NodePlan) -> dict[NodePlan, KernelWrapper]:
    """The pop of the transposed left factor of a product, which may stay deferred."""
    left = plan.nodes.get(product.node.inputs[0].node)
    is_pop = left is not None and left.op.placement.swap_role == "pop"
    if left is None or not is_pop or not product.node.attr("transpose_a"):
        return {}
    return {left: popping} if _only_reader(plan, left.node) is product else {}


def _multiply_rows(plan: Plan, product: NodePlan) -> None:
    """Compute products of unstacked elements and a loop-invariant matrix for several iterations.

    read -> product          read -> concatenation -> product          (also -> pushes)
    """
    left = plan.nodes.get(product.node.inputs[0].node)
    if left is None or not _is_of_invariant(plan, product):
        return
    changes: dict[NodePlan, KernelWrapper] = {product: multiplying_rows}
    readers = [product]
    if left.op.algebra.product_role == "concatenates" and len(left.node.inputs) == _OPERANDS + 1:
        pushes = _forwarding_pushes(plan, left, readers)
        if pushes is None:
            return
        changes |= {left: concatenating} | dict.fromkeys(pushes, pushing)
        readers, left = [left], plan.nodes.get(left.node.inputs[0].node)
    if left is None or left.op.algebra.product_role != "reads":
        return
    pushes = _forwarding_pushes(plan, left, readers)
    if pushes is not None:
        _replace_kernels(changes | {left: reading} | dict.fromkeys(pushes, pushing))


def _is_of_invariant(plan: Plan, product: NodePlan) -> bool:
    """True for a product of a matrix, as it is, and one that stays the same in a loop."""
    node = product.node
    right = plan.nodes.get(node.inputs[1].node)
    return not node.attr("transpose_a") and _is_invariant(plan, right, node)


def _is_invariant(plan: Plan, known: NodePlan | None, reader: Node) -> bool:
    """True for a value that enters a loop and stays the same in all its iterations.

    Each device has a copy of the Enter, but receives the output of an Identity in each iteration.
    """
    for _ in range(_MAX_IDENTITIES):
        if known is None or known.kernel is not identity or known.op.role is not None:
            break
        if plan.device_of(known.node) != plan.device_of(reader):
            return False
        known = plan.nodes.get(known.node.inputs[0].node)
    if known is None or known.op.role is not ENTER or known.op.parsed().has_references:
        return False  # the loop may assign to a reference
    return bool(known.node.attr("is_constant"))


def _forwarding_pushes(
    plan: Plan, known: NodePlan, readers: Sequence[NodePlan]
) -> list[NodePlan] | None:
    """The pushes that forward an output which else only `readers` read; None for other reads."""
    output = Output(known.node, 0)
    if len(known.node.uses) > _MAX_READERS or output in plan.fetched:
        return None
    others = [plan.nodes[node] for node in _readers(plan, output)]
    device = plan.device_of(known.node)
    if any(plan.device_of(reader.node) != device for reader in others):
        return None
    pushes = [reader for reader in others if reader not in readers]
    is_push = (reader.op.placement.swap_role == "push" for reader in pushes)
    if not all(is_push):
        return None
    return [push for push in pushes if _readers(plan, Output(push.node, 0))]


def _replace_kernels(changes: dict[NodePlan, KernelWrapper]) -> None:
    for known, wrapper in changes.items():
        known.kernel = wrapper(known.kernel, known.node)
        known.wrapper = wrapper


def _is_float(node: Node) -> bool:
    return node.attr("T").numpy in (np.float32, np.float64)


def _readers(plan: Plan, output: Output) -> list[Node]:
    """The nodes of the plan that read an output, also on other devices in a merged plan."""
    return [use.node for use in output.node.readers(output.port) if use.node in plan.nodes]


def _only_reader(plan: Plan, node: Node, port: int = 0) -> NodePlan | None:
    """The plan of the node on the same device that alone reads an output, which is not fetched."""
    output = Output(node, port)
    readers = _readers(plan, output)
    if len(readers) != 1 or output in plan.fetched:
        return None
    if plan.device_of(readers[0]) != plan.device_of(node):
        return None
    return plan.nodes[readers[0]]


def _past_identities(plan: Plan, node: Node, port: int = 0) -> NodePlan | None:
    """The only reader of an output, or of the Identity that alone reads it, and so on."""
    reader = _only_reader(plan, node, port)
    while reader is not None and reader.kernel is identity and reader.op.role is None:
        reader = _only_reader(plan, reader.node)
    return reader


def _exits_of_sum(plan: Plan, addition: Node) -> list[Node] | None:
    """The Exits of a loop variable that each iteration adds to and does not read otherwise.

        Merge -> Switch -> Identity* -> addition -> Identity* -> NextIteration -> Merge
                 Switch -> Exit*

    None for any other addition.
    """
    back = _past_identities(plan, addition)
    if back is None or back.op.role is not NEXT_ITERATION:
        return None
    merge = _only_reader(plan, back.node)
    if merge is None or merge.op.role is not MERGE or len(merge.node.uses) > _MAX_READERS:
        return None
    if _readers(plan, Output(merge.node, 1)):
        return None
    switch = _only_reader(plan, merge.node)
    if switch is None or switch.op.role is not SWITCH or switch.node.inputs[0].node != merge.node:
        return None
    again = _past_identities(plan, switch.node, 1)
    if again is None or again.node is not addition:
        return None
    exits = _readers(plan, Output(switch.node, 0))
    is_exit = (plan.nodes[node].op.role is EXIT for node in exits)
    device = plan.device_of(addition)
    same_device = (plan.device_of(node) == device for node in exits)
    return exits if all(is_exit) and all(same_device) else None
