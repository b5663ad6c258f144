"""Two tensors: arithmetic, division, bits, comparison, logic, choice; sums of many."""

import ml_dtypes
import numpy as np

from cfgraph.ir.shapes import Shape
from tests.ops.harness import case

INF, NAN = np.inf, np.nan
FLOATS = ("float32", "float64", "float16", ml_dtypes.bfloat16)
COMPLEX = ("complex64", "complex128")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
EDGE = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 7.0, -7.5, INF, -INF, NAN]
POINTS = [0, 1, -1, 0.5 + 2j, -1.5 - 0.5j, 2j]


def pairs(values, dtype):
    """Every value with every other."""
    x, y = np.meshgrid(np.array(values, dtype), np.array(values, dtype))
    return [x, y]


def extremes(dtype):
    """The ends of an integer type, and what lies between."""
    info = np.iinfo(dtype)
    return [info.min, info.max, 0, 1, 2, 3, 7, info.max - 1, info.min + 1, info.max // 2]


def nonzero(op, dtype):
    """Pairs of integers without a division that has no result."""
    x, y = pairs(extremes(dtype), dtype)
    x, y = x[y != 0], y[y != 0]
    least = (x == np.iinfo(dtype).min) & (y == -1 if dtype in SIGNED else False)
    return case(op, [x[~least], y[~least]])


def shapes(op, dtype="float32"):
    """Broadcasting, scalars, nothing, and what does not fit."""
    two, row, column = np.full((2, 3), 5, dtype), np.full(3, 2, dtype), np.full((2, 1), 3, dtype)
    yield case(op, [two, row])
    yield case(op, [column, row])
    yield case(op, [two, np.array(2, dtype)])
    yield case(op, [np.array(7, dtype), np.array(2, dtype)])
    yield case(op, [np.array(7, dtype), two])
    yield case(op, [np.zeros((0, 3), dtype), row])
    yield case(op, [np.zeros((2, 0, 3), dtype), np.ones((1, 1), dtype)])
    yield case(op, [two, np.ones(2, dtype)], error=True)


DIVISIONS = ("RealDiv", "Div", "TruncateDiv", "FloorDiv", "FloorMod", "TruncateMod", "Mod")
RING = ("Add", "AddV2", "Sub", "Mul", "SquaredDifference", "Maximum", "Minimum")
ONLY_REAL = (
    "Maximum",
    "Minimum",
    "FloorMod",
    "TruncateMod",
    "Mod",
    "Atan2",
    "FloorDiv",
    "TruncateDiv",
)
GUARDED = ("DivNoNan", "MulNoNan", "Xlogy", "Xlog1py", "Xdivy")
COMPARISONS = ("Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual")
CASES = []
for op in (*RING, *DIVISIONS, *GUARDED, "Pow", "Atan2"):
    CASES += [case(op, pairs(EDGE, dtype)) for dtype in FLOATS]
    CASES += shapes(op)
    if op not in ONLY_REAL:
        CASES += [
            case(op, [a[a != 0], b[a != 0]])
            for t in COMPLEX
            for a, b in [pairs(POINTS[1:], t)[::-1]]
        ]
for op in RING:
    types = {"SquaredDifference": SIGNED[2:], "Add": (*SIGNED, "uint8")}.get(op, SIGNED + UNSIGNED)
    CASES += [case(op, pairs(extremes(t), t)) for t in types]
    CASES += shapes(op, "int32")
for op in DIVISIONS:
    types = ("int32", "int64") if op in ("TruncateMod", "Mod") else (*SIGNED, *UNSIGNED)
    CASES += [nonzero(op, t) for t in types]
    CASES += shapes(op, "int32")
    CASES += [case(op, [np.int32(4), np.array([1, 0, 2], np.int32)], error=True)]
    CASES += [case(op, [np.int64(4), np.int64(0)], error=True)]
CASES += [
    *(case("Pow", [*pairs([0, 1, -1, 2, -3, 7], t)[:1], np.full((6, 6), 5, t)]) for t in SIGNED),
    case("Pow", [np.int32(2), np.array([0, 1, 10, 31, 32], np.int32)]),
    case("Pow", [np.int32(2), np.array([1, -1], np.int32)], error=True),
    case("Add", [np.array(["a", "b"]).astype(object), "x"]),
    case("Add", [["ab", "", "\N{GREEK SMALL LETTER PI}"], [["1"], ["22"]]]),
    case("Add", ["left", "right"]),
]
for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift", "RightShift"):
    for dtype in (*SIGNED, *UNSIGNED):
        width = np.dtype(dtype).itemsize * 8
        counts = [0, 1, 2, width - 1, width // 2]
        values = pairs(extremes(dtype), dtype)
        if "Shift" in op:
            values = [
                g.astype(dtype) for g in np.meshgrid(np.array(extremes(dtype), dtype), counts)
            ]
        CASES.append(case(op, values))
    CASES += shapes(op, "int32")
for op in ("LeftShift", "RightShift"):
    CASES.append(case(op, [np.int32(-5), np.array([32, 40, -1, -40], np.int32)]))
    CASES.append(case(op, [np.uint8(200), np.array([8, 9, 255], np.uint8)]))
for op in ("Invert", "PopulationCount"):
    CASES += [case(op, [np.array(extremes(t), t)]) for t in (*SIGNED, *UNSIGNED)]
    CASES += [case(op, [np.int32(-2)]), case(op, [np.zeros((0, 2), np.int64)])]
for op in COMPARISONS:
    CASES += [case(op, pairs(EDGE, dtype)) for dtype in FLOATS]
    CASES += [case(op, pairs(extremes(dtype), dtype)) for dtype in (*SIGNED, *UNSIGNED)]
    CASES += shapes(op)
    CASES += shapes(op, "int32")
for op in ("Equal", "NotEqual"):
    CASES += [case(op, pairs(POINTS, dtype)) for dtype in COMPLEX]
    CASES += [case(op, pairs([True, False], bool)), case(op, [["a", "b"], ["a", "c"]])]
    CASES += [case(op, ["x", "x"]), case(op, [["a", "b"], "b"])]
    lax = {"incompatible_shape_error": False}
    CASES += [
        case(op, [np.ones(3), np.ones(2)], lax),
        case(op, [np.ones((2, 3)), np.ones((2, 2, 3))], lax),
        case(op, [np.ones(3), np.float64(1)], lax),
        case(op, [np.zeros(0), np.ones(2)], lax),
        case(op, [["a", "b", "c"], ["a", "b"]], lax),
    ]
for dtype in ("float32", "float64", "int32", "int64", "uint8"):
    x = np.array([0, 1, 2, 3], dtype)
    CASES += [case("ApproximateEqual", [x, x]), case("ApproximateEqual", [x, x[::-1]])]
    CASES += [case("ApproximateEqual", [x, x[::-1]], {"tolerance": 1.5})]
CASES += [
    case("ApproximateEqual", [np.array([1, NAN, INF]), np.array([1.00000001, NAN, INF])]),
    case("ApproximateEqual", [np.float32(1), np.float32(1.5)], {"tolerance": 0.5}),
    case("ApproximateEqual", [np.ones(3), np.float64(1)], error=True),
]
for op in ("LogicalAnd", "LogicalOr"):
    CASES += [case(op, pairs([True, False], bool)), case(op, [np.True_, np.array([True, False])])]
    CASES += [case(op, [np.True_, np.False_]), case(op, [np.zeros((0, 1), bool), np.ones(2, bool)])]
    CASES += [case(op, [np.ones(2, bool), np.ones(3, bool)], error=True)]
CASES += [case("LogicalNot", [np.array([True, False])]), case("LogicalNot", [np.True_])]
CASES += [case("LogicalNot", [np.zeros((2, 0), bool)])]

MASK = np.array([[True, False, True], [False, False, True]])
for dtype in (*FLOATS, *COMPLEX, *SIGNED, *UNSIGNED, "bool"):
    t = np.arange(6).reshape(2, 3).astype(dtype)
    CASES += [case("Select", [MASK, t, t[::-1]]), case("SelectV2", [MASK, t, t[::-1]])]
    CASES += [
        case("SelectV2", [MASK[0], t[:, :1], t[:1]]),
        case("Select", [MASK[:, 0], t, t[::-1]]),
    ]
    CASES += [case("Select", [np.True_, t, t[::-1]]), case("SelectV2", [np.False_, t[0, 0], t])]
    CASES += [case(op, [np.False_, t[0, 1], t[1, 0]]) for op in ("Select", "SelectV2")]
TEXT = [["a", "b", "c"], ["d", "e", "f"]]
CASES += [
    case("Select", [MASK, TEXT, TEXT[::-1]]),
    case("SelectV2", [MASK, TEXT, "z"]),
    case("SelectV2", [np.True_, "a", "z"]),
    case("Select", [np.False_, "a", "z"]),
    case("Select", [np.zeros((0,), bool), np.zeros((0, 2)), np.zeros((0, 2))]),
    case("Select", [np.ones(3, bool), np.ones((2, 3)), np.ones((2, 3))], error=True),
    case("Select", [np.ones(2, bool), np.ones((2, 3)), np.ones((2, 2))], error=True),
    case("Select", [np.ones((2, 1), bool), np.ones((2, 3)), np.ones((2, 3))], error=True),
    case("Select", [np.True_, np.ones((2, 3)), np.ones(3)], error=True),
    case("SelectV2", [np.ones(3, bool), np.ones(2), np.ones(3)], error=True),
]
for dtype in (*FLOATS, *COMPLEX, *SIGNED, *UNSIGNED):
    x = np.arange(6).reshape(2, 3).astype(dtype)
    for count in (1, 2, 3, 5):
        CASES.append(case("AddN", [x] * count))
    CASES.append(case("AddN", [x[0, 1], x[1, 1]]))
    CASES.append(case("AccumulateNV2", [x, x, x], {"shape": Shape((2, 3))}))
CASES += [
    case("AddN", [np.array([100, -100], np.int8)] * 3),
    case("AddN", [np.ones(3), np.ones((1, 3))], error=True),
    case("AddN", [np.ones(3), np.float64(1), np.ones(3)], error=True),
    case("AccumulateNV2", [np.ones(3), np.ones(2)], {"shape": Shape((3,))}, error=True),
]
SMOOTH = {
    **dict.fromkeys(["FloorMod", "TruncateMod", "Mod"], ((5.0, 5.4), (2.1, 2.3))),
    "Pow": ((0.5, 2), (-2, 2)),
    **dict.fromkeys(["RealDiv", "Div", "DivNoNan", "Xdivy"], ((-2, 2), (0.5, 2))),
    **dict.fromkeys(["Xlogy", "Xlog1py"], ((0.5, 2), (0.5, 2))),
}
OUR_GRADIENT = {
    **dict.fromkeys(["Mod", "TruncateMod"], "TensorFlow has none"),
    **dict.fromkeys(
        ["MulNoNan complex", "Xlogy complex", "Xlog1py complex", "Xdivy complex"],
        "TensorFlow leaves the conjugate out",
    ),
    "SquaredDifference complex": "TensorFlow takes the incoming gradient to be real",
}
