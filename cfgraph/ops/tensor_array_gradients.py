"""The gradients of the ops on TensorArrays: those of the elements gather in a second array.

The gradient of a flow has no value that matters: it orders what is done to that array. A read hands
back the flow of a write, and a write that of what came after it.
"""

from __future__ import annotations

from collections.abc import Callable

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials


def read(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Of a read: write, which adds up."""
    _, index, flow = node.inputs
    flow = _when(g, flow, dz)
    return None, None, _op(g, node, "Write")(_array(g, node, flow), index, dz, flow)


def write(g: Adjoint, node: Node, dflow: Output) -> Partials:
    """Of a write: read."""
    _, index, value, _ = node.inputs
    done = _after(g, node, dflow)

    def element() -> Output:
        return _op(g, node, "Read")(_array(g, node, done), index, done, dtype=value.dtype)

    return None, None, element, done


def gather(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Of reads of many elements: write them."""
    _, indices, flow = node.inputs
    flow = _when(g, flow, dz)
    return None, None, _op(g, node, "Scatter")(_array(g, node, flow), indices, dz, flow)


def scatter(g: Adjoint, node: Node, dflow: Output) -> Partials:
    """Of writes of many elements: read them."""
    _, indices, value, _ = node.inputs
    done, shape = _after(g, node, dflow), g.known_shape(value)[1:]

    def rows() -> Output:
        op, array = _op(g, node, "Gather"), _array(g, node, done)
        return op(array, indices, done, dtype=value.dtype, element_shape=shape)

    return None, None, rows, done


def concat(g: Adjoint, node: Node, dz: Output, dlengths: None) -> Partials:
    """Of all elements one after the other: cut where they met."""
    flow, lengths = _when(g, node.inputs[1], dz), node.output(1)
    return None, _op(g, node, "Split")(_array(g, node, flow), dz, lengths, flow)


def split(g: Adjoint, node: Node, dflow: Output) -> Partials:
    """Of elements cut out of a tensor: put them together again."""
    _, value, _, _ = node.inputs
    done, rest = _after(g, node, dflow), g.known_shape(value)[1:]

    def whole() -> Output:
        op, array = _op(g, node, "Concat"), _array(g, node, done)
        return op(array, done, dtype=value.dtype, element_shape_except0=rest)

    return None, whole, None, done


def pack(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Of a read of all elements: write them."""
    flow = _when(g, node.inputs[1], dz)
    return None, g.TensorArrayUnpack(_array(g, node, flow), dz, flow)


def unpack(g: Adjoint, node: Node, dflow: Output) -> Partials:
    """Of a write of all elements: read them."""
    _, value, _ = node.inputs
    done, shape = _after(g, node, dflow), g.known_shape(value)[1:]

    def rows() -> Output:
        array = _array(g, node, done)
        return g.TensorArrayPack(array, done, dtype=value.dtype, element_shape=shape)

    return None, rows, done


def _op(g: Adjoint, node: Node, verb: str) -> Callable[..., Output]:
    """The op that does something to an array in the version that the node has."""
    version = node.op[-2:] if node.op[-2] == "V" else ""
    made: Callable[..., Output] = getattr(g, f"TensorArray{verb}{version}")
    return made


def _array(g: Adjoint, node: Node, flow: Output) -> Output:
    """The array of gradients; with it the size of the array of values becomes final."""
    return _op(g, node, "Grad")(node.inputs[0], flow, source=g.source)


def _when(g: Adjoint, flow: Output, dz: Output) -> Output:
    """The flow, not before the gradient: what was written after the read is there by then."""
    return g.after(flow, dz)


def _after(g: Adjoint, node: Node, dflow: Output) -> Output:
    """The gradient of the flow, not before the write that is differentiated.

    Each write hands this on to the one before it, so that all of them are done when the first
    array of gradients is made.
    """
    return g.after(dflow, node.output(0))
