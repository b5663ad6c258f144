"""Make the gradient arrays of TensorArrays arrays of their own, which can become lists.

    array ▸ TensorArrayGradV3 ▸ Scatter           becomes    TensorArrayV3 ▸ Scatter
    array ▸ Enter ▸ TensorArrayGradV3 ▸ Read                 TensorArrayV3 ▸ Enter ▸ Read

The gradient of a stacked array is scattered once, outside of the loop that reads it: no two
gradients are added. A gradient loop may also pop the flow of each write, only to wait for it: a
number is pushed instead, so that the flow can become a list.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from cfgraph.analysis.resource_handles import stacks
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import float32
from cfgraph.ir.graph import CONTROL, Graph, Node, Output
from cfgraph.ir.traversal import reachable
from cfgraph.ops.families.constants import Const
from cfgraph.ops.families.tensor_array_ops import (
    TensorArrayGatherV3,
    TensorArrayGradV3,
    TensorArrayReadV3,
    TensorArrayScatterV3,
    TensorArrayWriteV3,
)
from cfgraph.ops.opdef.op import is_a, is_identity, strip_identities
from cfgraph.ops.shape_inference import StaticShapes
from cfgraph.passes.functionalize.lists.detached_handles import unchanged_handle_uses
from cfgraph.passes.functionalize.lists.tensor_array_to_list import (
    covers_all_indices,
    tensor_arrays,
)


def separate_gradient_arrays(graph: Graph, shapes: StaticShapes) -> None:
    """Replace the gradients of arrays that are written once, in place."""
    for array in list(tensor_arrays(graph)):
        uses, _ = unchanged_handle_uses(array.output())
        groups: defaultdict[bytes, list[Node]] = defaultdict(list)
        for reader, slot in uses:
            if slot == 0 and is_a(reader, TensorArrayGradV3):
                groups[reader.attr("source")].append(reader)
        for gradients in groups.values():
            fill = _only_fill(array, gradients, shapes)
            if fill is not None:
                _separate(graph, array, gradients, fill)
    _push_no_flows(graph)


def _only_fill(array: Node, gradients: list[Node], shapes: StaticShapes) -> Node | None:
    """The node that writes all elements, once, in the frame of the array; None if there is none."""
    writers: list[Node] = []
    if array.attr("dynamic_size") or any(node.readers(1) for node in gradients):
        return None
    for node in gradients:
        for reader, slot in unchanged_handle_uses(node.output())[0]:
            if slot or not is_a(
                reader, TensorArrayReadV3, TensorArrayGatherV3, TensorArrayScatterV3
            ):
                return None
            if is_a(reader, TensorArrayScatterV3):
                writers.append(reader)
    if len(writers) != 1 or not covers_all_indices(writers[0].inputs[1], array, (), shapes):
        return None
    maker = strip_identities(writers[0].inputs[0]).node
    is_outside = maker in gradients and strip_identities(maker.inputs[0]).node is array
    return writers[0] if is_outside else None


def _separate(graph: Graph, array: Node, gradients: list[Node], fill: Node) -> None:
    """Replace the nodes that make one gradient array."""
    maker = strip_identities(fill.inputs[0]).node
    own = graph.add(
        array.op,
        array.inputs[0],
        name=f"{array.name}/gradient",
        controls=dict.fromkeys([*maker.controls, maker.inputs[1].node]),
        device=array.device,
        attrs={**array.attrs, "clear_after_read": False, "tensor_array_name": b""},
    )
    for node in gradients:
        handle = _same_way(graph, node.inputs[0], array, own)
        graph.replace_uses(node.output(), handle)
        for reader in list(node.control_readers):
            graph.remove_control(reader, node)
            graph.add_control(reader, node.inputs[1].node)
    graph.set_input(fill, 3, own.output(1))
    graph.remove(*gradients)


def _same_way(graph: Graph, handle: Output, array: Node, other: Node) -> Output:
    """The handle of another array in the frame of a handle of an array."""
    way: list[Node] = []
    while handle.node is not array:
        way.append(handle.node)
        handle = handle.node.inputs[0]
    copy = other.output()
    for node in reversed(way):
        name = f"{other.name}/{node.op}"
        copy = graph.add(node.op, copy, name=name, device=node.device, attrs=node.attrs).output()
    return copy


def _push_no_flows(graph: Graph) -> None:
    """Push a number in place of flows that are popped only to wait for them."""
    for stack in dict.fromkeys(stacks(graph).values()):
        if stack.others or not all(map(_is_only_awaited, stack.pops)):
            continue
        for push in stack.pushes:
            flow = push.inputs[1]
            if push.readers(0) or not is_a(flow.node, TensorArrayWriteV3):
                continue
            zero = graph.add(
                Const.__name__,
                name=f"{push.name}/nothing",
                controls=[flow.node],
                device=push.device,
                dtype=float32,
                value=TensorValue(np.array(0, np.float32)),
            )
            graph.set_input(push, 1, zero.output())


def _is_only_awaited(node: Node) -> bool:
    """True if nodes wait for a value that none of them reads, other than to forward it."""

    def readers(each: Node) -> list[Node]:
        is_forwarded = each is node or is_identity(each)
        return [use.node for use in each.uses if use.slot != CONTROL] if is_forwarded else []

    _, *others = reachable([node], readers)
    return all(map(is_identity, others))
