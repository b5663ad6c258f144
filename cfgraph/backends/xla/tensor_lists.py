"""Tensor lists in compiled code: arrays of fixed capacity, one row per element.

The capacity is known when the list is compiled: from an input, or from the lengths in a run on
kernels, if the list is extended. The fact `row_operation` of an op names its
operation on the rows. The first element determines their shape if nothing else does. Where the
kernels of the ops would raise an error or extend the list, a check fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, reduce
from typing import Any, Final

import numpy as np

from cfgraph.errors import Unsupported
from cfgraph.ir.dtypes import DType
from cfgraph.ir.function_graph import FunctionGraph
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.tensor_list import element_shape_of, merge_shapes
from cfgraph.ops.families.tensor_list_ops import element_shape_value
from cfgraph.ops.kernels.array_namespace import is_in_range, require
from cfgraph.ops.opdef.op import Kernel, Op, OpError, row_operation, strip_identities


class JaxTensorList:
    """Rows of fixed capacity, `length` of them in use; no data while their shape is unknown.

    `written` marks the rows with values, None if `shape` is full: other rows then read as zeros.
    """

    __slots__ = ("capacity", "data", "dtype", "length", "shape", "written")

    def __init__(
        self, dtype: DType, shape: Shape, capacity: int, data: Any, length: Any, written: Any
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.capacity = capacity
        self.data = data
        self.length = length
        self.written = written

    ndim = 0

    def shaped(self, jax: Any, reference: JaxTensorList) -> JaxTensorList:
        """The list itself, or with zeros shaped as those of `reference` if it has no rows yet."""
        if self.data is not None or reference.data is None:
            return self
        data = jax.numpy.zeros(reference.data.shape, reference.data.dtype)
        return self.replaced(data, self.length, self.written)

    def replaced(self, data: Any, length: Any, written: Any) -> JaxTensorList:
        """A list of the same type and capacity with different rows."""
        return JaxTensorList(self.dtype, self.shape, self.capacity, data, length, written)

    def marked(self, index: Any, *, written: bool) -> Any:
        """The marks of written rows after one changes."""
        return None if self.written is None else self.written.at[index].set(written)


def list_kernel(jax: Any, node: Node, op: type[Op]) -> Kernel | None:
    """The kernel of an op on lists, or None for other ops and for lists without fixed capacity."""
    name = row_operation(node)
    if not name:
        return None
    _register(jax)
    return _KERNELS[name](jax, node)


@cache
def _register(jax: Any) -> None:
    jax.tree_util.register_pytree_node(
        JaxTensorList,
        lambda elements: (
            (elements.data, elements.length, elements.written),
            (elements.dtype, elements.shape, elements.capacity),
        ),
        lambda known, parts: JaxTensorList(*known, *parts),
    )


def kept_lists(body: FunctionGraph) -> Iterator[int]:
    """The arguments of the body of a loop that are lists, and have their length after it."""
    for index, argument in enumerate(body.arguments):
        node = strip_identities(body.returns[index]).node
        while row_operation(node) == "put" and not node.attr("resize_if_index_out_of_bounds"):
            node = strip_identities(node.inputs[0]).node
        if node is argument:
            yield index


# -- new lists -----------------------------------------------------------------------------------


class UnknownCapacity(Unsupported):
    """The capacity of a list that the program extends follows only from a run on kernels."""


_LARGEST: Final[ContextVar[Mapping[Node, int] | None]] = ContextVar("_LARGEST", default=None)


@contextmanager
def largest_lengths(lengths: Mapping[Node, int] | None) -> Iterator[None]:
    """Scope in which lists are compiled for their largest lengths, by the node that makes one."""
    token = _LARGEST.set(lengths)
    try:
        yield
    finally:
        _LARGEST.reset(token)


def _new_list(jax: Any, node: Node, shape_input: Any, capacity: int, length: int) -> JaxTensorList:
    dtype, shape = node.attr("element_dtype"), element_shape_of(shape_input)
    data = _zeros(jax, dtype, capacity, shape) if shape.is_full else None
    written = None if shape.is_full else jax.numpy.zeros(max(capacity, 1), bool)
    return JaxTensorList(dtype, shape, capacity, data, np.int32(length), written)


def _zeros(jax: Any, dtype: DType, capacity: int, shape: Shape) -> Any:
    # a loop that never runs is compiled too, and indexing needs at least one row
    return jax.numpy.zeros((max(capacity, 1), *shape), dtype.numpy)


def _empty(jax: Any, node: Node) -> Kernel:
    def empty(shape: Any, limit: Any) -> JaxTensorList:
        capacity = int(limit) if limit >= 0 else _largest_length(node)
        return _new_list(jax, node, shape, capacity, 0)

    return empty


def _reserve(jax: Any, node: Node) -> Kernel:
    def reserve(shape: Any, count: Any) -> JaxTensorList:
        # a list that a program extends starts without elements
        return _new_list(jax, node, shape, int(count) or _largest_length(node), int(count))

    return reserve


def _largest_length(node: Node) -> int:
    """The largest length of the lists that a node makes, in a run on kernels."""
    lengths = _LARGEST.get()
    if lengths is None:
        message = "the capacity of the list is not known at compile time"
        raise UnknownCapacity(message)
    return lengths.get(node, 0)


def _from_tensor(jax: Any, node: Node) -> Kernel:
    dtype = node.attr("element_dtype")

    def from_tensor(tensor: Any, shape_input: Any) -> JaxTensorList:
        tensor, count = jax.numpy.asarray(tensor), len(tensor)
        row_shape, shape = tensor.shape[1:], element_shape_of(shape_input)
        if not shape.accepts(row_shape):
            raise _other_shape(shape, row_shape)
        if not count:
            tensor = _zeros(jax, dtype, 1, Shape(row_shape))
        written = None if shape.is_full else jax.numpy.full(max(count, 1), bool(count))
        return JaxTensorList(dtype, shape, count, tensor, np.int32(count), written)

    return from_tensor


# -- operations on elements ----------------------------------------------------------------------


def _push(jax: Any, node: Node) -> Kernel:
    def push(elements: JaxTensorList, value: Any) -> JaxTensorList:
        _require_type(elements, node)
        index = elements.length
        require(index < elements.capacity)
        data = _put_row(jax, elements, index, value)
        return elements.replaced(data, index + 1, elements.marked(index, written=True))

    return push


def _pop(jax: Any, node: Node) -> Kernel:
    def pop(elements: JaxTensorList, shape: Any) -> tuple[JaxTensorList, Any]:
        _require_type(elements, node)
        last = elements.length - 1
        require(last >= 0)
        value = _row(jax, elements, last, shape, merged=False)
        marks = elements.marked(last, written=False)
        return elements.replaced(elements.data, last, marks), value

    return pop


def _put(jax: Any, node: Node) -> Kernel:
    extends = node.attr("resize_if_index_out_of_bounds")

    def put(elements: JaxTensorList, index: Any, value: Any) -> JaxTensorList:
        _require_type(elements, node)
        is_row, length = is_in_range(index, elements.length), elements.length
        index = jax.numpy.reshape(index, ())
        if not is_row:
            # a longer extension would leave elements without values between
            end = jax.numpy.minimum(length, elements.capacity - 1) if extends else length - 1
            require((index >= 0) & (index <= end))
        if extends:
            length = jax.numpy.maximum(length, index.astype(length.dtype) + 1)
        data = _put_row(jax, elements, index, value)
        return elements.replaced(data, length, elements.marked(index, written=True))

    return put


def _get(jax: Any, node: Node) -> Kernel:
    def get(elements: JaxTensorList, index: Any, shape: Any) -> Any:
        _require_type(elements, node)
        is_row = is_in_range(index, elements.length)
        index = jax.numpy.reshape(index, ())
        if not is_row:
            require((index >= 0) & (index < elements.length))
        return _row(jax, elements, index, shape, merged=True)

    return get


def _take(jax: Any, node: Node) -> Kernel:
    def gather(elements: JaxTensorList, indices: Any, shape: Any) -> Any:
        _require_type(elements, node)
        indices = jax.numpy.reshape(indices, -1)
        require(((indices >= 0) & (indices < elements.length)).all())
        data, full = _stacked_rows(jax, elements, shape)
        if not full:
            assert elements.written is not None
            require(elements.written[indices].any())
        return data[indices]

    return gather


def _all(jax: Any, node: Node) -> Kernel:
    count = node.attr("num_elements")

    def stack(elements: JaxTensorList, shape: Any) -> Any:
        _require_type(elements, node)
        if count not in (-1, elements.capacity):
            message = f"{count} elements of the list are expected, and it has {elements.capacity}"
            raise Unsupported(message)
        require(elements.length == elements.capacity)
        data, full = _stacked_rows(jax, elements, shape)
        if not full:
            assert elements.written is not None
            require(elements.written.any())
        return data[: elements.capacity]

    return stack


def _count(jax: Any, node: Node) -> Kernel:
    return lambda elements: elements.length


def _shape(jax: Any, node: Node) -> Kernel:
    dtype = node.attr("shape_type")
    return lambda elements: element_shape_value(elements.shape, dtype)


def _zeros_like(jax: Any, node: Node) -> Kernel:
    def zeros_like(elements: JaxTensorList) -> JaxTensorList:
        data = None if elements.data is None else jax.numpy.zeros_like(elements.data)
        return elements.replaced(data, elements.length, elements.written)

    return zeros_like


def _sum(jax: Any, node: Node) -> Kernel:
    def add(left: JaxTensorList, right: JaxTensorList) -> JaxTensorList:
        if (left.dtype, left.capacity) != (right.dtype, right.capacity):
            message = "lists of different types or capacities are added"
            raise Unsupported(message)
        require(left.length == right.length)
        shape = _merged(left.shape, right.shape)
        left, right = left.shaped(jax, right), right.shaped(jax, left)
        data, marks = left.data, None
        if data is not None:
            if data.shape != right.data.shape:
                raise _other_shape(Shape(data.shape[1:]), right.data.shape[1:])
            data = data + right.data  # rows without a value are zeros
        if left.written is not None and right.written is not None:
            marks = left.written | right.written
        return JaxTensorList(left.dtype, shape, left.capacity, data, left.length, marks)

    return lambda *lists: reduce(add, lists)


# -- rows ----------------------------------------------------------------------------------------


def _require_type(elements: JaxTensorList, node: Node) -> None:
    dtype = node.attr("element_dtype")
    if elements.dtype is not dtype:
        message = f"the list has elements of type {elements.dtype}, not {dtype}"
        raise Unsupported(message)


def _other_shape(expected: Shape, actual: Sequence[int]) -> Unsupported:
    message = f"the list has elements of shape {expected}, not {Shape(actual)}"
    return Unsupported(message)


def _put_row(jax: Any, elements: JaxTensorList, index: Any, value: Any) -> Any:
    value = jax.numpy.asarray(value)
    if not elements.shape.accepts(value.shape):
        raise _other_shape(elements.shape, value.shape)
    data = elements.data
    if data is None:
        data = _zeros(jax, elements.dtype, elements.capacity, Shape(value.shape))
    if data.shape[1:] != value.shape:
        raise _other_shape(Shape(data.shape[1:]), value.shape)
    return jax.lax.dynamic_update_index_in_dim(data, value, index, 0)


def _row(jax: Any, elements: JaxTensorList, index: Any, shape_input: Any, *, merged: bool) -> Any:
    """One row. If `merged`, the shape of an unwritten row may follow from the written ones."""
    data, known = _data(jax, elements, shape_input)
    if elements.written is not None and known.dims != data.shape[1:]:
        readable = elements.written[index]
        # as for the kernel, a known shape that differs from the other rows would be its own
        if merged and not known.is_full and known.accepts(data.shape[1:]):
            readable = readable | elements.written.any()
        require(readable)
    return jax.lax.dynamic_index_in_dim(data, index, 0, keepdims=False)


def _stacked_rows(jax: Any, elements: JaxTensorList, shape_input: Any) -> tuple[Any, bool]:
    """All rows, and true if their shape is known though none were written."""
    data, known = _data(jax, elements, shape_input)
    if not known.accepts(data.shape[1:]):
        raise _other_shape(known, data.shape[1:])
    return data, elements.written is None or known.is_full


def _merged(a: Shape, b: Shape) -> Shape:
    try:
        return merge_shapes(a, b)
    except OpError as error:
        raise Unsupported(error.message) from None


def _data(jax: Any, elements: JaxTensorList, shape_input: Any) -> tuple[Any, Shape]:
    """The rows, and the shape of elements without a value as far as it is known."""
    known = _merged(element_shape_of(shape_input), elements.shape)
    data = elements.data
    if data is None and known.is_full:
        data = _zeros(jax, elements.dtype, elements.capacity, known)
    if data is None:
        message = "the shape of the list's elements is not known at compile time"
        raise Unsupported(message)
    return data, known


_KERNELS: Final[Mapping[str, Callable[[Any, Node], Kernel]]] = {
    "empty": _empty,
    "reserve": _reserve,
    "of": _from_tensor,
    "push": _push,
    "pop": _pop,
    "put": _put,
    "get": _get,
    "take": _take,
    "all": _all,
    "count": _count,
    "shape": _shape,
    "zeros": _zeros_like,
    "sum": _sum,
}
