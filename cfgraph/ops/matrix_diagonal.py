"""Diagonals of matrices: taken out, laid into new matrices, replaced.

A band of diagonals `k = (low, high)` is held as one row a diagonal, the highest first, each
aligned to the left or the right of its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops import matrix_diagonal_gradients
from cfgraph.ops.adjoint import Adjoint, Partials
from cfgraph.ops.dims import any_of_rank, want_rank_at_least
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError

_ALIGN = "align: {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'"
_LEFT = b"LEFT_LEFT"


class Band(NamedTuple):
    """A band of diagonals of matrices of some size."""

    low: int
    high: int
    rows: int
    columns: int

    @property
    def length(self) -> int:
        """The length of the longest diagonal."""
        return min(self.rows + min(self.high, 0), self.columns - max(self.low, 0))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the diagonals: a vector where it is one, else a row for each."""
        count = self.high - self.low + 1
        return (self.length,) if count == 1 else (count, self.length)

    def places(self, align: bytes) -> tuple[Any, Any, Any]:
        """For each place among the diagonals its row and column, and whether it is in use."""
        superdiagonal, subdiagonal = (side == b"LEFT" for side in align.split(b"_"))
        number = np.arange(self.high, self.low - 1, -1)[:, None]
        sizes = np.minimum(self.rows + np.minimum(number, 0), self.columns - np.maximum(number, 0))
        left = ((number >= 0) & superdiagonal) | ((number <= 0) & subdiagonal)
        place = np.arange(self.length) - np.where(left, 0, self.length - sizes)
        used = (place >= 0) & (place < sizes)
        row = np.where(used, place + np.maximum(-number, 0), 0)
        column = np.where(used, place + np.maximum(number, 0), 0)
        return row.reshape(self.shape), column.reshape(self.shape), used.reshape(self.shape)


def band_of(k: Any, rows: int, columns: int) -> Band:
    """The band that an input `k` says. Raises OpError where matrices have none such."""
    ends = [int(end) for end in k.reshape(-1)]
    if k.ndim > 1 or not 1 <= len(ends) <= 2:
        message = f"diag_index must be a scalar or vector of one or two, got {list(k.shape)}"
        raise OpError(message)
    low, high = ends[0], ends[-1]
    if low > high:
        message = f"lower_diag_index must not be larger than upper_diag_index: {low} > {high}"
        raise OpError(message)
    for end in (low, high):
        if end and not -rows < end < columns:
            message = f"diag_index {end} is out of bound: it must be between {-rows} and {columns}"
            raise OpError(message)
    return Band(low, high, rows, columns)


class Diagonals(Op, abstract=True):
    """An op over a band of diagonals; where there is no `k`, over the main one."""

    traceable = False
    aligned: ClassVar[bytes | None] = _LEFT

    @classmethod
    def alignment(cls, node: Node) -> bytes:
        """How short diagonals lie in their rows."""
        return cls.aligned or node.attr("align")


_MAIN: Any = np.zeros((), np.int32)


class MatrixDiagPart(Diagonals):
    """The main diagonal of each matrix."""

    signature = "input: T -> diagonal: T"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        align = cls.alignment(node)

        def part(value: Any, k: Any = _MAIN, padding: Any = None) -> Any:
            check_matrices(value)
            band = band_of(k, *value.shape[-2:])
            rows, columns, used = band.places(align)
            taken = value[..., rows, columns]
            return taken if padding is None else xp.where(xp.asarray(used), taken, padding)

        return part

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        have = want_rank_at_least(context.inputs[0], 2)
        k = context.value(1) if len(context.inputs) > 1 else _MAIN
        if have.dims is None or k is None:
            return [UNKNOWN_SHAPE]
        rows, columns = have.dims[-2:]
        if rows is None or columns is None:
            return [any_of_rank(len(have.dims) - (k.size == 1 or k[0] == k[-1]))]
        return [have[:-2] + Shape(band_of(k, rows, columns).shape)]

    @classmethod
    def gradient(cls, g: Adjoint, node: Node, dz: Output) -> Partials:
        return matrix_diagonal_gradients.of_part(g, node, dz, cls.alignment(node))


def check_matrices(value: Any) -> None:
    """Raises OpError where there are no two dimensions."""
    if value.ndim < 2:
        message = f"input must be at least 2-dim, received shape: {list(value.shape)}"
        raise OpError(message)


class BatchMatrixDiagPart(MatrixDiagPart):
    """The main diagonal of each matrix."""


class MatrixDiagPartV2(MatrixDiagPart):
    """A band of diagonals of each matrix, short ones padded at the right."""

    signature = "input: T, k: int32, padding_value: T -> diagonal: T"
    host_inputs = (1,)
    constant_inputs = (1,)


class MatrixDiagPartV3(MatrixDiagPartV2):
    """A band of diagonals of each matrix, short ones padded as `align` says."""

    attrs = _ALIGN
    aligned = None


class MatrixDiag(Diagonals):
    """Matrices with the given main diagonals."""

    signature = "diagonal: T -> output: T"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        align = cls.alignment(node)
        zero = b"" if node.attr("T").kind == "string" else node.attr("T").numpy.type(0)

        def lay(
            diagonal: Any, k: Any = _MAIN, rows: Any = -1, columns: Any = -1, padding: Any = zero
        ) -> Any:
            if diagonal.ndim < 1:
                message = "diagonal must be at least 1-dim, received a scalar"
                raise OpError(message)
            band = band_around(k, diagonal.shape, int(rows), int(columns))
            batch = diagonal.shape[: diagonal.ndim - len(band.shape)]
            result = xp.full((*batch, band.rows, band.columns), padding, diagonal.dtype)
            row, column, used = band.places(align)
            result[..., row[used], column[used]] = diagonal[..., used]
            return result

        return lay

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        have = want_rank_at_least(context.inputs[0], 1)
        k: Any = _MAIN
        rows = columns = None
        if len(context.inputs) > 1:
            k, rows, columns = (context.value(slot) for slot in (1, 2, 3))
            if k is None or rows is None or columns is None:
                return [UNKNOWN_SHAPE]
        if have.dims is None:
            return [UNKNOWN_SHAPE]
        taken = 1 if k.size == 1 or k[0] == k[-1] else 2
        want_rank_at_least(have, taken)
        last = have.dims[-taken:]
        if None in last:
            return [have[:-taken] + any_of_rank(2)]
        wanted = (-1, -1) if rows is None or columns is None else (int(rows), int(columns))
        band = band_around(k, last, *wanted)
        return [have[:-taken] + Shape((band.rows, band.columns))]

    @classmethod
    def gradient(cls, g: Adjoint, node: Node, dz: Output) -> Partials:
        return matrix_diagonal_gradients.of_matrices(g, node, dz, cls.alignment(node))


def band_around(k: Any, diagonals: Sequence[Any], rows: int, columns: int) -> Band:
    """The band that diagonals of this shape are, sizes of -1 as small as they can be."""
    low, high = int(k.reshape(-1)[0]), int(k.reshape(-1)[-1])
    if low > high:
        message = f"lower_diag_index must not be larger than upper_diag_index: {low} > {high}"
        raise OpError(message)
    count, length = high - low + 1, diagonals[-1]
    if count > 1 and (len(diagonals) < 2 or diagonals[-2] != count):
        message = f"The number of diagonals in the input does not match {count}: {diagonals}"
        raise OpError(message)
    least_rows, least_columns = length - min(high, 0), length + max(low, 0)
    if rows == -1 and columns == -1:
        rows = columns = max(least_rows, least_columns)
    rows = least_rows if rows == -1 else rows
    columns = least_columns if columns == -1 else columns
    short = rows < least_rows or columns < least_columns
    if short or (rows != least_rows and columns != least_columns):
        message = f"{rows} rows and {columns} columns do not fit diagonals of length {length}"
        raise OpError(message)
    return Band(low, high, rows, columns)


class BatchMatrixDiag(MatrixDiag):
    """Matrices with the given main diagonals."""


class MatrixDiagV2(MatrixDiag):
    """Matrices with the given band of diagonals, and padding elsewhere."""

    signature = (
        "diagonal: T, k: int32, num_rows: int32, num_cols: int32, padding_value: T -> output: T"
    )
    host_inputs = (1, 2, 3)
    constant_inputs = (1, 2, 3)


class MatrixDiagV3(MatrixDiagV2):
    """Matrices with the given band of diagonals, aligned as `align` says, and padding elsewhere."""

    attrs = _ALIGN
    aligned = None


class MatrixSetDiag(Diagonals):
    """Matrices with their main diagonal replaced."""

    signature = "input: T, diagonal: T -> output: T"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        align = cls.alignment(node)

        def replace(value: Any, diagonal: Any, k: Any = _MAIN) -> Any:
            check_matrices(value)
            band = band_of(k, *value.shape[-2:])
            if diagonal.shape != value.shape[:-2] + band.shape:
                message = (
                    f"Diagonals of shape {list(diagonal.shape)} do not fit matrices "
                    f"of shape {list(value.shape)}"
                )
                raise OpError(message)
            rows, columns, used = band.places(align)
            result = value.copy()
            result[..., rows[used], columns[used]] = diagonal[..., used]
            return result

        return replace

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [want_rank_at_least(context.inputs[0], 2)]

    @classmethod
    def gradient(cls, g: Adjoint, node: Node, dz: Output) -> Partials:
        return matrix_diagonal_gradients.of_replaced(g, node, dz, cls.alignment(node))


class BatchMatrixSetDiag(MatrixSetDiag):
    """Matrices with their main diagonal replaced."""


class MatrixSetDiagV2(MatrixSetDiag):
    """Matrices with a band of diagonals replaced."""

    signature = "input: T, diagonal: T, k: int32 -> output: T"
    host_inputs = (2,)
    constant_inputs = (2,)


class MatrixSetDiagV3(MatrixSetDiagV2):
    """Matrices with a band of diagonals replaced, which lie as `align` says."""

    attrs = _ALIGN
    aligned = None
