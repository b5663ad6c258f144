"""The gradients of the ops on tensor lists: lists as long, in which no value stands for zeros.

Whoever takes an element out of one says its shape, so that of the list may be left open.
"""

from __future__ import annotations

from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.adjoint import Adjoint, Partials, row_shape


def push_back(g: Adjoint, node: Node, dlist: Output) -> Partials:
    """Of one element more: one less."""
    value = node.inputs[1]
    popped = g.TensorListPopBack(dlist, g.shape(value), element_dtype=value.dtype).node
    return popped.output(0), popped.output(1)


def pop_back(g: Adjoint, node: Node, dlist: Output | None, dz: Output | None) -> Partials:
    """Of one element less: one more."""
    dlist = dlist or g.zeros_like(node.output(0))
    return g.TensorListPushBack(dlist, dz or g.zeros_like(node.output(1))), None


def get_item(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Of a read: a list with nothing else."""
    source, index, _ = node.inputs
    return g.TensorListSetItem(_blank(g, source, dz), index, dz), None, None


def set_item(g: Adjoint, node: Node, dlist: Output) -> Partials:
    """Of a write: a read; what was there before counts no more."""
    source, index, value = node.inputs

    def item() -> Output:
        return g.TensorListGetItem(dlist, index, g.shape(value), element_dtype=value.dtype)

    def others() -> Output:
        rest = g.TensorListSetItem(dlist, index, g.ZerosLike(item()))
        grows = node.attr("resize_if_index_out_of_bounds")
        return g.TensorListResize(rest, g.TensorListLength(source)) if grows else rest

    return others, None, item


def resize(g: Adjoint, node: Node, dlist: Output) -> Partials:
    """Of another length: the old one."""
    return g.TensorListResize(dlist, g.TensorListLength(node.inputs[0])), None


def stack(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Of the elements as one tensor: its slices."""
    return g.TensorListFromTensor(dz, _told(g, g.known_shape(dz)[1:])), None


def from_tensor(g: Adjoint, node: Node, dlist: Output) -> Partials:
    """Of slices: the elements as one tensor."""
    value = node.inputs[0]
    known = g.known_shape(value)
    count = known.dims[0] if known.dims else None
    rows = g.TensorListStack(
        dlist,
        row_shape(g, value),
        element_dtype=value.dtype,
        num_elements=-1 if count is None else count,
    )
    return rows, None


def gather(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Of reads of many elements: a list with those; what was read twice gets both."""
    source, indices, _ = node.inputs
    count = g.TensorListLength(source)
    known = g.known_value(indices)
    if known is None or len(set(known.tolist())) < len(known):
        sums = g.UnsortedSegmentSum(dz, indices, count)
        dz = g.GatherV2(sums, indices, g.const(0, dtypes.int32))
    return g.TensorListScatterIntoExistingList(_blank(g, source, dz), dz, indices), None, None


def scatter(g: Adjoint, node: Node, dlist: Output) -> Partials:
    """Of writes of many elements: read them."""
    value, indices, *others = node.inputs
    return _rows(g, dlist, indices, value), *[None] * (1 + len(others))


def scatter_into(g: Adjoint, node: Node, dlist: Output) -> Partials:
    """Of writes into a list: read them; what was there before counts no more."""
    source, value, indices = node.inputs

    def others() -> Output:
        zeros = g.ZerosLike(_rows(g, dlist, indices, value))
        rest = g.TensorListScatterIntoExistingList(dlist, zeros, indices)
        # writes behind its end have made the list longer
        return g.TensorListResize(rest, g.TensorListLength(source))

    return others, lambda: _rows(g, dlist, indices, value), None


def concat(g: Adjoint, node: Node, dz: Output, dlengths: None) -> Partials:
    """Of all elements one after the other: cut where they met."""
    pieces = g.TensorListSplit(dz, _told(g, Shape()), node.output(1))
    return pieces, *[None] * (len(node.inputs) - 1)


def split(g: Adjoint, node: Node, dlist: Output) -> Partials:
    """Of elements cut out of a tensor: put them together again."""
    value, _, lengths = node.inputs
    rest = g.known_shape(value)[1:]
    if rest.is_full:
        shape = g.const([-1, *rest], dtypes.int32)
    else:
        shape = g.ConcatV2(
            g.const([-1], dtypes.int32), row_shape(g, value), g.const(0, dtypes.int32)
        )
    return g.TensorListConcatV2(dlist, shape, lengths, element_dtype=value.dtype), None, None


def _blank(g: Adjoint, like: Output, element: Output) -> Output:
    """A list of zeros, as long as another one."""
    length = g.TensorListLength(like)
    return g.TensorListReserve(_told(g, Shape()), length, element_dtype=element.dtype)


def _rows(g: Adjoint, source: Output, indices: Output, like: Output) -> Output:
    return g.TensorListGather(source, indices, row_shape(g, like), element_dtype=like.dtype)


def _told(g: Adjoint, shape: Shape) -> Output:
    """A static shape as ops on lists take it: the scalar -1 is unknown rank."""
    sizes = -1 if shape.dims is None else [-1 if size is None else size for size in shape.dims]
    return g.const(sizes, dtypes.int32)
