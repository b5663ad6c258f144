"""Parsing of serialized sequence examples: features of a context, and lists of features."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations
from types import ModuleType
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.names import decode_text
from cfgraph.ir.serde.examples import Feature, read_sequence_example
from cfgraph.ir.shapes import Shape, ShapeError, vector_shape
from cfgraph.limits import reserve_array
from cfgraph.ops.families.examples import (
    FeatureKeys,
    Row,
    array_of,
    by_part,
    parsed_features,
    sparse_feature_shapes,
    texts_of,
    values_of_type,
)
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext

_TYPES: Final = "list({float32, int64, string}) >= 0 = []"
_SPLITS: Final = "list({int32, int64}) >= 0 = []"
_SHAPES: Final = "list(shape) >= 0 = []"
_CONTEXT: Final = (
    f"Ncontext_sparse: int >= 0 = 0, Tcontext_dense: {_TYPES}, context_sparse_types: {_TYPES}, "
    f"context_dense_shapes: {_SHAPES}, "
)
_LISTS: Final = (
    "Nfeature_list_sparse: int >= 0 = 0, Nfeature_list_dense: int >= 0 = 0, "
    f"feature_list_dense_types: {_TYPES}, feature_list_sparse_types: {_TYPES}, "
    f"feature_list_dense_shapes: {_SHAPES}"
)
_CONTEXT_OUTPUTS: Final = (
    "context_sparse_indices: Ncontext_sparse*int64, context_sparse_values: context_sparse_types, "
    "context_sparse_shapes: Ncontext_sparse*int64, context_dense_values: Tcontext_dense, "
)
_LIST_OUTPUTS: Final = (
    "feature_list_sparse_indices: Nfeature_list_sparse*int64, "
    "feature_list_sparse_values: feature_list_sparse_types, "
    "feature_list_sparse_shapes: Nfeature_list_sparse*int64, "
    "feature_list_dense_values: feature_list_dense_types"
)
_LENGTHS: Final = ", feature_list_dense_lengths: Nfeature_list_dense*int64"


class SequenceKeys(NamedTuple):
    """The keys of the features of the context and of lists, and which dense lists may lack."""

    context: FeatureKeys
    lists: FeatureKeys
    optional: Sequence[bool]


class ListRow(NamedTuple):
    """The feature lists of a parsed example, and its name for errors."""

    name: str
    lists: dict[str, list[Feature]]

    def steps(self, key: str, dtype: DType) -> list[list[Any]] | None:
        """The values of each step of a list, None if it is missing."""
        where = f"Name: {self.name}, Feature list: {key}, Index: "
        steps = self.lists.get(key)
        if steps is None:
            return None
        return [[*values_of_type(step, dtype, f"{where}{n}")] for n, step in enumerate(steps)]


class ParseSequenceExampleV2(Op):
    """Features of serialized sequence examples: sparse, dense, and ragged."""

    signature = (
        "serialized: string, debug_name: string, context_sparse_keys: string, "
        "context_dense_keys: string, context_ragged_keys: string, feature_list_sparse_keys: "
        "string, feature_list_dense_keys: string, feature_list_ragged_keys: string, "
        "feature_list_dense_missing_assumed_empty: bool, context_dense_defaults: Tcontext_dense "
        f"-> {_CONTEXT_OUTPUTS}context_ragged_values: context_ragged_value_types, "
        f"context_ragged_row_splits: context_ragged_split_types, {_LIST_OUTPUTS}{_LENGTHS}, "
        "feature_list_ragged_values: feature_list_ragged_value_types, "
        "feature_list_ragged_outer_splits: feature_list_ragged_split_types, "
        "feature_list_ragged_inner_splits: feature_list_ragged_split_types"
    )
    attrs = (
        f"{_CONTEXT}context_ragged_value_types: {_TYPES}, context_ragged_split_types: {_SPLITS}, "
        f"{_LISTS}, feature_list_ragged_value_types: {_TYPES}, "
        f"feature_list_ragged_split_types: {_SPLITS}"
    )
    returns_lengths: ClassVar[bool] = True

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        for shape in (*node.attr("context_dense_shapes"), *node.attr("feature_list_dense_shapes")):
            if not shape.is_full:
                raise OpError(f"Shape {shape} is not fully defined")

        def parse(serialized: Any, *inputs: Any) -> Any:
            names, keys, defaults = cls.arguments(node, inputs)
            for group in (keys.context, keys.lists):
                _require_distinct(group)
            if serialized.ndim > 1:
                raise OpError(f"serialized must be a scalar or vector, got rank {serialized.ndim}")
            is_batch = serialized.ndim == 1
            contexts, lists = _rows(serialized, names)
            outputs = parsed_features(
                node, contexts, keys.context, defaults, is_batch=is_batch, prefix="context_"
            )
            outputs += cls.parsed_lists(node, lists, keys, is_batch)
            return outputs[0] if len(outputs) == 1 else tuple(outputs) or None

        return parse

    @classmethod
    def arguments(
        cls, node: Node, inputs: Sequence[Any]
    ) -> tuple[Any, SequenceKeys, Sequence[Any]]:
        """The names of the examples, the keys, and the defaults."""
        names, *keys = inputs[:7]
        texts = [*map(texts_of, keys)]
        groups = FeatureKeys(*texts[:3]), FeatureKeys(*texts[3:])
        return names, SequenceKeys(*groups, inputs[7].ravel().tolist()), inputs[8:]

    @classmethod
    def parsed_lists(
        cls, node: Node, rows: list[ListRow], keys: SequenceKeys, is_batch: bool
    ) -> list[Any]:
        """The outputs of feature lists."""
        lists = keys.lists
        if len(keys.optional) != len(lists.dense):
            message = "feature_list_dense_missing_assumed_empty must have a value per dense key"
            raise OpError(message)
        types = node.attr("feature_list_dense_types")
        shapes = node.attr("feature_list_dense_shapes")
        dense = [
            _dense(rows, *feature, is_batch)
            for feature in zip(lists.dense, types, shapes, keys.optional, strict=True)
        ]
        types = node.attr("feature_list_sparse_types")
        sparse = [_sparse(rows, k, t, is_batch) for k, t in zip(lists.sparse, types, strict=True)]
        outputs = [*by_part(sparse), *(values for values, _ in dense)]
        if cls.returns_lengths:
            outputs += [lengths for _, lengths in dense]
        if not lists.ragged:
            return outputs
        values = node.attr("feature_list_ragged_value_types")
        splits = node.attr("feature_list_ragged_split_types")
        ragged = [
            _ragged(rows, *feature, is_batch)
            for feature in zip(lists.ragged, values, splits, strict=True)
        ]
        return [*outputs, *by_part(ragged)]

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        batch = context.inputs[0]
        if batch.rank not in (None, 0, 1):
            raise ShapeError(f"serialized must be a scalar or vector, not {batch}")
        shapes = sparse_feature_shapes(batch, len(context.attr("context_sparse_types")), 1)
        shapes += [batch + shape for shape in context.attr("context_dense_shapes")]
        if "context_ragged_value_types" in cls.parsed().attrs:
            shapes += [vector_shape()] * 2 * len(context.attr("context_ragged_value_types"))
        shapes += sparse_feature_shapes(batch, len(context.attr("feature_list_sparse_types")), 2)
        steps = context.attr("feature_list_dense_shapes")
        shapes += [batch + vector_shape() + shape for shape in steps]
        shapes += [batch] * len(steps) * cls.returns_lengths
        return shapes + [vector_shape()] * (context.output_count - len(shapes))


class ParseSequenceExample(ParseSequenceExampleV2):
    """Features of serialized sequence examples, whose keys are attributes."""

    signature = (
        "serialized: string, debug_name: string, context_dense_defaults: Tcontext_dense "
        f"-> {_CONTEXT_OUTPUTS}{_LIST_OUTPUTS}{_LENGTHS}"
    )
    attrs = (
        "feature_list_dense_missing_assumed_empty: list(string) >= 0, "
        "context_sparse_keys: list(string) >= 0, context_dense_keys: list(string) >= 0, "
        "feature_list_sparse_keys: list(string) >= 0, feature_list_dense_keys: list(string) >= 0, "
        f"Ncontext_dense: int >= 0 = 0, {_CONTEXT}{_LISTS}"
    )

    @classmethod
    def arguments(
        cls, node: Node, inputs: Sequence[Any]
    ) -> tuple[Any, SequenceKeys, Sequence[Any]]:
        groups = [
            [*map(decode_text, node.attr(f"{group}_{kind}_keys"))]
            for group in ("context", "feature_list")
            for kind in ("sparse", "dense")
        ]
        missing = [*map(decode_text, node.attr("feature_list_dense_missing_assumed_empty"))]
        keys = _keys(groups, missing)
        return inputs[0], keys, inputs[1:]


class ParseSingleSequenceExample(ParseSequenceExampleV2):
    """Features of one serialized sequence example, without the lengths of its lists."""

    signature = (
        "serialized: string, feature_list_dense_missing_assumed_empty: string, "
        "context_sparse_keys: Ncontext_sparse*string, context_dense_keys: Ncontext_dense*string, "
        "feature_list_sparse_keys: Nfeature_list_sparse*string, feature_list_dense_keys: "
        "Nfeature_list_dense*string, context_dense_defaults: Tcontext_dense, debug_name: string "
        f"-> {_CONTEXT_OUTPUTS}{_LIST_OUTPUTS}"
    )
    attrs = f"Ncontext_dense: int >= 0 = 0, {_CONTEXT}{_LISTS}"
    returns_lengths = False

    @classmethod
    def arguments(
        cls, node: Node, inputs: Sequence[Any]
    ) -> tuple[Any, SequenceKeys, Sequence[Any]]:
        missing, *rest, names = inputs
        groups = []
        for count in _COUNTS:
            groups.append([decode_text(key[()]) for key in rest[: node.attr(count)]])
            rest = rest[node.attr(count) :]
        return names, _keys(groups, texts_of(missing)), rest


_COUNTS: Final = (
    "Ncontext_sparse",
    "Ncontext_dense",
    "Nfeature_list_sparse",
    "Nfeature_list_dense",
)


def _keys(groups: list[list[str]], missing: list[str]) -> SequenceKeys:
    """The sparse and dense keys of the context and of lists, none of which is ragged."""
    sparse, dense, list_sparse, list_dense = groups
    optional = [key in missing for key in list_dense]
    return SequenceKeys(FeatureKeys(sparse, dense), FeatureKeys(list_sparse, list_dense), optional)


def _require_distinct(keys: FeatureKeys) -> None:
    """Raise OpError for a feature of two kinds."""
    for one, two in combinations(keys, 2):
        if both := {*one} & {*two}:
            raise OpError(f"Feature {min(both)} cannot be of two kinds: sparse, dense, or ragged")


def _rows(serialized: Any, names: Any) -> tuple[list[Row], list[ListRow]]:
    """The contexts and lists of examples. Raises OpError for data that is no sequence example."""
    data = np.asarray(serialized, object).ravel().tolist()
    labels = names.ravel().tolist() if names.size else [b"<unknown>"] * len(data)
    if len(labels) != len(data):
        raise OpError(f"there are {len(labels)} names of {len(data)} examples")
    contexts, lists = [], []
    for label, item in zip(map(decode_text, labels), data, strict=True):
        features = read_sequence_example(item)
        if features is None:
            raise OpError(f"Invalid protocol message input, example id: {label}")
        contexts.append(Row(label, features.context))
        lists.append(ListRow(label, features.lists))
    return contexts, lists


def _sparse(rows: list[ListRow], key: str, dtype: DType, is_batch: bool) -> tuple[Any, Any, Any]:
    """The indices (example, step, place), values, and shape of a sparse feature."""
    lists = [row.steps(key, dtype) or [] for row in rows]
    places = [
        (number, step, place)
        for number, steps in enumerate(lists)
        for step, values in enumerate(steps)
        for place in range(len(values))
    ]
    longest = max(map(len, chain(*lists)), default=0)
    shape = np.array([len(rows), max(map(len, lists), default=0), longest], np.int64)
    first = 0 if is_batch else 1
    indices = np.array(places, np.int64).reshape((-1, 3))[:, first:]
    return indices, array_of([*chain(*chain(*lists))], dtype), shape[first:]


def _dense(
    rows: list[ListRow], key: str, dtype: DType, shape: Shape, optional: bool, is_batch: bool
) -> tuple[Any, Any]:
    """The values of a dense feature, padded to the longest list, and the lengths of lists."""
    lists = [row.steps(key, dtype) for row in rows]
    for row, steps in zip(rows, lists, strict=True):
        _check_steps(row, key, steps, shape, optional)
    lengths = np.array([len(steps or ()) for steps in lists], np.int64)
    fill = b"" if dtype.kind == "string" else 0
    length = int(lengths.max(initial=0))
    sizes = (len(rows), length, shape.elements or 0)
    reserve_array(sizes, dtype.numpy.itemsize)
    result = np.full(sizes, fill, dtype.numpy)
    for number, steps in enumerate(lists):
        if steps:
            result[number, : len(steps)] = steps
    result = result.reshape((len(rows), length, *shape))
    return (result, lengths) if is_batch else (result[0], lengths[0])


def _check_steps(
    row: ListRow, key: str, steps: list[list[Any]] | None, shape: Shape, optional: bool
) -> None:
    """Raise OpError for a missing list, and for a step of another size."""
    if steps is None and not optional:
        raise OpError(
            f"Name: {row.name}, Feature list '{key}' is required but could not be found.  Did you "
            "mean to include it in feature_list_dense_missing_assumed_empty?"
        )
    for number, values in enumerate(steps or ()):
        if len(values) != shape.elements:
            raise OpError(
                f"Name: {row.name}, Key: {key}, Index: {number}.  Number of values != expected.  "
                f"values size: {len(values)} but output shape: {shape}"
            )


def _ragged(
    rows: list[ListRow], key: str, dtype: DType, splits: DType, is_batch: bool
) -> tuple[Any, Any, Any]:
    """The values of a ragged feature, the splits of examples, and those of steps.

    A single example has no splits of examples.
    """
    lists = [row.steps(key, dtype) or [] for row in rows]
    outer = np.cumsum([0, *map(len, lists)], dtype=splits.numpy)
    inner = np.cumsum([0, *map(len, chain(*lists))], dtype=splits.numpy)
    return array_of([*chain(*chain(*lists))], dtype), outer if is_batch else outer[:0], inner
