"""Shape, rank and size; reshaping, transposing, broadcasting, tiling."""

import ml_dtypes
import numpy as np

from tests.ops.harness import case, i32, i64

I32, I64, F32 = np.int32, np.int64, np.float32
X = np.arange(24, dtype=F32).reshape(2, 3, 4)
TEXT = np.array([[b"a", b"bc", b""], [b"d", b"e", b"f"]], object)
SOME = [
    X,
    F32(3),
    np.zeros((0, 3), np.int8),
    np.array([1 + 2j, 3]),
    TEXT,
    np.array(b"one", object),
    np.ones((2, 1, 3), ml_dtypes.bfloat16),
    np.array([True, False]),
    np.zeros((1, 1), np.float16),
]


QUERIES = [
    *(case("Shape", [x], {"out_type": t}) for x in SOME for t in (I32, I64)),
    *(case("Rank", [x]) for x in SOME),
    *(case("Size", [x], {"out_type": t}) for x in SOME for t in (I32, I64)),
    case("ShapeN", [X, X[0], F32(1)]),
    case("ShapeN", [X], {"out_type": I64}),
]
RESHAPES = [
    *(case("Reshape", [X, s]) for s in (i32(4, 6), i32(-1), i32(2, -1, 2), i64(24), i64(3, 8))),
    *(case("Reshape", [x, i32(-1)]) for x in SOME),
    *(case("Reshape", [x, i32(1, -1)]) for x in SOME if x.size),
    case("Reshape", [F32(3), i32()]),
    case("Reshape", [np.ones((1, 1)), i32()]),
    case("Reshape", [np.array([b"x"], object), i32()]),
    case("Reshape", [np.zeros((0, 3)), i32(0, 5)]),
    case("Reshape", [np.zeros((0, 3)), i32(-1, 3)]),
    case("Reshape", [np.zeros((0, 3)), i32(0, -1)]),
    case("Reshape", [np.zeros((0, 3)), i32(-1, 0)]),
    case("Reshape", [np.zeros((0,)), i32(0, -1)]),
    case("Reshape", [np.zeros((0, 4)), i64(2, -1, 0)]),
    case("Reshape", [np.zeros((0, 3)), i32(2, -1)]),
    case("Reshape", [np.zeros((0, 3)), i32(0, -1, -1)], error=True),
    *(
        case("Reshape", [X, s], error=True)
        for s in (i32(5), i32(-1, 5), i32(-1, -1), i32(-2, 12), i32(), i32([24]), i32(0, -1))
    ),
    *(case("ExpandDims", [X, I32(a)]) for a in (0, 1, 3, -1, -4)),
    *(case("ExpandDims", [x, I64(0)]) for x in SOME),
    case("ExpandDims", [X, i32(1)]),
    *(case("ExpandDims", [X, I32(a)], error=True) for a in (4, -5)),
    case("ExpandDims", [X, i32(1, 2)], error=True),
    *(case("Squeeze", [x]) for x in SOME),
    case("Squeeze", [np.ones((1, 2, 1, 3, 1))]),
    *(
        case("Squeeze", [np.ones((1, 2, 1))], {"squeeze_dims": a})
        for a in ([0], [2], [-1, 0], [0, 0])
    ),
    *(
        case("Squeeze", [np.ones((1, 2, 1))], {"squeeze_dims": a}, error=True)
        for a in ([1], [3], [-4])
    ),
]
TRANSPOSES = [
    *(case("Transpose", [X, p]) for p in (i32(0, 1, 2), i32(2, 0, 1), i64(1, 0, 2), i32(2, 1, 0))),
    case("Transpose", [TEXT, i32(1, 0)]),
    case("Transpose", [F32(3), i32()]),
    case("Transpose", [np.array(b"x", object), i32()]),
    case("Transpose", [X, i32(-1, 0, 1)]),
    case("Transpose", [np.zeros((0, 2)), i32(1, 0)]),
    *(
        case("Transpose", [X, p], error=True)
        for p in (i32(0, 1), i32(0, 0, 1), i32(0, 1, 3), i32([0, 1, 2]))
    ),
    case("ConjugateTranspose", [np.array([[1 + 2j, 3 - 1j]]), i32(1, 0)]),
    case("ConjugateTranspose", [X, i32(2, 1, 0)]),
    case("InvertPermutation", [i32(3, 4, 0, 2, 1)]),
    case("InvertPermutation", [i64()]),
    case("InvertPermutation", [i64(0)]),
    *(
        case("InvertPermutation", [p], error=True)
        for p in (i32(1, 1), i32(0, 2), i32(-1, 0), i32([0]), I32(0))
    ),
]
BROADCASTS = [
    case("BroadcastTo", [F32(2), i32(2, 3)]),
    case("BroadcastTo", [X, i32(2, 3, 4)]),
    case("BroadcastTo", [X, i64(5, 2, 3, 4)]),
    case("BroadcastTo", [np.ones((3, 1), I32), i32(2, 3, 4)]),
    case("BroadcastTo", [np.ones((1, 3)), i32(0, 3)]),
    case("BroadcastTo", [np.ones((0,)), i32(2, 0)]),
    case("BroadcastTo", [np.ones((1,)), i32(0)]),
    case("BroadcastTo", [np.array([b"a"], object), i32(3)]),
    case("BroadcastTo", [np.array(b"a", object), i32(2, 2)]),
    case("BroadcastTo", [F32(2), i32()]),
    *(
        case("BroadcastTo", [X, s], error=True)
        for s in (i32(3, 4), i32(2, 3, 5), i32(2, 1, 4), i32(4, 4, 4), i32([2, 3, 4]))
    ),
    case("BroadcastTo", [F32(1), i32(-1)], error=True),
    *(
        case("BroadcastArgs", pair)
        for pair in (
            [i32(2, 3), i32(3)],
            [i32(), i32(2)],
            [i32(1), i32(0)],
            [i64(4, 1), i64(3)],
            [i32(2), i32(2)],
        )
    ),
    case("BroadcastArgs", [i32(2), i32(3)], error=True),
    *(
        case("BroadcastGradientArgs", pair)
        for pair in (
            [i32(2, 3), i32(2, 3)],
            [i32(2, 3), i32(3)],
            [i32(2, 3), i32()],
            [i32(1, 3), i32(2, 1)],
            [i64(1, 1, 5), i64(1, 5)],
            [i32(4, 1), i32(1, 1, 1)],
            [i32(1), i32(1)],
            [i32(), i32()],
            [i32(0, 1), i32(1)],
            [i32(1), i32()],
            [i64(7, 1, 5), i64(3, 5)],
            [i32(1, 2), i32(2)],
        )
    ),
    case("BroadcastGradientArgs", [i32(2), i32(3)], error=True),
    *(case("Tile", [X, m]) for m in (i32(1, 1, 1), i32(2, 1, 3), i64(0, 1, 1), i32(1, 2, 1))),
    case("Tile", [F32(3), i32()]),
    case("Tile", [TEXT, i32(2, 2)]),
    case("Tile", [np.zeros((0, 2)), i32(3, 2)]),
    case("Tile", [np.ones((3,), ml_dtypes.bfloat16), i32(4)]),
    *(case("Tile", [X, m], error=True) for m in (i32(2), i32(1, 1, -1), i32([1, 1, 1]))),
]
CASES = [*QUERIES, *RESHAPES, *TRANSPOSES, *BROADCASTS]
WITHOUT_CASE = {"TileGrad": "no graph since 2015 may hold it; test_old_ops.py has its values"}
