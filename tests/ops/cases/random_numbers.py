"""Random numbers: the stateless ones value for value, the others by shape and range."""

import ml_dtypes
import numpy as np

from tests.ops.harness import case, i32, i64

F32, F64, F16, BF16 = np.float32, np.float64, np.float16, ml_dtypes.bfloat16
I32, I64, U32, U64 = np.int32, np.int64, np.uint32, np.uint64
FLOATS = (F32, F64, F16, BF16)
random = np.random.default_rng(5)


SHAPES = [i32(3), i64(2, 5), i32(), i32(0), i32(3, 0, 2), i32(1001)]
SEEDS = [i64(1, 2), i32(-3, 7), i64(-(2**63), 2**63 - 1), i64(0, 0)]
KEY, COUNTER = np.array([2**63 + 5], U64), np.array([2**64 - 2, 2**64 - 1], U64)
PHILOX, AUTO = I32(1), I32(3)
DRAWS = ("StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal")
# sine, cosine and logarithm differ in the last places
NEAR = {"rtol": 1e-5, "atol": 2e-6}


def near(dtype):
    return NEAR if dtype == F32 else {}


STATELESS = [
    *(
        case(op, [s, i64(1, 2)], {"dtype": t}, **near(t))
        for op in DRAWS
        for s in SHAPES
        for t in FLOATS
    ),
    *(case(op, [i32(9), s], **NEAR) for op in DRAWS for s in SEEDS),
    *(case(op, [i32(2), s], error=True) for op in DRAWS for s in (i64(1), i64(1, 2, 3))),
    *(case(op, [s, i64(1, 2)], error=True) for op in DRAWS for s in (i32(-1), I32(3))),
    *(
        case(op + "V2", [i32(2, 3), KEY, COUNTER, alg], {"dtype": t}, **near(t))
        for op in DRAWS
        for t in FLOATS
        for alg in (PHILOX, AUTO)
    ),
    *(case(op + "V2", [i32(2, 3), KEY, COUNTER, I32(0)], error=True) for op in DRAWS),
    *(case(op + "V2", [i32(2, 3), KEY[0], COUNTER, PHILOX], error=True) for op in DRAWS),
    *(
        case("StatelessRandomUniformFullInt", [s, i64(4, 2)], {"dtype": t})
        for s in SHAPES
        for t in (I32, I64, U32, U64)
    ),
    *(
        case("StatelessRandomUniformFullIntV2", [i32(2, 3), KEY, COUNTER, PHILOX], {"dtype": t})
        for t in (I32, I64, U32, U64)
    ),
    *(
        case("StatelessRandomUniformInt", [s, i64(4, 2), t(-7), t(100)])
        for s in SHAPES
        for t in (I32, I64)
    ),
    case("StatelessRandomUniformInt", [i32(50), i64(4, 2), I32(-(2**31)), I32(2**31 - 1)]),
    case("StatelessRandomUniformInt", [i32(50), i64(4, 2), I64(-(2**63)), I64(2**63 - 1)]),
    case("StatelessRandomUniformInt", [i32(0), i64(4, 2), I32(3), I32(3)]),
    case("StatelessRandomUniformInt", [i32(1), i64(4, 2), I32(3), I32(3)], error=True),
    case("StatelessRandomUniformInt", [i32(1), i64(4, 2), i32(3), I32(4)], error=True),
    *(
        case("StatelessRandomUniformIntV2", [i32(2, 3), KEY, COUNTER, PHILOX, t(2), t(9)])
        for t in (I32, I64, U32, U64)
    ),
    *(case("StatelessRandomGetKeyCounter", [s]) for s in SEEDS),
    *(case("StatelessRandomGetKeyCounterAlg", [s]) for s in SEEDS),
    case("StatelessRandomGetKeyCounter", [i64(1)], error=True),
    case("StatelessRandomGetAlg"),
]
LOGITS = random.standard_normal((3, 7))
ODD = np.array([[0, -np.inf, 1], [np.nan, 0, 0], [-np.inf, -np.inf, -np.inf]], F32)
CLASSES = [
    *(
        case("StatelessMultinomial", [x, I32(9), i64(1, 2)], {"output_dtype": t})
        for x in (LOGITS, LOGITS.astype(F32), LOGITS.astype(F16), np.arange(6).reshape(2, 3), ODD)
        for t in (I32, I64)
    ),
    case("StatelessMultinomial", [LOGITS, I32(0), i64(1, 2)]),
    case("StatelessMultinomial", [LOGITS[:0], I32(3), i64(1, 2)]),
    case("StatelessMultinomial", [LOGITS[0], I32(3), i64(1, 2)], error=True),
    case("StatelessMultinomial", [LOGITS, I32(-1), i64(1, 2)], error=True),
    case("StatelessMultinomial", [LOGITS[:, :0], I32(1), i64(1, 2)], error=True),
    case("Multinomial", [LOGITS, I32(5)], {"output_dtype": I32}, compare="shape"),
    case("Multinomial", [LOGITS.astype(BF16), I32(5)], compare="shape"),
    case("Multinomial", [LOGITS[0], I32(5)], error=True),
    case("Multinomial", [LOGITS, I32(-5)], error=True),
]


def among(low, high):
    """Both draw of one shape and type, within a range."""

    def check(ours, theirs):
        for mine, wanted in zip(ours, theirs, strict=True):
            assert mine.dtype == wanted.dtype
            assert mine.shape == wanted.shape
            for drawn in (mine, wanted):
                assert np.all((drawn.astype(F64) >= low) & (drawn.astype(F64) <= high))

    return check


STATEFUL = [
    *(
        case("RandomUniform", [s], {"dtype": t}, compare=among(0, 1))
        for s in SHAPES
        for t in FLOATS
    ),
    *(
        case("RandomStandardNormal", [s], {"dtype": t}, compare=among(-9, 9))
        for s in SHAPES
        for t in FLOATS
    ),
    *(
        case("TruncatedNormal", [s], {"dtype": t}, compare=among(-2, 2))
        for s in SHAPES
        for t in FLOATS
    ),
    case("RandomUniform", [i32(2)], {"dtype": F32, "seed": 3, "seed2": 4}, compare=among(0, 1)),
    *(
        case(op, [s], {"dtype": F32}, error=True)
        for op in ("RandomUniform", "RandomStandardNormal", "TruncatedNormal")
        for s in (i32(-1), I32(2))
    ),
    *(
        case("RandomUniformInt", [s, t(-3), t(5)], compare=among(-3, 4))
        for s in SHAPES
        for t in (I32, I64)
    ),
    case("RandomUniformInt", [i32(3), I32(5), I32(5)], error=True),
    case("RandomUniformInt", [i32(3), i32(5), I32(6)], error=True),
    case("RandomUniformInt", [i32(0), I32(5), I32(5)], compare="shape"),
    *(
        case("ParameterizedTruncatedNormal", [s, t(1), t(2), t(-1), t(1.5)], compare=among(-1, 1.5))
        for s in (i32(3), i32(2, 50), i32(0))
        for t in (F32, F64)
    ),
    case(
        "ParameterizedTruncatedNormal",
        [
            i32(2, 99),
            np.array([0, 5.0]),
            np.array([1, 1.0]),
            np.array([-1, 7.0]),
            np.array([0, 7.5]),
        ],
        compare=among(-1, 7.5),
    ),
    case("ParameterizedTruncatedNormal", [i32(2), F32(0), F32(1), F32(1), F32(-1)], error=True),
    case("ParameterizedTruncatedNormal", [i32(2), F32(0), F32(-1), F32(-1), F32(1)], error=True),
    *(
        case("RandomGamma", [s, t([0.5, 3, 1e-3])], compare=among(0, 1e3))
        for s in (i32(), i32(4, 2))
        for t in (F32, F64, F16)
    ),
    case("RandomGamma", [i32(2), np.array([0.0, 1])], compare="shape"),
    *(
        case("RandomPoisson", [i32(4, 2), t([0.5, 30, 0])], compare=among(0, 99))
        for t in (F32, F64, F16)
    ),
    *(
        case(
            "RandomPoissonV2",
            [i32(4, 2), np.array([3, 30, 0], r)],
            {"dtype": t},
            compare=among(0, 99),
        )
        for r in (F32, F64, I32)
        for t in (F32, I32, I64)
    ),
    *(
        case("RandomShuffle", [x], compare="shape")
        for x in (LOGITS, np.arange(5), F32(3), np.zeros((0, 2)))
    ),
    case("RandomShuffle", [["a", "b", "c"]], compare="shape"),
]
CASES = STATELESS + CLASSES + STATEFUL
NO_GRADIENT = dict.fromkeys(["RandomPoisson", "RandomPoissonV2"], "what counts jumps")
NO_SECOND = {"RandomGamma": "RandomGammaGrad has no gradient"}
OUR_GRADIENT = {"RandomGamma half": "TensorFlow wants RandomGammaGrad of half width"}
WITHOUT_CASE = {"NonDeterministicInts": "no two runs draw the same"}
