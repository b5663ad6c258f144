"""Diagonals of tensors and matrices (extract, insert, replace)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, ShapeError
from cfgraph.limits import reserve_array
from cfgraph.ops.kernels.array_namespace import filled
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, int32_constant, sum_all
from cfgraph.ops.opdef.op import COMPLEX, FLOATS, Kernel, Op, OpError, one_of
from cfgraph.ops.opdef.shape_functions import (
    InferenceContext,
    require_rank,
    require_rank_at_least,
    shape_of_rank,
)


def diag_part_gradient(g: GradientBuilder, node: Node, dz: Output, align: bytes) -> InputGradients:
    """Gradient of an op that extracts diagonals: zeros except for these diagonals."""
    zeros = g.zeros_like(node.inputs[0])
    return _with_padding_gradient(
        g, node, dz, g.MatrixSetDiagV3(zeros, dz, _band_input(g, node, 1), align=align)
    )


def matrix_diag_gradient(
    g: GradientBuilder, node: Node, dz: Output, align: bytes
) -> InputGradients:
    """Gradient of an op that builds matrices from diagonals: the same diagonals of `dz`."""
    return _with_padding_gradient(
        g, node, dz, _take_diagonals(g, node, dz, _band_input(g, node, 1), align)
    )


def set_diag_gradient(g: GradientBuilder, node: Node, dz: Output, align: bytes) -> InputGradients:
    """Gradient of an op that replaces diagonals: `dz` with zeros there, and its diagonals."""
    diagonal, k = node.inputs[1], _band_input(g, node, 2)
    return [
        lambda: g.MatrixSetDiagV3(dz, g.zeros_like(diagonal), k, align=align),
        lambda: _take_diagonals(g, node, dz, k, align),
        *[None] * (len(node.inputs) - 2),
    ]


def _take_diagonals(g: GradientBuilder, node: Node, x: Output, k: Output, align: bytes) -> Output:
    return g.MatrixDiagPartV3(x, k, g.const(0, node.attr("T")), align=align)


def _with_padding_gradient(
    g: GradientBuilder, node: Node, dz: Output, dx: Output
) -> InputGradients:
    """Append the gradient of the padding (the last input): the sum of `dz` that `dx` omits."""
    count = len(node.inputs)
    if count == 1:
        return [dx]
    return [dx, *[None] * (count - 2), lambda: g.Sub(sum_all(g, dz), sum_all(g, dx))]


def _band_input(g: GradientBuilder, node: Node, slot: int) -> Output:
    return node.inputs[slot] if len(node.inputs) > slot else int32_constant(g, 0)


_DIAGONAL_TYPES = one_of(FLOATS, "int32", "int64", COMPLEX)


class Diag(Op):
    """Diagonal tensor of twice the rank: output[i..., i...] = diagonal[i...], zero elsewhere."""

    signature = "diagonal: T -> output: T"
    attrs = _DIAGONAL_TYPES

    @staticmethod
    def kernel(xp: ModuleType, diagonal: Any) -> Any:
        if diagonal.ndim < 1:
            raise OpError("Input must be at least rank 1, got 0")
        return xp.diag(diagonal.reshape(-1)).reshape(diagonal.shape * 2)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        shape = require_rank_at_least(context.inputs[0], 1)
        return [shape + shape]

    gradient = staticmethod(lambda g, node, dz: [g.DiagPart(dz)])


class DiagPart(Op):
    """Diagonal of a tensor of even rank: diagonal[i...] = input[i..., i...]."""

    signature = "input: T -> diagonal: T"
    attrs = _DIAGONAL_TYPES

    @staticmethod
    def kernel(xp: ModuleType, value: Any) -> Any:
        half = value.ndim // 2
        sizes = value.shape[:half]
        if value.ndim == 0 or sizes != value.shape[half:]:
            raise OpError(f"The first and second half of the shape must agree: {list(value.shape)}")
        rows = 1
        for size in sizes:
            rows *= size
        return xp.diagonal(value.reshape((rows, rows))).reshape(sizes)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        shape = context.inputs[0]
        if shape.dims is None:
            return [UNKNOWN_SHAPE]
        if not shape.dims or len(shape.dims) % 2:
            raise ShapeError(f"input must have an even and positive rank, not {shape}")
        half = len(shape.dims) // 2
        return [shape[:half].merge(shape[half:])]

    gradient = staticmethod(lambda g, node, dz: [g.Diag(dz)])


_ALIGN_ATTR = "align: {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'"
_LEFT_ALIGN = b"LEFT_LEFT"


class DiagonalBand(NamedTuple):
    """A band of adjacent diagonals of matrices of a fixed size."""

    low: int
    high: int
    rows: int
    columns: int

    @property
    def length(self) -> int:
        """Length of the longest diagonal."""
        return min(self.rows + min(self.high, 0), self.columns - max(self.low, 0))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the packed diagonals: a vector for one diagonal, otherwise one row for each."""
        return (*([self.high - self.low + 1] * (self.low < self.high)), self.length)

    @lru_cache(maxsize=64)  # noqa: B019 - a band is its sizes
    def indices(self, align: bytes) -> tuple[Any, Any, Any]:
        """Row, column, and validity of each element of the packed diagonals."""
        superdiagonal, subdiagonal = (side == b"LEFT" for side in align.split(b"_"))
        number = np.arange(self.high, self.low - 1, -1)[:, None]
        sizes = np.minimum(self.rows + np.minimum(number, 0), self.columns - np.maximum(number, 0))
        left = ((number >= 0) & superdiagonal) | ((number <= 0) & subdiagonal)
        offset = np.arange(self.length) - np.where(left, 0, self.length - sizes)
        used = (offset >= 0) & (offset < sizes)
        row = np.where(used, offset + np.maximum(-number, 0), 0)
        column = np.where(used, offset + np.maximum(number, 0), 0)
        return row.reshape(self.shape), column.reshape(self.shape), used.reshape(self.shape)


def band_from_input(k: Any, rows: int, columns: int) -> DiagonalBand:
    """The band that input `k` specifies. Raises OpError if it exceeds the matrix."""
    if k.ndim > 1 or not 1 <= k.size <= 2:
        raise OpError(f"diag_index must be a scalar or vector of one or two, got {list(k.shape)}")
    return _checked_band(*_band_ends(k), rows, columns)


def _band_ends(k: Any) -> tuple[int, int]:
    """The numbers of the lowest and the highest diagonal."""
    ends = k.reshape(-1).tolist()
    return ends[0], ends[-1]


@lru_cache(maxsize=64)
def _checked_band(low: int, high: int, rows: int, columns: int) -> DiagonalBand:
    if low > high:
        raise OpError(f"lower_diag_index must not be larger than upper_diag_index: {low} > {high}")
    for end in (low, high):
        if end and not -rows < end < columns:
            message = f"diag_index {end} is out of bound: it must be between {-rows} and {columns}"
            raise OpError(message)
    return DiagonalBand(low, high, rows, columns)


class DiagonalOp(Op, abstract=True):
    """An op on a band of diagonals, by default the main diagonal."""

    fixed_alignment: ClassVar[bytes | None] = _LEFT_ALIGN

    @classmethod
    def alignment(cls, node: Node) -> bytes:
        """Alignment of shorter diagonals within their rows, such as `RIGHT_LEFT`."""
        return cls.fixed_alignment or node.attr("align")


_MAIN_DIAGONAL: Any = np.zeros((), np.int32)


class MatrixDiagPart(DiagonalOp):
    """Main diagonal of each matrix."""

    signature = "input: T -> diagonal: T"

    @staticmethod
    def kernel(
        xp: ModuleType, alignment: Any, /, value: Any, k: Any = _MAIN_DIAGONAL, padding: Any = None
    ) -> Any:
        check_matrix_rank(value)
        band = band_from_input(k, *value.shape[-2:])
        if band.low == band.high:
            diagonal = value.diagonal(band.low, -2, -1)
            return diagonal.copy() if xp is np else diagonal
        rows, columns, used = band.indices(alignment)
        diagonals = value[..., rows, columns]
        return diagonals if padding is None else xp.where(xp.asarray(used), diagonals, padding)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        shape = require_rank_at_least(context.inputs[0], 2)
        _require_scalars(context)
        k = context.value(1) if len(context.inputs) > 1 else _MAIN_DIAGONAL
        if shape.dims is None or k is None:
            return [UNKNOWN_SHAPE]
        rows, columns = shape.dims[-2:]
        if rows is None or columns is None:
            return [shape_of_rank(len(shape.dims) - (k.size == 1 or k[0] == k[-1]))]
        return [shape[:-2] + Shape(band_from_input(k, rows, columns).shape)]

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        return diag_part_gradient(g, node, dz, cls.alignment(node))


def _require_scalars(context: InferenceContext) -> None:
    """Raise ShapeError unless sizes and padding are scalars."""
    for shape in context.inputs[2:]:
        require_rank(shape, 0)


def replaced_diagonals(
    xp: ModuleType, matrices: Any, diagonal: Any, band: DiagonalBand, align: bytes
) -> Any:
    """Matrices with a band of packed diagonals; arrays of NumPy are changed, by rows in memory."""
    if xp is np and band.low == band.high:
        cells = matrices.reshape((*matrices.shape[:-2], band.rows * band.columns))
        first, step = max(band.low, -band.low * band.columns), band.columns + 1
        cells[..., first : first + band.length * step : step] = diagonal
        return matrices
    rows, columns, used = band.indices(align)
    if xp is np:
        matrices[..., rows[used], columns[used]] = diagonal[..., used]
        return matrices
    if not used.any():
        return matrices
    source = np.full(matrices.shape[-2:], -1)
    source[rows[used], columns[used]] = np.flatnonzero(used)
    batch = diagonal.ndim - used.ndim
    packed = diagonal.reshape((*diagonal.shape[:batch], math.prod(diagonal.shape[batch:])))
    values = packed[..., xp.asarray(np.maximum(source, 0))]
    return xp.where(xp.asarray(source >= 0), values, matrices)


def check_matrix_rank(value: Any) -> None:
    """Check that a tensor has at least two dimensions."""
    if value.ndim < 2:
        raise OpError(f"input must be at least 2-dim, received shape: {list(value.shape)}")


class BatchMatrixDiagPart(MatrixDiagPart):
    """Batch version of MatrixDiagPart in older graphs."""

    compilation = replace(MatrixDiagPart.compilation, compiled=False)


class MatrixDiagPartV2(MatrixDiagPart):
    """Band of diagonals of each matrix; shorter ones are padded on the right."""

    signature = "input: T, k: const int32, padding_value: T -> diagonal: T"


class MatrixDiagPartV3(MatrixDiagPartV2):
    """Band of diagonals of each matrix; shorter ones are padded according to `align`."""

    attrs = _ALIGN_ATTR
    fixed_alignment = None


class MatrixDiag(DiagonalOp):
    """Matrices with the input as main diagonals and zeros elsewhere."""

    signature = "diagonal: T -> output: T"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        align = cls.alignment(node)
        zero = b"" if node.attr("T").kind == "string" else node.attr("T").numpy.type(0)

        def build(
            diagonal: Any,
            k: Any = _MAIN_DIAGONAL,
            rows: Any = -1,
            columns: Any = -1,
            padding: Any = zero,
        ) -> Any:
            if diagonal.ndim < 1:
                raise OpError("diagonal must be at least 1-dim, received a scalar")
            band = band_of_diagonals(k, diagonal.shape, int(rows), int(columns))
            batch = diagonal.shape[: diagonal.ndim - len(band.shape)]
            reserve_array((*batch, band.rows, band.columns), diagonal.dtype.itemsize)
            result = filled(xp, (*batch, band.rows, band.columns), padding, diagonal.dtype)
            return replaced_diagonals(xp, result, diagonal, band, align)

        return build

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        shape = require_rank_at_least(context.inputs[0], 1)
        _require_scalars(context)
        k: Any = _MAIN_DIAGONAL
        rows = columns = None
        if len(context.inputs) > 1:
            k, rows, columns = (context.value(slot) for slot in (1, 2, 3))
            if k is None or rows is None or columns is None:
                return [UNKNOWN_SHAPE]
        if shape.dims is None:
            return [UNKNOWN_SHAPE]
        packed_rank = 1 if k.size == 1 or k[0] == k[-1] else 2
        require_rank_at_least(shape, packed_rank)
        last = shape.dims[-packed_rank:]
        if None in last:
            return [shape[:-packed_rank] + shape_of_rank(2)]
        sizes = (-1, -1) if rows is None or columns is None else (int(rows), int(columns))
        band = band_of_diagonals(k, last, *sizes)
        return [shape[:-packed_rank] + Shape((band.rows, band.columns))]

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        return matrix_diag_gradient(g, node, dz, cls.alignment(node))


def band_of_diagonals(k: Any, diagonals: Sequence[Any], rows: int, columns: int) -> DiagonalBand:
    """The band that packed diagonals of this shape form; a size of -1 means the minimum."""
    return _unpacked_band(*_band_ends(k), tuple(diagonals), rows, columns)


@lru_cache(maxsize=64)
def _unpacked_band(
    low: int, high: int, diagonals: tuple[Any, ...], rows: int, columns: int
) -> DiagonalBand:
    if low > high:
        raise OpError(f"lower_diag_index must not be larger than upper_diag_index: {low} > {high}")
    count, length = high - low + 1, diagonals[-1]
    if count > 1 and (len(diagonals) < 2 or diagonals[-2] != count):
        raise OpError(f"The number of diagonals in the input does not match {count}: {diagonals}")
    least_rows, least_columns = length - min(high, 0), length + max(low, 0)
    if rows == -1 and columns == -1:
        rows = columns = max(least_rows, least_columns)
    rows = least_rows if rows == -1 else rows
    columns = least_columns if columns == -1 else columns
    if min(rows - least_rows, columns - least_columns) != 0:
        raise OpError(f"{rows} rows and {columns} columns do not fit diagonals of length {length}")
    return DiagonalBand(low, high, rows, columns)


class BatchMatrixDiag(MatrixDiag):
    """Batch version of MatrixDiag in older graphs."""

    compilation = replace(MatrixDiag.compilation, compiled=False)


class MatrixDiagV2(MatrixDiag):
    """Matrices with the input as a band of diagonals, and padding elsewhere."""

    signature = (
        "diagonal: T, k: const int32, num_rows: const int32, num_cols: const int32, "
        "padding_value: T -> output: T"
    )


class MatrixDiagV3(MatrixDiagV2):
    """Matrices with the input, aligned according to `align`, as a band of diagonals."""

    attrs = _ALIGN_ATTR
    fixed_alignment = None


class MatrixSetDiag(DiagonalOp):
    """Copy of matrices with the main diagonal replaced."""

    signature = "input: T, diagonal: T -> output: T"

    @staticmethod
    def kernel(
        xp: ModuleType, alignment: Any, /, value: Any, diagonal: Any, k: Any = _MAIN_DIAGONAL
    ) -> Any:
        check_matrix_rank(value)
        band = band_from_input(k, *value.shape[-2:])
        if diagonal.shape != value.shape[:-2] + band.shape:
            raise OpError(
                f"Diagonals of shape {list(diagonal.shape)} do not fit matrices "
                f"of shape {list(value.shape)}"
            )
        copy = value.copy() if xp is np else value
        return replaced_diagonals(xp, copy, diagonal, band, alignment)

    shape = staticmethod(lambda context: [require_rank_at_least(context.inputs[0], 2)])

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        return set_diag_gradient(g, node, dz, cls.alignment(node))


class BatchMatrixSetDiag(MatrixSetDiag):
    """Batch version of MatrixSetDiag in older graphs."""

    compilation = replace(MatrixSetDiag.compilation, compiled=False)


class MatrixSetDiagV2(MatrixSetDiag):
    """Copy of matrices with a band of diagonals replaced."""

    signature = "input: T, diagonal: T, k: const int32 -> output: T"


class MatrixSetDiagV3(MatrixSetDiagV2):
    """Copy of matrices with a band of diagonals, aligned according to `align`, replaced."""

    attrs = _ALIGN_ATTR
    fixed_alignment = None
