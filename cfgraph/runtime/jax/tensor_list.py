"""Tensor lists under jax tracing: the rows of one array of fixed size.

The size is known when the list is compiled. The fact `row_operation` of an op names its operation
on the rows. The first element determines their shape if nothing else does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from cfgraph.errors import Unsupported
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.tensor_list import element_shape_of
from cfgraph.ops.opdef.op import Kernel, Op


class JaxTensorList:
    """Rows of fixed capacity, `length` of them in use; no data while their shape is unknown."""

    __slots__ = ("capacity", "data", "dtype", "length")

    def __init__(self, dtype: DType, capacity: int, data: Any, length: Any) -> None:
        self.dtype = dtype
        self.capacity = capacity
        self.data = data
        self.length = length

    ndim = 0

    def shaped(self, jax: Any, reference: JaxTensorList) -> JaxTensorList:
        """The list with rows of the shape of `reference`, if it has none yet."""
        if self.data is not None or reference.data is None:
            return self
        data = jax.numpy.zeros(reference.data.shape, reference.data.dtype)
        return JaxTensorList(self.dtype, self.capacity, data, self.length)


def list_kernel(jax: Any, node: Node, op: type[Op]) -> Kernel | None:
    """The kernel of an op on lists; None for other ops, and for lists without fixed capacity."""
    name = op.compilation.row_operation
    if not name:
        return None
    _register(jax)
    return _KERNELS[name](jax, node)


@cache
def _register(jax: Any) -> None:
    jax.tree_util.register_pytree_node(
        JaxTensorList,
        lambda elements: ((elements.data, elements.length), (elements.dtype, elements.capacity)),
        lambda known, parts: JaxTensorList(*known, *parts),
    )


def _blank(jax: Any, dtype: DType, capacity: Any, shape: Any) -> Any:
    """Rows of zeros; None if their shape is unknown."""
    element_shape = element_shape_of(shape)
    if element_shape.dims is None or not element_shape.is_full:
        return None
    return _zeros(jax, dtype, capacity, element_shape)


def _zeros(jax: Any, dtype: DType, capacity: int, shape: Shape) -> Any:
    # a loop that never runs is compiled too, and indexing needs at least one row
    return jax.numpy.zeros((max(capacity, 1), *shape), dtype.numpy)


def _empty(jax: Any, node: Node) -> Kernel:
    dtype = node.attr("element_dtype")

    def empty(shape: Any, capacity: Any) -> JaxTensorList:
        if capacity < 0:
            message = "the capacity of the list is not known at compile time"
            raise Unsupported(message)
        data = _blank(jax, dtype, int(capacity), shape)
        return JaxTensorList(dtype, int(capacity), data, jax.numpy.int32(0))

    return empty


def _reserve(jax: Any, node: Node) -> Kernel:
    dtype = node.attr("element_dtype")

    def reserve(shape: Any, count: Any) -> JaxTensorList:
        data = _blank(jax, dtype, int(count), shape)
        return JaxTensorList(dtype, int(count), data, jax.numpy.int32(count))

    return reserve


def _from_tensor(jax: Any, node: Node) -> Kernel:
    dtype = node.attr("element_dtype")

    def from_tensor(tensor: Any, shape: Any) -> JaxTensorList:
        tensor, count = jax.numpy.asarray(tensor), len(tensor)
        if not count:
            tensor = _zeros(jax, dtype, 1, Shape(tensor.shape[1:]))
        return JaxTensorList(dtype, count, tensor, jax.numpy.int32(count))

    return from_tensor


def _push(jax: Any, node: Node) -> Kernel:
    def push(elements: JaxTensorList, value: Any) -> JaxTensorList:
        data = _put_row(jax, elements, elements.length, value)
        return JaxTensorList(elements.dtype, elements.capacity, data, elements.length + 1)

    return push


def _pop(jax: Any, node: Node) -> Kernel:
    def pop(elements: JaxTensorList, shape: Any) -> tuple[JaxTensorList, Any]:
        last = elements.length - 1
        value = _row(jax, elements, last, shape)
        return JaxTensorList(elements.dtype, elements.capacity, elements.data, last), value

    return pop


def _put(jax: Any, node: Node) -> Kernel:
    def put(elements: JaxTensorList, index: Any, value: Any) -> JaxTensorList:
        return JaxTensorList(
            elements.dtype,
            elements.capacity,
            _put_row(jax, elements, index, value),
            elements.length,
        )

    return put


def _get(jax: Any, node: Node) -> Kernel:
    return lambda elements, index, shape: _row(jax, elements, index, shape)


def _take(jax: Any, node: Node) -> Kernel:
    return lambda elements, indices, shape: _data(jax, elements, shape)[indices]


def _all(jax: Any, node: Node) -> Kernel:
    return lambda elements, shape: _data(jax, elements, shape)[: elements.capacity]


def _count(jax: Any, node: Node) -> Kernel:
    return lambda elements: elements.length


def _put_row(jax: Any, elements: JaxTensorList, index: Any, value: Any) -> Any:
    value = jax.numpy.asarray(value)
    data = elements.data
    if data is None:
        data = _zeros(jax, elements.dtype, elements.capacity, Shape(value.shape))
    if data.shape[1:] != value.shape:
        shapes = f"{Shape(value.shape)} and {Shape(data.shape[1:])}"
        message = f"the list has elements of shapes {shapes}"
        raise Unsupported(message)
    return jax.lax.dynamic_update_index_in_dim(data, value, index, 0)


def _row(jax: Any, elements: JaxTensorList, index: Any, shape: Any) -> Any:
    return jax.lax.dynamic_index_in_dim(_data(jax, elements, shape), index, 0, keepdims=False)


def _data(jax: Any, elements: JaxTensorList, shape: Any) -> Any:
    data = elements.data
    if data is None:
        data = _blank(jax, elements.dtype, elements.capacity, shape)
    if data is None:
        message = "the shape of the list's elements is not known at compile time"
        raise Unsupported(message)
    return data


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
}
