"""Crosses of feature columns: every combination of a value of each column, row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from types import ModuleType
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape, vector_shape
from cfgraph.limits import reserve_array
from cfgraph.ops.families.ragged import check_splits, places_in_rows, splits_of
from cfgraph.ops.families.string_hashing import (
    farm_hash,
    hashes_of_texts,
    joined_fingerprints,
    sip_hash,
)
from cfgraph.ops.opdef.facts import HostPlacement
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext

_VALUES: Final = "list({int64, string}) >= 0"
_SEPARATOR: Final = b"_X_"
_LARGEST: Final = (1 << 63) - 1


class FeatureColumn(NamedTuple):
    """The values of a column of a batch, and the splits of its rows."""

    values: Any
    splits: Any


class Crosser(NamedTuple):
    """Functions that convert the values of a column, and combine those of a cross."""

    convert: Callable[[Any], Any]
    combine: Callable[[list[Any]], Any]


def joined_by(separator: bytes) -> Crosser:
    """Crosses are texts."""

    def convert(values: Any) -> Any:
        if values.dtype == object:
            return values
        texts = np.empty(values.size, object)
        texts[:] = [b"%d" % number for number in values.tolist()]
        return texts

    def combine(parts: list[Any]) -> Any:
        texts = np.empty(len(parts[0]), object)
        texts[:] = [*map(separator.join, zip(*(part.tolist() for part in parts), strict=True))]
        return texts

    return Crosser(convert, combine)


def hashed_into(
    buckets: int, first: int | None, hash_function: Callable[[Any], Any] = farm_hash
) -> Crosser:
    """Crosses are joined fingerprints, that of the first column last joined to `first`."""

    def convert(values: Any) -> Any:
        if values.dtype != object:
            return values.astype(np.uint64)
        return hashes_of_texts(hash_function, values.tolist())

    def combine(parts: list[Any]) -> Any:
        start = [] if first is None else [np.uint64(first & (1 << 64) - 1)]
        joined = reduce(joined_fingerprints, [*start, *parts])
        return (joined % np.uint64(buckets if buckets > 0 else _LARGEST)).astype(np.int64)

    return Crosser(convert, combine)


def crossed(columns: Sequence[FeatureColumn], crosser: Crosser) -> tuple[Any, Any]:
    """The crosses of all rows, and the splits of rows; the last column varies fastest."""
    columns = columns or [FeatureColumn(np.zeros(0, np.int64), np.zeros(1, np.int64))]
    counts = np.array([column.splits[1:] - column.splits[:-1] for column in columns])
    reserve_array((int(counts.prod(axis=0, dtype=np.float64).sum()), len(columns)), 8)
    totals = counts.prod(axis=0)
    splits = splits_of(totals)
    rows, places = np.arange(len(totals)).repeat(totals), places_in_rows(splits, totals)
    parts = []
    for column, count in zip(reversed(columns), counts[::-1], strict=True):
        places, offsets = np.divmod(places, count[rows])
        parts.append(crosser.convert(column.values)[column.splits[rows] + offsets])
    return crosser.combine(parts[::-1]), splits


def _dense_column(values: Any) -> FeatureColumn:
    if values.ndim != 2:
        raise OpError(f"dense inputs must be matrices, got shape {list(values.shape)}")
    return FeatureColumn(values.ravel(), np.arange(len(values) + 1) * values.shape[1])


def _sparse_column(
    indices: Any, values: Any, shape: Any, rows: Callable[[Any, int], Any]
) -> FeatureColumn:
    """The column of a sparse matrix; `rows` is the row of each of its first values."""
    if shape.shape != (2,) or indices.ndim != 2 or indices.shape[1] != 2 or shape[0] < 0:
        raise OpError(
            f"a sparse input must be a matrix, got indices of shape {list(indices.shape)} and "
            f"the shape {shape.tolist()}"
        )
    if values.shape != indices.shape[:1]:
        raise OpError(f"there must be {len(indices)} values, got shape {list(values.shape)}")
    batch = int(shape[0])
    reserve_array((batch + 1,), 8)
    ends = rows(indices[:, 0], batch).searchsorted(np.arange(batch), side="right")
    return FeatureColumn(values, np.concatenate([[0], ends]))


def _rows_in_order(rows: Any, batch: int) -> Any:
    """The rows up to the first that is out of the batch or out of order, as TensorFlow reads."""
    is_bad = (rows < 0) | (rows >= batch)
    is_bad[1:] |= rows[1:] < rows[:-1]
    return rows[: is_bad.argmax()] if is_bad.any() else rows


def _same_batch(columns: Sequence[FeatureColumn]) -> Sequence[FeatureColumn]:
    """The columns. Raises OpError unless they have the same number of rows."""
    sizes = [len(column.splits) - 1 for column in columns]
    if len({*sizes}) > 1:
        raise OpError(f"all inputs must have one batch size, got {sizes}")
    return columns


class SparseCrossV2(Op):
    """Crosses of sparse and dense columns, as texts joined by a separator."""

    signature = (
        "indices: N*int64, values: sparse_types, shapes: N*int64, dense_inputs: dense_types, "
        "sep: string -> output_indices: int64, output_values: string, output_shape: int64"
    )
    attrs = f"N: int >= 0, sparse_types: {_VALUES}, dense_types: {_VALUES}"
    placement = HostPlacement(host_only=True)
    # of the inputs behind the columns
    options: ClassVar[int] = 1

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        count, end = node.attr("N"), len(node.inputs) - cls.options

        def cross(*inputs: Any) -> Any:
            crosser = cls.crosser(node, *inputs[end:])
            parts = inputs[:count], inputs[count : 2 * count], inputs[2 * count : 3 * count]
            columns = [
                _sparse_column(indices, cls.sparse_values(values), shape, _rows_in_order)
                for indices, values, shape in zip(*parts, strict=True)
            ]
            columns += map(_dense_column, inputs[3 * count : end])
            values, splits = crossed(_same_batch(columns), crosser)
            counts = splits[1:] - splits[:-1]
            rows = np.arange(len(counts)).repeat(counts)
            indices = np.stack([rows, places_in_rows(splits, counts)], axis=1)
            return indices, values, np.array([len(counts), counts.max(initial=0)], np.int64)

        return cross

    @classmethod
    def crosser(cls, node: Node, *options: Any) -> Crosser:
        """The way of crossing."""
        (separator,) = options
        if separator.ndim:
            raise OpError(f"sep must be a scalar, got shape {list(separator.shape)}")
        return joined_by(separator[()])

    @classmethod
    def sparse_values(cls, values: Any) -> Any:
        """The values of a sparse column, as they are crossed."""
        return values

    shape = staticmethod(lambda context: [Shape((None, 2)), vector_shape(None), vector_shape(2)])


class SparseCrossHashed(SparseCrossV2):
    """Crosses of sparse and dense columns, as hash buckets."""

    signature = (
        "indices: N*int64, values: sparse_types, shapes: N*int64, dense_inputs: dense_types, "
        "num_buckets: int64, strong_hash: bool, salt: int64 -> output_indices: int64, "
        "output_values: int64, output_shape: int64"
    )
    options = 3

    @classmethod
    def crosser(cls, node: Node, *options: Any) -> Crosser:
        buckets, is_strong, salt = options
        if buckets.ndim or is_strong.ndim or salt.shape != (2,):
            raise OpError("num_buckets and strong_hash must be scalars, and salt have length 2")
        if is_strong and not all(dtype.is_object for dtype in node.attr("dense_types")):
            raise OpError("strong_hash needs dense inputs of strings")
        keyed = partial(sip_hash, key=tuple(salt.tolist()))
        return hashed_into(int(buckets), None, keyed if is_strong else farm_hash)

    @classmethod
    def sparse_values(cls, values: Any) -> Any:
        # TensorFlow hashes four bytes of an integer
        if values.dtype == object:
            return values
        lower = np.empty(values.size, object)
        lower[:] = [number.tobytes() for number in values.astype("<u4").ravel()]
        return lower.reshape(values.shape)


class SparseCross(SparseCrossV2):
    """Crosses of sparse and dense columns, as texts or as hash buckets."""

    signature = (
        "indices: N*int64, values: sparse_types, shapes: N*int64, dense_inputs: dense_types "
        "-> output_indices: int64, output_values: out_type, output_shape: int64"
    )
    attrs = (
        f"N: int >= 0, hashed_output: bool, num_buckets: int >= 0, hash_key: int, sparse_types: "
        f"{_VALUES}, dense_types: {_VALUES}, out_type: {{int64, string}}, "
        "internal_type: {int64, string}"
    )
    options = 0

    @classmethod
    def crosser(cls, node: Node, *options: Any) -> Crosser:
        types = [*node.attr("sparse_types"), *node.attr("dense_types")]
        if node.attr("internal_type").is_object and not all(dtype.is_object for dtype in types):
            raise OpError("inputs must be strings if internal_type is string")
        return _crosser(node, "out_type")


def _crosser(node: Node, type_attr: str) -> Crosser:
    """The way of crossing of attributes of a node."""
    if node.attr(type_attr).is_object:
        return joined_by(_SEPARATOR)
    return hashed_into(node.attr("num_buckets"), node.attr("hash_key"))


class RaggedCross(Op):
    """Crosses of ragged, sparse, and dense columns, as ragged rows."""

    signature = (
        "ragged_values: ragged_values_types, ragged_row_splits: ragged_splits_types, "
        "sparse_indices: Nsparse*int64, sparse_values: sparse_values_types, "
        "sparse_shape: Nsparse*int64, dense_inputs: dense_types "
        "-> output_values: out_values_type, output_row_splits: out_row_splits_type"
    )
    attrs = (
        "Nsparse: int >= 0, input_order: string, hashed_output: bool, num_buckets: int >= 0, "
        f"hash_key: int, ragged_values_types: {_VALUES}, "
        f"ragged_splits_types: list({{int32, int64}}) >= 0, sparse_values_types: {_VALUES}, "
        f"dense_types: {_VALUES}, out_values_type: {{int64, string}}, "
        "out_row_splits_type: {int32, int64}"
    )
    placement = HostPlacement(host_only=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        ragged, sparse = len(node.attr("ragged_values_types")), node.attr("Nsparse")
        order, crosser = node.attr("input_order"), _crosser(node, "out_values_type")
        dense = len(node.attr("dense_types"))
        if sorted(order) != sorted(b"R" * ragged + b"S" * sparse + b"D" * dense):
            raise OpError(f"input_order {order!r} does not have a letter R, S, or D for each input")

        def cross(*inputs: Any) -> Any:
            rest = inputs[2 * ragged :]
            parts = rest[:sparse], rest[sparse : 2 * sparse], rest[2 * sparse : 3 * sparse]
            columns = {
                ord("R"): map(_ragged_column, inputs[:ragged], inputs[ragged : 2 * ragged]),
                ord("S"): (
                    _sparse_column(indices, values, shape, _rows_so_far)
                    for indices, values, shape in zip(*parts, strict=True)
                ),
                ord("D"): map(_dense_column, rest[3 * sparse :]),
            }
            result, ends = crossed(_same_batch([next(columns[kind]) for kind in order]), crosser)
            return result, ends.astype(node.attr("out_row_splits_type").numpy)

        return cross

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [vector_shape(None)] * 2


def _ragged_column(values: Any, splits: Any) -> FeatureColumn:
    check_splits(splits, values.size)
    return FeatureColumn(values, splits.astype(np.int64))


def _rows_so_far(rows: Any, batch: int) -> Any:
    """The largest row up to each value, as TensorFlow takes rows that are out of order."""
    return np.maximum.accumulate(rows)
