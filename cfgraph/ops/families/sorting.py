"""Order and distinct elements: top-k selection, order statistics, binary search in sorted rows,
Where, Unique and its variants, ListDiff.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.ops.families.gather import row_gather_gradient
from cfgraph.ops.families.segment import NUMERIC, REAL
from cfgraph.ops.opdef.array_namespace import few_largest
from cfgraph.ops.opdef.facts import CompilerSupport, HostPlacement
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, int32_constant
from cfgraph.ops.opdef.op import Kernel, Op, OpError, SameShape
from cfgraph.ops.opdef.shape_functions import (
    InferenceContext,
    require_rank,
    require_rank_at_least,
    runtime_axis,
    static_axis,
    static_int,
    with_dim,
)


def _top_k(xp: ModuleType, value: Any, k: int, dtype: Any) -> Any:
    if k < 0:
        message = f"Need k >= 0, got {k}"
        raise OpError(message)
    if value.ndim < 1:
        message = f"input must be >= 1-D, got shape {list(value.shape)}"
        raise OpError(message)
    size = value.shape[-1]
    if size < k:
        message = f"input must have at least k columns. Had {size}, needed {k}"
        raise OpError(message)
    few = few_largest(value, k) if xp is np else None
    if few is not None:
        return few[0], few[1].astype(dtype)
    # a stable sort of the reversed rows puts the first of equal elements in front
    turned = value[..., ::-1]
    order = turned.argsort(axis=-1, kind="stable") if xp is np else xp.argsort(turned, axis=-1)
    indices = size - 1 - order[..., ::-1][..., :k]
    if xp is np and value.ndim == 1:
        return value[indices], indices.astype(dtype)
    return xp.take_along_axis(value, indices, axis=-1), indices.astype(dtype)


class TopKV2(Op):
    """The k largest elements of each row in descending order, and their indices."""

    signature = "input: T, k: Tk -> values: T, indices: index_type"
    attrs = (
        f"sorted: bool = true, T: {REAL}, Tk: {{int16, int32, int64}} = int32, "
        "index_type: {int16, int32, int64} = int32"
    )
    placement = HostPlacement(host_inputs=(1,))
    compilation = CompilerSupport(constant_inputs=(1,), uncompiled_types="uint16")

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("index_type").numpy

        def top_k(value: Any, k: Any) -> Any:
            if k.ndim:
                message = f"k must be scalar, got shape {list(k.shape)}"
                raise OpError(message)
            return _top_k(xp, value, int(k), dtype)

        return top_k

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [_top_k_shape(context.inputs[0], static_int(context, 1))] * 2

    @staticmethod
    def gradient(
        g: GradientBuilder, node: Node, dz: Output | None, _: Output | None
    ) -> InputGradients:
        assert dz is not None
        return [
            row_gather_gradient(g, node.inputs[0], node.output(1), dz),
            *[None] * (len(node.inputs) - 1),
        ]


def _top_k_shape(data: Shape, k: int | None) -> Shape:
    require_rank_at_least(data, 1)
    if k is not None and (k < 0 or (data.dims and (data.dims[-1] or k) < k)):
        message = f"cannot select the {k} largest elements of each row of {data}"
        raise ValueError(message)
    return with_dim(data, -1, k)


class TopK(Op):
    """TopKV2 with k as an attribute."""

    signature = "input: T -> values: T, indices: int32"
    attrs = f"k: int >= 0, sorted: bool = true, T: {REAL}"
    compilation = CompilerSupport(compiled=False)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        k = node.attr("k")
        return lambda value: _top_k(xp, value, k, np.int32)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [_top_k_shape(context.inputs[0], context.attr("k"))] * 2

    gradient = TopKV2.gradient


class NthElement(Op):
    """The n-th smallest element of each row (0-based), or the n-th largest with `reverse`."""

    signature = "input: T, n: int32 -> values: T"
    attrs = f"reverse: bool = false, T: {REAL}"
    placement = HostPlacement(host_inputs=(1,))
    compilation = CompilerSupport(constant_inputs=(1,), compiled=False)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        reverse = node.attr("reverse")

        def nth_element(value: Any, n: Any) -> Any:
            position = int(n)
            if value.ndim < 1:
                message = f"Input must be >= 1-D, got shape {list(value.shape)}"
                raise OpError(message)
            if not 0 <= position < value.shape[-1]:
                message = f"Input must have at least n+1 columns, n is {position}"
                raise OpError(message)
            return xp.sort(value, axis=-1)[..., -1 - position if reverse else position]

        return nth_element

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data, n = require_rank_at_least(context.inputs[0], 1), static_int(context, 1)
        if n is not None and (
            n < 0 or (data.dims and data.dims[-1] is not None and (data.dims[-1] <= n))
        ):
            message = f"{data} has no element {n} in a row"
            raise ValueError(message)
        return [data[:-1]]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        x, last = node.inputs[0], int32_constant(g, -1)
        chosen = g.Cast(g.Equal(g.ExpandDims(node.output(), last), x), DstT=x.dtype)
        count = g.Sum(chosen, last, keep_dims=True)
        return g.Mul(g.RealDiv(chosen, count), g.ExpandDims(dz, last)), None


class InTopKV2(Op):
    """True for each row of predictions whose target class is among the k largest."""

    signature = "predictions: float32, targets: T, k: T -> precision: bool"
    attrs = "T: {int32, int64} = int32"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        def in_top_k(predictions: Any, targets: Any, k: Any) -> Any:
            if predictions.ndim != 2 or targets.ndim != 1:
                message = "predictions must be 2-dimensional and targets must be 1-dimensional"
                raise OpError(message)
            if predictions.shape[0] != targets.shape[0]:
                message = (
                    f"First dimension of predictions {predictions.shape[0]} must match length of "
                    f"targets {targets.shape[0]}"
                )
                raise OpError(message)
            classes = predictions.shape[1]
            if not classes:
                return xp.zeros(targets.shape, bool)
            inside = (targets >= 0) & (targets < classes)
            columns = xp.clip(targets, 0, classes - 1)[:, None]
            chosen = xp.take_along_axis(predictions, columns, axis=1)
            above = (predictions > chosen).sum(axis=1)
            return inside & xp.isfinite(predictions).all(axis=1) & (above < k)

        return in_top_k

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        rows = require_rank(context.inputs[0], 2)[:1]
        return [require_rank(context.inputs[1], 1).merge(rows)]


class InTopK(InTopKV2):
    """InTopKV2 with k as an attribute."""

    signature = "predictions: float32, targets: T -> precision: bool"
    attrs = "k: int, T: {int32, int64} = int32"
    compilation = CompilerSupport(compiled=False)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        in_top_k, k = super().bind(node, xp), node.attr("k")
        return lambda predictions, targets: in_top_k(predictions, targets, k)


class SearchBound(SameShape, abstract=True):
    """Binary search: insertion index of each value in its sorted row."""

    signature = "sorted_inputs: T, values: T -> output: out_type"
    attrs = "out_type: {int32, int64} = int32"
    side: ClassVar[Any]
    compilation = CompilerSupport(traceable=False)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype, side = node.attr("out_type").numpy, cls.side

        def bound(rows: Any, values: Any) -> Any:
            if rows.ndim != 2 or values.ndim != 2 or len(rows) != len(values):
                message = (
                    "sorted_inputs and values must be matrices with as many rows, not "
                    f"{list(rows.shape)} and {list(values.shape)}"
                )
                raise OpError(message)
            result = np.empty(values.shape, dtype)
            for number, row in enumerate(rows):
                result[number] = np.searchsorted(row, values[number], side)
            return result

        return bound

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        require_rank(context.inputs[0], 2)
        return [require_rank(context.inputs[1], 2)]


class LowerBound(SearchBound):
    """Index of the first element of the sorted row that is >= the value."""

    signature = "sorted_inputs: T, values: T -> output: out_type"
    side = "left"


class UpperBound(SearchBound):
    """Index of the first element of the sorted row that is > the value."""

    signature = "sorted_inputs: T, values: T -> output: out_type"
    side = "right"


class Bucketize(SameShape):
    """Number of boundaries less than or equal to each element."""

    signature = "input: T -> output: int32"
    attrs = "T: {int32, int64, float32, float64}, boundaries: list(float)"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        bounds = [float(boundary) for boundary in node.attr("boundaries")]
        if sorted(bounds) != bounds:
            message = "Expected sorted boundaries"
            raise OpError(message)
        precision = np.float64 if node.attr("T").numpy == np.float64 else np.float32
        edges = xp.asarray(np.array(bounds, np.float32).astype(precision))

        def bucketize(value: Any) -> Any:
            return xp.searchsorted(edges, value.astype(precision), "right").astype(np.int32)

        return bucketize


class Where(Op):
    """Indices of all true or nonzero elements, in row-major order."""

    signature = "input: T -> index: int64"
    attrs = f"T: {NUMERIC[:-1]}, bool}} = bool"
    compilation = CompilerSupport(traceable=False)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        def where(value: Any) -> Any:
            if not value.ndim:
                message = "WhereOp : Unhandled input dimensions: 0"
                raise OpError(message)
            return xp.argwhere(value != 0)

        return where

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [Shape((None, context.inputs[0].rank))]


# up to this many elements, a dictionary numbers them faster than sorting
_FEW: Final = 64
# integers of a range at most this many times their number are numbered by tables
_SPARSEST: Final = 4


def first_positions(x: Any) -> tuple[Any, Any]:
    """Index of the first occurrence of each distinct element of a vector, and inverse indices.

    Distinct elements are numbered in order of first occurrence; NaN differs from itself.
    """
    if x.dtype == object or len(x) <= _FEW:
        return _number_elements(x.tolist())
    if x.dtype.kind in "iu":
        low = x.min()
        extent = int(x.max()) - int(low)
        if extent < _SPARSEST * len(x):
            # differences are right also where large uint64 numbers wrap
            return _number_integers(x.astype(np.int64) - low.astype(np.int64), extent + 1)
    _, first, inverse = np.unique(x, return_index=True, return_inverse=True, equal_nan=False)
    order = np.argsort(first)
    numbers = np.empty_like(order)
    numbers[order] = np.arange(order.size)
    return first[order], numbers[inverse]


def _number_integers(x: Any, bound: int) -> tuple[Any, Any]:
    """`first_positions` of integers from 0 to `bound` - 1, by tables of that length."""
    positions = np.full(bound, len(x))
    # the last assignment to an element of the table remains: the first occurrence
    positions[x[::-1]] = np.arange(len(x) - 1, -1, -1)
    present = np.flatnonzero(positions < len(x))
    order = present[np.argsort(positions[present])]
    numbers = np.empty_like(positions)
    numbers[order] = np.arange(len(order))
    return positions[order], numbers[x]


def _number_elements(elements: list[Any]) -> tuple[Any, Any]:
    seen: dict[Any, int] = {}
    first: list[int] = []
    inverse = np.empty(len(elements), np.int64)
    for position, element in enumerate(elements):
        number = seen.setdefault(element, len(seen))
        if number == len(first):
            first.append(position)
        inverse[position] = number
    return np.array(first, np.int64), inverse


class Unique(Op):
    """Distinct elements in order of first occurrence, and the index of each element among them."""

    signature = "x: T -> y: T, idx: out_idx"
    attrs = "out_idx: {int32, int64} = int32"
    compilation = CompilerSupport(traceable=False)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype, counted = node.attr("out_idx").numpy, len(cls.parsed().outputs) == 3

        def unique(x: Any, axis: Any = None) -> Any:
            rows, along = x, 0
            if axis is not None and axis.size:
                if axis.ndim != 1 or axis.size != 1:
                    message = "axis must be empty or a vector with one element"
                    raise OpError(message)
                along = runtime_axis(axis[0], x.ndim)
                rows = np.moveaxis(x, along, 0)
            elif x.ndim != 1:
                message = "unique expects a 1D vector."
                raise OpError(message)
            first, numbers = _distinct_rows(rows)
            distinct = np.moveaxis(rows[first], 0, along), numbers.astype(dtype)
            if not counted:
                return distinct
            return *distinct, np.bincount(numbers, minlength=first.size).astype(dtype)

        return unique

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data = context.inputs[0]
        if len(context.inputs) == 1:
            idx = require_rank(data, 1)
            return [vector_shape(), idx, vector_shape()][: context.output_count]
        axis = context.value(1)
        if data.dims is None or axis is None or axis.ndim != 1:
            return [UNKNOWN_SHAPE, vector_shape(), vector_shape()][: context.output_count]
        if not axis.size:
            idx = require_rank(data, 1)
            return [vector_shape(), idx, vector_shape()][: context.output_count]
        dim = static_axis(int(axis[0]), len(data.dims))
        distinct = with_dim(data, dim, None)
        return [distinct, vector_shape(data.dims[dim]), vector_shape()][: context.output_count]


def _distinct_rows(rows: Any) -> tuple[Any, Any]:
    if rows.ndim == 1:
        return first_positions(rows)
    return _number_elements([tuple(row.reshape(-1).tolist()) for row in rows])


class UniqueV2(Unique):
    """Distinct slices along an axis, and the index of each slice among them."""

    signature = "x: T, axis: Taxis -> y: T, idx: out_idx"
    attrs = "Taxis: {int32, int64} = int64, out_idx: {int32, int64} = int32"


class UniqueWithCounts(Unique):
    """Unique, and the number of occurrences of each distinct element."""

    signature = "x: T -> y: T, idx: out_idx, count: out_idx"
    attrs = "out_idx: {int32, int64} = int32"


class UniqueWithCountsV2(Unique):
    """UniqueV2, and the number of occurrences of each distinct slice."""

    signature = "x: T, axis: Taxis -> y: T, idx: out_idx, count: out_idx"
    attrs = "Taxis: {int32, int64} = int64, out_idx: {int32, int64} = int32"


class ListDiff(Op):
    """Elements of x that are not in y, and their positions in x."""

    signature = "x: T, y: T -> out: T, idx: out_idx"
    attrs = "out_idx: {int32, int64} = int32"
    compilation = CompilerSupport(traceable=False)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("out_idx").numpy

        def list_diff(x: Any, y: Any) -> Any:
            if x.ndim != 1 or y.ndim != 1:
                message = "x and y should be 1D vectors."
                raise OpError(message)
            known = set(y.tolist())
            positions = [
                position for position, element in enumerate(x.tolist()) if element not in known
            ]
            idx = np.array(positions, dtype)
            return x[idx], idx

        return list_diff

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        require_rank(context.inputs[0], 1)
        require_rank(context.inputs[1], 1)
        return [vector_shape(), vector_shape()]
