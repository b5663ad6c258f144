"""Casts between all types, the same bits as other types, and ops that forward values."""

import ml_dtypes
import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.shapes import Shape
from tests.ops.harness import case

INF, NAN = np.inf, np.nan
FLOATS = ("float32", "float64", "float16", ml_dtypes.bfloat16)
COMPLEX = ("complex64", "complex128")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
PLAIN = (*FLOATS, *COMPLEX, *SIGNED, *UNSIGNED, "bool")
EIGHTHS = (ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn)
NIBBLES = (ml_dtypes.int4, ml_dtypes.uint4)
MODEST = [0, 1, 2, 7, 3, 5, 6, 4]
WIDE = [0.0, -0.0, 1.7, -1.7, 2.5, -2.5, 3.999, 100.5, -100.5]
HUGE = [300.0, -300.0, 70000.0, -70000.0, 3e9, -3e9, 1e19, -1e19, 1e30, INF, -INF, NAN]


def to(source, target, values):
    """A cast of values that are of the source type already."""
    attrs = {"DstT": DType.from_numpy(target)}
    return case("Cast", [np.array(values).astype(source)], attrs)


CASES = [to(s, t, MODEST) for s in PLAIN for t in PLAIN]
CASES += [to(s, t, MODEST) for s in FLOATS for t in EIGHTHS]
CASES += [to(s, t, MODEST) for s in EIGHTHS for t in FLOATS]
CASES += [to(s, t, MODEST) for s in (*SIGNED, *UNSIGNED) for t in NIBBLES]
CASES += [to(s, t, MODEST) for s in NIBBLES for t in (*SIGNED, *UNSIGNED)]
with np.errstate(all="ignore"):
    for source in FLOATS:
        CASES += [to(source, target, WIDE) for target in (*FLOATS, *COMPLEX, *SIGNED, "bool")]
        CASES += [to(source, target, np.abs(WIDE)) for target in UNSIGNED]
        CASES += [to(source, target, WIDE) for target in EIGHTHS]
        CASES += [to(source, target, [*HUGE, 65519, 65520]) for target in (*FLOATS, "bool")]
for source in ("float32", "float64"):
    CASES += [to(source, target, HUGE) for target in ("int32", "int64")]
for source in (*SIGNED, *UNSIGNED):
    ends = [np.iinfo(source).min, np.iinfo(source).max, 1, np.iinfo(source).max // 3]
    CASES += [
        case("Cast", [np.array(ends, source)], {"DstT": DType.from_numpy(target)})
        for target in PLAIN
    ]
for source in COMPLEX:
    CASES += [to(source, target, [1.5 + 2j, -2.5 - 1j, 0j, 1j]) for target in (*PLAIN[:6], "int32")]
CASES += [
    case("Cast", [np.float32(2.7)], {"DstT": np.int32}),
    case("Cast", [np.int32(5)], {"DstT": np.float32}),
    case("Cast", [np.zeros((0, 2))], {"DstT": np.int8}),
    case("Cast", [np.array(1 + 2**-9)], {"DstT": DType.from_name("bfloat16"), "Truncate": True}),
    case(
        "Cast",
        [np.float32([1.99999, -1.99999, 1e-40, NAN])],
        {"DstT": DType.from_name("bfloat16"), "Truncate": True},
    ),
    case("Cast", [np.float64([1.99999999, 1e300])], {"DstT": np.float32, "Truncate": True}),
    case("Cast", [np.float32([1.9999, 1e30])], {"DstT": np.float16, "Truncate": True}),
    case("Cast", [["1"]], {"DstT": np.int32}, error=True),
    case("Cast", [np.ones(2)], {"DstT": DType.from_name("string")}, error=True),
]
BITS = np.arange(64, dtype=np.uint8).reshape(8, 8)
BITCASTS = [t for t in PLAIN if t != "bool"]
for source in BITCASTS:
    for target in BITCASTS:
        wide = np.dtype(target).itemsize // np.dtype(source).itemsize
        data = BITS.reshape(-1).view(source)
        data = data.reshape((-1, wide)) if wide > 1 else data.reshape((2, -1))
        CASES.append(case("Bitcast", [data], {"type": DType.from_numpy(target)}))
CASES += [
    case("Bitcast", [np.float32(1.5)], {"type": np.int32}),
    case("Bitcast", [np.float64(1.5)], {"type": np.uint8}),
    case("Bitcast", [np.array([1, 2, 3, 4], np.uint8)], {"type": np.int32}),
    case("Bitcast", [np.zeros((0, 4), np.uint8)], {"type": np.int32}),
    case("Bitcast", [np.zeros((0, 2), np.int32)], {"type": np.int8}),
    case("Bitcast", [np.ones((2, 3), np.uint8)], {"type": np.int32}, error=True),
    case("Bitcast", [np.uint8(1)], {"type": np.int32}, error=True),
    case("Bitcast", [np.arange(8, dtype=np.int8).reshape(2, 4).T[::2].copy()], {"type": np.int16}),
    case("Bitcast", [np.int8([1, -2])], {"type": DType.from_name("qint8")}),
    case("Bitcast", [np.int8([1, -2])], {"type": np.uint8}, types=("qint8",)),
]

VALUES = [np.arange(6, dtype="float32").reshape(2, 3), np.int32(3), ["a", "b"], np.zeros((0, 2))]
for op in (
    "StopGradient",
    "PreventGradient",
    "Snapshot",
    "Copy",
    "CopyHost",
    "DeepCopy",
    "GuaranteeConst",
):
    CASES += [case(op, [value]) for value in VALUES]
CASES += [
    case("IdentityN", VALUES),
    case("IdentityN", VALUES[:1]),
    case("IdentityN", [np.True_, np.float64(2)]),
]
for dtype in PLAIN:
    x = np.array([[1, 0, 3]]).astype(dtype)
    for op in ("ZerosLike", "OnesLike"):
        CASES += [case(op, [x]), case(op, [x[0, 2]]), case(op, [x[:0]])]
CASES += [case("ZerosLike", [["a", "b"]]), case("ZerosLike", ["a"])]
for shape in (Shape((2, 3)), Shape((None, 3)), Shape((None, None))):
    CASES.append(case("EnsureShape", [VALUES[0]], {"shape": shape}))
for shape in (Shape(()), Shape((3, 2)), Shape((None,)), Shape((2, 3, 1))):
    CASES.append(case("EnsureShape", [VALUES[0]], {"shape": shape}, error=True))
for op in ("CheckNumerics", "CheckNumericsV2"):
    for dtype in FLOATS:
        CASES += [
            case(op, [np.array([1, 2, -3], dtype)], {"message": "here"}),
            case(op, [np.array(5, dtype)], {"message": "here"}),
            case(op, [np.zeros((0,), dtype)], {"message": ""}),
            *(
                case(op, [np.array([1, bad], dtype)], {"message": "m"}, error=True)
                for bad in HUGE[-3:]
            ),
        ]
for dtype in (*FLOATS, *SIGNED, *UNSIGNED):
    x = np.arange(6).reshape(2, 3).astype(dtype)
    low, high = np.array(2, dtype), np.array(4, dtype)
    CASES += [
        case("ClipByValue", [x, low, high]),
        case("ClipByValue", [x, np.full((2, 3), 2, dtype), high]),
        case("ClipByValue", [x, np.full((2, 3), 2, dtype), np.full((2, 3), 3, dtype)]),
        case("ClipByValue", [x[0, 1], low, high]),
        case("ClipByValue", [x, high, low]),
    ]
CASES += [
    case("ClipByValue", [np.array([NAN, INF, -INF, 0, 5]), np.float64(-1), np.float64(1)]),
    case("ClipByValue", [np.array([1.0, 5]), np.float64(NAN), np.float64(1)]),
    case("ClipByValue", [np.array([1.0, 5]), np.float64(0), np.float64(NAN)]),
    case("ClipByValue", [np.ones((2, 3)), np.ones(2), np.float64(1)], error=True),
    case("ClipByValue", [np.ones((2, 3)), np.zeros(3), np.ones((2, 1))], error=True),
]
WITHOUT_CASE = dict.fromkeys(
    ["RefIdentity", "DebugGradientRefIdentity"], "a reference comes from a variable"
)
CASES += [
    case("DebugGradientIdentity", VALUES[:1]),
    case("DebugIdentity", VALUES[:1], {"tensor_name": "x0:0"}),
]
NO_GRADIENT = {
    "PreventGradient": "its gradient is an error",
    "Bitcast": "the bits of a number are no smooth function of it",
}
OUR_GRADIENT = dict.fromkeys(
    ["Snapshot", "Copy", "CopyHost", "DeepCopy", "GuaranteeConst", "DebugIdentity"],
    "TensorFlow has none",
)
OUR_GRADIENT["DebugGradientIdentity"] = "TensorFlow wants the debugger that made it"
SMOOTH = {"ClipByValue": ((-1, 6), (1, 2), (3, 4))}
