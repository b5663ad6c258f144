"""Permutations of elements: transpose, reverse, and roll."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape, ShapeError, vector_shape
from cfgraph.ops.kernels.array_namespace import defer_check
from cfgraph.ops.opdef.batching import BatchBuilder, along_axes
from cfgraph.ops.opdef.facts import Aliasing
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, gradient_from_inputs
from cfgraph.ops.opdef.op import Kernel, Op, OpError, SameShape
from cfgraph.ops.opdef.shape_functions import (
    InferenceContext,
    require_rank,
    shape_of_rank,
    static_axis,
    static_ints,
)


def _transpose(value: Any, perm: Any) -> Any:
    try:
        return value.transpose(perm.tolist())
    except (ValueError, TypeError):
        raise OpError(_permutation_error(value, perm)) from None


class Transpose(Op):
    """Permutation of dimensions: dimension i of the result is dimension perm[i] of the input."""

    signature = "x: T, perm: const Tperm -> y: T"
    attrs = "Tperm: {int32, int64} = int32"

    @classmethod
    def equal_input(cls, context: InferenceContext) -> int | None:
        perm, rank = static_ints(context, 1), context.inputs[0].rank
        return 0 if rank is not None and perm == [*range(rank)] else None

    @classmethod
    def undoes(cls, context: InferenceContext, argument: InferenceContext) -> bool:
        first, second = static_ints(argument, 1), static_ints(context, 1)
        rank = argument.inputs[0].rank
        if rank is None or first is None or second is None or not len(first) == len(second) == rank:
            return False
        axes = range(-rank, rank)
        return all(a in axes for a in first + second) and [
            first[axis] % rank for axis in second
        ] == [*range(rank)]

    function = staticmethod(_transpose)

    @staticmethod
    def batching(g: BatchBuilder, node: Node) -> Output:
        axes = g.next_axes(1)
        return g.copy(node, g.value(0), g.ConcatV2(g.const([0], axes), axes, g.const(0)))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data, perm = context.inputs[0], static_ints(context, 1)
        perm_shape = require_rank(context.inputs[1], 1)
        rank = data.rank if data.rank is not None else (perm_shape.dims or (None,))[0]
        if rank is None or perm is None or data.dims is None:
            return [shape_of_rank(rank)]
        if sorted(axis % rank if -rank <= axis < rank else rank for axis in perm) != [*range(rank)]:
            raise ShapeError(f"{perm} is not a permutation of the dimensions of {data}")
        return [Shape(data.dims[axis] for axis in perm)]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        return g.Transpose(dz, _inverse_permutation(g, node.inputs[1])), None


def _permutation_error(value: Any, perm: Any) -> str:
    if perm.shape != (value.ndim,):
        return (
            f"transpose expects a vector of size {value.ndim}. "
            f"But input(1) is a vector of size {perm.size}"
        )
    return f"{perm.tolist()} is not a permutation of {value.ndim} dimensions"


class ConjugateTranspose(Transpose):
    """Complex conjugate of the transpose."""

    @classmethod
    def equal_input(cls, context: InferenceContext) -> int | None:
        return None if context.attr("T").is_complex else super().equal_input(context)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if not node.attr("T").is_complex:
            return _transpose
        return lambda value, perm: xp.conj(_transpose(value, perm))

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        return g.ConjugateTranspose(dz, _inverse_permutation(g, node.inputs[1])), None


def _inverse_permutation(g: GradientBuilder, perm: Output) -> Output:
    known = g.known_value(perm)
    if known is None or perm.dtype is None:
        return g.InvertPermutation(perm)
    return g.const(np.argsort(known % known.size), perm.dtype)


# up to this many elements, a list is faster than arrays
_FEW: Final = 32


class InvertPermutation(Op):
    """Inverse of a permutation."""

    signature = "x: const T -> y: T"
    attrs = "T: {int32, int64} = int32"

    @staticmethod
    def kernel(xp: ModuleType, T: DType, /, perm: Any) -> Any:
        dtype = T.numpy
        if perm.ndim == 1 and perm.size > _FEW and 0 <= perm.min() <= perm.max() < perm.size:
            result = np.full(perm.size, -1, dtype)
            result[perm] = np.arange(perm.size, dtype=dtype)
            if result.min() >= 0:
                return result
        return np.array(_invert(perm.tolist()), dtype)

    shape = staticmethod(lambda context: [context.inputs[0].merge(vector_shape())])


def _invert(perm: Any) -> list[int]:
    if not isinstance(perm, list):
        raise OpError("invert_permutation expects a 1D vector.")
    result = [-1] * len(perm)
    for source, target in enumerate(perm):
        if not isinstance(target, int):
            raise OpError("invert_permutation expects a 1D vector.")
        if not 0 <= target < len(perm):
            raise OpError(f"{target} is not between 0 and {len(perm)}")
        if result[target] != -1:
            raise OpError(f"{target} is duplicated in the input.")
        result[target] = source
    return result


_REVERSED_TYPES = (
    "{uint8, int8, uint16, int16, int32, uint32, int64, uint64, bool, bfloat16, float16, "
    "float32, float64, complex64, complex128, string}"
)


def _reverse(value: Any, axis: Any) -> Any:
    rank = value.ndim
    if not rank:
        return value
    index = [slice(None)] * rank
    for dim in axis.tolist():
        if not -rank <= dim < rank:
            raise OpError(f"'axis'[{dim}] is out of valid range [0, {rank - 1}]")
        if index[dim].step == -1:
            raise OpError(f"axis {dim % rank} specified more than once.")
        index[dim] = slice(None, None, -1)
    return value[tuple(index)]


class ReverseV2(SameShape):
    """A tensor in reverse order along the listed axes."""

    signature = "tensor: T, axis: const Tidx -> output: T"
    attrs = f"Tidx: {{int32, int64}} = int32, T: {_REVERSED_TYPES}"
    aliasing = Aliasing(preserves_elements=True)
    batching = staticmethod(along_axes)
    function = staticmethod(_reverse)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data, axes = context.inputs[0], context.value(1)
        require_rank(context.inputs[1], 1)
        if axes is not None and data.rank is not None:
            dims = [static_axis(axis, data.rank) for axis in axes.tolist()]
            if len(set(dims)) != len(dims):
                raise ShapeError("axis contains duplicates")
        return [data]

    gradient = staticmethod(lambda g, node, dz: (g.ReverseV2(dz, node.inputs[1]), None))


class Reverse(SameShape):
    """A tensor in reverse order along each dimension whose entry in `dims` is true."""

    signature = "tensor: T, dims: const bool -> output: T"
    attrs = f"T: {_REVERSED_TYPES}"

    @staticmethod
    def kernel(xp: ModuleType, value: Any, dims: Any) -> Any:
        if dims.shape != (value.ndim,):
            raise OpError(
                f"'dims' must have the same number of values as 'input' has dimensions. "
                f"'input' has {value.ndim} but 'dims' has {dims.size} values"
            )
        if not value.ndim:
            return value
        steps = (-1 if is_reversed else None for is_reversed in dims.tolist())
        return value[tuple(slice(None, None, step) for step in steps)]

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data = context.inputs[0]
        require_rank(context.inputs[1], 1).merge(vector_shape(data.rank))
        return [data]

    gradient = staticmethod(lambda g, node, dz: (g.Reverse(dz, node.inputs[1]), None))


class ReverseSequence(SameShape):
    """A batch of sequences, each with its first `seq_lengths[i]` elements in reverse order."""

    signature = "input: T, seq_lengths: Tlen -> output: T"
    attrs = "seq_dim: int, batch_dim: int = 0, Tlen: {int32, int64} = int64"

    @staticmethod
    def kernel(xp: ModuleType, seq_dim: int, batch_dim: int, /, value: Any, lengths: Any) -> Any:
        _check_sequences(value, lengths, seq_dim, batch_dim)
        limit = value.shape[seq_dim]
        if xp is np:
            _check_lengths(lengths, limit)
        else:
            defer_check(lambda: (lengths >= 0) & (lengths <= limit))
        rank = value.ndim
        seq_shape, batch_shape = [1] * rank, [1] * rank
        seq_shape[seq_dim], batch_shape[batch_dim] = limit, value.shape[batch_dim]
        positions = xp.arange(limit).reshape(seq_shape)
        counts = lengths.reshape(batch_shape)
        return xp.take_along_axis(
            value, xp.where(positions < counts, counts - 1 - positions, positions), axis=seq_dim
        )

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data, lengths = context.inputs[0], require_rank(context.inputs[1], 1)
        if data.dims is not None:
            seq, batch = context.attr("seq_dim"), context.attr("batch_dim")
            static_axis(seq, len(data.dims))
            size = data.dims[static_axis(batch, len(data.dims))]
            if size is not None:
                lengths.merge(vector_shape(size))
        return [data]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        dims = {key: node.attr(key) for key in ("seq_dim", "batch_dim")}
        return g.ReverseSequence(dz, node.inputs[1], **dims), None


def _check_sequences(value: Any, lengths: Any, seq: int, batch: int) -> None:
    rank = value.ndim
    if not (0 <= seq < rank and 0 <= batch < rank):
        raise OpError(f"seq_dim and batch_dim must be < input rank, {seq} and {batch} vs. {rank}")
    if seq == batch:
        raise OpError(f"batch_dim == seq_dim == {seq}")
    if lengths.shape != (value.shape[batch],):
        raise OpError(
            f"Length of seq_lengths != input.dims({batch}), "
            f"({list(lengths.shape)} vs. {value.shape[batch]})"
        )


def _check_lengths(lengths: Any, limit: int) -> None:
    for index, length in enumerate(lengths.tolist()):
        if not 0 <= length <= limit:
            raise OpError(f"seq_lengths({index}) = {length} is not in [0, {limit}]")


def _rolled(value: Any, shift: int, axis: int) -> Any:
    """A NumPy array shifted along one axis; `np.roll` takes four times as long on small ones."""
    size = value.shape[axis]
    start = -shift % size if size else 0
    before = (slice(None),) * axis
    parts = value[(*before, slice(start, None))], value[(*before, slice(None, start))]
    return np.concatenate(parts, axis)


class Roll(SameShape):
    """A tensor cyclically shifted along some axes."""

    signature = "input: T, shift: const Tshift, axis: const Taxis -> output: T"
    attrs = "Tshift: {int32, int64}, Taxis: {int32, int64}"

    @staticmethod
    def kernel(xp: ModuleType, value: Any, shift: Any, axis: Any) -> Any:
        rank = value.ndim
        if rank < 1:
            raise OpError("input must be 1-D or higher")
        if shift.ndim > 1 or axis.ndim > 1 or shift.shape != axis.shape:
            raise OpError("shift and axis must have the same size, and be scalars or vectors")
        axes = axis.reshape(-1).tolist()
        for dim in axes:
            if not -rank <= dim < rank:
                raise OpError(f"axis {dim} is out of range")
        shifts = shift.reshape(-1).tolist()
        if xp is np and len(axes) == 1:
            return _rolled(value, shifts[0], axes[0] % rank)
        return xp.roll(value, tuple(shifts), tuple(axes))

    gradient = gradient_from_inputs(
        lambda g, dz, _, shift, axis: (g.Roll(dz, g.Neg(shift), axis), None, None)
    )
