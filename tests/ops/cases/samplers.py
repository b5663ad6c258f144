"""Stateless samples by rejection, value for value, and XLA's slices."""

import numpy as np

from tests.ops.harness import case

F16, F32, F64, I32, I64, U64 = np.float16, np.float32, np.float64, np.int32, np.int64, np.uint64
KEY, COUNTER, PHILOX = np.array([3], U64), np.array([2**64 - 1, 4], U64), I32(1)
SEED, SHAPE = np.array([3, 4]), np.array([50, 6], I32)
random = np.random.default_rng(11)

ALPHAS = [0.25, 1, 2.5, 40, 0, 1000]
RATES = [0, 0.3, 1, 2.5, 40, 1000]
COUNTS, PROBS = [0, 3, 10, 50, 400, 30], [0.3, 0.2, 0.7, 0.5, 0.9, 1]
# mean, deviation, lower and upper bound: each way to propose samples
INTERVALS = [
    (0, 1, -2, 2),
    (0, 1, 2, np.inf),
    (1, 2, -np.inf, -3),
    (0, 1, 0.1, 0.4),
    (0, 1, 1, 3),
    (5, 2, 0, 1),
]

SAMPLES = [
    *(case("StatelessRandomGammaV2", [SHAPE, SEED, np.array(ALPHAS, t)]) for t in (F16, F32, F64)),
    *(
        case("StatelessRandomGammaV3", [SHAPE, KEY, COUNTER, PHILOX, np.array(ALPHAS, t)])
        for t in (F32, F64)
    ),
    case("StatelessRandomGammaV2", [np.array([7], I64), SEED, F32(0.5)]),
    case("StatelessRandomGammaV2", [np.array([7], I32), SEED, F32([1, 2])], error=True),
    *(
        case("StatelessRandomPoisson", [SHAPE, SEED, np.array(RATES, t)], {"dtype": u})
        for t in (F16, F32, F64)
        for u in (F32, I64)
    ),
    case("StatelessRandomPoisson", [SHAPE, SEED, np.arange(6)], {"dtype": I32}),
    *(
        case(
            "StatelessRandomBinomial",
            [SHAPE, SEED, np.array(COUNTS, t), np.array(PROBS, t)],
            {"dtype": u},
        )
        for t in (F32, F64)
        for u in (F32, I64)
    ),
    case("StatelessRandomBinomial", [SHAPE, SEED, np.array([9.0] * 5), F64(0.5)], error=True),
    *(
        case(
            "StatelessParameterizedTruncatedNormal",
            [np.array([7, 3], I32), SEED, np.array([m, m + 1, m], t), t(d), t(low), t(high)],
        )
        for t in (F16, F32, F64)
        for m, d, low, high in INTERVALS
    ),
    # more than 16 proposals in a row are rejected
    *(
        case(
            "StatelessParameterizedTruncatedNormal",
            [np.array([12], I32), np.array([s, 7]), np.zeros(12), F64(1), F64(-1.3001), F64(0)],
        )
        for s in (280, 871, 2166)
    ),
    # a proposal is accepted once in 1024 times; with the second seed, none of 1000 is
    *(
        case(
            "StatelessParameterizedTruncatedNormal",
            [np.array([1], I32), np.array([s, 7]), F16(0), F16(1), F16(300), F16(np.inf)],
            error=s == 5,
        )
        for s in (6, 5)
    ),
    case(
        "StatelessParameterizedTruncatedNormal",
        [np.array([3], I32), SEED, F32(0), F32(1), F32(2), F32(1)],
        error=True,
    ),
    *(
        case("StatelessShuffle", [value, KEY, COUNTER, PHILOX])
        for value in (np.arange(7), np.arange(40).reshape(20, 2), np.zeros((0, 2)), F32([1]))
    ),
    case("StatelessShuffle", [["a", "b", "c", "d"], KEY, COUNTER, PHILOX]),
]
X = random.standard_normal((4, 5)).astype(F32)
SLICES = [
    *(
        case("XlaDynamicSlice", [X, np.array(start, t), np.array([2, 3], t)])
        for start in ((0, 0), (1, 2), (9, -3))
        for t in (I32, I64)
    ),
    case("XlaDynamicSlice", [X, np.array([0, 0]), np.array([5, 3])], error=True),
    case("XlaDynamicSlice", [X, np.array([0]), np.array([5])], error=True),
    *(
        case("XlaDynamicUpdateSlice", [X, X[:2, :3] + 7, np.array(start, I32)])
        for start in ((0, 0), (1, 2), (9, -3))
    ),
    case("XlaDynamicUpdateSlice", [X, X[:2] + 7, np.array([1], I32)], error=True),
]
CASES = SAMPLES + SLICES
NO_GRADIENT = {
    "StatelessRandomPoisson": "what counts jumps",
    "StatelessRandomBinomial": "what counts jumps",
    "StatelessShuffle": "TensorFlow has none",
    "XlaDynamicSlice": "TensorFlow has none",
    "XlaDynamicUpdateSlice": "TensorFlow has none",
}
# means, deviations, and bounds, so that each interval holds the mean
SMOOTH = {"StatelessParameterizedTruncatedNormal": ((-0.5, 0.5), (0.5, 1.5), (-2, -1), (1, 2))}
OUR_GRADIENT = {"StatelessRandomGammaV2 half": "TensorFlow wants RandomGammaGrad of half width"}
NO_SECOND = {
    "StatelessRandomGammaV2": "RandomGammaGrad has no gradient",
    "StatelessRandomGammaV3": "RandomGammaGrad has no gradient",
}
