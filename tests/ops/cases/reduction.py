"""Reductions, scans, counts, and places of extremes."""

import ml_dtypes
import numpy as np

from tests.ops.harness import case

INF, NAN = np.inf, np.nan
FLOATS = ("float32", "float64", "float16", ml_dtypes.bfloat16)
COMPLEX = ("complex64", "complex128")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
CUBE = np.array([3, -1, 4, 1, -5, 9, 2, 6, 5, 3, -5, 8, 9, 7, 9, 3, 2, -3, 8, 4, 6, 2, 6, 4])
CUBE = CUBE.reshape(2, 3, 4)
SPECIAL = np.array([[1, NAN, 3], [INF, 2, -1], [-INF, 0, INF], [NAN, NAN, NAN]])
AXES = [[], 0, 1, -1, [0], [1, 2], [0, 2], [-1, 0], [0, 1, 2], [-3]]
NUMERIC = ("Sum", "Mean", "Prod", "Max", "Min", "EuclideanNorm")
KEPT = {"keep_dims": True}


def axes(value, dtype="int32"):
    """An axis input."""
    return np.array(value, dtype)


def reductions(op):
    """All types, axes, empty arrays, kept dimensions, NaN, and refusals."""
    types = FLOATS + SIGNED + UNSIGNED + (() if op in ("Max", "Min") else COMPLEX)
    for dtype in types:
        x = CUBE.astype(dtype) if dtype in (*FLOATS, *SIGNED) else np.abs(CUBE).astype(dtype)
        if op in ("Prod", "EuclideanNorm"):
            x = x % 3 + 1 if dtype not in COMPLEX else x / 4
            x = x.astype(dtype)
        if dtype in COMPLEX:
            x = (x * (1 + 0.5j)).astype(dtype)
        yield case(op, [x, axes(1)])
        yield case(op, [x, axes([0, 2])], KEPT)
        yield case(op, [x, axes([0, 1, 2])])
        yield case(op, [x[1, 2, 3], axes([])])
    x = CUBE.astype("float32") / 3
    for which in AXES:
        yield case(op, [x, axes(which)])
        yield case(op, [x, axes(which, "int64")], KEPT)
        yield case(op, [x.astype("int32"), axes(which)])
    for dtype in ("float32", "float64"):
        yield case(op, [SPECIAL.astype(dtype), axes(1)])
        yield case(op, [SPECIAL.astype(dtype), axes(0)])
    for dtype in ("float32", "int32", "int64", "uint8"):
        for shape in ((0, 3), (3, 0), (0,), (2, 0, 3)):
            if op == "Mean" and dtype != "float32":
                continue
            yield case(op, [np.zeros(shape, dtype), axes(0)])
            yield case(op, [np.zeros(shape, dtype), axes(-1)], KEPT)
            yield case(op, [np.zeros(shape, dtype), axes([])])
    one = np.array([[[-2.5]], [[3]]], "float32")
    yield case(op, [one, axes([1, 2])])
    yield case(op, [one, axes(1)], KEPT)
    yield case(op, [np.float32(-3), axes([])])
    yield case(op, [np.array([-3], "float32"), axes(0)])
    yield case(op, [np.float32(-3), axes(0)], error=True)
    yield case(op, [x, axes(3)], error=True)
    yield case(op, [x, axes([0, -4])], error=True)
    yield case(op, [x, axes([0, 0])], error=True)
    yield case(op, [x, axes([0, -3])], error=True)


CASES = [item for op in NUMERIC for item in reductions(op)]
GROUPS = np.random.default_rng(3).standard_normal((3, 9, 10, 4, 6)).astype("float32")
CASES += [
    case(op, [GROUPS, axes([1, 2, 4])], more)
    for op in ("Sum", "Mean", "Max")
    for more in ({}, KEPT)
]
CASES += [case("Sum", [np.array([100, 100, 100], "int8"), axes(0)])]
CASES += [case("Prod", [np.array([100, 100, 100], "int32"), axes(0)])]
CASES += [case("Mean", [np.array([-7, 2, 2], "int32"), axes(0)])]
CASES += [case("Mean", [np.array([[-7, 2, 2], [1, 1, 3]], "int64"), axes(1)])]
for op in ("All", "Any"):
    mask = CUBE > 2
    CASES += [case(op, [mask, axes(which)]) for which in AXES]
    CASES += [case(op, [mask, axes(which)], KEPT) for which in AXES]
    CASES += [case(op, [np.zeros(s, bool), axes(0)]) for s in ((0, 3), (3, 0), (0,))]
    CASES += [case(op, [np.True_, axes([])]), case(op, [mask, axes(5)], error=True)]
for op in ("ArgMax", "ArgMin"):
    for dtype in (*FLOATS, *SIGNED, *UNSIGNED):
        x = np.abs(CUBE).astype(dtype)
        CASES += [case(op, [x, axes(axis)]) for axis in (0, 1, 2, -1)]
        CASES.append(case(op, [x[0, 0], axes(0)], {"output_type": np.int32}))
    CASES += [
        case(op, [CUBE > 2, axes(1)]),
        case(op, [SPECIAL, axes(1)]),
        case(op, [SPECIAL[:3], axes(0, "int64")]),
        case(op, [np.zeros((0, 3)), axes(1)]),
        case(op, [np.zeros((0, 3)), axes(0)], error=True),
        case(op, [np.float32(1), axes(0)], error=True),
        case(op, [np.ones(3), axes(1)], error=True),
        case(op, [np.ones((2, 3)), axes(-3)], error=True),
    ]
CASES += [case("ArgMax", [CUBE, axes(1)], {"output_type": t}) for t in (np.int16, np.uint16)]
for op in ("Cumsum", "Cumprod", "CumulativeLogsumexp"):
    logs = op == "CumulativeLogsumexp"
    for dtype in FLOATS if logs else (*FLOATS, *COMPLEX, *SIGNED, *UNSIGNED):
        x = (np.abs(CUBE) % 3 + 1).astype(dtype)
        for exclusive in (False, True):
            for reverse in (False, True):
                flags = {"exclusive": exclusive, "reverse": reverse}
                CASES.append(case(op, [x, axes(1)], flags))
    for axis in (0, 2, -1, -3):
        CASES.append(case(op, [CUBE / 5, axes(axis)], {"exclusive": True}))
        CASES.append(case(op, [CUBE / 5, axes(axis, "int64")], {"reverse": True}))
    CASES += [case(op, [np.zeros((0, 3)), axes(a)], {"exclusive": True}) for a in (0, 1)]
    CASES += [case(op, [np.zeros((3, 0)), axes(0)])]
    CASES += [case(op, [np.ones(3), axes(1)], error=True)]
    CASES += [case(op, [np.ones(3), axes(-2)], error=True)]
    CASES += [case(op, [np.array([1, INF, 2, NAN, 3]), axes(0)])]
CASES += [case("CumulativeLogsumexp", [np.array([-INF, -INF, 0, 800]), axes(0)])]
for dtype in FLOATS:
    CASES += [case("L2Loss", [(CUBE / 4).astype(dtype)]), case("L2Loss", [np.array(3, dtype)])]
CASES += [case("L2Loss", [np.zeros((0, 2))])]
COUNTED = np.array([1, 1, 5, 0, 3, 1, 9], "int32")
MATRIX = np.array([[1, 1, 5], [0, 3, 1]])
for dtype in ("int32", "int64", "float32", "float64"):
    nothing, weights = np.zeros(0, dtype), np.arange(1, 8).astype(dtype)
    CASES += [
        case("Bincount", [COUNTED, np.int32(6), nothing]),
        case("Bincount", [COUNTED, np.int32(12), weights]),
        case("Bincount", [COUNTED[:0], np.int32(3), nothing]),
        case("Bincount", [COUNTED, np.int32(0), nothing]),
    ]
    for index in ("int32", "int64"):
        size = np.array(6, index)
        for binary in (False, True):
            flags = {"binary_output": binary}
            CASES += [
                case("DenseBincount", [COUNTED.astype(index), size, nothing], flags),
                case("DenseBincount", [MATRIX.astype(index), size, nothing], flags),
                case("DenseBincount", [COUNTED.astype(index), size, weights], flags),
                case(
                    "DenseBincount", [MATRIX.astype(index), size, weights[:6].reshape(2, 3)], flags
                ),
            ]
        CASES.append(case("DenseBincount", [MATRIX.astype(index)[:, :0], size, nothing]))
        CASES.append(case("DenseBincount", [MATRIX.astype(index)[:0], size, nothing]))
NONE = np.zeros(0, "float32")
CASES += [
    case("Bincount", [np.array([-1], "int32"), np.int32(3), NONE], error=True),
    case("Bincount", [COUNTED, np.int32(-1), NONE], error=True),
    case("Bincount", [COUNTED, np.int32(3), np.ones(3, "float32")], error=True),
    case("DenseBincount", [np.array([-1]), np.int64(3), NONE], error=True),
    case("DenseBincount", [MATRIX[None], np.int64(3), NONE], error=True),
]
for dtype in ("int32", "int64", "float32", "float64"):
    values = np.array([-5, 0, 1, 2, 3, 7, 5, 9, 10, 100], dtype)
    bounds = np.array([0, 10], dtype)
    for count in (1, 3, 5, 10):
        CASES.append(case("HistogramFixedWidth", [values, bounds, np.int32(count)]))
    CASES += [
        case(
            "HistogramFixedWidth", [values.reshape(2, 5), bounds, np.int32(4)], {"dtype": np.int64}
        ),
        case("HistogramFixedWidth", [values[:0], bounds, np.int32(4)]),
        case("HistogramFixedWidth", [values, bounds[::-1], np.int32(4)], error=True),
        case("HistogramFixedWidth", [values, bounds[:1], np.int32(4)], error=True),
        case("HistogramFixedWidth", [values, bounds, np.int32(0)], error=True),
    ]
CASES += [
    case(
        "HistogramFixedWidth", [np.array([-1.0, 0, 1.5, 2, 5, 15]), np.array([0.0, 5]), np.int32(5)]
    ),
]
NO_GRADIENT = dict.fromkeys(["Bincount", "DenseBincount"], "TensorFlow has none")

OUR_GRADIENT = {
    "EuclideanNorm complex": "TensorFlow takes the imaginary part of a real result for a change",
}


def some(random, inputs):
    """Random numbers where there are any: the mean of none is NaN."""
    x, axes = inputs
    return [random.normal(size=x.shape), axes] if x.size else None


SMOOTH = {"Mean": some}
