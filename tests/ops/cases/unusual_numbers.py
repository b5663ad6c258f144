"""NaN, infinities, empty arrays, and ranges in the wrong order, in families with other cases."""

from __future__ import annotations

import numpy as np
from ml_dtypes import bfloat16

from cfgraph.ir.dtypes import DType
from tests.ops.harness import case

F, D = np.float32, np.float64
NAN, INF = np.nan, np.inf
CASES = []
# most of these have no slope
VALUES_ONLY = True

# a gradient from a result has as many elements
RESULT = np.array([0.5, 0.25, 0.75], F)
for op in ("SigmoidGrad", "TanhGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad"):
    CASES += [
        case(op, [RESULT, RESULT[:1]], error=True),
        case(op, [RESULT[0], RESULT], error=True),
    ]

BELOW = [-1.0, -2.5, -INF, NAN, 1.5]
for op in ("BesselY0", "BesselY1", "BesselK0", "BesselK0e", "BesselK1", "BesselK1e", "Expint"):
    CASES += [case(op, [np.array(BELOW, dtype)]) for dtype in (F, D)]
CASES.append(case("Expint", [np.array([INF, 0.0, -0.0, 2.0])]))
ORDERS = np.array([[INF], [NAN], [2.0], [3.0], [2.5], [1.0], [0.5]])
CASES.append(case("Zeta", [ORDERS, np.array([0.5, 1.0, 2.5, 0.0, -1.0, -3.0])]))

for start, stop in [(-INF, 1), (3, INF), (3, NAN), (2, -INF)]:
    CASES.append(case("LinSpace", [F(start), F(stop), np.int32(4)]))

# the similarity of boxes that are no boxes is NaN, and not below any threshold
SCORES = np.array([0.5, 0.9, 0.25], F)
for boxes in (np.full((3, 4), NAN, F), np.full((3, 4), -INF, F)):
    limits = [np.int32(3), F(0.5)]
    CASES += [
        case("NonMaxSuppressionV2", [boxes, SCORES, *limits]),
        case("NonMaxSuppressionV4", [boxes, SCORES, *limits, F(0)]),
        case("NonMaxSuppressionV5", [boxes, SCORES, *limits, F(0), F(NAN)], error=True),
    ]

NUMBERS = np.array([[-4, -0.5, 0.25], [0.5, 1.25, 4]], F)
CASES += [
    case("FakeQuantWithMinMaxVars", [NUMBERS, F(-0.1), F(-1)]),
    case("FakeQuantWithMinMaxVars", [NUMBERS, F(3), F(1)]),
    case(
        "FakeQuantWithMinMaxVarsPerChannel",
        [NUMBERS, np.array([-1, 0, 3], F), np.array([1, 3, 1], F)],
    ),
]
SIGNED = {"signed_input": True, "num_bits": 5}
CASES += [
    case(
        "QuantizeAndDequantizeV2",
        [NUMBERS, F(-1), F(NAN)],
        SIGNED | {"range_given": True},
        error=True,
    ),
]

INDICES = np.array([[0, 0, 1], [0, 1, 0], [0, 1, 2], [1, 0, 0]])
for dtype in (np.uint8, np.int8, np.int16, np.uint16):
    sparse = [INDICES, np.array([100, 120, 90, 3], dtype), np.array([2, 3, 3])]
    for axes in (np.int32([1]), np.int32([0, 1, 2])):
        CASES += [
            case("SparseReduceSum", [*sparse, axes]),
            case("SparseReduceSumSparse", [*sparse, axes]),
        ]

for op in ("RandomGammaGrad", "IgammaGradA"):
    CASES += [
        case(op, [np.ones((5, 1), F), np.ones((5, 0), F)]),
        case(op, [np.ones((0, 1)), np.ones(3)]),
        case(op, [np.array([INF, 2.0]), np.array([[0.5], [3.0]])]),
    ]

# integers of 8 and 16 bits are summed in 64
for dtype in (np.uint8, np.int8, np.int16, np.uint16, np.int64):
    most, least = np.iinfo(dtype).max, np.iinfo(dtype).min
    matrix = np.array([[most, most, 3], [least, most, most - 1]], dtype)
    CASES += [case("Mean", [matrix, np.array(axes, np.int32)]) for axes in ([0], [1], [0, 1])]

# the maximum of a volume, or over channels, may be infinite; that of an image is finite
VOLUME = np.full((1, 2, 2, 2, 1), -INF, F)
WINDOW = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "VALID"}
CHANNELS = {"ksize": [1, 1, 1, 2], "strides": [1, 1, 1, 2], "padding": "VALID"}
SQUARE = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
CASES += [
    case("MaxPool3D", [VOLUME], WINDOW),
    case("MaxPool3D", [VOLUME * F(NAN)], WINDOW),
    case("MaxPool", [VOLUME.reshape(1, 2, 2, 2)], CHANNELS),
    case("MaxPool", [np.array([NAN, NAN, 1, 2], F).reshape(1, 1, 1, 4)], CHANNELS),
    case("MaxPool", [VOLUME.reshape(1, 2, 2, 2)], SQUARE),
]

# a factor with a zero on its diagonal has no gradient
FACTORS = np.array([[[2.0, 0], [1, 0]], [[2, 0], [1, 3]]])
CASES += [
    case("CholeskyGrad", [FACTORS, np.ones((2, 2, 2))]),
    case("CholeskyGrad", [FACTORS, np.ones((2, 2, 1))], error=True),
    case("MatrixSolveLs", [FACTORS[1], np.ones((2, 1)), D(NAN)], error=True),
    case("MatrixSolveLs", [FACTORS[1], np.ones((2, 1)), D(-1)], {"fast": False}, error=True),
]

# a slice without elements takes any value
ends = [np.array(item, np.int32) for item in ([0, 0], [0, 2], [1, 1])]
CASES.append(case("TensorStridedSliceUpdate", [np.ones((2, 3), F), *ends, np.ones((4, 2), F)]))

# the axes of a reduction are a scalar or a vector
for op in ("Sum", "Mean", "Max", "EuclideanNorm"):
    CASES.append(case(op, [NUMBERS, np.int32([[0]])], error=True))
for op in ("SparseReduceSum", "SparseReduceMaxSparse"):
    CASES.append(
        case(op, [INDICES, np.ones(4, F), np.array([2, 3, 3]), np.int32([[0]])], error=True)
    )

# the ranges of quantized numbers are scalars
LEVELS = np.array([1, 2, 250], np.uint8)
for bounds in ([F([0]), F(6)], [F(0), F([6])]):
    CASES += [
        case("QuantizedRelu", [LEVELS, *bounds], types=("quint8",), error=True),
        case("QuantizedRelu6", [LEVELS, *bounds], types=("quint8",), error=True),
        case("RequantizationRange", [np.int32([1, 2]), *bounds], types=("qint32",), error=True),
    ]

# a zero of the sparse factor makes a product with infinity zero
FACTOR = np.array([[0, 1, 2], [1, 0, -0.0]], F)
for flags in ({"a_is_sparse": True}, {"b_is_sparse": True}, {}):
    for dtype in (F, bfloat16):
        wide = np.array([[1, 2], [INF, NAN], [3, 0]], F).astype(dtype)
        CASES += [
            case("SparseMatMul", [FACTOR, wide], flags),
            case("SparseMatMul", [wide.T.copy(), FACTOR.T.copy()], flags),
        ]

# half-precision numbers are hashed by their bits
for dtype in (np.float16, bfloat16, F):
    repeated = np.array([0, -0.0, NAN, NAN, 1, INF, INF, 1], F).astype(dtype)
    CASES += [
        case("UniqueWithCounts", [repeated]),
        case("UniqueWithCountsV2", [repeated[None], np.array([1])]),
        case("ListDiff", [repeated, np.array([0, NAN, 1], F).astype(dtype)]),
    ]

# a loss that is NaN has no gradient; one of a probability below the least is infinite
LABELS = [np.array([[0, 0], [0, 1], [1, 0]]), np.int32([1, 2, 1]), np.int32([5, 3])]
LOGITS = np.linspace(-1, 1, 40, dtype=F).reshape(5, 2, 4)
for value in (NAN, INF, -INF, 88, 87):
    changed = LOGITS.copy()
    changed[0, 0, 0] = value
    CASES.append(case("CTCLoss", [changed, *LABELS]))
CASES += [
    case("CTCGreedyDecoder", [LOGITS, np.int32([-1, 5])]),
    case("CTCLoss", [LOGITS, *LABELS[:2], np.int32([0, 5])], error=True),
]

# a pixel that is not finite spreads to those that it has a part in
IMAGE = np.linspace(-1, 1, 24, dtype=F).reshape(1, 3, 4, 2).copy()
IMAGE[0, 1, 2, 0] = INF
for corners in (True, False):
    align = {"align_corners": corners}
    for size in ([2, 3], [5, 7], [3, 4]):
        CASES += [
            case(op, [IMAGE, np.int32(size)], align)
            for op in ("ResizeArea", "ResizeBilinear", "ResizeNearestNeighborGrad")
        ]
        target = np.ones((1, *size, 2), F)
        CASES += [
            case(op, [IMAGE, target], align) for op in ("ResizeBilinearGrad", "ResizeBicubicGrad")
        ]
EMPTY_IMAGES = np.zeros((1, 0, 4, 2), F)
WITHOUT_CHANNELS = np.zeros((1, 4, 4, 0), F)
SIZE = np.int32([2, 2])
UNCHANGED = F([[1, 0, 0, 0, 1, 0, 0, 0]])
CASES += [
    case("ResizeNearestNeighborGrad", [EMPTY_IMAGES, SIZE]),
    case("ScaleAndTranslateGrad", [EMPTY_IMAGES, IMAGE, F([1, 1]), F([0, 0])]),
    case(
        "CropAndResizeGradBoxes",
        [EMPTY_IMAGES, IMAGE, F([[0, 0, 1, 1]]), np.int32([0])],
        error=True,
    ),
]
for op in ("ExtractGlimpse", "ExtractGlimpseV2"):
    quiet = {"uniform_noise": False, "noise": "zero"}
    CASES += [
        case(op, [EMPTY_IMAGES, SIZE, np.zeros((1, 2), F)], quiet),
        case(op, [IMAGE, np.int32([0, 2]), np.zeros((1, 2), F)], quiet),
        case(op, [IMAGE, np.int32([-1, 2]), np.zeros((1, 2), F)], quiet, error=True),
    ]
for mode in ("CONSTANT", "REFLECT", "WRAP", "NEAREST"):
    how = {"interpolation": "NEAREST", "fill_mode": mode}
    CASES += [
        case("ImageProjectiveTransformV3", [EMPTY_IMAGES, UNCHANGED, SIZE, F(7)], how),
        case("ImageProjectiveTransformV3", [IMAGE, UNCHANGED, SIZE, F([7])], how, error=True),
        case("ImageProjectiveTransformV2", [IMAGE, UNCHANGED * F(INF), SIZE], how),
    ]
for op in ("ResizeNearestNeighbor", "ResizeBilinear", "ResizeBicubic", "ResizeArea"):
    CASES.append(case(op, [WITHOUT_CHANNELS, SIZE], error=True))

# at the bounds, the beta function is known for any parameters
PARAMETERS = np.array([NAN, INF, 0.5, -1.0])
A, B, X = np.meshgrid(PARAMETERS, PARAMETERS, np.array([0.0, 0.5, 1.0, 2.0]), indexing="ij")
CASES += [case("Betainc", [item.astype(dtype) for item in (A, B, X)]) for dtype in (F, D)]

# gradients that are infinite or NaN reach the bounds; NaN as a level is 0
WIDE = np.array([-5, -1, 0, 1, 5, NAN, INF], F)
SLOPES = np.array([1, NAN, INF, 1, 1, 1, 1], F)
for low, high in ((-2, 2), (-INF, 0), (-INF, INF), (0, 0), (NAN, 1)):
    for slopes in (SLOPES, SLOPES[::-1].copy()):
        narrow = {"narrow_range": True}
        CASES += [
            case("FakeQuantWithMinMaxVarsGradient", [slopes, WIDE, F(low), F(high)], narrow),
            case(
                "FakeQuantWithMinMaxVarsPerChannelGradient",
                [slopes[:, None], WIDE[:, None], F([low]), F([high])],
                narrow,
            ),
        ]
CASES.append(case("FakeQuantWithMinMaxArgs", [WIDE], {"min": 0.0, "max": NAN}, error=True))

# without a sum above the lowest number, the first pixel of a window receives the gradient
MOVES = {"strides": [1, 1, 1, 1], "rates": [1, 1, 1, 1]}
SLOPE = np.arange(9, dtype=F).reshape(1, 3, 3, 1)
for value in (-INF, NAN):
    for extent in (2, 3):
        lowest = [np.full((1, 3, 3, 1), value, F), np.ones((extent, extent, 1), F), SLOPE]
        CASES += [
            case(op, lowest, MOVES | {"padding": "SAME"})
            for op in ("Dilation2DBackpropInput", "Dilation2DBackpropFilter")
        ]

GRAMS = {
    "separator": "|", "ngram_widths": [2], "left_pad": "", "right_pad": "", "pad_width": 0,
    "preserve_short_sequences": False,
}  # fmt: skip
CASES.append(case("StringNGrams", [["a", "b", "c"], np.array([], np.int64)], GRAMS))

# complex numbers at infinity: TensorFlow's formulas give NaN, not limits
PARTS = (0.0, -1.0, 0.5, INF, -INF, NAN)
PLANE = np.array([complex(a, b) for a in PARTS for b in PARTS])


def same_or_nan(ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    """A number with NaN as one part is NaN, whatever its other part."""
    np.testing.assert_array_equal(np.isnan(ours[0]), np.isnan(theirs[0]))
    known = ~np.isnan(ours[0])
    np.testing.assert_allclose(ours[0][known], theirs[0][known], 1e-5, 1e-6)


for dtype in (np.complex64, np.complex128):
    for op in ("Sign", "Reciprocal", "Inv", "Expm1", "Sigmoid"):
        CASES.append(case(op, [PLANE.astype(dtype)], compare=same_or_nan))
    CASES.append(case("Expm1", [np.array([1000 + 1j, 1 - 2j], dtype)], compare=same_or_nan))
    outside = PLANE[(PLANE != -1)].astype(dtype)
    CASES.append(case("Log1p", [outside], compare=same_or_nan))
    CASES.append(case("Rsqrt", [PLANE[PLANE.imag != 0].astype(dtype)], compare=same_or_nan))
    FINITE = np.array([1, 2j, -2 + 2j], dtype)
    pairs = [item.ravel() for item in np.meshgrid(PLANE.astype(dtype), FINITE)]
    CASES += [
        case(op, operands, compare=same_or_nan)
        for op in ("RealDiv", "DivNoNan", "Xdivy")
        for operands in (pairs, pairs[::-1])
    ]
    CASES.append(case("SqrtGrad", pairs, compare=same_or_nan))
    CASES.append(
        case("Pow", [np.zeros(3, dtype), np.array([0, 2, -1], dtype)], compare=same_or_nan)
    )

# sizes are numbers like others where shapes broadcast
for first, second in (([-1], [1]), ([-1], [-1, 1]), ([2, 1], [-1]), ([3, -1], [1])):
    CASES.append(case("BroadcastArgs", [np.int32(first), np.int32(second)]))
for target in ([6], [3, 2], [-1, 2], [1, -1, 6]):
    beyond = np.array([[0, -1], [-3, -3], [5, 0]])
    CASES.append(case("SparseReshape", [beyond, np.array([2, 3]), np.array(target)]))

# fixed-point arithmetic wraps
LEVELS_32 = np.int32([-(2**31), -5, 0, 7])
for bounds in ((-1, 1, -INF, 1), (-1, 1, 0, INF), (-INF, 1, 0, 6), (NAN, 1, 0, 6), (0, INF, 0, 6)):
    inputs = [LEVELS_32, *map(F, bounds)]
    CASES.append(
        case("Requantize", inputs, {"out_type": DType.from_name("quint8")}, types=("qint32",))
    )

# a filter without elements is an error only if it would have an effect
for image in (np.ones((1, 4, 4, 3), F), np.ones((0, 4, 4, 3), F), np.ones((1, 4, 4, 0), F)):
    for sizes in ((2, 2, 3, 0), (0, 2, 3, 2)):
        even = {"strides": [1, 1, 1, 1], "padding": "SAME"}
        computes = image.shape[3] and (not len(image) or not sizes[3])
        CASES += [
            case("Conv2D", [image, np.ones(sizes, F)], even, error=not computes),
            case(
                "DepthwiseConv2dNative", [image, np.ones(sizes, F)], even, error=not image.shape[3]
            ),
        ]
SQUARES = [np.ones((1, 4, 4, 2), F), np.ones((2, 2, 2, 1), F)]
for wrong in (
    {"dilations": [1, 0, 1, 1]},
    {"dilations": [0, 1, 1, 1]},
    {"dilations": [1, 1, 1, 2]},
    {"padding": "EXPLICIT", "explicit_paddings": [2, 0, 1, 1, 0, 0, 0, 0]},
):
    moves = {"strides": [1, 1, 1, 1], "padding": "SAME"} | wrong
    CASES += [case(op, SQUARES, moves, error=True) for op in ("Conv2D", "DepthwiseConv2dNative")]
uneven = {"strides": [1, 2, 1, 1], "padding": "SAME"}
CASES.append(case("DepthwiseConv2dNative", SQUARES, uneven, error=True))
deep = {"ksize": [1, 2, 2, 1], "strides": [1, 1, 1, 2], "padding": "SAME"}
CASES += [case(op, SQUARES[:1], deep) for op in ("AvgPool", "MaxPoolWithArgmax")]
CASES.append(case("MaxPoolWithArgmax", [np.ones((0, 4, 4, 1), F)], SQUARE, error=True))
MAXIMA = [np.ones((1, 4, 4, 1), F), np.ones((1, 2, 2, 1), F), np.zeros((1, 2, 2, 1), int)]
for wrong in ({"ksize": [1, 0, 2, 1]}, {"strides": [0, 2, 2, 1]}, {"ksize": [2, 2, 2, 1]}):
    CASES.append(case("MaxPoolGradWithArgmax", MAXIMA, SQUARE | wrong, error=True))

# indices that are repeated or out of order
SET = [np.array([[0, 0], [0, 0]]), np.array([1, 2]), np.array([2, 2])]
CASES += [
    case("SparseToSparseSetOperation", [*SET, *SET], {"set_operation": "union"}, error=True),
    case(
        "DenseToSparseSetOperation",
        [np.eye(2, dtype=int), *SET],
        {"set_operation": "a-b"},
        error=True,
    ),
    case("SetSize", SET, error=True),
    case("SerializeManySparse", SET, error=True),
    case("SerializeManySparse", [np.array([[0, 1], [0, 0]]), *SET[1:]], error=True),
]
CORNERS = np.array([[0, 0], [1, 1]])
for slopes, places, start, sliced in (
    ([1.0, 2.0], CORNERS, [0], CORNERS),
    ([1.0, 2.0], CORNERS, [0, 0], CORNERS[:, :1]),
    ([1.0, 2.0], CORNERS, [1, 0], CORNERS),
    ([1.0, 2.0], CORNERS[::-1].copy(), [0, 0], CORNERS),
    ([1.0, 2.0], CORNERS[:1], [0, 0], CORNERS),
):
    inputs = [np.array(slopes), places, np.array(start), sliced]
    CASES.append(case("SparseSliceGrad", inputs, error=True))
UNSORTED = np.array([[0, 1], [2, 2], [1, 3], [2, 3]])
SUM = np.array([[0, 0], [0, 1], [1, 0], [1, 3], [2, 2], [2, 3]])
CASES.append(case("SparseAddGrad", [np.arange(6, dtype=F), UNSORTED, SUM[::2].copy(), SUM]))
CASES.append(case("SparseReorder", [np.zeros((3, 0), int), np.arange(3.0), np.zeros(0, int)]))

for bands, right in (((2, 3), (3, 0)), ((0, 2, 3), (0, 3, 2))):
    CASES.append(case("BandedTriangularSolve", [np.ones(bands, F), np.ones(right, F)], error=True))
one_number = np.array([1 + 1j], np.complex128)
CASES.append(case("ComplexAbs", [one_number], {"Tout": F}, error=True))
CASES.append(case("MatrixSolveLs", [FACTORS[1], np.ones((2, 1)), D([0.5])], error=True))
for sizes in ((3, 2), (2, 3)):
    system = [np.arange(6.0).reshape(sizes) ** 2, np.array([[INF, 1], [2, 0], [1, 1]])[: sizes[0]]]
    CASES.append(case("MatrixSolveLs", [*system, D(0.5)], {"fast": False}))
for dtype in (F, np.float16, np.int32):
    quotients = [CORNERS, np.array([1, 2], dtype), np.array([2, 2]), np.array([0, 1], dtype)]
    CASES.append(case("SparseDenseCwiseDiv", quotients, error=True))
padded = [np.int32(0), np.int32(-1), np.int32(-1), F([2])]
CASES += [
    case("MatrixDiagV2", [NUMBERS[0], *padded], error=True),
    case("MatrixDiagPartV2", [NUMBERS, padded[0], padded[3]], error=True),
]

# values of another step than the state
STATE, GATES = np.ones((2, 3), F), np.ones((1, 3), F)
GRU = [STATE, STATE, np.ones((6, 6), F), np.ones((6, 3), F), np.ones(6, F), np.ones(3, F)]
CASES.append(case("GRUBlockCellGrad", [*GRU, GATES, STATE, STATE, STATE], error=True))
WEIGHTS = [np.ones((6, 12), F), *[np.ones(3, F)] * 3, np.ones(12, F)]
LSTM = [STATE, STATE, STATE, *WEIGHTS, GATES, *[STATE] * 7]
CASES.append(case("LSTMBlockCellGrad", LSTM, {"use_peephole": True}, error=True))

# NaN is below no number, and hides none beside it
SORTED = np.array([[1, 2, 2, 5]], F)
SOUGHT = np.array([[NAN, 2, INF, -INF, 0, NAN, 5]], F)
for op in ("LowerBound", "UpperBound"):
    for dtype in (F, D, np.float16, bfloat16):
        CASES.append(case(op, [SORTED.astype(dtype), SOUGHT.astype(dtype)]))

# a single complex number is divided as the C library does
for value in (complex(INF, 1), complex(-1, -INF)):
    CASES += [
        case("Reciprocal", [np.array([value])]),
        case("RealDiv", [np.array([1 + 2j]), np.array(value)]),
    ]

joined = [np.array([[0, 1]]), np.array([[0, 0]]), np.ones(3), np.ones(1), *[np.array([3, 3])] * 2]
CASES.append(case("SparseConcat", joined, {"concat_dim": 0, "N": 2}, error=True))
