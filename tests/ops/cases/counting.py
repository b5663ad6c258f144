"""Counts of values in dense and ragged rows."""

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


CASES = [
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
