"""Isotonic regression of rows, and its gradient."""

import ml_dtypes
import numpy as np

from tests.ops.harness import case

F16, F32, F64, BF16 = np.float16, np.float32, np.float64, ml_dtypes.bfloat16
NAN, INF = np.nan, np.inf
random = np.random.default_rng(41)
ROWS = [[3, 1, 2, 2, 5, 0], [6, 5, 4, 3, 2, 1], [1, 2, 3, 4, 5, 6], [2, 2, 2, 2, 2, 2]]


def regression(x, dtype=None):
    return case("IsotonicRegression", [x], {"output_dtype": dtype or x.dtype.type})


CASES = [
    *(regression(np.array(ROWS, t)) for t in (F16, BF16, F32, F64)),
    *(regression(np.array(ROWS, t), F32) for t in (np.int8, np.int16)),
    *(regression(np.array(ROWS, t), F64) for t in (np.int32, np.int64)),
    regression(random.normal(size=(5, 40)).astype(F32)),
    regression(random.normal(size=(2, 3, 7))),
    regression(random.normal(size=9)),
    regression(np.array(5), F64),
    *(regression(np.zeros(shape, F32)) for shape in ((0, 3), (2, 0), (1, 1))),
    regression(F32([[3, 2, NAN, 5, 7], [1, 2, 3, 3, INF], [-INF, INF, 4, -INF, 3]])),
]


def distinct(random, inputs):
    """Values of which no two, nor their means, are close, so that the segments stay."""
    return [random.normal(size=inputs[0].shape)]


SMOOTH = {"IsotonicRegression": distinct}
# of empty rows, and of rows of more than one axis
FAILS = {"IsotonicRegression": ("num_segments == -2147483647", "Incompatible shapes")}
