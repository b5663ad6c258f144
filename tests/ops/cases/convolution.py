"""Convolutions and their gradients: padding, strides, dilations, groups, data formats, types."""

import ml_dtypes
import numpy as np

from tests.ops.harness import case, i32

F32, F64, F16, BF16, I32 = np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32
random = np.random.default_rng(1)


def whole(*shape, dtype=F32):
    """Small whole numbers, so that sums are exact whatever their order."""
    return random.integers(-4, 5, shape).astype(dtype)


def out(size, window, stride, dilation, padding, pads=(0, 0)):
    reach = (window - 1) * dilation + 1
    if padding == "SAME":
        return -(-size // stride)
    return (size + sum(pads) - reach) // stride + 1


def triples(op, image, window, depth, filters, strides, dilations, padding, dtype=F32, pads=None):
    """A convolution, and the gradients of its image and its filter."""
    batch, *sizes, channels = image
    spatial = [
        out(n, k, s, d, padding, p)
        for n, k, s, d, p in zip(
            sizes, window, strides, dilations, pads or [(0, 0)] * len(sizes), strict=True
        )
    ]
    attrs = {"strides": [1, *strides, 1], "dilations": [1, *dilations, 1], "padding": padding}
    if pads:
        attrs["explicit_paddings"] = [0, 0, *(p for pair in pads for p in pair), 0, 0]
    x, w = whole(*image, dtype=dtype), whole(*window, depth, filters, dtype=dtype)
    outputs = filters * channels if op.startswith("Depthwise") else filters
    dy = whole(batch, *spatial, outputs, dtype=dtype)
    ending = "V2" if op == "Conv3D" else ""
    return [
        case(op, [x, w], attrs),
        case(f"{op}BackpropInput{ending}", [i32(*x.shape), w, dy], attrs),
        case(f"{op}BackpropFilter{ending}", [x, i32(*w.shape), dy], attrs),
    ]


FLAT = [
    ((2, 5, 6, 3), (3, 2), (1, 1), (1, 1), "SAME"),
    ((2, 5, 6, 3), (3, 2), (1, 1), (1, 1), "VALID"),
    ((2, 7, 6, 3), (3, 3), (2, 2), (1, 1), "SAME"),
    ((2, 7, 6, 3), (3, 3), (2, 2), (1, 1), "VALID"),
    ((1, 8, 9, 2), (2, 3), (1, 1), (2, 3), "SAME"),
    ((1, 8, 9, 2), (2, 3), (1, 1), (2, 3), "VALID"),
    ((1, 8, 9, 2), (1, 1), (1, 1), (1, 1), "VALID"),
    ((1, 8, 9, 2), (1, 1), (3, 3), (1, 1), "SAME"),
    ((1, 3, 3, 1), (3, 3), (1, 1), (1, 1), "VALID"),
    ((1, 2, 2, 1), (4, 5), (1, 1), (1, 1), "SAME"),
]
CONV2D = [
    *(c for image, k, s, d, p in FLAT for c in triples("Conv2D", image, k, image[-1], 4, s, d, p)),
    *triples("Conv2D", (2, 7, 6, 3), (3, 3), 3, 4, (2, 3), (1, 1), "VALID"),
    *triples(
        "Conv2D", (2, 5, 6, 3), (3, 2), 3, 2, (1, 1), (1, 1), "EXPLICIT", F32, [(1, 0), (2, 1)]
    ),
    *triples("Conv2D", (1, 5, 5, 2), (3, 3), 2, 2, (1, 1), (1, 1), "SAME", F16),
    *triples("Conv2D", (1, 5, 5, 2), (3, 3), 2, 2, (1, 1), (1, 1), "SAME", BF16),
    *triples("Conv2D", (1, 5, 5, 2), (3, 3), 2, 2, (1, 1), (1, 1), "SAME", F64),
    case("Conv2D", [whole(1, 5, 5, 4), whole(3, 3, 2, 6)], {"strides": [1] * 4, "padding": "SAME"}),
    case("Conv2D", [whole(0, 5, 5, 2), whole(3, 3, 2, 2)], {"strides": [1] * 4, "padding": "SAME"}),
    case(
        "Conv2D",
        [whole(2, 3, 5, 6), whole(3, 2, 3, 4)],
        {"strides": [1, 1, 2, 2], "padding": "SAME", "data_format": "NCHW"},
    ),
    case(
        "Conv2D",
        [whole(1, 5, 5, 2, dtype=I32), whole(3, 3, 2, 3, dtype=I32)],
        {"strides": [1] * 4, "padding": "VALID"},
    ),
    case(
        "Conv2DBackpropInput",
        [i32(5, 6), whole(3, 3, 2, 4), whole(2, 3, 4, 4)],
        {"strides": [1] * 4, "padding": "VALID"},
    ),
]
ERRORS = [
    case(
        "Conv2D",
        [whole(2, 3, 5, 5, 2), whole(3, 3, 2, 1)],
        {"strides": [1] * 4, "padding": "SAME"},
        error=True,
    ),
    case(
        "Conv2D",
        [whole(1, 1, 1, 1), whole(3, 3, 1, 1)],
        {"strides": [1] * 4, "padding": "VALID"},
        error=True,
    ),
    case(
        "Conv2D",
        [whole(1, 4, 4, 4), whole(3, 3, 3, 1)],
        {"strides": [1] * 4, "padding": "SAME"},
        error=True,
    ),
    case(
        "Conv2D",
        [whole(1, 4, 4, 1), whole(3, 3, 1)],
        {"strides": [1] * 4, "padding": "SAME"},
        error=True,
    ),
    case(
        "Conv2D",
        [whole(1, 4, 4, 1), whole(3, 3, 1, 1)],
        {"strides": [2, 1, 1, 1], "padding": "SAME"},
        error=True,
    ),
    case(
        "Conv2D",
        [whole(1, 4, 4, 1), whole(3, 3, 1, 1)],
        {"strides": [1, 0, 1, 1], "padding": "SAME"},
        error=True,
    ),
    case(
        "Conv2DBackpropInput",
        [i32(1, 5, 5, 1), whole(3, 3, 1, 1), whole(1, 2, 1, 1)],
        {"strides": [1] * 4, "padding": "VALID"},
        error=True,
    ),
    case(
        "Conv2DBackpropFilter",
        [whole(1, 5, 5, 1), i32(3, 3, 1, 1), whole(1, 2, 1, 1)],
        {"strides": [1] * 4, "padding": "VALID"},
        error=True,
    ),
    case(
        "DepthwiseConv2dNative",
        [whole(1, 5, 5, 2), whole(3, 3, 3, 1)],
        {"strides": [1] * 4, "padding": "VALID"},
        error=True,
    ),
    case(
        "Conv3D",
        [whole(1, 2, 2, 2, 1), whole(4, 4, 4, 1, 1)],
        {"strides": [1] * 5, "padding": "VALID"},
        error=True,
    ),
]
DEPTHWISE = [
    *(
        c
        for image, k, s, d, p in FLAT
        # TensorFlow's gradients leave dilations out of account on the CPU
        if s[0] == s[1] and d == (1, 1) and (p == "VALID" or k[0] <= image[1])
        for c in triples("DepthwiseConv2dNative", image, k, image[-1], 2, s, d, p)
    ),
    case(
        "DepthwiseConv2dNative",
        [whole(1, 8, 9, 2), whole(2, 3, 2, 2)],
        {"strides": [1] * 4, "padding": "VALID", "dilations": [1, 2, 3, 1]},
    ),
    *triples("DepthwiseConv2dNative", (1, 5, 5, 2), (3, 3), 2, 1, (1, 1), (1, 1), "SAME", F64),
    *triples("DepthwiseConv2dNative", (1, 5, 5, 2), (3, 3), 2, 1, (1, 1), (1, 1), "SAME", F16),
    *triples(
        "DepthwiseConv2dNative",
        (1, 5, 5, 3),
        (3, 3),
        3,
        2,
        (1, 1),
        (1, 1),
        "EXPLICIT",
        F32,
        [(1, 1), (0, 2)],
    ),
]
SOLID = [
    ((2, 4, 5, 6, 2), (3, 2, 3), (1, 1, 1), (1, 1, 1), "SAME"),
    ((2, 4, 5, 6, 2), (3, 2, 3), (1, 1, 1), (1, 1, 1), "VALID"),
    ((1, 4, 5, 6, 2), (3, 2, 3), (2, 1, 3), (1, 1, 1), "SAME"),
    ((1, 4, 5, 6, 2), (2, 2, 2), (2, 2, 2), (1, 1, 1), "VALID"),
]
CONV3D = [
    *(c for image, k, s, d, p in SOLID for c in triples("Conv3D", image, k, image[-1], 3, s, d, p)),
    *triples("Conv3D", (1, 3, 3, 3, 2), (2, 2, 2), 2, 2, (1, 1, 1), (1, 1, 1), "SAME", F64),
    *triples("Conv3D", (1, 3, 3, 3, 2), (2, 2, 2), 2, 2, (1, 1, 1), (1, 1, 1), "SAME", F16),
    case(
        "Conv3DBackpropInput",
        [whole(1, 3, 3, 3, 2), whole(2, 2, 2, 2, 3), whole(1, 2, 2, 2, 3)],
        {"strides": [1] * 5, "padding": "VALID"},
    ),
    case(
        "Conv3DBackpropFilter",
        [whole(1, 3, 3, 3, 2), whole(2, 2, 2, 2, 3), whole(1, 2, 2, 2, 3)],
        {"strides": [1] * 5, "padding": "VALID"},
    ),
]
DILATE = {"strides": [1] * 4, "rates": [1] * 4, "padding": "SAME"}
DILATIONS = [
    {"strides": [1, 1, 1, 1], "rates": [1, 1, 1, 1], "padding": "SAME"},
    {"strides": [1, 2, 2, 1], "rates": [1, 1, 1, 1], "padding": "VALID"},
    {"strides": [1, 1, 2, 1], "rates": [1, 2, 1, 1], "padding": "SAME"},
]
X, W = random.random((2, 6, 7, 3)).astype(F32), random.random((3, 2, 3)).astype(F32)
SHAPES = [(2, 6, 7, 3), (2, 2, 3, 3), (2, 6, 4, 3)]
DILATION = [
    *(case("Dilation2D", [X.astype(t), W.astype(t)], DILATIONS[0]) for t in (F32, F64, F16, I32)),
    *(case("Dilation2D", [X, W], attrs) for attrs in DILATIONS),
    *(
        case(f"Dilation2DBackprop{what}", [X, W, whole(*shape)], attrs)
        for attrs, shape in zip(DILATIONS, SHAPES, strict=True)
        for what in ("Input", "Filter")
    ),
    case("Dilation2D", [X, W[..., :2]], DILATE, error=True),
    case("Dilation2D", [X[0], W], DILATE, error=True),
]


def of_any_rank(image, window, strides, padding="VALID", dtype=F32, filters=2, **attrs):
    """A convolution by the op of all ranks; the window ends with the depth."""
    x, w = whole(*image, dtype=dtype), whole(*window, filters, dtype=dtype)
    error = attrs.pop("error", False)
    return case("Conv", [x, w], {"strides": strides, "padding": padding, **attrs}, error=error)


ONES = [1, 1, 1, 1]
PADS = [0, 0, 1, 2, 2, 1, 0, 0]
ANY_RANK = [
    *(
        of_any_rank((2, 5, 6, 3), (2, 3, 3), ONES, p, t)
        for p in ("SAME", "VALID")
        for t in (F32, F64, F16, BF16, I32)
    ),
    *(
        of_any_rank((2, 4, 5, 6, 3), (2, 1, 3, 3), [1, 1, 2, 1, 1], p, t)
        for p in ("SAME", "VALID")
        for t in (F32, F64, F16, BF16)
    ),
    of_any_rank((2, 7, 6, 3), (2, 2, 3), [1, 2, 2, 1], "SAME", dilations=[1, 2, 2, 1]),
    of_any_rank((2, 7, 6, 3), (2, 2, 3), [1, 1, 3, 1], "SAME"),
    of_any_rank((2, 7, 6, 3), (2, 2, 3), ONES, "EXPLICIT", explicit_paddings=PADS),
    of_any_rank((2, 2, 5, 6, 3), (2, 2, 3), ONES, batch_dims=2),
    of_any_rank((2, 1, 2, 4, 5, 6, 3), (2, 2, 2, 3), [1] * 5, batch_dims=3),
    of_any_rank((5, 6, 3), (2, 2, 3), ONES, batch_dims=0),
    of_any_rank((0, 5, 6, 3), (2, 2, 3), ONES),
    *(
        of_any_rank((2, 5, 6, 3), (2, 2, 3), s, error=True)
        for s in ([1, 1], [1] * 5, [2, 1, 1, 1], [1, 1, 1, 2])
    ),
    of_any_rank((2, 5, 6, 3), (2, 3), ONES, error=True),
    of_any_rank((2, 5, 3), (2, 3), [1, 1, 1], error=True),
    of_any_rank((2, 5, 6, 3), (2, 2, 1), ONES, filters=3, error=True),
    of_any_rank((2, 5, 6, 3), (2, 2, 3), ONES, filters=0, error=True),
    of_any_rank((2, 5, 6, 3), (2, 2, 1), ONES, filters=3, groups=3, error=True),
    of_any_rank((2, 5, 6, 3), (2, 2, 3), ONES, batch_dims=2, error=True),
    of_any_rank((2, 5, 6, 3), (2, 2, 3), ONES, dilations=[2, 2], error=True),
]
CASES = CONV2D + ERRORS + DEPTHWISE + CONV3D + DILATION + ANY_RANK
WITHOUT_CASE = {
    "Conv2DBackpropInputV2": "TensorFlow has no kernel",
    "Conv2DBackpropFilterV2": "TensorFlow has no kernel",
}

OUR_GRADIENT = dict.fromkeys(
    (
        "Conv3DBackpropInput",
        "Conv3DBackpropFilter",
        "Conv2DBackpropInputV2",
        "Conv2DBackpropFilterV2",
    ),
    "TensorFlow has none of this version",
)
NO_GRADIENT = {f"Dilation2DBackprop{to}": "as in TensorFlow" for to in ("Input", "Filter")}
NO_GRADIENT |= {"Conv": "as in TensorFlow"}
NO_SECOND = {"Dilation2D": "its gradients have none"}
