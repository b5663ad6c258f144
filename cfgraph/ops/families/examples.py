"""Parsing of serialized tf.Examples, and of rows of comma-separated values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from math import prod
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.names import decode_text
from cfgraph.ir.serde.examples import Feature, read_example
from cfgraph.ir.shapes import Shape, ShapeError
from cfgraph.ops.families.string_numbers import integer_parser, parse_float
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, shape_of_rank

_TYPE = "{float32, int64, string}"
_DENSE = f"Tdense: list({_TYPE}) >= 0, dense_shapes: list(shape) >= 0"
_SPARSE = f"sparse_types: list({_TYPE}) >= 0"
_LOST_ZEROS = (
    "NumPy drops zero bytes at the end of strings of a fixed size, also in an .npy file: feed the "
    'text ["..."], or from Python an array of objects'
)


class Row(NamedTuple):
    """A parsed example: its features, and its name for errors."""

    name: str
    features: dict[str, Feature]

    def values(self, key: str, dtype: DType) -> Sequence[Any] | None:
        """The values of a feature, None if it is missing. Raises OpError for another type."""
        feature = self.features.get(key)
        if feature is None:
            return None
        return values_of_type(feature, dtype, f"Name: {self.name}, Key: {key}")


def values_of_type(feature: Feature, dtype: DType, where: str) -> Sequence[Any]:
    """The values of a feature. Raises OpError if they have another type."""
    kind, values = feature
    if kind not in ("", dtype.name):
        message = (
            f"{where}.  Data types don't match. Data type: {kind} but expected type: {dtype.name}"
        )
        raise OpError(message)
    return values


class FeatureKeys(NamedTuple):
    """The keys of the features of each kind."""

    sparse: Sequence[str]
    dense: Sequence[str]
    ragged: Sequence[str] = ()


class ParseExampleV2(Op):
    """Features of serialized examples: sparse, dense with defaults, and ragged."""

    signature = (
        "serialized: string, names: string, sparse_keys: string, dense_keys: string, "
        "ragged_keys: string, dense_defaults: Tdense -> sparse_indices: num_sparse*int64, "
        "sparse_values: sparse_types, sparse_shapes: num_sparse*int64, dense_values: Tdense, "
        "ragged_values: ragged_value_types, ragged_row_splits: ragged_split_types"
    )
    attrs = (
        f"num_sparse: int >= 0, {_SPARSE}, {_DENSE}, ragged_value_types: list({_TYPE}) >= 0, "
        "ragged_split_types: list({int32, int64}) >= 0"
    )

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        def parse(serialized: Any, *inputs: Any) -> Any:
            names, keys, defaults = cls.arguments(node, inputs)
            if serialized.ndim > 1:
                raise OpError(f"serialized must be a scalar or vector, got rank {serialized.ndim}")
            rows = _rows(serialized, names)
            outputs = parsed_features(node, rows, keys, defaults, is_batch=serialized.ndim == 1)
            return outputs[0] if len(outputs) == 1 else tuple(outputs) or None

        return parse

    @classmethod
    def arguments(cls, node: Node, inputs: Sequence[Any]) -> tuple[Any, FeatureKeys, Sequence[Any]]:
        """The names of the examples, the keys, and the defaults."""
        names, sparse, dense, ragged = inputs[:4]
        keys = FeatureKeys(*map(texts_of, (sparse, dense, ragged)))
        return names, keys, inputs[4:]

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        batch, sparse = context.inputs[0], len(context.attr("sparse_types"))
        if batch.rank not in (None, 0, 1):
            raise ShapeError(f"serialized must be a scalar or vector, not {batch}")
        dense = [
            batch + (Shape((None, *shape.dims[1:])) if shape.dims else shape)
            for shape in context.attr("dense_shapes")
        ]
        shapes = sparse_feature_shapes(batch, sparse, 1) + dense
        return shapes + [shape_of_rank(1)] * (context.output_count - len(shapes))


def sparse_feature_shapes(batch: Shape, count: int, inner_rank: int) -> list[Shape]:
    """The shapes of the indices, values, and shapes of sparse features of a batch."""
    rank = None if batch.rank is None else batch.rank + inner_rank
    return [
        shape
        for shape in (Shape((None, rank)), shape_of_rank(1), Shape((rank,)))
        for _ in range(count)
    ]


class ParseExample(ParseExampleV2):
    """Features of serialized examples: sparse, and dense with defaults."""

    signature = (
        "serialized: string, names: string, sparse_keys: Nsparse*string, "
        "dense_keys: Ndense*string, dense_defaults: Tdense -> sparse_indices: Nsparse*int64, "
        "sparse_values: sparse_types, sparse_shapes: Nsparse*int64, dense_values: Tdense"
    )
    attrs = f"Nsparse: int >= 0, Ndense: int >= 0, {_SPARSE}, {_DENSE}"

    @classmethod
    def arguments(cls, node: Node, inputs: Sequence[Any]) -> tuple[Any, FeatureKeys, Sequence[Any]]:
        names, *rest = inputs
        sparse, dense = node.attr("Nsparse"), node.attr("Ndense")
        texts = [decode_text(key[()]) for key in rest[: sparse + dense]]
        return names, FeatureKeys(texts[:sparse], texts[sparse:]), rest[sparse + dense :]


class ParseSingleExample(ParseExampleV2):
    """Features of one serialized example: sparse, and dense with defaults."""

    signature = (
        "serialized: string, dense_defaults: Tdense -> sparse_indices: num_sparse*int64, "
        "sparse_values: sparse_types, sparse_shapes: num_sparse*int64, dense_values: Tdense"
    )
    attrs = (
        "num_sparse: int >= 0, sparse_keys: list(string) >= 0, dense_keys: list(string) >= 0, "
        f"{_SPARSE}, {_DENSE}"
    )

    @classmethod
    def arguments(cls, node: Node, inputs: Sequence[Any]) -> tuple[Any, FeatureKeys, Sequence[Any]]:
        sparse, dense = (
            map(decode_text, node.attr(f"{kind}_keys")) for kind in ("sparse", "dense")
        )
        return np.zeros(0, object), FeatureKeys([*sparse], [*dense]), inputs


def texts_of(keys: Any) -> list[str]:
    """The keys of features."""
    return [decode_text(key) for key in keys.ravel().tolist()]


def _rows(serialized: Any, names: Any) -> list[Row]:
    """The parsed examples. Raises OpError for data that is no example."""
    rows = []
    labels = names.ravel().tolist() if names.size else [b"<unknown>"] * serialized.size
    for label, data in zip(labels, np.asarray(serialized, object).ravel().tolist(), strict=True):
        features = read_example(data)
        if features is None:
            message = f"Could not parse example input, value: {data[:40]!r}"
            raise OpError(message, hint=_LOST_ZEROS)
        rows.append(Row(decode_text(label), features))
    return rows


def parsed_features(
    node: Node,
    rows: list[Row],
    keys: FeatureKeys,
    defaults: Sequence[Any],
    *,
    is_batch: bool,
    prefix: str = "",
) -> list[Any]:
    """The outputs: indices, values, and shapes of sparse features, dense and ragged ones.

    Their types are attributes of the node whose names have the prefix.
    """
    types = node.attr(f"{prefix}sparse_types")
    sparse = [_sparse(rows, k, t, is_batch) for k, t in zip(keys.sparse, types, strict=True)]
    parts = by_part(sparse)
    types, shapes = node.attr(f"T{prefix}dense"), node.attr(f"{prefix}dense_shapes")
    dense = zip(keys.dense, types, shapes, defaults, strict=True)
    outputs = [_dense(rows, *feature, is_batch) for feature in dense]
    if not keys.ragged:
        return parts + outputs
    values, splits = (node.attr(f"{prefix}ragged_{part}_types") for part in ("value", "split"))
    ragged = [_lists(rows, key, dtype) for key, dtype in zip(keys.ragged, values, strict=True)]
    outputs += [array_of([*chain(*lists)], t) for lists, t in zip(ragged, values, strict=True)]
    for lists, dtype in zip(ragged, splits, strict=True):
        ends = np.cumsum([0, *map(len, lists)], dtype=dtype.numpy)
        outputs.append(ends if is_batch else ends[:0])
    return parts + outputs


def by_part(features: list[tuple[Any, Any, Any]]) -> list[Any]:
    """The first parts of all features, then the second ones, and so on."""
    return [part for kind in zip(*features, strict=True) for part in kind]


def _lists(rows: list[Row], key: str, dtype: DType) -> list[list[Any]]:
    return [list(row.values(key, dtype) or ()) for row in rows]


def array_of(values: list[Any], dtype: DType) -> Any:
    """A vector of the values of a feature."""
    array = np.empty(len(values), dtype.numpy)
    array[:] = values
    return array


def _sparse(rows: list[Row], key: str, dtype: DType, is_batch: bool) -> tuple[Any, Any, Any]:
    """The indices, values, and shape of a sparse feature."""
    lists = _lists(rows, key, dtype)
    lengths = [*map(len, lists)]
    places = [(row, place) for row, count in enumerate(lengths) for place in range(count)]
    indices = np.array(places, np.int64).reshape((-1, 2))
    shape = np.array([len(rows), max(lengths, default=0)], np.int64)
    first = 0 if is_batch else 1
    return (
        indices[:, first:],
        array_of([*chain(*lists)], dtype),
        shape[first:],
    )


def _dense(
    rows: list[Row], key: str, dtype: DType, shape: Shape, default: Any, is_batch: bool
) -> Any:
    """The values of a dense feature; one of unknown length is padded with its default."""
    dims = shape.dims or ()
    if default.size and dims[:1] != (None,) and Shape(default.shape) != shape:
        raise OpError(f"the default of {key} has shape {list(default.shape)}, not {shape}")
    if dims[:1] == (None,):
        width = prod(size or 0 for size in dims[1:])
        lists = _lists(rows, key, dtype)
        for row, values in zip(rows, lists, strict=True):
            _require_count(row, key, dtype, len(values), len(values) % max(width, 1) == 0, shape)
        length = max((len(values) // max(width, 1) for values in lists), default=0)
        fill = default.ravel()[0] if default.size else b"" if dtype.kind == "string" else 0
        result = np.full((len(rows), length * width), fill, dtype.numpy)
        for number, values in enumerate(lists):
            result[number, : len(values)] = values
        sizes = [length, *(size or 0 for size in dims[1:])]
    else:
        sizes = [size or 0 for size in dims]
        result = np.empty((len(rows), prod(sizes)), dtype.numpy)
        for number, row in enumerate(rows):
            result[number] = _dense_values(row, key, dtype, shape, default)
    return result.reshape((len(rows), *sizes) if is_batch else sizes)


def _dense_values(row: Row, key: str, dtype: DType, shape: Shape, default: Any) -> Any:
    """The values of a feature of fixed shape, or its default."""
    values = row.values(key, dtype)
    if values is not None:
        _require_count(row, key, dtype, len(values), len(values) == shape.elements, shape)
        return list(values)
    if default.size != shape.elements:
        raise OpError(
            f"Name: {row.name}, Feature: {key} (data type: {dtype.name}) is required but could "
            "not be found."
        )
    return default.ravel()


def _require_count(row: Row, key: str, dtype: DType, count: int, fits: bool, shape: Shape) -> None:
    if not fits:
        raise OpError(
            f"Name: {row.name}, Key: {key}, Index: 0.  Number of {dtype.name} values != expected.  "
            f"values size: {count} but output shape: {shape}"
        )


class DecodeCSV(Op):
    """Columns of rows of comma-separated values, each with a default or required."""

    signature = "records: string, record_defaults: OUT_TYPE -> output: OUT_TYPE"
    attrs = (
        "OUT_TYPE: list({float32, float64, int32, int64, string}) >= 1, "
        "field_delim: string = ',', use_quote_delim: bool = true, na_value: string = '', "
        "select_cols: list(int) = []"
    )

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        delimiter, missing = node.attr("field_delim"), node.attr("na_value")
        types, chosen = node.attr("OUT_TYPE"), node.attr("select_cols")
        if len(delimiter) != 1:
            raise OpError("field_delim should be only 1 char")
        if any(a >= b for a, b in pairwise(chosen)) or min(chosen, default=0) < 0:
            raise OpError("select_cols should be strictly increasing indices")
        quoted = node.attr("use_quote_delim")

        def decode(records: Any, *defaults: Any) -> Any:
            columns = [np.empty(records.size, dtype.numpy) for dtype in types]
            for number, record in enumerate(np.asarray(records, object).ravel().tolist()):
                fields = _fields(record, delimiter[0], quoted)
                if chosen:
                    fields = [fields[index] for index in chosen if index < len(fields)]
                if len(fields) != len(types):
                    raise OpError(
                        f"Expect {len(types)} fields but have {len(fields)} in record {number}"
                    )
                for place, (field, dtype) in enumerate(zip(fields, types, strict=True)):
                    where = f"Field {place} in record {number}"
                    is_missing = field in (b"", missing)
                    value = _default(defaults[place], where) if is_missing else None
                    columns[place][number] = value if is_missing else _cell(field, dtype, where)
            results = [column.reshape(records.shape) for column in columns]
            return results[0] if len(results) == 1 else tuple(results)

        return decode

    shape = staticmethod(lambda context: [context.inputs[0]] * context.output_count)


def _default(default: Any, where: str) -> Any:
    if not default.size:
        raise OpError(f"{where} is required but missing in the record")
    return default.ravel()[0]


def _cell(field: bytes, dtype: DType, where: str) -> Any:
    """The value of a field."""
    if dtype.kind == "string":
        return field
    read = parse_float if dtype.is_floating else integer_parser(dtype)
    value = read(field.strip())
    if value is None:
        raise OpError(f"{where} is not a valid {dtype.name}: {decode_text(field)}")
    return value


def _fields(record: bytes, delimiter: int, quoted: bool) -> list[bytes]:
    """The fields of a record; in quotes, delimiters belong to a field, and quotes are doubled."""
    fields: list[bytes] = []
    rest = record
    while True:
        rest = rest.lstrip(b"\r\n")
        if quoted and rest[:1] == b'"':
            field, rest = _quoted_field(rest, delimiter)
        else:
            field, mark, after = rest.partition(bytes([delimiter]))
            if quoted and any(char in field for char in b'"\r\n'):
                raise OpError("Unquoted fields cannot have quotes/CRLFs inside")
            rest = mark + after
        fields.append(field)
        if not rest:
            return fields
        rest = rest[1:]


def _quoted_field(text: bytes, delimiter: int) -> tuple[bytes, bytes]:
    """A field in quotes, and the text from the delimiter after it."""
    end = 1
    while (end := text.find(b'"', end)) >= 0 and text[end + 1 : end + 2] == b'"':
        end += 2
    after = text[end + 1 :]
    if end < 0 or (after and after[0] != delimiter):
        raise OpError("Quoted field has to end with quote followed by delim, CRLF, or EOF")
    return text[1:end].replace(b'""', b'"'), after
