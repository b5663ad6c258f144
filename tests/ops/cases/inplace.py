"""Rows of a tensor replaced or changed."""

import numpy as np

from tests.ops.harness import case

X = np.arange(6, dtype=np.float32).reshape(3, 2)
ROWS = np.array([0, 2, 2], np.int32)
WITHOUT_CASE = dict.fromkeys(
    ("InplaceAdd", "InplaceSub"),
    "TensorFlow changes the array that is fed; kernels.zip has recorded values",
)
NO_GRADIENT = {"InplaceUpdate": "TensorFlow has none"}

CASES = [
    case("InplaceUpdate", [X, ROWS[:2], X[:2] + 7]),
    case("InplaceUpdate", [X, ROWS, X[:2]], error=True),
]
