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
    attrs = {"binary_output": binary, **attrs}
    return case(op, inputs, attrs, error=error)


A = [np.array([[0, 1], [1, 0], [2, 2]], I64), np.array([-3, 2, 5], F32), np.array([3, 3], I64)]
B = [np.array([[0, 0], [1, 0]], I64), np.array([-1, 4], F32), np.array([3, 3], I64)]
SCORES = np.array([[3, 1, 2, 9], [-4, 5, 0, 7], [6, 8, -2, 4]], F32)
CASES = [
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
    ["DenseCountSparseOutput", "RaggedCountSparseOutput", "RaggedBincount"], "TensorFlow has none"
)
COMPARED = ("SparseSparseMaximum", "SparseSparseMinimum")
NO_GRADIENT |= dict.fromkeys(COMPARED, "TensorFlow has one that only fails")
FAILS = dict.fromkeys(COMPARED, ("takes 2 positional arguments but 3 were given",))
