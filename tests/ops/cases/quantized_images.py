"""Convolution, pooling, and resizing of quantized images, bit by bit."""

import numpy as np

from tests.ops.harness import case

F32, I32, U8 = np.float32, np.int32, np.uint8
random = np.random.default_rng(19)
RANGES = ((-1, 1), (0, 6), (-3.7, 11.3), (0.5, 2), (-4, -1))


def q8(*shape):
    return random.integers(0, 256, shape).astype(U8)


# image size, window size, stride: windows that cover, exceed, and do not reach the image
WINDOWS = [(5, 3, 1), (6, 3, 2), (9, 2, 4), (5, 1, 5), (8, 3, 4), (3, 3, 3), (10, 1, 4), (4, 4, 1)]
CONVOLUTIONS = [
    *(
        case(
            "QuantizedConv2D",
            [q8(2, size, size + 1, 3), q8(window, window, 3, 2), *map(F32, (-1, 2, -2, 1))],
            {"strides": [1, stride, stride, 1], "padding": padding},
            types=("quint8", "quint8"),
        )
        for size, window, stride in WINDOWS
        for padding in ("SAME", "VALID")
    ),
    *(
        case(
            "QuantizedConv2D",
            [q8(1, 4, 4, 2), q8(3, 2, 2, 3), *map(F32, (*a, *b))],
            {"strides": [1, 1, 1, 1], "padding": padding},
            types=("quint8", "quint8"),
        )
        for a in RANGES
        for b in RANGES
        for padding in ("SAME", "VALID")
    ),
    *(
        case(
            "QuantizedConv2D",
            [q8(1, 4, 4, 2), q8(3, 2, depth, 3), *map(F32, (0, 1, 0, 1))],
            {"strides": strides, "padding": "SAME"},
            types=("quint8", "quint8"),
            error=True,
        )
        for depth, strides in ((1, [1, 1, 1, 1]), (2, [1, 1, 2, 1]), (2, [1, 1, 1, 2]))
    ),
]
POOLS = [
    *(
        case(
            op,
            [q8(2, size, size + 1, 3), F32(-1), F32(2)],
            {
                "ksize": [1, window, window, 1],
                "strides": [1, stride, stride, 1],
                "padding": padding,
            },
            types=("quint8",),
        )
        for op in ("QuantizedMaxPool", "QuantizedAvgPool")
        for size, window, stride in WINDOWS
        for padding in ("SAME", "VALID")
    ),
    case(
        "QuantizedAvgPool",
        [q8(2, 4, 4, 3), F32(-1), F32(2)],
        {"ksize": [1, 1, 1, 3], "strides": [1, 1, 1, 3], "padding": "VALID"},
        types=("quint8",),
        error=True,
    ),
]
SIZES = [((4, 5), (7, 3)), ((4, 5), (4, 5)), ((3, 3), (11, 13)), ((8, 9), (3, 2)), ((1, 1), (2, 3))]
RESIZED = [
    case(
        "QuantizedResizeBilinear",
        [x, I32(new), F32(-1), F32(2)],
        {"align_corners": corners, "half_pixel_centers": centers},
        types=(name,),
    )
    for old, new in SIZES
    for channels in (1, 2, 3)
    for corners, centers in ((False, False), (True, False), (False, True))
    for name, x in (
        ("quint8", q8(2, *old, channels)),
        ("qint32", random.integers(-(1 << 31), 1 << 31, (1, *old, channels)).astype(I32)),
        ("float32", random.normal(size=(1, *old, channels)).astype(F32)),
    )
]
CASES = CONVOLUTIONS + POOLS + RESIZED
NO_GRADIENT = {item.op: "TensorFlow has none" for item in CASES}
