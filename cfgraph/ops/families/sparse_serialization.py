"""Sparse tensors as three elements of one tensor: indices, values, and shape, each a string or a
variant.

A string is a serialized TensorProto with raw content; a variant contains the tensor itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.errors import CfgraphError
from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.serde.tensor import tensor_from_bytes, tensor_to_bytes
from cfgraph.ir.shapes import Shape, vector_shape
from cfgraph.ops.families.sparse_arithmetic import check_rising, check_sparse
from cfgraph.ops.opdef.facts import HostPlacement
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext

_HOST: Final = HostPlacement(host_only=True)
_PARTS: Final = 3


class TensorVariant:
    """A variant element that contains a tensor."""

    __slots__ = ("value",)
    shape = ()
    ndim = 0

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"<Tensor {self.value!r}>"


class _PartEncoder:
    """Encodes the parts of sparse tensors as rows of strings or variants."""

    def __init__(self, node: Node) -> None:
        self._types = (dtypes.int64, node.attr("T"), dtypes.int64)
        self._encode = TensorVariant if node.attr("out_type") is dtypes.variant else None

    def __call__(self, tensors: Sequence[tuple[Any, Any, Any]]) -> Any:
        result = np.empty((len(tensors), _PARTS), object)
        for row, parts in enumerate(tensors):
            for column, (part, dtype) in enumerate(zip(parts, self._types, strict=True)):
                encoded = self._encode(part) if self._encode else tensor_to_bytes(part, dtype)
                result[row, column] = encoded
        return result


class SerializeSparse(Op):
    """A sparse tensor as a vector of three elements."""

    signature = (
        "sparse_indices: int64, sparse_values: T, sparse_shape: int64 -> serialized_sparse: "
        "out_type"
    )
    attrs = "T: type, out_type: {string, variant} = string"
    placement = _HOST
    encoder = _PartEncoder

    @staticmethod
    def kernel(xp: ModuleType, encoder: Any, /, indices: Any, values: Any, shape: Any) -> Any:
        if (indices.ndim, values.ndim, shape.ndim) != (2, 1, 1):
            message = "a sparse tensor has a matrix of indices, and vectors of values and shape"
            raise OpError(message)
        return encoder([(indices, values, shape)])[0]

    shape = staticmethod(lambda context: [vector_shape(_PARTS)])


class SerializeManySparse(SerializeSparse):
    """Each slice of a sparse tensor along its first axis as a row of three elements."""

    @staticmethod
    def kernel(xp: ModuleType, encoder: Any, /, indices: Any, values: Any, shape: Any) -> Any:
        check_sparse(indices, values, shape)
        if len(shape) < 2:
            raise OpError(f"the rank of a sparse tensor must be above 1, got {len(shape)}")
        rows = indices[:, 0]
        check_rising(indices)
        ends = np.searchsorted(rows, np.arange(int(shape[0]) + 1))
        parts = [
            (indices[start:end, 1:], values[start:end], shape[1:]) for start, end in pairwise(ends)
        ]
        return encoder(parts)

    shape = staticmethod(
        lambda context: [Shape(((context.shape_value(2).dims or (None,))[0], _PARTS))]
    )


class DeserializeSparse(Op):
    """The sparse tensor of serialized ones, stacked along the axes before their three elements."""

    signature = (
        "serialized_sparse: Tserialized -> sparse_indices: int64, sparse_values: dtype, "
        "sparse_shape: int64"
    )
    attrs = "dtype: type, Tserialized: {string, variant} = string"
    placement = _HOST
    kernel = staticmethod(lambda xp, dtype, /, serialized: _stacked(serialized, dtype))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [Shape((None, None)), vector_shape(None), vector_shape(None)]


class DeserializeManySparse(DeserializeSparse):
    """The sparse tensor of serialized ones, stacked along a new first axis."""

    signature = DeserializeSparse.signature.replace("Tserialized", "string")
    attrs = "dtype: type"

    @staticmethod
    def kernel(xp: ModuleType, dtype: DType, /, serialized: Any) -> Any:
        if serialized.ndim != 2:
            message = f"serialized sparse tensors must be a matrix, got rank {serialized.ndim}"
            raise OpError(message)
        return _stacked(serialized, dtype)


def _element_array(element: Any, dtype: DType) -> Any:
    """The array inside a string or a variant. Raises OpError if it has another type."""
    if isinstance(element, TensorVariant):
        array = element.value
        if array.dtype != dtype.numpy:
            raise OpError(f"a serialized tensor must have type {dtype}, got {array.dtype}")
        return array
    if not isinstance(element, bytes):
        raise OpError(f"the given variant does not hold a tensor but {element!r}")
    try:
        array, found = tensor_from_bytes(element)
    except CfgraphError as error:
        raise OpError(f"could not parse a serialized tensor: {error}") from None
    if found is not dtype:
        raise OpError(f"a serialized tensor must have type {dtype}, got {found}")
    return array


def _stacked(serialized: Any, dtype: DType) -> tuple[Any, Any, Any]:
    """Indices, values, and shape of the stacked sparse tensors."""
    if not serialized.ndim or serialized.shape[-1] != _PARTS:
        message = f"serialized sparse tensors must have 3 columns, got {list(serialized.shape)}"
        raise OpError(message)
    batch = serialized.shape[:-1]
    if not all(batch):
        raise OpError("there must be at least one serialized sparse tensor")
    all_indices: list[Any] = []
    all_values: list[Any] = []
    all_shapes: list[Any] = []
    for position in np.ndindex(*batch):
        indices, values, shape = (
            _element_array(element, part_type)
            for element, part_type in zip(
                serialized[position], (dtypes.int64, dtype, dtypes.int64), strict=True
            )
        )
        check_sparse(indices, values, shape)
        if all_shapes and len(shape) != len(all_shapes[0]):
            message = f"sparse tensors of ranks {len(all_shapes[0])} and {len(shape)} do not stack"
            raise OpError(message)
        prefix = np.broadcast_to(np.array(position, np.int64), (len(indices), len(batch)))
        all_indices.append(np.concatenate([prefix, indices], axis=1))
        all_values.append(values)
        all_shapes.append(shape)
    sizes = np.array([*batch, *np.max(all_shapes, axis=0)], np.int64)
    return np.concatenate(all_indices), np.concatenate(all_values), sizes
