"""Diagonals of whole tensors, and the triangles and bands of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.adjoint import Adjoint, Partials
from cfgraph.ops.dims import want_rank_at_least
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError
from cfgraph.ops.pointwise import SameShape
from cfgraph.ops.type_sets import COMPLEX, FLOATS, INDEX, one_of

_TYPES = one_of(FLOATS, "int32", "int64", COMPLEX)


class Diag(Op):
    """A tensor of twice the rank, zero but on the diagonal."""

    signature = "diagonal: T -> output: T"
    attrs = _TYPES

    @staticmethod
    def kernel(xp: ModuleType, diagonal: Any) -> Any:
        if diagonal.ndim < 1:
            message = "Input must be at least rank 1, got 0"
            raise OpError(message)
        return xp.diag(diagonal.reshape(-1)).reshape(diagonal.shape * 2)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        have = want_rank_at_least(context.inputs[0], 1)
        return [have + have]

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        return [g.DiagPart(dz)]


class DiagPart(Op):
    """The diagonal of a tensor whose first half of dimensions is like its second."""

    signature = "input: T -> diagonal: T"
    attrs = _TYPES

    @staticmethod
    def kernel(xp: ModuleType, value: Any) -> Any:
        half = value.ndim // 2
        sizes = value.shape[:half]
        if value.ndim == 0 or sizes != value.shape[half:]:
            message = f"The first and second half of the shape must agree: {list(value.shape)}"
            raise OpError(message)
        rows = 1
        for size in sizes:
            rows *= size
        return xp.diagonal(value.reshape((rows, rows))).reshape(sizes)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        have = context.inputs[0]
        if have.dims is None:
            return [UNKNOWN_SHAPE]
        if not have.dims or len(have.dims) % 2:
            message = f"input must have an even and positive rank, not {have}"
            raise ValueError(message)
        half = len(have.dims) // 2
        return [have[:half].merge(have[half:])]

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        return [g.Diag(dz)]


class MatrixBandPart(SameShape):
    """Matrices with zeros outside of a band around the diagonal; negative: a whole triangle."""

    signature = "input: T, num_lower: Tindex, num_upper: Tindex -> band: T"
    attrs = f"Tindex: {INDEX} = int64"
    host_inputs = (1, 2)
    constant_inputs = (1, 2)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        def band(value: Any, lower: Any, upper: Any) -> Any:
            if value.ndim < 2:
                message = f"input must be at least 2-dim, received shape: {list(value.shape)}"
                raise OpError(message)
            rows, columns = value.shape[-2:]
            _check_width("lower", lower, rows)
            _check_width("upper", upper, columns)
            away = xp.arange(columns) - xp.arange(rows)[:, None]
            inside = ((away >= -lower) | (lower < 0)) & ((away <= upper) | (upper < 0))
            return xp.where(inside, value, xp.zeros((), value.dtype))

        return band

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [want_rank_at_least(context.inputs[0], 2)]

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        return g.MatrixBandPart(dz, *node.inputs[1:]), None, None


def _check_width(name: str, width: Any, most: int) -> None:
    if width.ndim:
        message = f"num_{name} must be scalar, got shape {list(width.shape)}"
        raise OpError(message)
    if width > most:
        message = f"num_{name} must be negative or at most {most}, got: {width}"
        raise OpError(message)


class BatchMatrixBandPart(MatrixBandPart):
    """Matrices with zeros outside of a band around the diagonal; negative: a whole triangle."""

    signature = "input: T, num_lower: int64, num_upper: int64 -> band: T"
    attrs = ""
    compiled = False
