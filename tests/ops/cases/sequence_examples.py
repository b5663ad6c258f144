"""Serialized sequence examples."""

import numpy as np

from cfgraph.ir.shapes import Shape
from cfgraph.proto import example_pb2
from tests.ops.harness import case

F32, I64, TEXT, I32 = np.float32, np.int64, np.dtype(object), np.int32


def fill(feature, values):
    """Set the values of a feature; None sets no kind."""
    if values is None:
        return
    kind = {bytes: "bytes_list", float: "float_list"}.get(type([*values, 0][0]), "int64_list")
    target = getattr(feature, kind)
    target.SetInParent()
    target.value.extend(values)


def example(context=(), **lists):
    message = example_pb2.SequenceExample()
    for name, values in dict(context).items():
        fill(message.context.feature[name], values)
    for name, steps in lists.items():
        target = message.feature_lists.feature_list[name]
        for values in steps:
            fill(target.feature.add(), values)
    return message.SerializeToString()


def keys(features):
    return np.array([feature[0] for feature in features], object)


def column(features, place):
    return tuple(feature[place] for feature in features)


def sparse_and_dense(sparse, dense, steps, rows):
    """The attributes of the sparse and dense features of the context and of lists."""
    return {
        "Ncontext_sparse": len(sparse),
        "context_sparse_types": column(sparse, 1),
        "Tcontext_dense": column(dense, 1),
        "context_dense_shapes": tuple(map(Shape, column(dense, 2))),
        "Nfeature_list_sparse": len(steps),
        "feature_list_sparse_types": column(steps, 1),
        "Nfeature_list_dense": len(rows),
        "feature_list_dense_types": column(rows, 1),
        "feature_list_dense_shapes": tuple(map(Shape, column(rows, 2))),
    }


def parse(
    data, sparse=(), dense=(), ragged=(), steps=(), rows=(), rises=(), names=(), error=False, **more
):
    """A node of ParseSequenceExampleV2: features of the context, and `steps`, `rows`, `rises`."""
    attrs = sparse_and_dense(sparse, dense, steps, rows) | {
        "context_ragged_value_types": column(ragged, 1),
        "context_ragged_split_types": column(ragged, 2),
        "feature_list_ragged_value_types": column(rises, 1),
        "feature_list_ragged_split_types": column(rises, 2),
    }
    optional = np.array(more.get("optional", [False] * len(rows)), bool)
    groups = map(keys, (sparse, dense, ragged, steps, rows, rises))
    defaults = [np.array(item[3], item[1]) for item in dense]
    inputs = [np.array(data, object), np.array(names, object), *groups, optional, *defaults]
    return case("ParseSequenceExampleV2", inputs, attrs, error=error)


A = example(
    {"x": [1.5, 2.5], "n": [7], "s": [b"a", b"bc"], "r": [b"k"]},
    d=[[1, 2], [3, 4]],
    v=[[1], [], [2, 3]],
    t=[[b"q"], [b"r", b"s"]],
    w=[[4], [], [5, 6]],
    f=[[0.5], [1.5]],
)
B = example({"n": [8]}, d=[[5, 6]], v=[])
NOTHING, HOLES = example(), example({"n": None}, d=[None, [1, 2]])
N, S, R, X = ("n", I64, [], -1), ("s", TEXT), ("r", TEXT, I32), ("x", F32, [2], [1.0, 2.0])
V, D, T, W = ("v", I64), ("d", I64, [2]), ("t", TEXT, I64), ("w", I64, I32)
ALL = {"sparse": [S], "dense": [N, X], "ragged": [R], "steps": [V], "rows": [D], "rises": [T, W]}
NO_SPLITS = {"sparse": [S], "dense": [N, X], "steps": [V], "rows": [D]}
FIRST = sparse_and_dense([S], [N], [V], [D]) | {"Ncontext_dense": 1}
TEXTS = [np.array(text, object) for text in (b"s", b"n", b"v", b"d")]
NONE = np.array([], object)


def first(data, missing=(), error=False):
    attrs = FIRST | {
        "feature_list_dense_missing_assumed_empty": missing,
        "context_sparse_keys": (b"s",),
        "context_dense_keys": (b"n",),
        "feature_list_sparse_keys": (b"v",),
        "feature_list_dense_keys": (b"d",),
    }
    return case("ParseSequenceExample", [data, NONE, I64(-1)], attrs, error=error)


def single(data, missing=NONE, error=False):
    inputs = [np.array(data, object), missing, *TEXTS, I64(-1), np.array(b"", object)]
    return case("ParseSingleSequenceExample", inputs, FIRST, error=error)


CASES = [
    parse([A, B], **ALL),
    parse([], **ALL),
    parse(A, **NO_SPLITS),
    parse(NOTHING, **NO_SPLITS, optional=[True]),
    parse([NOTHING, A], rows=[D, ("u", TEXT, [])], optional=[True, True]),
    parse([A], rows=[("t", TEXT, [1])], error=True),
    parse([A], rows=[("f", F32, [])], names=[b"first"]),
    parse([HOLES], steps=[("d", I64)]),
    parse([HOLES], rises=[("d", I64, I64)], sparse=[("n", I64)]),
    parse([HOLES], rows=[D], error=True),
    parse([HOLES], dense=[N], error=True),
    parse([NOTHING], rows=[D], error=True),
    parse([NOTHING], dense=[N]),
    parse([NOTHING], dense=[("n", I64, [], [])], error=True),
    parse([A], dense=[("n", I64, [2], [1])], error=True),
    parse([A], dense=[("n", I64, [None], [1])], error=True),
    parse([A], rows=[("v", I64, [None])], error=True),
    parse([A], rows=[("d", F32, [2])], error=True),
    parse([A], rows=[D], optional=[], error=True),
    parse([A], steps=[("d", F32)], error=True),
    parse([A], sparse=[("n", F32)], error=True),
    parse([A], sparse=[S], ragged=[("s", TEXT, I32)], error=True),
    parse([A], steps=[V], rises=[("v", I64, I32)], error=True),
    parse([A], sparse=[S], names=[b"a", b"b"], error=True),
    parse([[A]], sparse=[S], error=True),
    parse([b"\xff"], sparse=[S], error=True),
    first([A, B]),
    first([NOTHING], missing=(b"d",)),
    first([NOTHING], error=True),
    single(A),
    single(NOTHING, np.array([b"d"], object)),
    single(NOTHING, error=True),
]
NO_GRADIENT = {"ParseSequenceExampleV2": "TensorFlow has none"}
