"""Gradient arrays that all iterations of a loop share, although each iteration needs one.

    while: Write(array, …), TensorArrayGradV3(array), Read(gradient)

The array is created outside, so there is one gradient array as well. In a backward loop this is
right: there, no iteration writes to the array itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfgraph.analysis.effects import EffectAnalysis
from cfgraph.analysis.findings import Finding
from cfgraph.analysis.loops.frame import Frames
from cfgraph.ir.graph import Node
from cfgraph.ops.opdef.op import is_a, is_stateful, lookup

# late imports: few graphs have arrays


def gradient_array_findings(graph_frames: Frames) -> Iterator[Finding]:
    """The finding on each array with a gradient that iterations share, once."""
    stateful = [node for node in graph_frames.of if is_stateful(node)]
    if not stateful:
        return
    from cfgraph.ops.families.tensor_array_ops import TensorArrayGradV3

    gradients = [node for node in stateful if is_a(node, TensorArrayGradV3)]
    if not gradients:
        return
    effects, writes = EffectAnalysis(), dict[Node, list[Node]]()
    for node in graph_frames.of:
        if _writes(node):
            writes.setdefault(effects.origin(node.inputs[0]).node, []).append(node)
    found = set[Node]()
    for node in gradients:
        array = effects.origin(node.inputs[0]).node
        inner = set(graph_frames.of[node].loops) - set(graph_frames.of[array].loops)
        near = (item for item in writes.get(array, ()) if inner & {*graph_frames.of[item].loops})
        write = next(near, None)
        if write is None or array in found:
            continue
        found.add(array)
        message = (
            f"all iterations of the loop {graph_frames.of[node].path} share the gradient array of "
            f"{array.name!r}, which is created outside, but each writes to the array"
        )
        hint = "create the array inside of the loop, or use a tensor list"
        frame = str(graph_frames.of[node])
        yield Finding("CFG229", "warning", message, node.name, hint, (write.name,), frame)


def _writes(node: Node) -> bool:
    from cfgraph.ops.families.tensor_array_ops import TensorArrayOp

    op = lookup(node.op)
    return op is not None and issubclass(op, TensorArrayOp) and op.access == "write"
