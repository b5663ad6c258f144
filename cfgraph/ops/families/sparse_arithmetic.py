"""Sums, slices, and products of sparse tensors in coordinate format."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape, vector_shape
from cfgraph.ops.families.division import truncated_quotient
from cfgraph.ops.kernels.array_namespace import FEW_NUMBERS
from cfgraph.ops.opdef.facts import HostPlacement
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, sum_to_shape
from cfgraph.ops.opdef.op import ALL_NUMBERS, REAL, Kernel, Op, OpError, one_of
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank

_HOST: Final = HostPlacement(host_only=True)


def check_sparse(indices: Any, values: Any, shape: Any) -> tuple[int, ...]:
    """The dense sizes of a sparse tensor. Raises OpError unless its parts fit each other."""
    if indices.ndim != 2 or values.ndim != 1 or shape.ndim != 1:
        raise OpError(
            f"a sparse tensor must have a matrix of indices and vectors of values and shape, got "
            f"shapes {list(indices.shape)}, {list(values.shape)}, and {list(shape.shape)}"
        )
    if indices.shape != (len(values), len(shape)):
        raise OpError(
            f"a sparse tensor has {len(values)} values of rank {len(shape)}, but indices of shape "
            f"{list(indices.shape)}"
        )
    sizes = tuple(shape.tolist())
    if not are_inside(indices, sizes):
        raise OpError(f"an index is out of the bounds {[*sizes]}")
    return sizes


def check_size(sizes: Any) -> None:
    """Raise OpError for sizes whose product is no int64."""
    if math.prod(map(int, sizes)) >= 1 << 63:
        raise OpError(f"Shape {list(map(int, sizes))} would have more than 2**63 - 1 elements")


def are_inside(indices: Any, sizes: Sequence[int]) -> bool:
    """True if all rows of coordinates lie within the sizes."""
    if indices.size <= FEW_NUMBERS:
        rows = indices.tolist()
        return all(0 <= x < size for row in rows for x, size in zip(row, sizes, strict=True))
    # without their sign, negative numbers are larger than all sizes
    unsigned, bounds = np.dtype(f"u{indices.dtype.itemsize}"), np.maximum(sizes, 0)
    return bool((indices.view(unsigned) < bounds.astype(np.uint64)).all())


def check_rising(indices: Any) -> None:
    """Raise OpError unless each row of coordinates is behind the one before, in row-major order."""
    before, after = indices[:-1], indices[1:]
    column = (before != after).argmax(axis=1)[:, None]
    wrong = np.take_along_axis(before >= after, column, axis=1)
    if wrong.any():
        row = int(wrong.argmax()) + 1
        problem = "repeated" if np.array_equal(indices[row], indices[row - 1]) else "out of order"
        raise OpError(f"indices[{row}] = {indices[row].tolist()} is {problem}")


def flat_positions(indices: Any, sizes: Sequence[int]) -> Any | None:
    """The row-major positions of coordinates within the sizes; None unless they rise."""
    if math.prod(sizes) >= 1 << 62:
        return None
    strides = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    positions = indices @ np.array(strides, np.int64)
    return positions if (positions[1:] > positions[:-1]).all() else None


def row_keys(indices: Any) -> list[tuple[int, ...]]:
    """The rows of a matrix of coordinates as tuples, which can be keys of a dict."""
    return [tuple(row) for row in indices.tolist()]


class SparseAdd(Op):
    """Sum of two sparse tensors without sums of two elements below a threshold."""

    signature = (
        "a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, "
        "b_shape: int64, thresh: Treal -> sum_indices: int64, sum_values: T, sum_shape: int64"
    )
    attrs = f"{one_of(ALL_NUMBERS)}, {one_of(REAL, attr='Treal')}"
    placement = _HOST

    @staticmethod
    def kernel(xp: ModuleType, *inputs: Any) -> Any:
        *tensors, threshold = inputs
        check_sparse(*tensors[:3])
        check_sparse(*tensors[3:])
        a_indices, a, a_shape, b_indices, b, b_shape = tensors
        if not np.array_equal(a_shape, b_shape):
            message = f"operands' shapes do not match: {a_shape.tolist()} and {b_shape.tolist()}"
            raise OpError(message)
        if threshold.ndim:
            raise OpError(f"thresh must be a scalar, got shape {list(threshold.shape)}")
        sizes = a_shape.tolist()
        first, second, own = _merged_places(a_indices, b_indices, sizes)
        sums, both = np.concatenate((a, b))[own], (first >= 0) & (second >= 0)
        sums[both] += b[second[both]]
        large = (np.abs(sums) >= threshold) | ~both
        return np.concatenate((a_indices, b_indices))[own[large]], sums[large], a_shape

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        rank = require_rank(context.inputs[2], 1).merge(require_rank(context.inputs[5], 1))
        require_rank(context.inputs[6], 0)
        return [vector_shape(None) + rank, vector_shape(None), rank]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, *grads: Output | None) -> InputGradients:
        dy = grads[1]
        if dy is None:
            return [None] * 7
        made = g.SparseAddGrad(dy, node.inputs[0], node.inputs[3], node.output()).node
        return None, made.output(0), None, None, made.output(1), None, None


def _merged_places(a: Any, b: Any, sizes: Sequence[int]) -> tuple[Any, Any, Any]:
    """The places of the sorted union of indices in `a` and in `b`, or -1, and in both in turn."""
    places = None
    if a.size + b.size > FEW_NUMBERS:
        places = _merge_positions(flat_positions(a, sizes), flat_positions(b, sizes))
    first, second = (_merge(row_keys(a), row_keys(b)) if places is None else places).T
    return first, second, np.where(first >= 0, first, len(a) + second)


class SparseSparseMaximum(Op):
    """Larger elements of two sparse tensors of one shape; what one lacks is 0."""

    signature = (
        "a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, "
        "b_shape: int64 -> output_indices: int64, output_values: T"
    )
    attrs = one_of(REAL)
    placement = _HOST
    selects: ClassVar[Any] = np.maximum

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        def select(*tensors: Any) -> Any:
            check_sparse(*tensors[:3])
            check_sparse(*tensors[3:])
            a_indices, a, a_shape, b_indices, b, b_shape = tensors
            if not np.array_equal(a_shape, b_shape):
                raise OpError(
                    f"operands' shapes do not match: {a_shape.tolist()} and {b_shape.tolist()}"
                )
            first, second, own = _merged_places(a_indices, b_indices, a_shape.tolist())
            left, right = (
                np.append(values, values.dtype.type(0))[place]
                for values, place in ((a, first), (b, second))
            )
            return np.concatenate((a_indices, b_indices))[own], cls.selects(left, right)

        return select

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        rank = require_rank(context.inputs[2], 1).merge(require_rank(context.inputs[5], 1))
        return [vector_shape(None) + rank, vector_shape(None)]


class SparseSparseMinimum(SparseSparseMaximum):
    """Smaller elements of two sparse tensors of one shape; what one lacks is 0."""

    attrs = one_of(ALL_NUMBERS)
    selects = np.minimum


def _merge_positions(a: Any | None, b: Any | None) -> Any | None:
    """`_merge` of rising positions; None if some do not rise."""
    if a is None or b is None:
        return None
    positions = np.concatenate([a, b])
    order = np.argsort(positions, kind="stable")
    ordered = positions[order]
    follows = np.zeros(len(order), bool)
    follows[1:] = ordered[1:] == ordered[:-1]
    starts = np.flatnonzero(~follows)
    places = np.full((len(starts), 2), -1)
    first = order[starts]
    in_a = first < len(a)
    places[in_a, 0], places[~in_a, 1] = first[in_a], first[~in_a] - len(a)
    repeated = np.flatnonzero(follows)
    places[np.searchsorted(starts, repeated) - 1, 1] = order[repeated] - len(a)
    return places


def _merge(a: Sequence[tuple[int, ...]], b: Sequence[tuple[int, ...]]) -> Any:
    """Merge sorted keys; per key its places in both, or -1."""
    places, i, j = [], 0, 0
    while i < len(a) or j < len(b):
        if j == len(b) or (i < len(a) and a[i] < b[j]):
            places.append((i, -1))
            i += 1
        elif i == len(a) or b[j] < a[i]:
            places.append((-1, j))
            j += 1
        else:
            places.append((i, j))
            i, j = i + 1, j + 1
    return np.array(places, np.int64).reshape(-1, 2)


class SparseAddGrad(Op):
    """Gradient of SparseAdd by the values of both tensors."""

    signature = (
        "backprop_val_grad: T, a_indices: int64, b_indices: int64, sum_indices: int64 "
        "-> a_val_grad: T, b_val_grad: T"
    )
    attrs = one_of(ALL_NUMBERS)
    placement = _HOST

    @staticmethod
    def kernel(xp: ModuleType, dy: Any, a: Any, b: Any, total: Any) -> Any:
        return _propagated(dy, total, a)[0], _propagated(dy, total, b)[0]

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [require_rank(context.inputs[slot], 2)[:1] for slot in (1, 2)]


def _propagated(dy: Any, sources: Any, indices: Any) -> tuple[Any, int]:
    """Gradients at indices, and their number, from those at sources, both in one order.

    Raises OpError unless each source has a gradient.
    """
    if dy.shape != sources.shape[:1]:
        raise OpError(f"there must be {len(sources)} gradients, got shape {list(dy.shape)}")
    known = {key: place for place, key in enumerate(row_keys(sources))}
    rows, places = list[int](), [-1]
    for row, key in enumerate(row_keys(indices)):
        if (place := known.get(key, -1)) > places[-1]:
            rows.append(row)
            places.append(place)
    result = np.zeros(len(indices), dy.dtype)
    result[rows] = dy[places[1:]]
    return result, len(rows)


class SparseSlice(Op):
    """The part of a sparse tensor in a window."""

    signature = (
        "indices: int64, values: T, shape: int64, start: int64, size: int64 "
        "-> output_indices: int64, output_values: T, output_shape: int64"
    )
    placement = _HOST

    @staticmethod
    def kernel(xp: ModuleType, indices: Any, values: Any, shape: Any, start: Any, size: Any) -> Any:
        sizes = check_sparse(indices, values, shape)
        if start.shape != shape.shape or size.shape != shape.shape:
            raise OpError(f"start and size must hold {len(shape)} numbers")
        check_size(sizes)
        if min(size.tolist(), default=0) < 0:
            raise OpError(f"size must not be negative, got {size.tolist()}")
        moved = indices - start
        inside = ((indices >= start) & (moved < size)).all(axis=1)
        extent = np.maximum(np.minimum(size, shape - start), 0)
        return moved[inside], values[inside], extent

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        rank = require_rank(context.inputs[2], 1)
        return [vector_shape(None) + rank, vector_shape(None), rank]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, *grads: Output | None) -> InputGradients:
        indices, _, _, start, _ = node.inputs
        dy = grads[1]
        if dy is None:
            return [None] * 5
        made = g.SparseSliceGrad(dy, indices, start, node.output())
        return None, made, None, None, None


class SparseSliceGrad(Op):
    """Gradient of SparseSlice by the values."""

    signature = (
        "backprop_val_grad: T, input_indices: int64, input_start: int64, output_indices: int64 "
        "-> val_grad: T"
    )
    attrs = one_of(ALL_NUMBERS)
    placement = _HOST

    @staticmethod
    def kernel(xp: ModuleType, dy: Any, indices: Any, start: Any, sliced: Any) -> Any:
        rank = indices.shape[1]
        if start.shape != (rank,) or sliced.shape[1:] != (rank,):
            message = f"start {list(start.shape)} and indices {list(sliced.shape)} do not have rank"
            raise OpError(f"{message} {rank}")
        result, count = _propagated(dy, sliced + start, indices)
        if count < len(dy):
            raise OpError(f"{len(dy) - count} of {len(dy)} gradients are not at input indices")
        return result

    shape = staticmethod(lambda context: [require_rank(context.inputs[1], 2)[:1]])


class SparseDenseCwise(Op, abstract=True):
    """Operation of each element of a sparse tensor with a dense one that broadcasts to it."""

    signature = "sp_indices: int64, sp_values: T, sp_shape: int64, dense: T -> output: T"
    attrs = one_of(ALL_NUMBERS)
    placement = _HOST
    combine: ClassVar[Callable[..., Any]]

    @classmethod
    def kernel(cls, xp: ModuleType, indices: Any, values: Any, shape: Any, dense: Any) -> Any:
        sizes = check_sparse(indices, values, shape)
        try:
            fits = np.broadcast_shapes(sizes, dense.shape) == sizes
        except ValueError:
            fits = False
        if not fits:
            raise OpError(
                f"SparseDenseBinaryOpShared broadcasts dense to sparse only; got incompatible "
                f"shapes {list(sizes)} and {list(dense.shape)}"
            )
        columns = indices.T[len(sizes) - dense.ndim :]
        at = tuple(
            column if size > 1 else np.zeros_like(column)
            for column, size in zip(columns, dense.shape, strict=True)
        )
        return cls.combine(values, dense[at]).astype(values.dtype)

    shape = staticmethod(lambda context: [require_rank(context.inputs[0], 2)[:1]])


def _divide(x: Any, y: Any) -> Any:
    if (y == 0).any():
        raise OpError("SparseDenseCwiseDiv cannot divide by zero")
    return truncated_quotient(x, y) if np.issubdtype(x.dtype, np.integer) else x / y


class SparseDenseCwiseAdd(SparseDenseCwise):
    """Sum of a sparse tensor and a dense one at the present elements."""

    combine = staticmethod(np.add)
    gradient = staticmethod(lambda g, node, dz: (None, dz, None, lambda: _scattered(g, dz, node)))


class SparseDenseCwiseMul(SparseDenseCwise):
    """Product of a sparse tensor and a dense one."""

    combine = staticmethod(np.multiply)

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        indices, values, shape, dense = node.inputs
        return (
            None,
            lambda: g.SparseDenseCwiseMul(indices, dz, shape, dense),
            None,
            lambda: _scattered(g, g.Mul(dz, values), node),
        )


class SparseDenseCwiseDiv(SparseDenseCwise):
    """Quotient of a sparse tensor and a dense one."""

    combine = staticmethod(_divide)

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        indices, _, shape, dense = node.inputs

        def dense_gradient() -> Output:
            quotient = g.SparseDenseCwiseDiv(indices, node.output(), shape, dense)
            return _scattered(g, g.Neg(g.Mul(dz, quotient)), node)

        return None, lambda: g.SparseDenseCwiseDiv(indices, dz, shape, dense), None, dense_gradient


def _scattered(g: GradientBuilder, values: Output, node: Node) -> Output:
    """Values at the indices of a node, summed to the shape of its dense input."""
    indices, _, shape, dense = node.inputs
    whole = g.ScatterNd(indices, values, shape)
    return sum_to_shape(g, whole, dense, whole)
