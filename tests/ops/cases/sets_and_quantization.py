"""Set operations, and quantization to integers and back."""

import numpy as np

from tests.ops.harness import case

F32, F64, I32, I64 = np.float32, np.float64, np.int32, np.int64
random = np.random.default_rng(41)
A = random.integers(0, 6, (2, 2, 4))
B = random.integers(0, 6, (2, 2, 3))
PLACES = np.array([[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 1, 0], [1, 1, 2]])
ELEMENTS = np.array([3, 1, 2, 5, 5])
SIZES = np.array([2, 2, 3])
OPERATIONS = ("a-b", "b-a", "intersection", "union")

SETS = [
    *(
        case("DenseToDenseSetOperation", [A.astype(t), B.astype(t)], {"set_operation": name})
        for name in OPERATIONS
        for t in (I32, I64, np.uint8)
    ),
    case(
        "DenseToDenseSetOperation",
        [np.array([["a", "b"]], object), np.array([["b", "c"]], object)],
        {"set_operation": "union"},
    ),
    case("DenseToDenseSetOperation", [A, B[:1]], {"set_operation": "union"}, error=True),
    case("DenseToDenseSetOperation", [A, B], {"set_operation": "sum"}, error=True),
    *(
        case("DenseToSparseSetOperation", [A, PLACES, ELEMENTS, SIZES], {"set_operation": name})
        for name in OPERATIONS
    ),
    *(
        case(
            "SparseToSparseSetOperation",
            [PLACES, ELEMENTS, SIZES, PLACES[1:4], ELEMENTS[:3], SIZES],
            {"set_operation": name},
        )
        for name in OPERATIONS
    ),
    case("SetSize", [PLACES, ELEMENTS, SIZES]),
]
X = np.concatenate([random.uniform(-3, 3, 20), [0, 0.5, -0.5, 5, -5]]).astype(F32).reshape(5, 5)
HALVES = F32([-200, -3.4, -1, -0.5, 0, 0.5, 1, 2.5, 3.5, 300])
RANGES = [(-2, 2), (-1, 3), (0, 4), (-3, 0.5)]
NAMES = {"qint8": np.int8, "quint8": np.uint8, "qint16": np.int16, "quint16": np.uint16}


def of_type(name):
    from cfgraph.ir.dtypes import DType

    return DType.from_name(name)


QUANTIZED = [
    *(
        case("QuantizeV2", [X, F32(low), F32(high)], {"T": of_type(name), "mode": mode, **more})
        for name in NAMES
        for low, high in RANGES
        for mode, more in (
            ("MIN_COMBINED", {}),
            ("SCALED", {}),
            ("SCALED", {"narrow_range": True, "round_mode": "HALF_TO_EVEN"}),
        )
        if not (name.startswith("quint") and more)
    ),
    *(
        case("QuantizeV2", [X, F32(low), F32(high)], {"T": of_type("quint8"), "mode": "MIN_FIRST"})
        for low, high in RANGES
    ),
    # halves are rounded away from zero, in float32
    *(
        case(
            "QuantizeV2",
            [HALVES, F32(low), F32(high)],
            {"T": of_type(name), "mode": "MIN_FIRST"},
        )
        for name in (*NAMES, "qint32")
        for low, high in ((-5, 10), (2, 3), (-3, -2))
    ),
    case("QuantizeV2", [X, F32(2), F32(-2)], {"T": of_type("quint8")}, error=True),
    *(
        case(
            "Dequantize",
            [
                np.arange(-100 if name.startswith("qint") else 0, 120, 7).astype(t),
                F32(low),
                F32(high),
            ],
            {"mode": mode},
            types=(name, None, None),
        )
        for name, t in NAMES.items()
        for low, high in RANGES
        for mode in ("MIN_COMBINED", "MIN_FIRST", "SCALED")
    ),
    *(
        case(
            "QuantizeAndDequantizeV2",
            [X.astype(t), t(low), t(high)],
            {"range_given": given, "signed_input": signed, "round_mode": rounding, "num_bits": 5},
        )
        for t in (F32, F64)
        for low, high in RANGES[:2]
        for given in (False, True)
        for signed in (False, True)
        for rounding in ("HALF_TO_EVEN", "HALF_UP")
    ),
    *(
        case("QuantizeAndDequantizeV3", [X, F32(-2), F32(2), I32(bits)], {"narrow_range": narrow})
        for bits in (3, 8)
        for narrow in (False, True)
    ),
    *(
        case("QuantizeAndDequantizeV2", [X, F32(-2), F32(2)], {"axis": a}, error=True)
        for a in (2, -2)
    ),
]
TRAINED = [
    *(
        case(
            "QuantizeAndDequantizeV4",
            [X.astype(t), t(low), t(high)],
            {"range_given": given, "signed_input": signed, "num_bits": 5},
        )
        for t in (F32, F64)
        for low, high in RANGES[:2]
        for given in (False, True)
        for signed in (False, True)
    ),
    *(case("QuantizeAndDequantizeV4Grad", [X * 2, X, F32(low), F32(high)]) for low, high in RANGES),
    case(
        "QuantizeAndDequantizeV4Grad",
        [X * 2, X, F32([-2, -1, 0, 1, 2]), F32([-1, 1, 1, 2, 3])],
        {"axis": 1},
    ),
]
CASES = SETS + QUANTIZED + TRAINED
NO_GRADIENT = dict.fromkeys(["QuantizeV2", "Dequantize"], "TensorFlow has none")
ESTIMATE = dict.fromkeys(
    ["QuantizeAndDequantizeV2", "QuantizeAndDequantizeV3", "QuantizeAndDequantizeV4"],
    "passes through what rounds",
)
_TWO_ARGUMENTS = "TensorFlow passes three gradients to a function of one"
OUR_GRADIENT = {"QuantizeAndDequantizeV4Grad": _TWO_ARGUMENTS}
OUR_SECOND = {"QuantizeAndDequantizeV4": _TWO_ARGUMENTS}
