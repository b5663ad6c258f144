"""Serialized tf.Examples, and rows of comma-separated values."""

import numpy as np

from cfgraph.ir.shapes import Shape
from cfgraph.proto import example_pb2
from tests.ops.harness import case

F32, I64 = np.float32, np.int64
TEXT = np.dtype(object)
WITHOUT_CASE = dict.fromkeys(
    (
        *("DecodeAndCropJpeg", "DecodeBmp", "DecodeGif", "DecodeImage", "DecodeJpeg", "DecodePng"),
        *("EncodeJpeg", "EncodeJpegVariableQuality", "EncodePng", "ExtractJpegShape"),
    ),
    "most need Pillow; tests/ops/test_images.py has recorded values",
)


def example(**features):
    message = example_pb2.Example()
    for name, values in features.items():
        feature = message.features.feature[name]
        first = values[0] if values else None
        if isinstance(first, bytes):
            feature.bytes_list.value.extend(values)
        elif isinstance(first, float):
            feature.float_list.value.extend(values)
        elif values is not None:
            feature.int64_list.value.extend(values)
    return message.SerializeToString()


def parse(serialized, sparse=(), dense=(), ragged=(), names=(), **more):
    """A node of ParseExampleV2; a sparse feature is (key, type), a dense one has a default too."""
    keys = [np.array([item[0] for item in group], object) for group in (sparse, dense, ragged)]
    attrs = {
        "num_sparse": len(sparse),
        "sparse_types": tuple(item[1] for item in sparse),
        "Tdense": tuple(item[1] for item in dense),
        "dense_shapes": tuple(Shape(item[2]) for item in dense),
        "ragged_value_types": tuple(item[1] for item in ragged),
        "ragged_split_types": tuple(item[2] for item in ragged),
    }
    defaults = [np.array(item[3], item[1]) for item in dense]
    inputs = [np.array(serialized, object), np.array(names, object), *keys, *defaults]
    return case("ParseExampleV2", inputs, attrs, **more)


A = example(x=[1.5, 2.5], n=[7], s=[b"a", b"bc"], v=[1, 2, 3], w=[5])
B = example(n=[8], v=[])
C = example(x=[0.5, -1.0], s=[b"z"], v=[4])
X = ("x", F32, [2], [9.0, 9.5])
N, S, V = ("n", I64, [], -1), ("s", TEXT), ("w", I64)
LONG = ("v", I64, [None], [-5])
CSV = [b'1,2.5,"a,""b"""', b"\n3,,c"]
DEFAULTS = [np.array([0], np.int32), np.array([7.5], F32), np.array([b"-"], object)]
TYPES = {"OUT_TYPE": (np.int32, F32, TEXT)}


def csv(records, defaults=DEFAULTS, error=False, **attrs):
    return case("DecodeCSV", [np.array(records, object), *defaults], TYPES | attrs, error=error)


CASES = [
    parse([A, B, C], sparse=[S, V], dense=[X, N, LONG]),
    parse([A, B, C], ragged=[("v", I64, np.int32), ("s", TEXT, I64)]),
    parse([A], dense=[X], names=[b"first"]),
    parse([], sparse=[S], dense=[X]),
    parse(A, sparse=[S], dense=[X, LONG]),
    parse(B, ragged=[("v", I64, I64)]),
    parse([b""], sparse=[V], dense=[N]),
    parse([A], dense=[("s", TEXT, [2], [b"", b""])]),
    parse([B], dense=[("x", F32, [2], np.zeros(0))], error=True),
    parse([A], dense=[("x", F32, [3], [1.0, 2.0, 3.0])], error=True),
    parse([A], sparse=[("x", I64)], error=True),
    parse([b"\xff\xff"], sparse=[V], error=True),
    case(
        "ParseExample",
        [
            np.array([A, C], object),
            np.array([], object),
            np.array(b"s", object),
            np.array(b"x", object),
            np.array([9, 9], F32),
        ],
        {"sparse_types": (TEXT,), "Tdense": (F32,), "dense_shapes": (Shape([2]),)},
    ),
    case(
        "ParseSingleExample",
        [np.array(A, object), np.array([9, 9], F32)],
        {
            "num_sparse": 1,
            "sparse_keys": (b"s",),
            "dense_keys": (b"x",),
            "sparse_types": (TEXT,),
            "Tdense": (F32,),
            "dense_shapes": (Shape([2]),),
        },
    ),
    csv(CSV),
    csv([[b"1;2;x"], [b"-4;5e2;"]], field_delim=";"),
    csv([b"NA,1,NA"], na_value="NA"),
    csv([b'1,2,a"b'], use_quote_delim=False),
    csv([b"9,1,8,2,x"], select_cols=(0, 2, 4)),
    csv([b"1,2"], error=True),
    csv([b"1,2,c\n"], error=True),
    parse([A], dense=[("n", I64, [], [-1])], error=True),
    csv([b"x,2,y"], error=True),
    csv([b'1,2,a"b'], error=True),
    csv([b'1,2,"ab'], error=True),
    csv([b",2,a"], [np.zeros(0, np.int32), *DEFAULTS[1:]], error=True),
    csv([b"1,2,a"], field_delim="ab", error=True),
]
NO_GRADIENT = dict.fromkeys(
    ["DecodeCSV", "ParseExample", "ParseExampleV2", "ParseSingleExample"], "TensorFlow has none"
)
