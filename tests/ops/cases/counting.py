"""Counts of values in rows, the larger and smaller of sparse values, and approximate maxima."""

import numpy as np

from tests.ops.harness import case

I64, F32 = np.int64, np.float32
ROWS = np.array([[1, 1, 4], [0, 2, 2]], I64)
WEIGHTS = np.array([[0.5, 1, 2], [3, 4, 5]], F32)
SPLITS = np.array([0, 2, 2, 5], I64)
VALUES = np.array([3, 3, 1, 0, 7], I64)
NONE = np.zeros(0, F32)


def counted(op, inputs, binary=False, error=False, **attrs):
    attrs = {"binary_output": bool(binary), **attrs}
    return case(op, inputs, attrs, error=error)


A = [np.array([[0, 1], [1, 0], [2, 2]], I64), np.array([-3, 2, 5], F32), np.array([3, 3], I64)]
B = [np.array([[0, 0], [1, 0]], I64), np.array([-1, 4], F32), np.array([3, 3], I64)]
SCORES = np.array([[3, 1, 2, 9], [-4, 5, 0, 7], [6, 8, -2, 4]], F32)
INDICES, DENSE = np.array([[0, 0], [0, 3], [1, 1], [3, 0], [3, 2]], I64), np.array([4, 4], I64)
VECTOR = np.array([[0], [1], [3], [6], [8]], I64)
LENGTH, CUBE = np.array([9], I64), np.array([4, 4, 1], I64)
BINS, PARTS = np.int64(5), np.array([0.5, 1, 2, 4, 8], F32)


def binned(indices=INDICES, values=VALUES, shape=DENSE, size=BINS, weights=NONE, **more):
    return counted("SparseBincount", [indices, values, shape, size, weights], **more)


def sparse_counts(indices=INDICES, values=VALUES, shape=DENSE, weights=NONE, **more):
    return counted("SparseCountSparseOutput", [indices, values, shape, weights], **more)


SPARSE = [
    *(binned(weights=weights, binary=binary) for weights in (NONE, PARTS) for binary in (0, 1)),
    *(binned(VECTOR, shape=LENGTH, weights=weights, size=np.int64(8)) for weights in (NONE, PARTS)),
    binned(np.pad(INDICES, ((0, 0), (0, 1))), shape=CUBE),
    binned(values=-VALUES),
    binned(VECTOR, -VALUES, LENGTH, error=True),
    *(binned(size=size, error=True) for size in (np.int64(-1), np.array([5]))),
    *(binned(shape=shape, error=True) for shape in (LENGTH, CUBE, np.array([4, 2], I64))),
    *(sparse_counts(weights=weights, maxlength=m) for weights in (NONE, PARTS) for m in (-1, 4)),
    sparse_counts(binary=True, minlength=9),
    sparse_counts(VECTOR, shape=LENGTH),
    sparse_counts(np.pad(INDICES, ((0, 0), (0, 1))), shape=CUBE),
    sparse_counts(INDICES[:0], VALUES[:0], np.array([0, 4], I64), error=True),
    sparse_counts(values=-VALUES, error=True),
    sparse_counts(weights=PARTS[:2], error=True),
    *(sparse_counts(shape=shape, error=True) for shape in (LENGTH, CUBE, np.array([4, 2], I64))),
]
CASES = [
    *SPARSE,
    *(case(f"SparseSparse{kind}", [*A, *B]) for kind in ("Maximum", "Minimum")),
    case("SparseSparseMaximum", [*A, *B[:2], np.array([3, 4], I64)], error=True),
    case("SparseSparseMinimum", [*A, B[0], B[1][:1], B[2]], error=True),
    case("ApproxTopK", [SCORES], {"k": 2}),
    case("ApproxTopK", [SCORES], {"k": 2, "is_max_k": False, "reduction_dimension": 0}),
    case("ApproxTopK", [SCORES], {"k": 5}, error=True),
    counted("DenseCountSparseOutput", [ROWS, NONE]),
    counted("DenseCountSparseOutput", [ROWS[0], NONE], minlength=9),
    counted("DenseCountSparseOutput", [ROWS, WEIGHTS], maxlength=3),
    counted("DenseCountSparseOutput", [ROWS, NONE], binary=True),
    counted("DenseCountSparseOutput", [-ROWS, NONE], error=True),
    counted("DenseCountSparseOutput", [ROWS, WEIGHTS[0]], error=True),
    counted("RaggedCountSparseOutput", [SPLITS, VALUES, NONE]),
    counted("RaggedCountSparseOutput", [SPLITS, VALUES, VALUES.astype(F32)], maxlength=4),
    counted("RaggedCountSparseOutput", [SPLITS, VALUES, NONE], binary=True, minlength=12),
    counted("RaggedCountSparseOutput", [SPLITS[1:], VALUES, NONE], error=True),
    counted("RaggedBincount", [SPLITS, VALUES, I64(5), NONE]),
    counted("RaggedBincount", [SPLITS, VALUES, I64(9), VALUES.astype(F32)]),
    counted("RaggedBincount", [SPLITS, VALUES, I64(9), NONE], binary=True),
    counted("RaggedBincount", [SPLITS, -VALUES, I64(9), NONE], error=True),
    counted("RaggedBincount", [SPLITS, VALUES, I64(-1), NONE], error=True),
]
NO_GRADIENT = dict.fromkeys(
    [
        "DenseCountSparseOutput",
        "RaggedCountSparseOutput",
        "RaggedBincount",
        "SparseBincount",
        "SparseCountSparseOutput",
    ],
    "TensorFlow has none",
)
COMPARED = ("SparseSparseMaximum", "SparseSparseMinimum")
NO_GRADIENT |= dict.fromkeys(COMPARED, "TensorFlow has one that only fails")
FAILS = dict.fromkeys(COMPARED, ("takes 2 positional arguments but 3 were given",))
