"""Biases, softmax and cross entropy, normalization, resizing, colours."""

import ml_dtypes
import numpy as np

from tests.ops.harness import case, i32

F32, F64, F16, BF16, I32, I64 = (
    np.float32,
    np.float64,
    np.float16,
    ml_dtypes.bfloat16,
    np.int32,
    np.int64,
)
NAN, INF = np.nan, np.inf
random = np.random.default_rng(3)
FLOATS = (F32, F64, F16, BF16)


def some(*shape, dtype=F32):
    return random.standard_normal(shape).astype(dtype)


BIAS = [
    *(
        case("BiasAdd", [np.ones((2, 3), t), np.arange(3).astype(t)])
        for t in (*FLOATS, I32, I64, np.uint8)
    ),
    case("BiasAdd", [some(2, 3, 4), some(4)]),
    case("BiasAdd", [some(2, 3, 4, 5, 2), some(2)]),
    *(
        case("BiasAdd", [some(*s), some(s[1])], {"data_format": "NCHW"})
        for s in ((2, 3, 4), (2, 3, 4, 5))
    ),
    case("BiasAdd", [some(0, 3), some(3)]),
    case("BiasAdd", [some(2, 3), some(2)], error=True),
    case("BiasAdd", [some(3), some(3)], error=True),
    case("BiasAdd", [some(2, 3), some(3, 1)], error=True),
    case("BiasAddV1", [some(2, 3, 4), some(4)]),
    case("BiasAddV1", [some(2, 3, 4), some(3)], error=True),
    *(case("BiasAddGrad", [np.ones((2, 3, 4), t)]) for t in (*FLOATS, I32, I64)),
    *(
        case("BiasAddGrad", [some(*s)], {"data_format": "NCHW"}, atol=1e-5)
        for s in ((2, 3, 4), (2, 3, 4, 5))
    ),
    case("BiasAddGrad", [some(0, 3)]),
    case("BiasAddGrad", [some(3)], error=True),
]
LOGITS = [
    some(5),
    some(3, 4),
    some(2, 3, 4),
    np.array([[1, 2, -INF], [100, 200, 300], [-1e4, 0, 1e4]], F32),
    np.array([1, NAN, 2]),
]
SOFTMAX = [
    *(
        case(op, [some(3, 4, dtype=t)], atol=1e-2 if t in (F16, BF16) else None)
        for op in ("Softmax", "LogSoftmax")
        for t in FLOATS
    ),
    *(case(op, [x]) for op in ("Softmax", "LogSoftmax") for x in LOGITS),
    *(case(op, [some(2, 0)]) for op in ("Softmax", "LogSoftmax")),
    *(case(op, [F32(3)], error=True) for op in ("Softmax", "LogSoftmax")),
    case("Softmax", [np.array([1, 2, INF])]),
]
LABELS = np.array([[0.25, 0.25, 0.5], [1, 0, 0]])
CROSS = [
    *(
        case(
            "SoftmaxCrossEntropyWithLogits",
            [some(2, 3, dtype=t), LABELS.astype(t)],
            atol=1e-2 if t in (F16, BF16) else None,
        )
        for t in FLOATS
    ),
    case("SoftmaxCrossEntropyWithLogits", [some(1, 3), LABELS.astype(F32)]),
    case("SoftmaxCrossEntropyWithLogits", [some(2, 3), np.ones((2, 1), F32)]),
    case("SoftmaxCrossEntropyWithLogits", [some(3), LABELS.astype(F32)]),
    case("SoftmaxCrossEntropyWithLogits", [some(0, 3), np.ones((0, 3), F32)]),
    case(
        "SoftmaxCrossEntropyWithLogits",
        [np.array([[-INF, 1, 2], [1e30, 1, 2]], F32), np.array([[0, 0.5, 0.5], [1, 0, 0]], F32)],
    ),
    case(
        "SoftmaxCrossEntropyWithLogits",
        [np.array([[-INF, 1, 2]], F32), np.array([[0.5, 0.5, 0]], F32)],
    ),
    case("SoftmaxCrossEntropyWithLogits", [some(3), some(3)], error=True),
    case("SoftmaxCrossEntropyWithLogits", [some(2, 3), some(2, 4)], error=True),
    *(
        case(
            "SparseSoftmaxCrossEntropyWithLogits",
            [some(2, 3, dtype=t), np.array([2, 0], k)],
            atol=1e-2 if t in (F16, BF16) else None,
        )
        for t in FLOATS
        for k in (I32, I64)
    ),
    case("SparseSoftmaxCrossEntropyWithLogits", [some(0, 3), np.zeros(0, I64)]),
    case("SparseSoftmaxCrossEntropyWithLogits", [some(2, 3), np.array([1, 3])], error=True),
    case("SparseSoftmaxCrossEntropyWithLogits", [some(2, 3), np.array([1, -1])], error=True),
    case("SparseSoftmaxCrossEntropyWithLogits", [some(2, 3), np.array([1, 1, 1])], error=True),
    case("SparseSoftmaxCrossEntropyWithLogits", [some(2, 3), np.array([[1], [1]])], error=True),
]


def batch(shape, channels, kind=F32, empty=False):
    count = 0 if empty else channels
    return [
        some(*shape, dtype=kind),
        some(channels),
        some(channels),
        some(count),
        np.abs(some(count)) + F32(0.5),
    ]


def close(ours, theirs):
    """Equal, but for what only a device needs; some processors have TensorFlow leave it unset."""
    for mine, wanted in zip(ours[:3], theirs[:3], strict=True):
        assert mine.dtype == wanted.dtype
        assert mine.shape == wanted.shape
        tolerance = 2e-2 if mine.dtype.itemsize == 2 else 2e-5
        np.testing.assert_allclose(mine.astype(F32), wanted.astype(F32), tolerance, tolerance)


NCHW = {"data_format": "NCHW"}
NORMAL = [
    *(
        case(
            f"FusedBatchNorm{v}",
            batch((2, 3, 4, 3), 3),
            {"is_training": t, "epsilon": 0.01},
            compare=close,
        )
        for v in ("", "V2", "V3")
        for t in (True, False)
    ),
    *(
        case(
            f"FusedBatchNorm{v}",
            batch((2, 3, 4, 3), 3, empty=True),
            {"epsilon": 0.01},
            compare=close,
        )
        for v in ("", "V2", "V3")
    ),
    *(
        case("FusedBatchNormV3", batch((2, 3, 4, 5), 3), {"is_training": t, **NCHW}, compare=close)
        for t in (True, False)
    ),
    *(
        case(
            "FusedBatchNormV3", batch((2, 3, 4, 3), 3), {"exponential_avg_factor": f}, compare=close
        )
        for f in (0.0, 0.25, 1.0)
    ),
    *(case("FusedBatchNormV2", batch((2, 3, 4, 3), 3, t), compare=close) for t in (F16, BF16)),
    *(
        case(
            "FusedBatchNormV3",
            batch((2, 3, 4, 3), 3, t),
            {"is_training": False},
            compare=close,
        )
        for t in (F16, BF16)
    ),
    case("FusedBatchNormV3", batch((2, 3, 4, 2, 3), 3), {"data_format": "NDHWC"}, compare=close),
    case("FusedBatchNorm", batch((1, 1, 1, 3), 3), compare=close),
    case("FusedBatchNormV3", batch((2, 3, 4, 3), 2), error=True),
    case("FusedBatchNorm", batch((3, 3), 3), error=True),
    *(
        case(
            f"FusedBatchNormGrad{v}",
            [some(2, 3, 4, 3), some(2, 3, 4, 3), some(3), some(3), np.abs(some(3)) + F32(0.5)]
            + [np.zeros(0, F32)] * (v == "V3"),
            {"is_training": t, "epsilon": 0.01},
            compare=close,
        )
        for v in ("", "V2", "V3")
        for t in (True, False)
    ),
    case(
        "FusedBatchNormGradV3",
        [
            some(2, 3, 4, 5),
            some(2, 3, 4, 5),
            some(3),
            some(3),
            np.abs(some(3)) + F32(0.5),
            np.zeros(0, F32),
        ],
        NCHW,
        compare=close,
    ),
    case(
        "FusedBatchNormGradV2",
        [
            some(2, 3, 4, 3, dtype=F16),
            some(2, 3, 4, 3, dtype=F16),
            some(3),
            some(3),
            np.abs(some(3)) + F32(0.5),
        ],
        compare=close,
    ),
    *(
        case("LRN", [some(2, 3, 2, 7, dtype=t)], a, atol=1e-2 if t != F32 else None)
        for t in (F32, F16)
        for a in ({}, {"depth_radius": 2, "bias": 2.0, "alpha": 0.5, "beta": 0.75})
    ),
    *(
        case(
            "LRNGrad",
            [some(2, 3, 2, 7), some(2, 3, 2, 7), some(2, 3, 2, 7)],
            a,
            rtol=1e-4,
            atol=1e-5,
        )
        for a in ({}, {"depth_radius": 1, "bias": 2.0, "alpha": 0.5, "beta": 0.75})
    ),
    case("LRN", [some(3, 2, 7)], error=True),
]


def moments(channels, kind, count):
    """Vectors per channel, all positive, so that the second may be a variance."""
    return [np.abs(some(channels)).astype(kind) + kind(0.5) for _ in range(count)]


GLOBAL = [
    *(
        case(
            f"BatchNormWithGlobalNormalization{end}",
            [some(*shape, dtype=t), *moments(3, t, count), *back],
            {"variance_epsilon": 0.01, "scale_after_normalization": scale},
            rtol=2e-2 if t is F16 else 2e-5,
            atol=5e-2 if t is F16 else 2e-5,
        )
        for t in (F32, F16, F64)
        for scale in (True, False)
        for shape in ((2, 3, 4, 3), (1, 1, 1, 3), (0, 2, 2, 3))
        for end, count, back in (("", 4, []), ("Grad", 3, [some(*shape, dtype=t)]))
    ),
    *(
        case(
            "BatchNormWithGlobalNormalization",
            inputs,
            {"variance_epsilon": 0.01, "scale_after_normalization": True},
            error=True,
        )
        for inputs in (
            [some(2, 3), *moments(3, F32, 4)],
            [some(2, 3, 4, 3), *moments(2, F32, 4)],
            [np.ones((2, 3, 4, 3), I32), *[np.ones(3, I32)] * 4],
        )
    ),
    case(
        "BatchNormWithGlobalNormalizationGrad",
        [some(2, 3, 4, 3), *moments(3, F32, 3), some(2, 3, 4)],
        {"variance_epsilon": 0.01, "scale_after_normalization": True},
        error=True,
    ),
]
IMAGE = random.integers(0, 9, (2, 4, 5, 3))
SIZES = ((8, 10), (2, 3), (4, 5), (1, 1), (7, 3))
GRIDS = ({}, {"align_corners": True}, {"half_pixel_centers": True})
RESIZE = [
    *(
        case(op, [IMAGE.astype(F32), i32(*s)], a)
        for op in ("ResizeBilinear", "ResizeNearestNeighbor")
        for s in SIZES
        for a in GRIDS
    ),
    *(
        # of doubles too the bilinear one, and its gradient, are computed in float32
        case(op, [IMAGE.astype(t), i32(3, 7)], rtol=2e-5 if t == F64 else None)
        for op in ("ResizeBilinear", "ResizeNearestNeighbor")
        for t in (F64, F16, BF16, np.uint8, I32, np.int16)
    ),
    *(
        case("ResizeBilinearGrad", [some(2, *s, 3), some(2, 4, 5, 3)], a, atol=1e-5)
        for s in SIZES
        for a in GRIDS
    ),
    case(
        "ResizeBilinearGrad", [some(2, 3, 4, 3), some(2, 4, 5, 3, dtype=F64)], rtol=1e-5, atol=1e-6
    ),
    *(
        case(
            "ResizeNearestNeighborGrad",
            [random.integers(0, 9, (2, *s, 3)).astype(F32), i32(4, 5)],
            a,
        )
        for s in SIZES
        for a in GRIDS
    ),
    *(
        case("ResizeNearestNeighborGrad", [IMAGE.astype(t), i32(3, 7)])
        for t in (F64, F16, np.uint8, I32)
    ),
    *(
        case(op, [IMAGE.astype(F32), s], error=True)
        for op in ("ResizeBilinear", "ResizeNearestNeighbor")
        for s in (i32(0, 3), i32(3), i32(-1, 2))
    ),
    case("ResizeBilinear", [some(4, 5, 3), i32(2, 2)], error=True),
    case(
        "ResizeBilinear",
        [IMAGE.astype(F32), i32(2, 2)],
        {"align_corners": True, "half_pixel_centers": True},
        error=True,
    ),
]
PIXELS = np.concatenate(
    [
        random.random((4, 3)),
        [[0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.2], [0.1, 0.1, 0.1], [0, 1, 1], [1, 0, 1]],
    ]
)
COLOURS = [
    *(
        case(op, [PIXELS.astype(t)], atol=2e-2 if t in (F16, BF16) else 1e-6)
        for op in ("RGBToHSV", "HSVToRGB")
        for t in (F32, F64)
    ),
    case("RGBToHSV", [np.zeros((0, 3), F32)]),
    case("HSVToRGB", [PIXELS.reshape(2, 5, 3)]),
    case("RGBToHSV", [some(4, 2)], error=True),
    case("HSVToRGB", [F32(2)], error=True),
    case("AdjustContrastv2", [random.random((2, 4, 5, 3)).astype(F32), F32(1.5)]),
    case("AdjustContrastv2", [random.random((4, 5, 3)).astype(F32), F32(0.5)]),
    case("AdjustContrastv2", [random.random((2, 65, 65, 3)).astype(F32) + F32(9), F32(2)]),
    case("AdjustContrastv2", [some(4, 5), F32(0.5)], error=True),
    case("AdjustHue", [PIXELS.reshape(2, 5, 3).astype(F32), F32(0.3)], rtol=1e-4, atol=1e-5),
    case("AdjustHue", [PIXELS.reshape(2, 5, 3).astype(F32), F32(-0.3)], rtol=1e-4, atol=1e-5),
    case("AdjustHue", [PIXELS.astype(F32), F32(0.3)], error=True),
    case("AdjustSaturation", [PIXELS.reshape(2, 5, 3).astype(F32), F32(1.4)], rtol=1e-4, atol=1e-5),
    case("AdjustSaturation", [PIXELS.reshape(2, 5, 3).astype(F32), F32(0.4)], rtol=1e-4, atol=1e-5),
    case("AdjustSaturation", [some(2, 5, 2), F32(0.4)], error=True),
]
CASES = BIAS + SOFTMAX + CROSS + NORMAL + GLOBAL + RESIZE + COLOURS


def logits_and_shares(random, inputs):
    """Any logits, and labels that sum to one, as the gradient takes them to do."""
    return [random.normal(size=inputs[0].shape), random.dirichlet(np.ones(3), inputs[1].shape[:-1])]


def moments_of_the_image(random, inputs):
    """Any gradient, image and scale, and the moments that the image has."""
    shapes = [array.shape for array in inputs[:3]]
    dy, x, scale = (random.normal(size=shape).astype(F32) for shape in shapes)
    axis = x.ndim - 1 if x.shape[-1] == scale.size else 1
    others = tuple(d for d in range(x.ndim) if d != axis)
    return [dy, x, scale, x.mean(others), x.var(others), *inputs[5:]]


def colours(factor):
    """Pixels whose channels are far apart, and a factor that takes no hue to a corner."""

    def point(random, inputs):
        ways = np.argsort(random.random(inputs[0].shape), axis=-1)
        noise = random.uniform(-0.02, 0.02, inputs[0].shape)
        return [np.array([0.2, 0.45, 0.9])[ways] + noise, factor]

    return point


NORMALIZATIONS = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
BACK = [name.replace("Norm", "NormGrad") for name in NORMALIZATIONS]
SMOOTH = {"SoftmaxCrossEntropyWithLogits": logits_and_shares}
SMOOTH |= dict.fromkeys(BACK, moments_of_the_image)
SMOOTH |= {"ResizeBilinear": (-1, 1), "AdjustHue": colours(1 / 6), "AdjustSaturation": colours(0.8)}
OUR_SECOND = {
    "ResizeBilinear": "TensorFlow counts that of its gradient as unconnected",
    "BatchNormWithGlobalNormalization": "TensorFlow's is an op without one",
}
RESERVED = dict.fromkeys(NORMALIZATIONS, (1, 2, 3, 4)) | {"FusedBatchNormV3": (1, 2, 3, 4, 5)}
RESERVED |= dict.fromkeys(BACK, (3, 4))
NO_FORMULA = dict.fromkeys(NORMALIZATIONS, (3, 4))
# with the image the moments move
NO_FORMULA |= dict.fromkeys(BACK, (1, 3, 4, 5))
OUR_GRADIENT = {
    "SoftmaxCrossEntropyWithLogits:1": "TensorFlow leaves out that the gradient has labels in it",
    "SoftmaxCrossEntropyWithLogits broadcast": "TensorFlow gives gradients of another shape",
    **dict.fromkeys(
        (
            "ResizeBilinearGrad",
            "ResizeNearestNeighborGrad",
            "HSVToRGB",
            "AdjustContrastv2",
            "AdjustHue",
            "AdjustSaturation",
        ),
        "TensorFlow has none",
    ),
}
NO_GRADIENT = {
    "LRNGrad": "second order is not implemented",
    "BatchNormWithGlobalNormalizationGrad": "it is only in graphs of TensorFlow's first versions",
}
NO_SECOND = {"LRN": "its gradient has none"}
