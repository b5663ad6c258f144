"""Distinct elements, the largest elements, and places in sorted rows."""

import ml_dtypes
import numpy as np

from tests.ops.harness import case, i32, i64

I32, I64, F32 = np.int32, np.int64, np.float32
NAN, INF = float("nan"), float("inf")
TEXT = np.array([b"b", b"a", b"b", b""], object)
LONG = np.random.default_rng(5).standard_normal((2, 2, 5000)).astype(F32)
TABLE = F32([[3, 1, 3, 2], [0, 5, 5, 5]])


def same_set(ours, theirs):
    """Without `sorted` the order is anybody's."""
    assert ours[0].dtype == theirs[0].dtype
    assert ours[1].dtype == theirs[1].dtype
    for mine, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(np.sort(mine), np.sort(wanted))


WHERES = [
    case("Where", [np.array([[True, False], [True, True]])]),
    case("Where", [F32([0, -0.0, NAN, 2])], {"T": F32}),
    *(case("Where", [np.array([0, 1, 3], t)], {"T": t}) for t in (np.int8, np.uint16, I64)),
    case("Where", [np.array([0, 1j])], {"T": np.complex128}),
    case("Where", [np.zeros((0, 3), bool)]),
    case("Where", [np.zeros((2, 2, 2), bool)]),
    case("Where", [np.bool_(True)], error=True),
]
UNIQUES = [
    *(
        case(op, [x], {"out_idx": t})
        for op in ("Unique", "UniqueWithCounts")
        for t in (I32, I64)
        for x in (
            i32(3, 1, 3, 2, 1),
            F32([1, NAN, 1, NAN, 0, -0.0, INF]),
            TEXT,
            i64(),
            np.array([True, False, True]),
            np.array([2, 2], np.uint8),
        )
    ),
    case("Unique", [np.array([2, 1, 2], ml_dtypes.bfloat16)]),
    *(
        case(op, [x, axis])
        for op in ("UniqueV2", "UniqueWithCountsV2")
        for x, axis in (
            (i32([1, 2], [1, 2], [3, 2]), i64(0)),
            (i32([1, 1, 3], [2, 2, 2]), i32(1)),
            (i32([1, 1, 3], [2, 2, 2]), i64(-1)),
            (F32([[NAN], [NAN], [1]]), i64(0)),
            (TEXT.reshape(1, 4), i64(1)),
            (i32(5, 5, 4), i64()),
            (i32(5, 5, 4), i64(0)),
            (np.zeros((0, 2)), i64(0)),
            (np.zeros((0, 2)), i64(1)),
            (np.array([[[1], [2]], [[1], [2]]]), i64(0)),
        )
    ),
    case("Unique", [i32([1, 2])], error=True),
    case("Unique", [I32(1)], error=True),
    case("UniqueV2", [i32([1, 2]), i64()], error=True),
    case("UniqueV2", [i32([1, 2]), i64(2)], error=True),
    case("UniqueV2", [i32([1, 2]), i64(0, 1)], error=True),
    case("UniqueV2", [i32([1, 2]), I64(0)], error=True),
    *(case("ListDiff", [i32(1, 2, 3, 2, 4), i32(2, 9)], {"out_idx": t}) for t in (I32, I64)),
    case("ListDiff", [F32([1, NAN, 3]), F32([NAN, 3])]),
    case("ListDiff", [TEXT, np.array([b"a"], object)]),
    case("ListDiff", [i32(), i32(1)]),
    case("ListDiff", [i32(1), i32()]),
    case("ListDiff", [i32([1]), i32(1)], error=True),
]
SORTS = [
    *(case("TopKV2", [TABLE, I32(k)]) for k in (0, 1, 2, 4)),
    *(
        case("TopKV2", [x, I32(12)])
        for x in (LONG, (LONG * F32(1e4)).astype(I32), LONG[0, 0], -LONG[::-1])
    ),
    *(
        case("TopKV2", [np.array([3, 0, 7, 7], t), I32(2)])
        for t in (np.int8, np.uint8, I64, np.uint32, np.float16, np.float64, ml_dtypes.bfloat16)
    ),
    case("TopKV2", [i32(-(2**31), 5, 2**31 - 1), I64(3)], {"index_type": I64}),
    case("TopKV2", [np.arange(8).reshape(2, 2, 2), np.int16(1)], {"index_type": np.int16}),
    case("TopKV2", [F32([INF, -INF, 0]), I32(3)]),
    case("TopKV2", [np.zeros((0, 3)), I32(2)]),
    case("TopKV2", [F32([3, 1, 7, 2, 0]), I32(3)], {"sorted": False}, compare=same_set),
    case("TopKV2", [F32([3, 1]), I32(3)], error=True),
    case("TopKV2", [F32([3, 1]), I32(-1)], error=True),
    case("TopKV2", [F32(3), I32(1)], error=True),
    case("TopKV2", [F32([3, 1]), i32(1)], error=True),
    *(case("NthElement", [TABLE, I32(n)], {"reverse": r}) for n in (0, 2) for r in (True, False)),
    case("NthElement", [i64(3, 1, 2), I32(1)]),
    case("NthElement", [TABLE, I32(4)], error=True),
    case("NthElement", [TABLE, I32(-1)], error=True),
    case("NthElement", [F32(1), I32(0)], error=True),
    *(
        case("InTopK", [p, targets], {"k": k})
        for k in (0, 1, 2, 9)
        for p, targets in (
            (TABLE, i32(0, 2)),
            (TABLE, i64(1, 0)),
            (TABLE, i32(4, -1)),
            (F32([[1, NAN, 3], [INF, 2, 1]]), i32(2, 0)),
            (F32([[1, 2], [2, 1]]), i32(0, 0)),
        )
    ),
    case("InTopKV2", [TABLE, i32(0, 3), I32(1)]),
    case("InTopKV2", [TABLE, i64(0, 3), I64(2)]),
    case("InTopKV2", [TABLE, i32(0), I32(1)], error=True),
    case("InTopKV2", [TABLE[0], i32(0), I32(1)], error=True),
    *(
        case(op, [rows, values], {"out_type": t})
        for op in ("LowerBound", "UpperBound")
        for t in (I32, I64)
        for rows, values in (
            (F32([[1, 2, 2, 5], [0, 0, 1, 9]]), F32([[2, 0, 7], [0, 1, 9]])),
            (i32([1, 3]), i32([3, 2, 1, 9, -5])),
            (np.zeros((2, 0)), np.ones((2, 3))),
        )
    ),
    case("LowerBound", [i32([1, 3]), i32([3], [2])], error=True),
    case("LowerBound", [i32(1, 3), i32(3)], error=True),
    *(
        case(
            "Bucketize", [np.array([[-5, 0, 3], [9, 10, 11]], t)], {"boundaries": [0.0, 3.0, 10.0]}
        )
        for t in (I32, I64, F32, np.float64)
    ),
    case("Bucketize", [F32([NAN, INF, 0.1])], {"boundaries": [0.1, 0.5]}),
    case("Bucketize", [np.float64(0.1)], {"boundaries": [0.1]}),
    case("Bucketize", [I32(1)], {"boundaries": []}),
    case("Bucketize", [I32(1)], {"boundaries": [2.0, 1.0]}, error=True),
]
CASES = [*WHERES, *UNIQUES, *SORTS]
WITHOUT_CASE = {"TopK": "no graph since 2015 may hold it; test_old_ops.py has its values"}
NO_GRADIENT = dict.fromkeys(
    ["Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2", "ListDiff"],
    "TensorFlow has none, and equal elements do not stay equal",
)

OUR_GRADIENT = {"TopKV2": "TensorFlow has another order if none is requested"}
