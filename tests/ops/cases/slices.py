"""Slices: Slice, and strided slices with all masks, drawn at random."""

import ml_dtypes
import numpy as np

from tests.ops.harness import case, i32, i64, run_ours

I32, I64, F32 = np.int32, np.int64, np.float32
X = np.arange(24, dtype=F32).reshape(2, 3, 4)
TEXT = np.array([[b"a", b"bc", b""], [b"d", b"e", b"f"]], object)
MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def sliced(x, begin, end, strides, error=False, index=I32, op="StridedSlice", **masks):
    bounds = [np.array(item, index) for item in (begin, end, strides)]
    return case(op, [x, *bounds], masks, error=error)


SLICES = [
    case("Slice", [X, i32(0, 1, 2), i32(2, 1, -1)]),
    case("Slice", [X, i64(1, 0, 0), i64(-1, -1, -1)]),
    case("Slice", [X, i32(2, 3, 4), i32(0, 0, -1)]),
    case("Slice", [X, i32(0, 0, 0), i32(0, 3, 4)]),
    case("Slice", [F32(3), i32(), i32()]),
    case("Slice", [TEXT, i32(1, 0), i32(1, 2)]),
    case("Slice", [np.array(b"x", object), i32(), i32()]),
    case("Slice", [np.zeros((0, 2)), i32(0, 0), i32(-1, 1)]),
    case("Slice", [np.ones(3, ml_dtypes.bfloat16), i32(1), i32(2)]),
    *(
        case("Slice", [X, begin, size], error=True)
        for begin, size in (
            (i32(0, 0, 0), i32(3, 1, 1)),
            (i32(0, 0, 5), i32(1, 1, 0)),
            (i32(-1, 0, 0), i32(1, 1, 1)),
            (i32(0, 0, 0), i32(1, 1, -2)),
            (i32(0, 0), i32(1, 1)),
            (i32([0, 0, 0]), i32([1, 1, 1])),
            (i32(1, 0, 0), i32(2, 1, 1)),
        )
    ),
]
STRIDED = [
    sliced(X, [0, 1, 2], [2, 3, 4], [1, 1, 1]),
    sliced(X, [0], [1], [1]),
    sliced(X, [1], [2], [1], shrink_axis_mask=1),
    sliced(X, [-1], [0], [1], shrink_axis_mask=1),
    sliced(X, [1, 2, 3], [2, 3, 4], [1, 1, 1], shrink_axis_mask=7),
    sliced(X, [-1, -10, 10], [-10, 10, -10], [-1, 1, -2]),
    sliced(X, [0, 0], [0, 1], [1, 1], ellipsis_mask=1, shrink_axis_mask=2),
    sliced(X, [0, 0], [0, 0], [1, 1], new_axis_mask=3),
    sliced(X, [0, 0, 0], [0, 0, 2], [1, 1, 1], ellipsis_mask=1, new_axis_mask=2),
    sliced(X, [], [], []),
    sliced(F32(3), [], [], []),
    sliced(F32(3), [0], [0], [1], new_axis_mask=1),
    sliced(F32(3), [0, 0], [0, 0], [1, 1], ellipsis_mask=1, new_axis_mask=2),
    sliced(np.array(b"t", object), [0], [0], [1], new_axis_mask=1),
    sliced(np.array(b"t", object), [0], [0], [1], ellipsis_mask=1),
    sliced(TEXT, [1, 1], [2, 2], [1, 1], shrink_axis_mask=3),
    sliced(TEXT, [0], [2], [1], shrink_axis_mask=1),
    sliced(np.zeros((0, 2)), [0], [5], [1]),
    sliced(np.arange(5), [3], [0], [-1], begin_mask=1),
    sliced(np.arange(5), [3], [0], [-1], end_mask=1),
    sliced(np.arange(5), [3], [0], [1], begin_mask=1, shrink_axis_mask=1),
    sliced(np.arange(5), [4], [-9], [-2], end_mask=1, index=I64),
    sliced(np.arange(5), [2**62], [-(2**62)], [-1], index=I64),
    sliced(np.arange(5), [-(2**63)], [2**63 - 1], [2], index=I64),
    sliced(np.ones((3, 2), ml_dtypes.bfloat16), [1], [3], [1]),
    sliced(np.array([1 + 2j, 3]), [1], [2], [1], shrink_axis_mask=1),
    sliced(X, [3], [4], [1], shrink_axis_mask=1, error=True),
    sliced(X, [-3], [4], [1], shrink_axis_mask=1, error=True),
    sliced(X, [0], [1], [0], error=True),
    sliced(X, [1], [0], [-1], shrink_axis_mask=1, error=True),
    sliced(X, [0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1], error=True),
    sliced(X, [0, 0], [1, 1], [1, 1], ellipsis_mask=3, error=True),
    case("StridedSlice", [X, i32(0, 0), i32(1), i32(1)], error=True),
    case("StridedSlice", [X, I32(0), I32(1), I32(1)], error=True),
]
UPDATES = [
    case("StridedSliceGrad", [i32(2, 3), i32(0, 1), i32(2, 3), i32(1, 1), np.ones((2, 2))]),
    case(
        "StridedSliceGrad",
        [i64(2, 3), i64(1, -1), i64(0, -9), i64(1, -2), F32([5, 6])],
        {"shrink_axis_mask": 1},
    ),
    case("StridedSliceGrad", [i32(3), i32(1), i32(2), i32(1), F32(4)], {"shrink_axis_mask": 1}),
    case("StridedSliceGrad", [i32(3), i32(1), i32(1), i32(1), F32([])]),
    case("StridedSliceGrad", [i32(), i32(), i32(), i32(), F32(2)]),
    case("StridedSliceGrad", [i32(3), i32(0), i32(2), i32(1), np.array([b"a", b"b"], object)]),
    case("StridedSliceGrad", [i32(3), i32(1), i32(3), i32(1), F32([4])], error=True),
    case("StridedSliceGrad", [i32(3), i32(1), i32(3), i32(1), F32(4)], error=True),
    *(
        case("TensorStridedSliceUpdate", [X, i32(0, 1), i32(2, 3), i32(1, 1), value])
        for value in (np.zeros((2, 2, 4), F32), np.full((1, 2, 1), 7, F32), F32(9))
    ),
    case(
        "TensorStridedSliceUpdate",
        [X, i32(1, 2, 3), i32(0, 0, 0), i32(1, 1, 1), F32(9)],
        {"shrink_axis_mask": 7},
    ),
    case("TensorStridedSliceUpdate", [np.arange(5), i32(4), i32(0), i32(-2), np.array([8, 9])]),
    case(
        "TensorStridedSliceUpdate",
        [np.array([b"a", b"b"], object), i32(1), i32(2), i32(1), np.array(b"z", object)],
        {"shrink_axis_mask": 1},
    ),
    case("TensorStridedSliceUpdate", [X, i32(0), i32(2), i32(1), np.ones((3,), F32)], error=True),
]


def drawn(count, seed):
    """Strided slices of small tensors with bounds, strides and masks at random."""
    random = np.random.default_rng(seed)
    found = []
    while len(found) < count:
        rank = int(random.integers(0, 5))
        x = random.integers(0, 100, random.integers(1, 5, rank)).astype(I32)
        length = int(random.integers(0, rank + 3))
        bounds = [random.integers(-6, 7, length).astype(I32) for _ in range(2)]
        strides = random.choice([-3, -2, -1, 1, 1, 1, 2, 3], length).astype(I32)
        masks = {name: int(random.integers(0, 2**length)) for name in MASKS}
        masks["ellipsis_mask"] = int(random.choice([0, 1 << int(random.integers(0, length + 1))]))
        masks["shrink_axis_mask"] &= int(random.integers(0, 2**length))
        item = case("StridedSlice", [x, *bounds, strides], masks)
        found.append(item if fits(x, bounds[0], strides, masks) else refused(item))
    return found


def fits(x, begin, strides, masks):
    """True if NumPy has such a slice, without use of the kernel."""
    index = []
    for place, (start, stride) in enumerate(zip(begin.tolist(), strides.tolist(), strict=True)):
        bit = 1 << place
        if masks["ellipsis_mask"] & bit:
            index.append(Ellipsis)
        elif masks["new_axis_mask"] & bit:
            index.append(None)
        elif masks["shrink_axis_mask"] & bit:
            if stride < 0:
                return False
            index.append(start)
        else:
            index.append(slice(None))
    try:
        x[tuple(index)]
    except IndexError:
        return False
    return True


def refused(item):
    return case(item.op, item.inputs, item.attrs, error=True)


def gradients(items):
    """The gradients of slices that exist."""
    for item in items:
        x, *bounds = item.inputs
        dy = np.ones(np.shape(run_ours(item)[0]), F32)
        yield case("StridedSliceGrad", [np.array(x.shape, I32), *bounds, dy], item.attrs)


DRAWN = drawn(600, 1)
GOOD = [item for item in DRAWN if not item.error]
CASES = [*SLICES, *STRIDED, *UPDATES, *DRAWN, *gradients(GOOD[:100])]
WITHOUT_CASE = {
    "StridedSliceAssign": "a reference comes from a variable; see test_slice_assign.py",
    "ResourceStridedSliceAssign": "as StridedSliceAssign",
}
