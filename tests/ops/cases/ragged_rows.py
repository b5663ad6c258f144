"""Ragged tensors, and strings as rows of characters."""

import numpy as np

from tests.ops.harness import case

F32, F64, I32, I64 = np.float32, np.float64, np.int32, np.int64
random = np.random.default_rng(23)
SPLITS = np.array([0, 2, 2, 5, 6])
OUTER = np.array([0, 1, 3, 4])
VALUES = random.standard_normal((6, 2)).astype(F32)
NUMBERS = np.arange(6, dtype=F32)


def dense(shape, values, default, partitions, kinds, **more):
    attrs = {"row_partition_types": kinds}
    attrs["num_row_partition_tensors"] = len(partitions)
    return case("RaggedTensorToTensor", [shape, values, default, *partitions], attrs, **more)


RAGGED = [
    *(
        dense(np.array(shape), NUMBERS, F32(-1), [SPLITS.astype(t)], ["ROW_SPLITS"])
        for shape in ([-1, -1], [2, 2], [6, 4])
        for t in (I32, I64)
    ),
    dense(np.array([-1, 2, -1]), VALUES, F32([7, 8]), [SPLITS], ["ROW_SPLITS"]),
    dense(np.array([-1, -1, -1]), NUMBERS, F32(-1), [OUTER, SPLITS], ["ROW_SPLITS"] * 2),
    # values after those of the last row are not used
    dense(np.array([-1, -1]), NUMBERS, F32(-1), [np.array([0, 1, 1, 4])], ["ROW_SPLITS"]),
    dense(np.array([-2, -1]), NUMBERS, F32(-1), [SPLITS], ["ROW_SPLITS"], error=True),
    dense(np.array([2, 1, 3]), NUMBERS, F32(-1), [OUTER, SPLITS], ["ROW_SPLITS"] * 2),
    *(
        dense(
            np.array(shape),
            NUMBERS,
            F32(-1),
            [np.array(4), np.array([0, 0, 2, 2, 2, 3])],
            ["FIRST_DIM_SIZE", "VALUE_ROWIDS"],
        )
        for shape in ([-1, -1], [4, 1])
    ),
    dense(
        np.array([-1, -1]), np.array(["a", "b"], object), "-", [np.array([0, 0, 2])], ["ROW_SPLITS"]
    ),
    *(
        case("RaggedRange", [np.array(a, t), np.array(b, t), np.array(c, t)], {"Tsplits": s})
        for t in (I32, I64, F32, F64)
        for s in (I32, I64)
        for a, b, c in ((0, 5, 2), ([0, 5, 8], [3, 5, 2], [1, 1, -2]), ([1, 2], 7, 3))
    ),
    case("RaggedRange", [I32([1, 2]), I32([3, 4]), I32(0)], error=True),
    case("RaggedRange", [I32([1, 2]), I32([3, 4, 5]), I32(1)], error=True),
    *(
        case(
            "RaggedGather",
            [SPLITS.astype(s), VALUES, np.array(indices, t)],
            {"PARAMS_RAGGED_RANK": 1, "OUTPUT_RAGGED_RANK": np.ndim(indices)},
        )
        for s in (I32, I64)
        for t in (I32, I64)
        for indices in ([3, 0, 2, 2], [[1, 2], [3, 3], [0, 1]], [])
    ),
    *(
        case(
            "RaggedGather",
            [*splits, NUMBERS, I32(index)],
            {"PARAMS_RAGGED_RANK": len(splits), "OUTPUT_RAGGED_RANK": len(splits) - 1},
        )
        for splits in ([SPLITS], [OUTER, SPLITS])
        for index in (0, 1)
    ),
    case(
        "RaggedGather",
        [OUTER, SPLITS, NUMBERS, I32([2, 1, 1])],
        {"PARAMS_RAGGED_RANK": 2, "OUTPUT_RAGGED_RANK": 2},
    ),
    case(
        "RaggedGather",
        [SPLITS, VALUES, I32([4])],
        {"PARAMS_RAGGED_RANK": 1, "OUTPUT_RAGGED_RANK": 1},
        error=True,
    ),
    case("RaggedTensorToSparse", [SPLITS, NUMBERS], {"RAGGED_RANK": 1}),
    case("RaggedTensorToSparse", [SPLITS.astype(I32), VALUES], {"RAGGED_RANK": 1}),
    case("RaggedTensorToSparse", [OUTER, SPLITS, NUMBERS], {"RAGGED_RANK": 2}),
]
WORDS = ["a", "hello", "", "x" * 17, "y" * 40, "z" * 64, "w" * 100, "v" * 128, "grüße", "u" * 129]
HASHES = [
    *(
        case(op, [WORDS], {"num_buckets": count})
        for op in ("StringToHashBucketFast", "StringToHashBucket")
        for count in (7, 2**62)
    ),
    *(
        case("StringToHashBucketStrong", [WORDS], {"num_buckets": 2**61, "key": key})
        for key in ((123, 456), (-1, 2**60))
    ),
    case("StringToHashBucketStrong", [WORDS], {"num_buckets": 5, "key": (1,)}, error=True),
    case("StringToHashBucketFast", [np.array([["a"], ["b"]], object)], {"num_buckets": 9}),
]
TEXTS = [["héllo wörld", "", "日本語", "tab\tend", "😀!"]]
BROKEN = [["ok", b"\xff\xfeab", b"a\xe2\x82b", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xed\xa0\x80"]]
UNICODE = [
    *(
        case(op, texts, {"input_encoding": "UTF-8", "Tsplits": t})
        for op in ("UnicodeDecode", "UnicodeDecodeWithOffsets")
        for texts in (TEXTS, BROKEN)
        for t in (I32, I64)
        # TensorFlow aborts: it reads int32 splits as int64
        if op == "UnicodeDecode" or t == I64
    ),
    *(
        case(
            op,
            texts,
            {
                "input_encoding": "UTF-8",
                "errors": errors,
                "replacement_char": 63,
                "replace_control_characters": controls,
                **({} if op == "UnicodeDecodeWithOffsets" else {"output_encoding": "UTF-8"}),
            },
        )
        for op in ("UnicodeDecodeWithOffsets", "UnicodeTranscode")
        for texts in (TEXTS, BROKEN)
        for errors in ("replace", "ignore")
        for controls in (False, True)
    ),
    case("UnicodeDecode", BROKEN, {"input_encoding": "UTF-8", "errors": "strict"}, error=True),
    *(
        case("UnicodeDecode", TEXTS, {"input_encoding": name}, error=True)
        for name in ("no-such", "hex", "idna")
    ),
    # without a byte order mark, big-endian
    *(
        case("UnicodeDecodeWithOffsets", [[text.encode(codec)]], {"input_encoding": name})
        for codec, name in (("utf-16-be", "UTF-16"), ("utf-32-be", "UTF-32"))
        for text in ("abc", "\ufeffa\u4e2d\U0001f600")
    ),
    *(
        case("UnicodeDecodeWithOffsets", [["abc".encode(name)]], {"input_encoding": name})
        for name in ("UTF-16", "UTF-32")
    ),
    *(
        case(
            "UnicodeDecodeWithOffsets",
            [[text.encode(codec) for text in TEXTS[0]]],
            {"input_encoding": name},
        )
        for codec, name in (("utf-16-be", "UTF-16-BE"), ("utf-32-be", "UTF-32-BE"))
    ),
    *(
        case("UnicodeTranscode", texts, {"input_encoding": "UTF-8", "output_encoding": name})
        for texts in (TEXTS, BROKEN)
        for name in ("UTF-8", "UTF-16-BE", "UTF-32-BE")
    ),
    *(
        case(
            "UnicodeEncode",
            [I32([72, 233, 0x65E5, 0x1F600, 0x110000, 0xD800, 33]), np.array([0, 2, 2, 7])],
            {"output_encoding": name, "errors": errors},
        )
        for name in ("UTF-8", "UTF-16-BE", "UTF-32-BE")
        for errors in ("replace", "ignore")
    ),
    case(
        "UnicodeEncode",
        [I32([0x110000]), np.array([0, 1])],
        {"output_encoding": "UTF-8", "errors": "strict"},
        error=True,
    ),
]
CASES = RAGGED + HASHES + UNICODE
NO_GRADIENT = dict.fromkeys(["RaggedRange"], "TensorFlow has none")
