"""Arithmetic with quantized integers, compared with TensorFlow's CPU kernels bit by bit."""

import numpy as np

from tests.ops.harness import case

F32, I32, U8 = np.float32, np.int32, np.uint8
random = np.random.default_rng(18)
RANGES = ((-1, 1), (0, 6), (-3.7, 11.3), (0.5, 2), (-4, -1), (-0.001, 1000))


def of_type(name):
    from cfgraph.ir.dtypes import DType

    return DType.from_name(name)


def q8(*shape):
    return random.integers(0, 256, shape).astype(U8)


def q32(*shape, bits=31):
    return random.integers(-(1 << bits), 1 << bits, shape).astype(I32)


def bounds(*pairs):
    return [F32(bound) for pair in pairs for bound in pair]


def quantized(op, x, *inputs, types=("quint8",), more=None, **attrs):
    """A case whose first inputs have quantized types."""
    attrs = {key: of_type(v) if key in TYPE_ATTRS else v for key, v in attrs.items()}
    return case(op, [x, *inputs], attrs, types=types, **(more or {}))


TYPE_ATTRS = ("Toutput", "out_type")
PAIRS = [(a, b) for a in RANGES for b in RANGES]
TWO = ("quint8", "quint8")
SHAPES = [
    ((5,), (5,)),
    ((), (7,)),
    ((2, 3), (1,)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 3, 4)),
    ((3, 4), (2, 3, 4)),
    ((3, 4), (3, 1)),
    ((1,), (1, 1)),
    ((1, 3), (4, 3)),
    ((2, 1, 3), (2, 1, 3)),
]
REFUSED = [((2, 3), (2, 4)), ((2, 1, 3), (2, 4, 1)), ((2, 1, 3, 1), (2, 4, 3, 5))]
SUMS = [
    *(
        quantized(op, q8(*x), q8(*y), *bounds((-1, 2), (0, 6)), types=TWO)
        for op in ("QuantizedAdd", "QuantizedMul")
        for x, y in SHAPES
    ),
    *(
        quantized(op, q8(40), q8(40), *bounds(a, b), types=TWO)
        for op in ("QuantizedAdd", "QuantizedMul")
        for a, b in PAIRS
    ),
    *(
        quantized(op, q8(9), q8(), *bounds(a, b), types=TWO)
        for op in ("QuantizedAdd", "QuantizedMul")
        for a, b in PAIRS[::5]
    ),
    *(
        quantized(op, q8(*x), q8(*y), *bounds((-1, 2), (0, 6)), types=TWO, more={"error": True})
        for op in ("QuantizedAdd", "QuantizedMul")
        for x, y in REFUSED
    ),
    *(
        quantized(op, q8(3), q8(3), *bounds(a, b), types=TWO, more={"error": True})
        for op in ("QuantizedAdd", "QuantizedMul", "QuantizedMatMul")
        for a, b in (((1, 1), (0, 1)), ((0, 1), (2, 1)))
    ),
    *(
        quantized(
            "QuantizedBiasAdd",
            x.astype(t),
            y.astype(t),
            *bounds(a, b),
            types=(name, name),
            out_type="qint32",
        )
        for name, t in (("quint8", U8), ("qint8", np.int8))
        for a, b in PAIRS
        for x, y in ((q8(4, 6), q8(6)),)
    ),
    quantized(
        "QuantizedBiasAdd",
        q8(2, 3, 4, 5),
        q8(5),
        *bounds((-1, 2), (0, 6)),
        types=TWO,
        out_type="qint32",
    ),
    quantized(
        "QuantizedBiasAdd",
        q8(4, 6),
        q8(5),
        *bounds((-1, 2), (0, 6)),
        types=TWO,
        out_type="qint32",
        more={"error": True},
    ),
]
ACTIVATIONS = [
    *(
        quantized(op, x, *bounds(a), types=(name,), out_type=name)
        for op in ("QuantizedRelu", "QuantizedRelu6")
        for a in (*RANGES, (2, 2))
        for name, x in (("quint8", np.arange(256).astype(U8)), ("qint32", q32(50)))
    ),
]
PRODUCTS = [
    *(quantized("QuantizedMatMul", q8(5, 7), q8(7, 3), *bounds(a, b), types=TWO) for a, b in PAIRS),
    *(
        quantized(
            "QuantizedMatMul",
            q8(*((7, 5) if a else (5, 7))),
            q8(*((3, 7) if b else (7, 3))),
            *bounds((-1, 2), (-3, 1)),
            types=TWO,
            transpose_a=a,
            transpose_b=b,
        )
        for a in (False, True)
        for b in (False, True)
    ),
    quantized("QuantizedMatMul", q8(3, 2500), q8(2500, 2), *bounds((0, 1), (0, 1)), types=TWO),
    quantized(
        "QuantizedMatMul",
        q8(3, 4),
        q8(5, 2),
        *bounds((0, 1), (0, 1)),
        types=TWO,
        more={"error": True},
    ),
]
MOMENTS = [
    (q8(4), F32(-1), F32(2)),
    (q8(4), F32(0), F32(3)),
    (q8(4), F32(-2), F32(2)),
    (q8(4), F32(0.5), F32(1.5)),
]
NORMALIZED = [
    case(
        "QuantizedBatchNormWithGlobalNormalization",
        [q8(2, 3, 2, 4), F32(low), F32(high), *(tensor for m in MOMENTS for tensor in m)],
        {"variance_epsilon": 0.001, "scale_after_normalization": s, "out_type": of_type("qint32")},
        types=("quint8", None, None) * 5,
    )
    for low, high in RANGES
    for s in (False, True)
]
RANGE_32 = ((-1, 1), (-100, 100), (-3.5, 17), (0, 5), (-8, 0), (2, 3), (-4, -2))
REQUANTIZED = [
    *(
        quantized(op, x, *bounds(a), types=("qint32",), **attrs)
        for op, attrs in (
            ("QuantizeDownAndShrinkRange", {"out_type": "quint8"}),
            ("RequantizationRange", {}),
        )
        for a in RANGE_32
        for x in (q32(60), q32(60, bits=20), np.abs(q32(9)), q32(0), np.zeros((2, 3), I32))
    ),
    *(
        quantized("Requantize", q32(60), *bounds(a, b), types=("qint32",), out_type="quint8")
        for a in RANGE_32
        for b in ((0, 6), (-1, 1), (-3, 0), (0, 0), (-2, -1), (-100, 20))
    ),
    *(
        quantized(
            "Requantize",
            q32(6),
            *bounds((-1, 1), b),
            types=("qint32",),
            out_type="quint8",
            more={"error": True},
        )
        for b in ((1, 2), (-1, -2))
    ),
]
LAYOUTS = [
    *(
        case(
            "QuantizedConcat",
            [I32(axis), x, y, *(F32(v) for v in (a[0], b[0], a[1], b[1]))],
            {"N": 2},
            types=(None, name, name),
        )
        for a, b in (*PAIRS[::3], ((-1, 1), (-1, 1)))
        for axis in (0, 1)
        for name, x, y in (("quint8", q8(3, 3), q8(3, 3)), ("qint32", q32(2, 2), q32(2, 2)))
    ),
    case(
        "QuantizedConcat",
        [I32(2), q8(2, 2), q8(2, 2), *(F32(v) for v in (0, 0, 1, 1))],
        {"N": 2},
        types=(None, "quint8", "quint8"),
        error=True,
    ),
    *(
        case(
            "QuantizedReshape",
            [x, I32([3, -1]), F32(-1), F32(2)],
            types=(name,),
        )
        for name, x in (("quint8", q8(2, 6)), ("qint32", q32(2, 6)))
    ),
    case("QuantizedReshape", [q8(5), I32([3, 2]), F32(-1), F32(2)], types=("quint8",), error=True),
]
CASES = SUMS + ACTIVATIONS + PRODUCTS + NORMALIZED + REQUANTIZED + LAYOUTS
NO_GRADIENT = {item.op: "TensorFlow has none" for item in CASES}
