"""Special functions, at their poles, their limits and between."""

import ml_dtypes
import numpy as np

from tests.ops.harness import case

INF, NAN = np.inf, np.nan
POINTS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.0, 3.25, -2.5, 7.0, 12.5, 20.0, INF, -INF, NAN]
UNIT = [0.0, 1.0, -1.0, 0.5, -0.5, 0.1, 0.9, 0.999, -0.2, 1e-4, 1.5, -1.5, NAN]
POSITIVE = [0.0, 0.1, 0.5, 1.0, 1.9, 2.0, 2.1, 5.0, 8.0, 15.0, 30.0, 100.0]
ON_LINE = {
    "Erf": [*POINTS[:-3], NAN],  # TensorFlow has NaN at infinity in float64, 1 in float32
    **dict.fromkeys(["Erfc", "Lgamma", "Digamma", "Dawsn"], POINTS),
    **dict.fromkeys(["FresnelSin", "FresnelCos"], POINTS),
    **dict.fromkeys(["BesselI0", "BesselI0e", "BesselI1", "BesselI1e"], POINTS),
    **dict.fromkeys(["BesselJ0", "BesselJ1"], POINTS),
    **dict.fromkeys(["Erfinv", "Ndtri"], UNIT),
    **dict.fromkeys(["BesselY0", "BesselK0", "BesselK1"], POSITIVE),
    "BesselY1": POSITIVE[1:],  # at 0 TensorFlow has -inf in float64 and NaN in float32
    **dict.fromkeys(["BesselK0e", "BesselK1e", "Spence", "Expint"], POSITIVE),
}
A = [0.1, 0.5, 1.0, 2.5, 7.0, 20.0, 120.0]
X = [0.0, 0.1, 0.5, 1.0, 3.0, 8.0, 30.0, 150.0]
CASES = []
for op, points in ON_LINE.items():
    for dtype in ("float32", "float64", "float16", ml_dtypes.bfloat16):
        CASES += [case(op, [np.array(points, dtype)]), case(op, [np.array(0.25, dtype)])]
    CASES.append(case(op, [np.zeros((0, 2), np.float32)]))
for dtype in ("float32", "float64"):
    a, x = np.array(A, dtype)[:, None], np.array(X, dtype)
    odd = [
        np.array([-1, 0, 1, NAN, 1, 2, INF, 0], dtype),
        np.array([1, 1, -1, 1, NAN, INF, 1, 0], dtype),
    ]
    # no samples that are hardly ever drawn: TensorFlow takes them not to move
    alpha = np.array([0.1, 0.5, 1, 3, 30], dtype)[:, None]
    sample = alpha * np.array([0, 0.3, 0.8, 1, 1.3, 2], dtype)
    CASES.append(case("RandomGammaGrad", [alpha, sample], rtol=1e-5))
    for op in ("Igamma", "Igammac", "IgammaGradA"):
        CASES += [case(op, [a, x]), case(op, [a[2, 0], x[3]])]
    for op in ("Igamma", "Igammac"):
        CASES.append(case(op, odd))
    order = np.array([0, 1, 2, 3, 5], dtype)[:, None]
    at = np.array([0.1, 0.5, 1, 2.5, 10, 40], dtype)
    CASES += [
        case("Polygamma", [order, at]),
        case(
            "Polygamma", [np.array([0.5, -1, 1, 1, NAN], dtype), np.array([1, 1, 0, -1, 1], dtype)]
        ),
        case("Zeta", [order + 1.5, at]),
        case(
            "Zeta",
            [
                np.array([2, 1, 0.5, 2, 2, 2.5, NAN], dtype),
                np.array([1, 1, 1, 0, -1, -0.5, 1], dtype),
            ],
        ),
    ]
    b, p = np.array([0.5, 1, 3, 40], dtype)[:, None, None], np.array([0, 0.1, 0.5, 0.9, 1], dtype)
    full = np.broadcast_arrays(b, np.array([0.5, 2, 10], dtype)[:, None], p)
    CASES += [
        case("Betainc", full),
        case("Betainc", [np.array(2, dtype), np.array(3, dtype), p]),
        case(
            "Betainc",
            [np.array([-1, 1, 0, 1], dtype), np.ones(4, dtype), np.array([0.5, -1, 0.5, 2], dtype)],
        ),
    ]
CASES.append(case("Betainc", [np.ones(2), np.ones(3), np.ones(2)], error=True))
NO_GRADIENT = dict.fromkeys(
    ["IgammaGradA", "RandomGammaGrad"], "TensorFlow has none, and there is no closed form"
)
NO_SECOND = dict.fromkeys(["Igamma", "Igammac"], "IgammaGradA has no gradient")
NO_FORMULA = {"Zeta": (0,), "Polygamma": (0,), "Betainc": (0, 1)}
POLES = dict.fromkeys(["BesselY0", "Zeta", "Polygamma"], "it is infinite at its poles, or not")
OUR_GRADIENT = {
    "BesselI1": "TensorFlow has 1 at 0, where the slope is a half",
    "Digamma half": "TensorFlow wants Polygamma of half width, which there is not",
}
SMOOTH = {
    **dict.fromkeys(["Lgamma", "Digamma", "Spence", "Expint"], (0.5, 3)),
    **dict.fromkeys(["BesselY0", "BesselY1", "BesselK0", "BesselK0e"], (0.5, 3)),
    **dict.fromkeys(["BesselK1", "BesselK1e"], (0.5, 3)),
    **dict.fromkeys(["Igamma", "Igammac"], (0.5, 3)),
    "Erfinv": (-0.9, 0.9),
    "Ndtri": (0.1, 0.9),
    "Zeta": (1.5, 4),
    "Polygamma": lambda random, inputs: [
        random.integers(0, 4, inputs[0].shape),
        random.uniform(0.5, 3, inputs[1].shape),
    ],
    "Betainc": ((0.5, 3), (0.5, 3), (0.1, 0.9)),
}
