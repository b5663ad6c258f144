"""Sums, slices, and reductions of sparse tensors."""

import numpy as np

from cfgraph.ir.dtypes import DType, float32, int64, string
from cfgraph.ir.serde.tensor import tensor_to_bytes
from tests.ops.harness import case

F16, F32, F64, I32, I64 = np.float16, np.float32, np.float64, np.int32, np.int64
random = np.random.default_rng(29)
A = np.array([[0, 1], [1, 0], [1, 3], [2, 2]])
B = np.array([[0, 0], [1, 0], [2, 2], [2, 3]])
SIZES = np.array([3, 4])
X, Y = random.standard_normal((2, 4)).astype(F32)
CUBE = np.array([[0, 0, 1], [0, 1, 0], [0, 1, 2], [1, 0, 0], [1, 2, 2]])
CUBE_SIZES = np.array([2, 3, 3])
CUBE_VALUES = random.standard_normal(5)
AXES = [[0], [1], [-1], [0, 2], [], [0, 1, 2]]
STRINGS = np.array([b"a", b"", b"bcd", b"e" * 200], object)

# with the inputs after a sparse tensor, the number of whose elements is no int64
UNCOUNTABLE = {
    "SparseSlice": [np.array([0, 0]), np.array([1, 1])],
    "SparseSoftmax": [],
    "SparseReduceMaxSparse": [I32([0])],
    "SparseReduceSumSparse": [I32([0])],
}
SUMS = [
    *(
        case("SparseAdd", [A, X.astype(t), SIZES, B, Y.astype(t), SIZES, t(limit)])
        for t in (F32, F64)
        for limit in (0, 0.5)
    ),
    case("SparseAdd", [A, np.arange(4, dtype=I32), SIZES, B, I32([1, 2, 3, 4]), SIZES, I32(0)]),
    case("SparseAdd", [A, X, SIZES, A[:0], X[:0], SIZES, F32(0)]),
    case("SparseAdd", [A[:0], X[:0], SIZES, A[:0], X[:0], SIZES, F32(0)]),
    case("SparseAdd", [A, X, SIZES, B[::-1], Y, SIZES, F32(0)]),
    case("SparseAdd", [A, X, SIZES * 2**40, B, Y, SIZES * 2**40, F32(0)]),
    case("SparseAdd", [A, X, SIZES, B, Y, SIZES + 1, F32(0)], error=True),
    case("SparseAdd", [A, X[:2], SIZES, B, Y, SIZES, F32(0)], error=True),
    case(
        "SparseAddGrad", [random.standard_normal(6).astype(F32), A, B, np.unique([*A, *B], axis=0)]
    ),
    *(
        case("SparseSlice", [A, X, SIZES, np.array(start), np.array(size)])
        for start, size in (([0, 0], [2, 2]), ([1, 1], [9, 9]), ([0, 0], [0, 0]), ([1, 0], [1, 4]))
    ),
    *(
        case("SparseSlice", [A, X, SIZES, np.array(start), np.array([2, 2])])
        for start in ([0, -1], [-1, -1], [-5, 0])
    ),
    case("SparseSlice", [A, X, SIZES, np.array([0, 0]), np.array([-1, 2])], error=True),
    *(case(op, [A, X, SIZES * 2**33, *more], error=True) for op, more in UNCOUNTABLE.items()),
    case("SparseConcat", [A, B, X, Y, *[SIZES * 2**33] * 2], {"concat_dim": 1}, error=True),
    *(
        case("SparseSplit", [I64(axis), A, X, SIZES], {"num_split": count})
        for axis, count in ((0, 2), (1, 3), (-1, 1), (-2, 3))
    ),
    case("SparseSplit", [I64(0), A[::-1], STRINGS, SIZES], {"num_split": 2}),
    case("SparseSplit", [I64(1), A[:0], X[:0], SIZES], {"num_split": 4}),
    case("SparseSplit", [I64(0), A, X, SIZES], {"num_split": 4}, error=True),
    *(
        case("SparseSplit", [axis, A, X, SIZES], {"num_split": 1}, error=True)
        for axis in (I64(2), I64(-3), np.array([0]))
    ),
    case("SparseSplit", [I64(0), A, X, SIZES - 1], {"num_split": 1}, error=True),
    case("SparseSplit", [I64(0), A, X, SIZES * 2**33], {"num_split": 1}, error=True),
    *(
        case("RaggedFillEmptyRows", [np.array(rows), values, I64(5), default])
        for rows in ([1, 1, 3, 4], [3, 1, 1, 0])
        for values, default in ((X, F32(-1)), (STRINGS, b"z"))
    ),
    # TensorFlow returns a matrix of row ids where there are no rows
    case("RaggedFillEmptyRows", [np.array([], I64), X[:0], I64(3), F32(-1)]),
    *(
        case("RaggedFillEmptyRows", [np.array(rows), X, count, F32(-1)], error=True)
        for rows, count in (
            ([1, 1, 3, 4], I64(4)),
            ([-1, 1, 3, 4], I64(5)),
            ([1, 1], I64(5)),
            ([1, 1, 3, 4], np.array([5])),
            ([1, 1, 3, 4], I64(-1)),
        )
    ),
    case("RaggedFillEmptyRowsGrad", [np.array([1, 0, 4, 3]), random.standard_normal(6)]),
    case("SparseSliceGrad", [X[:2], A, np.array([1, 0]), np.array([[0, 0], [1, 2]])]),
    *(
        case(op, [A, X.astype(t), SIZES, dense.astype(t)])
        for op in ("SparseDenseCwiseAdd", "SparseDenseCwiseMul", "SparseDenseCwiseDiv")
        for t in (F32, F64)
        for dense in (
            random.uniform(1, 2, (3, 4)),
            random.uniform(1, 2, (1, 4)),
            random.uniform(1, 2, (3, 1)),
            np.array([1.5]),
        )
    ),
    case("SparseDenseCwiseDiv", [A, I32([7, -7, 8, -9]), SIZES, I32([2, -3, 2, 4])]),
    case("SparseDenseCwiseDiv", [A, I32([7, -(1 << 31), 8, -9]), SIZES, I32([2, 3, -2, -4])]),
    case(
        "SparseDenseCwiseMul",
        [A, X, SIZES, random.standard_normal((2, 3, 4)).astype(F32)],
        error=True,
    ),
]
SERIALIZED = [
    *(
        case(op, [A, values, SIZES])
        for op in ("SerializeSparse", "SerializeManySparse")
        for values in (X, X.astype(F64), I32([1, 2, 3, 4]), STRINGS, X > 0)
    ),
    case("SerializeManySparse", [A[:, :1], X, SIZES[:1]], error=True),
    case("SerializeSparse", [A[0], X, SIZES], error=True),
]


def serialized(values, sizes=SIZES):
    """The row of a sparse tensor with the coordinates of A."""
    parts = ((A, int64), (values, DType.from_numpy(values.dtype)), (sizes, int64))
    return [tensor_to_bytes(part, dtype) for part, dtype in parts]


ROWS = np.array([serialized(X), serialized(Y, SIZES + 1)], object)
SERIALIZED += [
    case("DeserializeSparse", [strings], {"dtype": float32})
    for strings in (ROWS[0], ROWS, ROWS[:, None], ROWS[:1])
]
SERIALIZED += [
    case("DeserializeManySparse", [ROWS], {"dtype": float32}),
    case("DeserializeSparse", [np.array(serialized(STRINGS), object)], {"dtype": string}),
    case("DeserializeManySparse", [ROWS[0]], {"dtype": float32}, error=True),
    case("DeserializeSparse", [ROWS[:, :2]], {"dtype": float32}, error=True),
    case("DeserializeSparse", [ROWS], {"dtype": int64}, error=True),
    case("DeserializeSparse", [np.array([b"x"] * 3, object)], {"dtype": float32}, error=True),
]
REDUCTIONS = [
    *(
        case(op, [CUBE, CUBE_VALUES.astype(t), CUBE_SIZES, I32(axes)], {"keep_dims": keep})
        for op in ("SparseReduceSum", "SparseReduceSumSparse", "SparseReduceMax")
        for t in (F32, F64)
        for axes in AXES
        for keep in (False, True)
    ),
    *(case("SparseReduceMaxSparse", [CUBE, CUBE_VALUES, CUBE_SIZES, I32(axes)]) for axes in AXES),
    case("SparseReduceSum", [CUBE, CUBE_VALUES, CUBE_SIZES, I32([3])], error=True),
    *(case("SparseSoftmax", [CUBE, CUBE_VALUES.astype(t), CUBE_SIZES]) for t in (F32, F64)),
    case("SparseSoftmax", [A, X, SIZES]),
    case("SparseSoftmax", [A[:, :1], X, SIZES[:1]], error=True),
]
CASES = SUMS + SERIALIZED + REDUCTIONS
NO_GRADIENT = dict.fromkeys(
    [
        *("SparseAddGrad", "SparseSliceGrad", "SparseReduceMax"),
        *("SparseReduceMaxSparse", "SparseReduceSumSparse", "SparseSplit"),
    ],
    "TensorFlow has none",
)
OUR_GRADIENT = {
    "SparseDenseCwiseAdd": "TensorFlow says that it is not implemented",
    "RaggedFillEmptyRowsGrad": "TensorFlow has none",
}
OUR_SECOND = {
    "RaggedFillEmptyRowsGrad": "TensorFlow has no gradient of it",
    "SparseSoftmax": "SparseDenseCwiseAdd has no gradient there",
    "SparseReduceSum": "its gradient gathers at computed places",
}
NO_SECOND = dict.fromkeys(["SparseAdd", "SparseSlice"], "its gradient op has no gradient")
