"""Rows combined by segment numbers: sorted, unsorted, sparse, and gradients."""

import ml_dtypes
import numpy as np

from tests.ops.harness import case, i32, i64

I32, I64, F32 = np.int32, np.int64, np.float32
NAN = float("nan")
ROWS = F32([[1, -2], [3, 4], [-5, 6], [0.5, 8]])


SORTED = ("SegmentSum", "SegmentProd", "SegmentMean", "SegmentMin", "SegmentMax")
UNSORTED = tuple(f"UnsortedSegment{how}" for how in ("Sum", "Prod", "Min", "Max"))
SEGMENTS = [
    *(
        case(op, [data, ids])
        for op in SORTED
        for data, ids in (
            (ROWS, i32(0, 0, 1, 1)),
            (ROWS, i64(0, 0, 3, 3)),
            (ROWS, i32(1, 1, 1, 4)),
            (np.array([7, -7, -8, 100], np.int8), i32(0, 0, 0, 2)),
            (np.array([7, -8, -7], I64), i32(0, 0, 2)),
            (np.array([[1], [2]], np.float64), i32(0, 0)),
            (np.array([1, 2, 4], np.float16), i32(0, 0, 1)),
            (np.zeros((0, 3)), i32()),
            (np.zeros((2, 0)), i32(0, 1)),
            (np.arange(12, dtype=I32).reshape(3, 2, 2), i32(0, 0, 1)),
        )
    ),
    *(case(op, [np.array([1j, 2, 3 - 1j]), i32(0, 0, 2)]) for op in SORTED[:3]),
    *(case(op, [F32([NAN, 1, 1, NAN, 2, NAN, 3]), i32(0, 0, 1, 1, 2, 2, 2)]) for op in SORTED[3:]),
    *(
        case(op, [ROWS, ids], error=True)
        for op in SORTED
        for ids in (i32(0, 1, 0, 1), i32(-1, 0, 1, 1), i32(0, 1), i32([0, 0, 0, 0]), I32(0))
    ),
    case("SegmentSum", [F32(1), I32(0)], error=True),
    *(
        case(op, [data, ids, t(count)])
        for op in UNSORTED
        for t in (I32, I64)
        for data, ids, count in (
            (ROWS, i32(1, 0, 1, 3), 5),
            (ROWS, i32(1, -1, 1, -7), 2),
            (ROWS, i64([0, 1], [2, 0], [1, 1], [0, 0]), 3),
            (np.array([7, -7, -8], np.int8), i32(0, 0, 2), 4),
            (np.array([7, 9], np.uint8), i32(0, 2), 3),
            (np.array([1, 2], np.float16), i32(1, 1), 3),
            (np.zeros((0, 2), F32), i32(), 2),
            (F32(3), I32(1), 2),
            (ROWS, i32(-1, -1, -1, -1), 0),
        )
    ),
    case("UnsortedSegmentSum", [np.array([1j, 2]), i32(1, 1), I32(2)]),
    *(case(op, [F32([NAN, 1, 1, NAN]), i32(0, 0, 1, 1), I32(2)]) for op in UNSORTED[2:]),
    case("UnsortedSegmentMax", [np.ones(2, ml_dtypes.bfloat16), i32(1, 1), I32(3)]),
    *(
        case(op, [ROWS, ids, count], error=True)
        for op in UNSORTED
        for ids, count in (
            (i32(0, 1, 2, 3), I32(3)),
            (i32(0, 0, 0, 0), I32(-1)),
            (i32(0, 1), I32(3)),
            (i32(0, 0, 0, 0), i32(3)),
        )
    ),
]
SPARSE = ("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN")
SPARSE_SEGMENTS = [
    *(
        case(op, [data, indices, ids])
        for op in SPARSE
        for data, indices, ids in (
            (ROWS, i32(0, 1, 3), i32(0, 0, 1)),
            (ROWS, i64(3, 3, 0), i64(0, 2, 2)),
            (ROWS.astype(np.float64), i32(2), i32(0)),
            (ROWS.astype(np.float16), i32(2, 1), i32(0, 0)),
            (ROWS.astype(ml_dtypes.bfloat16), i32(2, 1), i32(0, 0)),
            (ROWS, i32(), i32()),
        )
    ),
    case("SparseSegmentSum", [np.array([[1], [2]], I32), i32(1, 1), i32(0, 0)]),
    *(
        case(f"{op}WithNumSegments", [ROWS, i32(0, 1, 3), ids, t(count)])
        for op in SPARSE
        for t in (I32, I64)
        for ids, count in ((i32(0, 0, 1), 2), (i32(1, 3, 3), 6))
    ),
    *(
        case(op, [ROWS, indices, ids], error=True)
        for op in SPARSE
        for indices, ids in (
            (i32(4), i32(0)),
            (i32(-1), i32(0)),
            (i32(0, 1), i32(1, 0)),
            (i32(0, 1), i32(0)),
            (i32(0), i32(-1)),
        )
    ),
    *(
        case(f"{op}WithNumSegments", [ROWS, i32(0, 1), i32(0, 2), I32(count)], error=True)
        for op in SPARSE
        for count in (2, -1)
    ),
    *(
        case(f"{op}Grad", [grad, indices, ids, I32(5)])
        for op in SPARSE
        for grad, indices, ids in (
            (ROWS, i32(0, 4, 0), i32(0, 1, 3)),
            (ROWS, i64(2, 2, 2, 1), i32(0, 0, 0, 3)),
            (ROWS.astype(np.float64), i32(1), i64(0)),
        )
    ),
    # without indices TensorFlow gives memory that it never wrote
    *(case(f"{op}Grad", [ROWS, i32(), i32(), I32(5)], compare="shape") for op in SPARSE),
    *(case(f"{op}GradV2", [ROWS, i32(4, 2, 4), i32(0, 1, 1), I32(7)]) for op in SPARSE),
    *(
        case(f"{op}Grad", [ROWS, indices, ids, I32(5)], error=True)
        for op in SPARSE
        for indices, ids in ((i32(5), i32(0)), (i32(0), i32(4)), (i32(0), i32(0, 1)))
    ),
]
WITHOUT_CASE = dict.fromkeys(
    ("SegmentSumV2", "SegmentProdV2", "SegmentMinV2", "SegmentMaxV2"),
    "TensorFlow runs them compiled only; test_old_ops.py has their values",
)
CASES = [*SEGMENTS, *SPARSE_SEGMENTS]


def numbered(random, inputs):
    """Random rows, in segments of which none is empty."""
    data, ids, *count = inputs
    found, places = np.unique(ids, return_inverse=True)
    rows = random.uniform(0.5, 2, data.shape)
    return [rows, places.reshape(ids.shape), *([found.size] * len(count))]


SMOOTH = {
    f"{sort}Segment{how}": numbered
    for sort, hows in (("", ("Prod", "Mean", "Min", "Max")), ("Unsorted", ("Prod", "Min", "Max")))
    for how in hows
}
OUR_GRADIENT = {
    "SegmentProd complex": "TensorFlow does not conjugate",
    **{
        f"SparseSegment{how}{suffix}": why
        for how in ("Sum", "Mean", "SqrtN")
        for suffix, why in {
            "": "TensorFlow leaves it uninitialized where nothing is picked",
            "Grad": "TensorFlow has none",
            "GradV2": "TensorFlow has none",
        }.items()
    },
}
FAILS = {"UnsortedSegmentProd": ("is not in [0, 0)",)}
