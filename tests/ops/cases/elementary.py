"""Elementary functions, activations, complex parts, and the gradients of these.

Not Round of integers: it is the identity by its definition, and 0 in TensorFlow on a CPU.
"""

import ml_dtypes
import numpy as np

from tests.ops.harness import case

INF, NAN = np.inf, np.nan
FLOATS = ("float32", "float64", "float16", ml_dtypes.bfloat16)
COMPLEX = ("complex64", "complex128")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
EDGE = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.7, -7.1, 30.0, -30.0, INF, -INF, NAN]
POINTS = [0.3 + 0.4j, -0.3 + 0.4j, 1 - 2j, -1.5 - 0.5j, 2j, 0.25, -0.75, 0]
SMALL = [1e-3, -1e-3, 1e-4, 0.1, 0.9, -0.9, 0.999]


def extremes(dtype):
    """The ends of an integer type, and what lies between."""
    info = np.iinfo(dtype)
    return np.array([info.min, info.max, 0, 1, 2, 3, 7, info.max - 1], dtype)


def real(op, *, floats=FLOATS):
    """Floats at the edges, small ones, a scalar, a matrix and nothing."""
    for dtype in floats:
        yield case(op, [np.array(EDGE, dtype)])
        yield case(op, [np.array(SMALL, dtype)])
        yield case(op, [np.array(0.75, dtype)])
    yield case(op, [np.linspace(-3, 3, 24, dtype=np.float32).reshape(2, 3, 4)])
    yield case(op, [np.zeros((0, 3), np.float32)])


def complex_(op):
    """Complex numbers in all quadrants."""
    for dtype in COMPLEX:
        yield case(op, [np.array(POINTS, dtype)])
        yield case(op, [np.array(0.5 - 0.25j, dtype)])


BOTH = [
    *("Neg", "Sign", "Square", "Sqrt", "Rsqrt", "Reciprocal", "Inv", "Exp", "Expm1", "Log"),
    *("Log1p", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh"),
    *("Acosh", "Atanh", "Sigmoid"),
]
REAL = "Abs Floor Ceil Round IsNan IsInf IsFinite Softplus Softsign Relu Relu6 Elu Selu LeakyRelu"
INTEGER = {"Neg": SIGNED, "Abs": SIGNED, "Sign": SIGNED}
INTEGER |= {"Square": SIGNED + UNSIGNED, "Relu": SIGNED + UNSIGNED, "Relu6": SIGNED + UNSIGNED}
INTEGER |= {"Invert": SIGNED + UNSIGNED, "PopulationCount": SIGNED + UNSIGNED}
FROM_RESULT = ["SigmoidGrad", "TanhGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad"]
FROM_FEATURES = [
    "ReluGrad",
    "Relu6Grad",
    "EluGrad",
    "SeluGrad",
    "LeakyReluGrad",
    "SoftplusGrad",
    "SoftsignGrad",
]


def gradients():
    """Gradients: every pair of edge values."""
    y, dy = (np.ravel(g) for g in np.meshgrid(EDGE, [1.0, -2.0, 0.5, 0.0, INF, NAN]))
    for op in FROM_RESULT + FROM_FEATURES:
        for dtype in FLOATS:
            pair = [y.astype(dtype), dy.astype(dtype)]
            yield case(op, pair[::-1] if op in FROM_FEATURES else pair)
        yield case(op, [np.float32(0.25), np.float32(3)])
        yield case(op, [np.zeros((2, 0), np.float32)] * 2)
    for op in FROM_RESULT:
        for dtype in COMPLEX:
            yield case(op, [np.array(POINTS[:-1], dtype), np.array(POINTS[::-1][1:], dtype)])
    for op in ("ReluGrad", "Relu6Grad"):
        for dtype in SIGNED + UNSIGNED:
            yield case(op, [np.arange(8).astype(dtype), extremes(dtype)])
    for op in FROM_FEATURES:
        yield case(op, [np.ones(3, np.float32), np.ones(2, np.float32)], error=True)
    yield case(
        "LeakyReluGrad", [np.ones(2, np.float32), np.array([-1, 1], np.float32)], {"alpha": 0.5}
    )


CASES = [
    *(item for op in (*BOTH, *REAL.split()) for item in real(op)),
    *(item for op in BOTH for item in complex_(op)),
    *(case(op, [extremes(t)]) for op, types in INTEGER.items() for t in types),
    *(case("LeakyRelu", [np.array(EDGE, np.float32)], {"alpha": a}) for a in (0.0, 0.5, 1.5, -1.0)),
    *gradients(),
    *real("Rint", floats=("float32", "float64")),
]
for op in ("Real", "Imag", "Angle", "ComplexAbs"):
    CASES += [case(op, [np.array(POINTS, np.complex64)]), case(op, [np.complex64(3 - 4j)])]
    CASES += [case(op, [np.array(POINTS)], {"Tout": np.float64})]
    CASES += [case(op, [np.complex128(-1)], {"Tout": np.float64})]
CASES += [case("Conj", [np.array(POINTS, t)]) for t in COMPLEX]
PARTS = [np.array([1.5, -0.0, INF, 2.0]), np.array([-2.0, 1.0, 0.5, INF])]
CASES += [
    case("Complex", PARTS, {"Tout": np.complex128}),
    case("Complex", [p.astype(np.float32) for p in PARTS]),
    case("Complex", [np.float32(1), np.ones((2, 1), np.float32)]),
    case("Complex", [np.ones(3, np.float32), np.ones(2, np.float32)], error=True),
]
for dtype in ("float32", "float64"):
    x = np.array([0.0, 1.0, -1.0, 1e30, INF, NAN, 3.0], dtype)
    CASES += [case("NextAfter", [x, x[::-1].copy()]), case("NextAfter", [x, np.array(0, dtype)])]
SMOOTH = {
    **dict.fromkeys(["Sqrt", "Rsqrt", "Log"], (0.5, 3)),
    **dict.fromkeys(["Asin", "Acos", "Atanh"], (-0.8, 0.8)),
    **dict.fromkeys(["SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad"], (0.5, 2)),
    **dict.fromkeys(["Sinh", "Cosh", "Exp", "Expm1", "Reciprocal", "Inv", "Tan"], (0.5, 1.5)),
    "Log1p": (-0.5, 2),
    **dict.fromkeys(["Angle", "ComplexAbs", "Sign"], (0.5, 2)),
    "Acosh": (1.2, 3),
}
OUR_GRADIENT = {
    "SoftsignGrad": "TensorFlow has none",
    "Sign complex": "TensorFlow has zeros, as of real numbers",
}
