"""Order: top-k selection, order statistics, binary search in sorted rows, and Where."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from cfgraph.errors import Unsupported
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape, ShapeError
from cfgraph.ops.families.gather import row_gather_gradient, row_numbers
from cfgraph.ops.families.segment import NUMERIC, REAL
from cfgraph.ops.kernels.array_namespace import LEAST_SEARCHED, checked_axis, few_largest
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, int32_constant
from cfgraph.ops.opdef.op import Kernel, Op, OpError, SameShape
from cfgraph.ops.opdef.shape_functions import (
    InferenceContext,
    require_rank,
    require_rank_at_least,
    shape_of_rank,
    static_int,
    with_dim,
)

# fewer elements, and rows with fewer of them per selected one, are sorted
_MANY: Final = 4096
_LEAST_PER_SELECTED: Final = 8


def _top_k(xp: ModuleType, value: Any, k: int, dtype: Any) -> Any:
    if k < 0:
        raise OpError(f"Need k >= 0, got {k}")
    if value.ndim < 1:
        raise OpError(f"input must be >= 1-D, got shape {list(value.shape)}")
    size = value.shape[-1]
    if size < k:
        raise OpError(f"input must have at least k columns. Had {size}, needed {k}")
    few = None
    if xp is np and value.size >= LEAST_SEARCHED:
        few = few_largest(value, k) or _largest_by_partition(value, k)
    if few is not None:
        return few[0], few[1].astype(dtype)
    # a stable sort of the reversed rows puts the first of equal elements in front
    turned = value[..., ::-1]
    order = turned.argsort(axis=-1, kind="stable") if xp is np else xp.argsort(turned, axis=-1)
    indices = size - 1 - order[..., : -k - 1 : -1]
    if xp is np:
        rows = row_numbers(np, value.shape[:-1], value.ndim)
        return value[(*rows, indices)], indices.astype(dtype)
    return xp.take_along_axis(value, indices, axis=-1), indices.astype(dtype)


def _largest_by_partition(value: Any, k: int) -> tuple[Any, Any] | None:
    """The k largest elements of NumPy rows and their indices, the first of equals first.

    None for short rows, for many elements, and for rows in which others equal the last of the k.
    """
    size = value.shape[-1]
    if value.size < _MANY or not 0 < _LEAST_PER_SELECTED * k <= size:
        return None
    if value.dtype.kind not in "fiu":
        return None
    rows = value.reshape((-1, size))
    last = np.partition(rows, size - k, axis=1)[:, size - k, None]
    selected = rows >= last
    if (np.add.reduce(selected, axis=1, dtype=np.intp) != k).any():
        return None
    indices = (np.flatnonzero(selected) % size).reshape((len(rows), k))
    values = np.take_along_axis(rows, indices, axis=1)
    # as below, a stable sort of the reversed rows
    order = k - 1 - values[:, ::-1].argsort(axis=1, kind="stable")[:, ::-1]
    sizes = (*value.shape[:-1], k)
    values, indices = (np.take_along_axis(x, order, axis=1) for x in (values, indices))
    return values.reshape(sizes), indices.reshape(sizes)


class TopKV2(Op):
    """The k largest elements of each row in descending order, and their indices."""

    signature = "input: T, k: const Tk -> values: T, indices: index_type"
    attrs = (
        f"sorted: bool = true, T: {REAL}, Tk: {{int16, int32, int64}} = int32, "
        "index_type: {int16, int32, int64} = int32"
    )
    compilation = CompilerSupport(uncompiled_types="uint16")

    @staticmethod
    def kernel(xp: ModuleType, index_type: DType, /, value: Any, k: Any) -> Any:
        if k.ndim:
            raise OpError(f"k must be scalar, got shape {list(k.shape)}")
        return _top_k(xp, value, int(k), index_type.numpy)

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
        raise ShapeError(f"cannot select the {k} largest elements of each row of {data}")
    return with_dim(data, -1, k)


class TopK(Op):
    """TopKV2 with k as an attribute."""

    signature = "input: T -> values: T, indices: int32"
    attrs = f"k: int >= 0, sorted: bool = true, T: {REAL}"
    compilation = CompilerSupport(compiled=False)
    kernel = staticmethod(lambda xp, k, /, value: _top_k(xp, value, k, np.int32))
    shape = staticmethod(lambda context: [_top_k_shape(context.inputs[0], context.attr("k"))] * 2)
    gradient = TopKV2.gradient


class ApproxTopK(Op):
    """The k largest or smallest elements of a dimension and their indices, exactly."""

    signature = "input: T -> values: T, indices: int32"
    attrs = (
        "k: int >= 0, reduction_dimension: int = -1, recall_target: float = 0.949999988079071, "
        "is_max_k: bool = true, reduction_input_size_override: int = -1, "
        "aggregate_to_topk: bool = true, T: {float16, bfloat16, float32}"
    )

    @staticmethod
    def kernel(
        xp: ModuleType,
        k: int,
        reduction_dimension: int,
        is_max_k: bool,
        aggregate_to_topk: bool,
        /,
        value: Any,
    ) -> Any:
        if not aggregate_to_topk:
            message = "ApproxTopK without aggregate_to_topk returns bins of its implementation"
            raise Unsupported(message, hint="set aggregate_to_topk", code="CFG701")
        rows = xp.moveaxis(value, checked_axis(reduction_dimension, value.ndim), -1)
        found, indices = _top_k(xp, rows if is_max_k else -rows, k, np.int32)
        best = found if is_max_k else -found
        return tuple(xp.moveaxis(x, -1, reduction_dimension) for x in (best, indices))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data, axis = context.inputs[0], context.attr("reduction_dimension")
        if not context.attr("aggregate_to_topk"):
            return [shape_of_rank(data.rank)] * 2
        return [with_dim(require_rank_at_least(data, 1), axis, context.attr("k"))] * 2

    @staticmethod
    def gradient(
        g: GradientBuilder, node: Node, dz: Output | None, _: Output | None
    ) -> InputGradients:
        assert dz is not None
        x, indices, axis = node.inputs[0], node.output(1), node.attr("reduction_dimension")
        if axis == -1:
            return (row_gather_gradient(g, x, indices, dz),)
        rank, first = g.Size(g.shape(x)), int32_constant(g, 0)
        at = g.FloorMod(int32_constant(g, [axis]), rank)
        rest = g.ListDiff(g.Range(first, rank, int32_constant(g, 1)), at)
        order = g.ConcatV2(rest, at, first)
        moved = (g.Transpose(tensor, order) for tensor in (x, indices, dz))
        return (g.Transpose(row_gather_gradient(g, *moved), g.InvertPermutation(order)),)


class NthElement(Op):
    """The n-th smallest element of each row (0-based), or the n-th largest with `reverse`."""

    signature = "input: T, n: const int32 -> values: T"
    attrs = f"reverse: bool = false, T: {REAL}"
    compilation = CompilerSupport(compiled=False)

    @staticmethod
    def kernel(xp: ModuleType, reverse: bool, /, value: Any, n: Any) -> Any:
        position = int(n)
        if value.ndim < 1:
            raise OpError(f"Input must be >= 1-D, got shape {list(value.shape)}")
        if not 0 <= position < value.shape[-1]:
            raise OpError(f"Input must have at least n+1 columns, n is {position}")
        return xp.sort(value, axis=-1)[..., -1 - position if reverse else position]

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data, n = require_rank_at_least(context.inputs[0], 1), static_int(context, 1)
        if n is not None and (
            n < 0 or (data.dims and data.dims[-1] is not None and (data.dims[-1] <= n))
        ):
            raise ShapeError(f"{data} has no element {n} in a row")
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

    @staticmethod
    def kernel(xp: ModuleType, predictions: Any, targets: Any, k: Any) -> Any:
        if predictions.ndim != 2 or targets.ndim != 1:
            raise OpError("predictions must be 2-dimensional and targets must be 1-dimensional")
        if predictions.shape[0] != targets.shape[0]:
            raise OpError(
                f"First dimension of predictions {predictions.shape[0]} must match length of "
                f"targets {targets.shape[0]}"
            )
        classes = predictions.shape[1]
        if not classes:
            return xp.zeros(targets.shape, bool)
        inside = (targets >= 0) & (targets < classes)
        columns = xp.clip(targets, 0, classes - 1)[:, None]
        chosen = xp.take_along_axis(predictions, columns, axis=1)
        above = (predictions > chosen).sum(axis=1)
        return inside & xp.isfinite(predictions).all(axis=1) & (above < k)

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
    def kernel(cls, xp: ModuleType, out_type: DType, /, rows: Any, values: Any) -> Any:
        if rows.ndim != 2 or values.ndim != 2 or len(rows) != len(values):
            raise OpError(
                "sorted_inputs and values must be matrices with as many rows, not "
                f"{list(rows.shape)} and {list(values.shape)}"
            )
        if rows.dtype.kind == "V":  # NumPy finds no bfloat16 after NaN
            rows, values = rows.astype(np.float32), values.astype(np.float32)
        result = np.empty(values.shape, out_type.numpy)
        for number, row in enumerate(rows):
            result[number] = np.searchsorted(row, values[number], cls.side)
        if values.dtype.kind == "f" and cls.side == "left":
            result[np.isnan(values)] = 0  # no number is below NaN
        return result

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        require_rank(context.inputs[0], 2)
        return [require_rank(context.inputs[1], 2)]

    @classmethod
    def shape_slots(cls, node: Node) -> Sequence[int]:
        return (1,)


class LowerBound(SearchBound):
    """Index of the first element of the sorted row that is >= the value."""

    side = "left"


class UpperBound(SearchBound):
    """Index of the first element of the sorted row that is > the value."""

    side = "right"


class Bucketize(SameShape):
    """Number of boundaries less than or equal to each element."""

    signature = "input: T -> output: int32"
    attrs = "T: {int32, int64, float32, float64}, boundaries: list(float)"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        bounds = [float(boundary) for boundary in node.attr("boundaries")]
        if sorted(bounds) != bounds:
            raise OpError("Expected sorted boundaries")
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

    @staticmethod
    def kernel(xp: ModuleType, value: Any) -> Any:
        if not value.ndim:
            raise OpError("WhereOp : Unhandled input dimensions: 0")
        is_set = value != 0
        few_calls = xp is np and value.ndim == 1
        return is_set.nonzero()[0][:, None] if few_calls else xp.argwhere(is_set)

    shape = staticmethod(lambda context: [Shape((None, context.inputs[0].rank))])
