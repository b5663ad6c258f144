"""Ragged tensors packed into variants, whole or row by row, as in loops over their rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.limits import reserve_array
from cfgraph.ops.families.ragged import check_splits
from cfgraph.ops.kernels.variant_math import add_values, zeros_like_element
from cfgraph.ops.opdef.facts import HostPlacement
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, int32_constant
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext


class RaggedVariant:
    """A variant element that contains a ragged tensor: vectors of splits, outermost first."""

    __slots__ = ("splits", "values")
    shape = ()
    ndim = 0

    def __init__(self, splits: tuple[Any, ...], values: Any) -> None:
        self.splits = splits
        self.values = values

    def __len__(self) -> int:
        return len(self.splits[0]) - 1 if self.splits else len(self.values)

    def zeros_like(self) -> RaggedVariant:
        """Zeros with the same rows."""
        return RaggedVariant(self.splits, zeros_like_element(self.values))

    def add(self, addend: Any) -> RaggedVariant:
        """The elementwise sum. Raises OpError if the addend has other rows."""
        addend = ragged_of(addend)
        same = len(self.splits) == len(addend.splits)
        if not same or not all(map(np.array_equal, self.splits, addend.splits)):
            raise OpError("Cannot add ragged tensors because they have different row splits.")
        return RaggedVariant(self.splits, add_values(self.values, addend.values))

    def __repr__(self) -> str:
        return f"<Ragged {self.splits!r} {self.values!r}>"


def ragged_of(element: Any) -> RaggedVariant:
    """The ragged tensor inside a variant. Raises OpError for any other value."""
    if isinstance(element, np.ndarray) and not element.ndim:
        element = element[()]
    if not isinstance(element, RaggedVariant):
        raise OpError(f"Input variant element does not hold a RaggedTensorVariant but {element!r}")
    return element


def _rows(splits: Sequence[Any], values: Any) -> Iterator[RaggedVariant]:
    """The rows of a ragged tensor, each of one ragged rank less."""
    if not splits:
        for index in range(len(values)):
            yield RaggedVariant((), values[index])
        return
    for start, end in pairwise(splits[0].tolist()):
        inner, first, last = [], start, end
        for deeper in splits[1:]:
            bounds = deeper[first : last + 1]
            first, last = int(bounds[0]), int(bounds[-1])
            inner.append(bounds - bounds[0])
        yield RaggedVariant(tuple(inner), values[first:last])


class RaggedTensorToVariant(Op):
    """A ragged tensor as one variant, or as a vector of variants, one per row."""

    signature = (
        "rt_nested_splits: RAGGED_RANK*Tsplits, rt_dense_values: Tvalues -> encoded_ragged: variant"
    )
    attrs = (
        "RAGGED_RANK: int >= 0, Tvalues: type, Tsplits: {int32, int64} = int64, batched_input: bool"
    )
    placement = HostPlacement(host_only=True)

    @staticmethod
    def kernel(xp: ModuleType, batched_input: bool, /, *inputs: Any) -> Any:
        *splits, values = inputs
        if splits or batched_input:
            if not values.ndim:
                raise OpError("the values of a ragged tensor must have a rank above 0")
            lengths = [len(inner) - 1 for inner in splits[1:]] + [len(values)]
            for outer, length in zip(splits, lengths, strict=False):
                check_splits(outer, length)
        if not batched_input:
            return RaggedVariant(tuple(splits), values)
        rows = list(_rows(splits, values))
        result = np.empty(len(rows), object)
        for index, row in enumerate(rows):
            result[index] = row
        return result

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        if not context.attr("batched_input"):
            return [SCALAR_SHAPE]
        dims, ragged = context.inputs[0].dims, context.attr("RAGGED_RANK")
        count = dims[0] if dims else None
        return [vector_shape(count - 1 if ragged and count is not None else count)]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        *splits, values = node.inputs
        rows = splits[0] if splits else int32_constant(g, 0)
        grad = g.RaggedTensorToVariantGradient(
            dz, rows, g.Shape(values), Tvalues=node.attr("Tvalues")
        )
        return [*([None] * len(splits)), grad]


class RaggedTensorFromVariant(Op):
    """The ragged tensor in a variant, or of all variants of a tensor, stacked."""

    signature = (
        "encoded_ragged: variant -> output_nested_splits: output_ragged_rank*Tsplits, "
        "output_dense_values: Tvalues"
    )
    attrs = (
        "input_ragged_rank: int >= -1, output_ragged_rank: int >= 0, Tvalues: type, "
        "Tsplits: {int32, int64} = int64"
    )
    placement = HostPlacement(host_only=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        inner, outer = node.attr("input_ragged_rank"), node.attr("output_ragged_rank")
        values_type, splits_type = node.attr("Tvalues").numpy, node.attr("Tsplits").numpy

        def component(element: Any, rank: int) -> RaggedVariant:
            ragged = ragged_of(element)
            if len(ragged.splits) != rank:
                raise OpError(
                    f"Encoded input RaggedTensorVariant has ragged_rank={len(ragged.splits)}.  "
                    f"Expected ragged_rank={rank}."
                )
            for found, expected in (
                (ragged.values.dtype, values_type),
                *((splits.dtype, splits_type) for splits in ragged.splits),
            ):
                if found != expected:
                    raise OpError(f"Expected a tensor of dtype {expected}, found: {found}")
            return ragged

        def decode(encoded: Any) -> Any:
            dims = encoded.shape
            rank = max(outer - len(dims), 0) if inner == -1 else inner
            if outer != rank + len(dims) and (outer or rank):
                raise OpError(
                    "output_ragged_rank must be equal to input_ragged_rank + "
                    f"encoded_ragged.dims(); output_ragged_rank: {outer}, input_ragged_rank: "
                    f"{rank}, encoded_variant.dims(): {len(dims)}."
                )
            if not dims:
                ragged = component(encoded, rank)
                return (*ragged.splits, ragged.values) if rank else ragged.values
            parts = [component(element, rank) for element in encoded.reshape(-1)]
            if not outer:
                return _stacked(dims, [part.values for part in parts], values_type)
            return _joined(dims, parts, rank, values_type, splits_type)

        return decode

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        count = context.attr("output_ragged_rank")
        return [*([vector_shape(None)] * count), UNKNOWN_SHAPE]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, *grads: Output | None) -> InputGradients:
        rank, count = g.known_shape(node.inputs[0]).rank, node.attr("output_ragged_rank")
        dense = grads[-1] or g.zeros_like(node.output(count))
        batched = bool(count) if rank is None else bool(rank)
        splits = [node.output(index) for index in range(count)]
        return [g.RaggedTensorToVariant(splits, dense, batched_input=batched)]


def _same_rows(arrays: Sequence[Any], *, drop: int) -> tuple[int, ...]:
    """The shape of all arrays but for their first axes. Raises OpError if they differ."""
    shape = arrays[0].shape[drop:] if arrays else ()
    for index, array in enumerate(arrays):
        if drop > array.ndim or array.shape[drop:] != shape:
            raise OpError(
                f"All flat_values must have compatible shapes.  Shape at index 0: {list(shape)}.  "
                f"Shape at index {index}: {list(array.shape[drop:])}.  If you are using tf.map_fn, "
                "then you may need to specify an explicit fn_output_signature"
            )
    return tuple(shape)


def _stacked(dims: Sequence[int], arrays: Sequence[Any], dtype: Any) -> Any:
    shape = _same_rows(arrays, drop=0)
    result = np.empty((len(arrays), *shape), dtype)
    for index, array in enumerate(arrays):
        result[index] = array
    return result.reshape((*dims, *shape))


def _joined(
    dims: Sequence[int], parts: Sequence[RaggedVariant], rank: int, dtype: Any, splits_type: Any
) -> Any:
    """The nested splits and values of ragged tensors that are stacked along axes of sizes."""
    for index, part in enumerate(parts):
        if not part.values.ndim:
            raise OpError(
                "Ragged values must have rank >= 1; encoded scalar element at index "
                f"{index} has values {part.values}"
            )
    nested = [
        np.arange(math.prod(dims[:axis]) + 1, dtype=splits_type) * splits_type.type(size)
        for axis, size in enumerate(dims)
        if axis
    ]
    nested.append(np.cumsum([0, *map(len, parts)], dtype=splits_type))
    for level in range(rank):
        steps = [np.diff(part.splits[level]) for part in parts]
        nested.append(np.cumsum(np.concatenate([[0], *steps]), dtype=splits_type))
    shape = _same_rows([part.values for part in parts], drop=1)
    values = [part.values for part in parts]
    return (*nested, np.concatenate(values) if values else np.empty((0, *shape), dtype))


class RaggedTensorToVariantGradient(Op):
    """The gradient of the values of a ragged tensor, of which each row is a variant."""

    signature = (
        "encoded_ragged_grad: variant, row_splits: Tsplits, dense_values_shape: int32 "
        "-> dense_values_grad: Tvalues"
    )
    attrs = "Tvalues: type, Tsplits: {int32, int64} = int64"
    placement = HostPlacement(host_only=True)

    @staticmethod
    def kernel(xp: ModuleType, Tvalues: DType, /, encoded: Any, splits: Any, sizes: Any) -> Any:
        dtype = Tvalues.numpy
        reserve_array(sizes.tolist(), dtype.itemsize)
        result = np.zeros(tuple(sizes.tolist()), dtype)
        if not encoded.ndim:
            rows = [ragged_of(encoded).values]
        else:
            rows = [ragged_of(element).values for element in encoded]
        flat, start = result.reshape(-1), 0
        for row in rows:
            if row.dtype != dtype or start + row.size > flat.size:
                raise OpError(
                    f"a gradient of type {row.dtype} with {start + row.size} elements or more "
                    f"does not fit values of type {dtype} and shape {sizes.tolist()}"
                )
            flat[start : start + row.size] = row.reshape(-1)
            start += row.size
        return result

    shape = staticmethod(lambda context: [context.shape_value(2)])
