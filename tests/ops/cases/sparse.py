"""Sparse tensors as three dense ones, and simulated quantization."""

import numpy as np

from tests.ops.harness import case, i32, i64

I32, I64, F32 = np.int32, np.int64, np.float32


PLACES = i64([0, 1], [1, 0], [2, 2])
SPARSE = [
    case("SparseToDense", [I32(2), i32(4), F32(7), F32(-1)]),
    case("SparseToDense", [i32(1, 3), i32(4), F32([7, 8]), F32(0)]),
    case("SparseToDense", [i64([0, 1], [1, 0]), i64(2, 3), I64(9), I64(1)]),
    case(
        "SparseToDense",
        [i64([0, 1], [1, 0]), i64(2, 3), np.array([b"a", b"b"], object), np.array(b"-", object)],
    ),
    case("SparseToDense", [i32(3, 1), i32(4), F32([7, 8]), F32(0)], {"validate_indices": False}),
    case("SparseToDense", [np.zeros((0, 2), I32), i32(1, 2), F32([]), F32(5)]),
    case("SparseToDense", [i32(3, 1), i32(4), F32([7, 8]), F32(0)], error=True),
    case("SparseToDense", [i32(1, 1), i32(4), F32([7, 8]), F32(0)], error=True),
    case("SparseToDense", [i32(1, 4), i32(4), F32([7, 8]), F32(0)], error=True),
    case("SparseToDense", [i32(1, 2), i32(4), F32([7]), F32(0)], error=True),
    case("SparseToDense", [i32([1, 2]), i32(4), F32([7]), F32(0)], error=True),
    *(
        case("SparseTensorDenseMatMul", [PLACES, F32([1, 2, 3]), i64(3, 4), b], attrs)
        for b, attrs in (
            (np.arange(8, dtype=F32).reshape(4, 2), {}),
            (np.arange(8, dtype=F32).reshape(2, 4), {"adjoint_b": True}),
            (np.arange(6, dtype=F32).reshape(3, 2), {"adjoint_a": True}),
            (np.arange(6, dtype=F32).reshape(2, 3), {"adjoint_a": True, "adjoint_b": True}),
        )
    ),
    case(
        "SparseTensorDenseMatMul",
        [PLACES, np.array([1j, 2, 3]), i64(3, 3), np.eye(3) * 1j],
        {"adjoint_a": True, "adjoint_b": True},
    ),
    case(
        "SparseTensorDenseMatMul",
        [PLACES.astype(I32), i32(1, 2, 3), i64(3, 3), np.eye(3, dtype=I32)],
    ),
    case(
        "SparseTensorDenseMatMul",
        [PLACES, F32([1, 2, 3]), i64(3, 4), np.ones((3, 2), F32)],
        error=True,
    ),
    case(
        "SparseTensorDenseMatMul",
        [PLACES, F32([1, 2, 3]), i64(2, 2), np.ones((2, 2), F32)],
        error=True,
    ),
    case("SparseReshape", [PLACES, i64(3, 4), i64(2, 6)]),
    case("SparseReshape", [PLACES, i64(3, 4), i64(-1, 3)]),
    case("SparseReshape", [PLACES, i64(3, 4), i64(12)]),
    case("SparseReshape", [np.zeros((0, 2), I64), i64(3, 4), i64(2, 3, 2)]),
    case("SparseReshape", [PLACES, i64(3, 4), i64(5)], error=True),
    case("SparseReshape", [PLACES, i64(3, 4), i64(-1, 5)], error=True),
    case("SparseReshape", [PLACES, i64(3, 4), i64(-1, -1)], error=True),
    case("SparseReorder", [PLACES[::-1], F32([1, 2, 3]), i64(3, 4)]),
    case("SparseReorder", [PLACES[[1, 0, 2]], np.array([b"a", b"b", b"c"], object), i64(3, 4)]),
    case("SparseTensorDenseAdd", [PLACES, F32([1, 2, 3]), i64(3, 3), np.ones((3, 3), F32)]),
    case(
        "SparseTensorDenseAdd",
        [PLACES, F32([1, 2, 3]), i64(3, 4), np.ones((3, 3), F32)],
        error=True,
    ),
    case(
        "SparseTensorDenseAdd",
        [PLACES, F32([1, 2, 3]), i64(2, 3), np.ones((2, 3), F32)],
        error=True,
    ),
    case("SparseFillEmptyRows", [i64([0, 1], [2, 0], [2, 3]), F32([1, 2, 3]), i64(5, 4), F32(-1)]),
    case("SparseFillEmptyRows", [np.zeros((0, 2), I64), F32([]), i64(2, 4), F32(-1)]),
    case("SparseFillEmptyRowsGrad", [i64(0, 2, 3), F32([1, 2, 3, 4, 5])]),
    case("SparseFillEmptyRowsGrad", [i64(), F32([1, 2])]),
    case("SparseFillEmptyRowsGrad", [i64(0, 5), F32([1, 2])], error=True),
    case("SparseFillEmptyRowsGrad", [i64([0, 1]), F32([1, 2])], error=True),
    case("SparseFillEmptyRows", [i64([5, 1]), F32([1]), i64(5, 4), F32(-1)], error=True),
    *(
        case(
            "SparseConcat",
            [PLACES, i64([0, 0]), F32([1, 2, 3]), F32([4]), i64(3, 3), shape],
            {"N": 2, "concat_dim": axis},
        )
        for axis, shape in ((0, i64(1, 3)), (1, i64(3, 2)), (-1, i64(3, 1)))
    ),
    case(
        "SparseConcat",
        [PLACES, i64([0, 0]), F32([1, 2, 3]), F32([4]), i64(3, 3), i64(2, 2)],
        {"N": 2, "concat_dim": 0},
        error=True,
    ),
    case(
        "SparseConcat",
        [PLACES, i64([0, 0]), F32([1, 2, 3]), F32([4]), i64(3, 3), i64(3, 3)],
        {"N": 2, "concat_dim": 2},
        error=True,
    ),
]
X = np.linspace(-8, 8, 41, dtype=F32).reshape(1, 41)
ROWS = np.linspace(-4, 4, 12, dtype=F32).reshape(4, 3)
LOW, HIGH = F32([-1, 0, 0.1]), F32([1, 3.3, 2])
QUANT = [
    *(
        case("FakeQuantWithMinMaxArgs", [X], {"min": low, "max": high, **more})
        for low, high in ((-6.0, 6.0), (0.0, 1.0), (-0.1, 5.3), (0.5, 2.0), (-3.0, -1.0))
        for more in ({}, {"num_bits": 4}, {"narrow_range": True})
    ),
    case("FakeQuantWithMinMaxArgs", [X], {"min": 1.0, "max": 0.0}, error=True),
    case("FakeQuantWithMinMaxArgs", [X], {"num_bits": 1}, error=True),
    case("FakeQuantWithMinMaxArgsGradient", [X * 2, X]),
    case("FakeQuantWithMinMaxArgsGradient", [X * 2, X], {"min": -0.1, "max": 5.3, "num_bits": 3}),
    case("FakeQuantWithMinMaxArgsGradient", [X * 2, X[0]], error=True),
    *(
        case(op, [*inputs, F32(low), F32(high)], more)
        for op, inputs in (
            ("FakeQuantWithMinMaxVars", [X]),
            ("FakeQuantWithMinMaxVarsGradient", [X * 2, X]),
        )
        for low, high in ((-6, 6), (0, 0), (-0.1, 5.3), (0.5, 2), (-3, -1))
        for more in ({}, {"num_bits": 5, "narrow_range": True})
    ),
    case("FakeQuantWithMinMaxVars", [X, LOW, HIGH], error=True),
    *(
        case(op, [*inputs, LOW, HIGH], more)
        for op, inputs in (
            ("FakeQuantWithMinMaxVarsPerChannel", [ROWS]),
            ("FakeQuantWithMinMaxVarsPerChannel", [ROWS[0]]),
            ("FakeQuantWithMinMaxVarsPerChannelGradient", [ROWS * 3, ROWS]),
            ("FakeQuantWithMinMaxVarsPerChannelGradient", [ROWS[0] * 3, ROWS[0]]),
        )
        for more in ({}, {"num_bits": 3})
    ),
    case("FakeQuantWithMinMaxVarsPerChannel", [ROWS, LOW[:2], HIGH[:2]], error=True),
]
CASES = [*SPARSE, *QUANT]
ESTIMATE = dict.fromkeys(
    ["FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel"],
    "gradients go straight through the steps",
)
OUR_GRADIENT = {
    "SparseToDense": "TensorFlow fails where the coordinates are no matrix",
    "SparseFillEmptyRowsGrad": "TensorFlow has none",
}
