"""Gathering, scattering, partitions and stitches."""

import ml_dtypes
import numpy as np

from tests.ops.harness import case, i32, i64

I16, I32, I64, F32 = np.int16, np.int32, np.int64, np.float32
X = np.arange(24, dtype=F32).reshape(2, 3, 4)
TEXT = np.array([b"a", b"bc", b""], object)
NAN = float("nan")


def text(*values):
    return np.array(values, object)


GATHERS = [
    *(case("GatherV2", [X, i, I32(0)]) for i in (I32(1), i32(1, 0, 1), i64([0], [1]), I64(0))),
    *(case("GatherV2", [X, i32(2, 0), t(a)]) for t in (I32, I64) for a in (1, 2, -1, -2)),
    case("GatherV2", [X, I32(2), I32(2)]),
    case("GatherV2", [X, np.array([1], I16), I32(1)]),
    case("GatherV2", [TEXT, I32(1), I32(0)]),
    case("GatherV2", [TEXT, i32(2, 0), I32(0)]),
    case("GatherV2", [TEXT[None], I64(1), I32(1)]),
    case("GatherV2", [np.zeros((0, 2)), i32(), I32(0)]),
    case("GatherV2", [np.arange(3), np.zeros((0, 2), I32), I32(0)]),
    case("GatherV2", [np.ones(3, ml_dtypes.bfloat16), i32(1, 2), I32(0)]),
    case("GatherV2", [np.array([True, False]), I32(1), I32(0)]),
    *(
        case("GatherV2", [X, indices, I32(axis)], {"batch_dims": batch})
        for indices, axis, batch in (
            (i32([0, 2], [1, 1]), 1, 1),
            (i32([0, 3], [1, 1]), 2, 1),
            (i32([0, 3], [1, 1]), -1, -1),
            (i64([[0], [3], [1]], [[2], [2], [0]]), 2, 2),
            (i32([0, 3, 1], [1, 1, 2]), 2, 2),
            (i32(1, 2), 1, 1),
        )
    ),
    case("GatherV2", [X, i32(2, -1), I32(0)], error=True),
    case("GatherV2", [X, i64(2), I32(0)], error=True),
    case("GatherV2", [X, i64(-1), I32(0)], error=True),
    case("GatherV2", [X, I32(2), I32(0)], error=True),
    case("GatherV2", [X, I32(-1), I32(0)], error=True),
    case("GatherV2", [X, I32(0), I32(3)], error=True),
    case("GatherV2", [X, I32(0), i32(0)], error=True),
    case("GatherV2", [F32(1), I32(0), I32(0)], error=True),
    case("GatherV2", [X, i32([0], [5]), I32(1)], {"batch_dims": 1}, error=True),
    case("GatherV2", [X, i32([0], [1]), I32(0)], {"batch_dims": 1}, error=True),
    case("GatherV2", [X, i32([0], [1], [2]), I32(1)], {"batch_dims": 1}, error=True),
    case("GatherV2", [X, i32(0), I32(1)], {"batch_dims": 2}, error=True),
    case("Gather", [X, i32([1, 0])]),
    case("Gather", [X, I64(1)], {"validate_indices": False}),
    case("Gather", [TEXT, I32(1)]),
    case("Gather", [X, i32(5)], error=True),
    case("Gather", [F32(2), i32(0)], error=True),
    *(
        case("GatherNd", [X, indices])
        for indices in (
            i32(1),
            i32(1, 2),
            i32([0, 2, 3], [1, 0, 0]),
            i64([[1, 0]]),
            np.zeros((2, 0), I32),
            np.zeros((0, 2), I64),
            np.array([[1]], I16),
        )
    ),
    case("GatherNd", [TEXT, i32([2], [0])]),
    case("GatherNd", [TEXT, i32(1)]),
    case("GatherNd", [np.zeros((0,)), np.zeros((0, 1), I32)]),
    case("GatherNd", [X, i32([0, 0], [2, 0], [0, -1])], {"bad_indices_policy": "IGNORE"}),
    case("GatherNd", [X, i32([2])], error=True),
    case("GatherNd", [X, i32([-1])], error=True),
    case("GatherNd", [X, i32([0, 0, 0, 0])], error=True),
    case("GatherNd", [X, I32(0)], error=True),
    case("GatherNd", [X, i32([5])], {"bad_indices_policy": "ERROR"}, error=True),
]
TENSOR_SCATTERS = ("Update", "Add", "Sub", "Min", "Max")
SCATTERS = [
    case("ScatterNd", [i32([4], [1], [4]), F32([9, 10, 11]), i32(6)]),
    case("ScatterNd", [i64([0, 2], [1, 1]), np.ones((2, 4)), i64(2, 3, 4)]),
    case("ScatterNd", [i32([[0], [1]]), np.ones((1, 2, 3), np.int8), i32(2, 3)]),
    case("ScatterNd", [i32(1), F32([1, 2]), i32(2, 2)], error=True),
    case("ScatterNd", [i32([0], [2], [0]), text(b"a", b"b", b"c"), i32(4)]),
    case("ScatterNd", [i32([0], [2], [0]), np.array([True, False, True]), i32(4)]),
    case("ScatterNd", [i32([0], [0]), np.array([1 + 1j, 2]), i32(1)]),
    case("ScatterNd", [i32([0], [0]), np.array([200, 100], np.uint8), i32(1)]),
    case("ScatterNd", [i32([0], [0]), np.ones(2, ml_dtypes.bfloat16), i32(1)]),
    case("ScatterNd", [np.zeros((0, 1), I32), F32([]), i32(2)]),
    case("ScatterNd", [np.zeros((0, 1), I32), F32([]), i32(0)]),
    case("ScatterNd", [i32([0], [4]), F32([1, 2]), i32(4)], {"bad_indices_policy": "IGNORE"}),
    case("ScatterNd", [i32([0], [4]), F32([1, 2]), i32(4)], error=True),
    case("ScatterNd", [i32([0], [-1]), F32([1, 2]), i32(4)], error=True),
    case("ScatterNd", [i32([0], [1]), F32([1, 2, 3]), i32(4)], error=True),
    case("ScatterNd", [i32([0]), F32([1]), i32(-1)], error=True),
    case("ScatterNd", [i32([0]), F32([1]), i32(0)], error=True),
    case("ScatterNd", [i32([0, 0]), F32([1]), i32(4)], error=True),
    case("ScatterNd", [i32(0), F32(1), i32(4)], error=True),
    case("ScatterNd", [np.zeros((2, 0), I32), np.ones((2, 3)), i32(3)], error=True),
    *(
        case(f"TensorScatter{how}", [tensor, indices, updates])
        for how in TENSOR_SCATTERS
        for tensor, indices, updates in (
            (F32([1, 2, 3, 4]), i32([3], [0], [3]), F32([5, -1, 7])),
            (X, i64([1, 2], [0, 0]), np.full((2, 4), 7, F32)),
            (np.array([1, 2], np.int32), i32([[1]]), np.array([[-(2**31)]], np.int32)),
            (np.zeros((2, 2)), np.zeros((0, 1), I32), np.zeros((0, 2))),
            (np.zeros((0, 2)), np.zeros((0, 1), I32), np.zeros((0, 2))),
            (np.array([1, 2], np.uint8), i32([0], [0]), np.array([255, 3], np.uint8)),
        )
    ),
    *(
        case(f"TensorScatter{how}", [F32([1, 2]), indices, updates], error=True)
        for how in TENSOR_SCATTERS
        for indices, updates in (
            (i32([2]), F32([1])),
            (i32([-1]), F32([1])),
            (i32([0]), F32([1, 2])),
            (i32(0), F32(1)),
            (i32([0, 0]), F32([1])),
            (np.zeros((1, 0), I32), F32([[1, 2]])),
        )
    ),
    case("TensorScatterUpdate", [TEXT, i32([0], [2], [0]), text(b"x", b"y", b"z")]),
    case("TensorScatterUpdate", [np.ones(3), np.array([[1]], np.uint16), np.zeros(1)]),
    case("TensorScatterAdd", [np.array([1j, 2]), i32([1]), np.array([3j])]),
    *(
        case(
            f"TensorScatter{how}",
            [F32([1, NAN, 3]), i32([0], [1], [0], [2]), F32([NAN, 1, 3, NAN])],
        )
        for how in ("Max", "Min")
    ),
    case("ScatterNdNonAliasingAdd", [F32([1, 2, 3]), i32([0], [0], [2]), F32([4, 5, 6])]),
    case("ScatterNdNonAliasingAdd", [np.array([True, False]), i32([1]), np.array([True])]),
    case("ScatterNdNonAliasingAdd", [F32([1, 2, 3]), i32([3]), F32([4])], error=True),
]


def stitch(indices, data, error=False, op="DynamicStitch", **more):
    return case(op, [*indices, *data], {"N": len(indices)}, error=error, **more)


STITCHES = [
    case("DynamicPartition", [F32([1, 2, 3, 4]), i32(0, 2, 0, 1)], {"num_partitions": 3}),
    case("DynamicPartition", [X, i32(1, 0)], {"num_partitions": 2}),
    case("DynamicPartition", [X, i32([0, 1, 0], [1, 1, 1])], {"num_partitions": 3}),
    case("DynamicPartition", [TEXT, i32(1, 1, 0)], {"num_partitions": 2}),
    case("DynamicPartition", [F32([1, 2]), i32(0, 0)], {"num_partitions": 1}),
    case("DynamicPartition", [F32(1), I32(1)], {"num_partitions": 2}),
    case("DynamicPartition", [F32([[1, 2]]), I32(1)], {"num_partitions": 2}),
    case("DynamicPartition", [np.zeros((0, 2)), i32()], {"num_partitions": 2}),
    case("DynamicPartition", [np.zeros((2, 0)), i32(0, 1)], {"num_partitions": 2}),
    case("DynamicPartition", [F32([1, 2]), i32(0, 2)], {"num_partitions": 2}, error=True),
    case("DynamicPartition", [F32([1, 2]), i32(0, -1)], {"num_partitions": 2}, error=True),
    case("DynamicPartition", [F32([1, 2]), i32(0)], {"num_partitions": 2}, error=True),
    *(
        stitch(indices, data, op=op)
        for op in ("DynamicStitch", "ParallelDynamicStitch")
        for indices, data in (
            ([i32(0, 2), i32(1)], [F32([1, 2]), F32([3])]),
            ([I32(0), i32(2, 1)], [F32([1, 1]), F32([[2, 2], [3, 3]])]),
            ([i32([4, 0], [1, 3]), I32(2)], [np.arange(4).reshape(2, 2), I64(9)]),
            ([I32(0), i32(2, 1)], [np.array(b"x", object), text(b"a", b"b")]),
            ([i32()], [np.zeros((0, 3))]),
        )
    ),
    stitch([i32(0, 1), i32(1)], [i32(1, 2), i32(3)]),
    stitch([i32(0, 0)], [i32(1, 2)]),
    *(
        stitch(indices, data, error=True, op=op)
        for op in ("DynamicStitch", "ParallelDynamicStitch")
        for indices, data in (
            ([i32(-1), i32(1)], [F32([1]), F32([3])]),
            ([i32(0, 1), i32(1)], [F32([1]), F32([3])]),
            ([i32(0), i32(1)], [F32([1]), F32([[3]])]),
        )
    ),
]
CASES = [*GATHERS, *SCATTERS, *STITCHES]


def apart(random, inputs):
    """Random values, and updates that do not meet."""
    data, indices, updates = inputs
    depth = indices.shape[-1]
    places = np.unravel_index(np.arange(indices.size // depth), data.shape[:depth])
    where = np.stack(places, -1).reshape(indices.shape)
    return [random.normal(size=data.shape), where, random.normal(size=updates.shape)]


SMOOTH = {"TensorScatterUpdate": apart}
FAILS = {
    "GatherNd": ("must match dimensions", "for empty output", "not in list of allowed values"),
    "ScatterNd": ("does not index into param shape",),
    "TensorScatterUpdate": ("not in list of allowed values",),
}
