"""Pooling by greatest value and by mean, and the gradients."""

import ml_dtypes
import numpy as np

from tests.ops.harness import case, i32

F32, F64, F16, BF16, I32 = np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32
NAN, INF = np.nan, np.inf
random = np.random.default_rng(2)


def whole(*shape, dtype=F32):
    return random.integers(0, 9, shape).astype(dtype)


def window(k, s, padding, **more):
    return {"ksize": [1, *k, 1], "strides": [1, *s, 1], "padding": padding, **more}


def outputs(sizes, k, s, padding):
    if padding == "SAME":
        return [-(-n // step) for n, step in zip(sizes, s, strict=True)]
    return [(n - w) // step + 1 for n, w, step in zip(sizes, k, s, strict=True)]


FLAT = [
    ((2, 6, 5, 3), (2, 2), (2, 2), "VALID"),
    ((2, 6, 5, 3), (2, 2), (2, 2), "SAME"),
    ((2, 6, 5, 3), (3, 2), (1, 2), "SAME"),
    ((2, 6, 5, 3), (3, 3), (2, 1), "VALID"),
    ((1, 3, 3, 1), (5, 5), (1, 1), "SAME"),
    ((0, 3, 3, 1), (2, 2), (1, 1), "SAME"),
    ((1, 5, 5, 1), (1, 1), (3, 3), "SAME"),
]
SOLID = [
    ((2, 3, 6, 5, 2), (2, 2, 2), (2, 2, 2), "VALID"),
    ((2, 3, 6, 5, 2), (2, 3, 2), (1, 2, 2), "SAME"),
]
ODD = np.array([[NAN, 1], [1, NAN], [-INF, -INF], [INF, NAN]], F32).reshape(4, 1, 2, 1)
PAIRS = window((1, 2), (1, 1), "VALID")
TYPES = (F64, F16, BF16, I32, np.int64, np.uint8, np.int8, np.int16, np.uint16)


def greatest(x, k, s, padding):
    """The greatest values, padding never winning."""
    sizes, ends = x.shape[1:-1], outputs(x.shape[1:-1], k, s, padding)
    missing = [
        max((n - 1) * step + w - size, 0) if padding == "SAME" else 0
        for n, step, w, size in zip(ends, s, k, sizes, strict=True)
    ]
    padded = np.full(
        (x.shape[0], *(n + m for n, m in zip(sizes, missing, strict=True)), x.shape[-1]),
        -99,
        x.dtype,
    )
    inner = tuple(slice(m // 2, m // 2 + n) for m, n in zip(missing, sizes, strict=True))
    padded[(slice(None), *inner)] = x
    best = np.full((x.shape[0], *ends, x.shape[-1]), -99, x.dtype)
    for place in np.ndindex(*k):
        view = tuple(
            slice(p, p + (n - 1) * step + 1, step)
            for p, n, step in zip(place, ends, s, strict=True)
        )
        best = np.maximum(best, padded[(slice(None), *view)])
    return best


def gradients(image, k, s, padding, solid, dtype=F32):
    x = whole(*image, dtype=dtype)
    y = greatest(x, k, s, padding)
    ending = "3D" if solid else ""
    attrs = window(k, s, padding)
    dy = whole(*y.shape, dtype=dtype)
    return [
        case(f"MaxPool{ending}Grad", [x, y, dy], attrs),
        case(f"MaxPool{ending}GradGrad", [x, y, whole(*image, dtype=dtype)], attrs),
    ]


MAX = [
    *(case("MaxPool", [whole(*image)], window(k, s, p)) for image, k, s, p in FLAT),
    *(case("MaxPool3D", [whole(*image)], window(k, s, p)) for image, k, s, p in SOLID),
    *(case("MaxPool", [whole(1, 4, 4, 2, dtype=t)], window((2, 2), (1, 1), "SAME")) for t in TYPES),
    case("MaxPool", [ODD], PAIRS),
    case("MaxPool", [ODD], window((1, 3), (1, 1), "SAME")),
    case(
        "MaxPool",
        [whole(1, 1, 2, 4)],
        {"ksize": [1, 1, 1, 2], "strides": [1, 1, 1, 2], "padding": "VALID"},
    ),
    case(
        "MaxPool",
        [whole(1, 1, 2, 4)],
        {"ksize": [1, 1, 1, 3], "strides": [1, 1, 1, 3], "padding": "VALID"},
        error=True,
    ),
    case(
        "MaxPool",
        [whole(1, 2, 2, 4)],
        {"ksize": [1, 2, 2, 2], "strides": [1, 1, 1, 2], "padding": "VALID"},
        error=True,
    ),
    case(
        "MaxPool",
        [whole(2, 2, 2, 4)],
        {"ksize": [2, 2, 2, 1], "strides": [1, 1, 1, 1], "padding": "VALID"},
        error=True,
    ),
    case("MaxPool", [whole(1, 2, 2, 1)], window((3, 3), (1, 1), "VALID"), error=True),
    case(
        "MaxPool",
        [whole(1, 4, 3, 1)],
        window((2, 2), (1, 1), "EXPLICIT", explicit_paddings=[0, 0, 1, 0, 1, 1, 0, 0]),
    ),
    case(
        "MaxPool",
        [whole(2, 3, 4, 5)],
        {"ksize": [1, 1, 2, 2], "strides": [1, 1, 2, 2], "padding": "SAME", "data_format": "NCHW"},
    ),
    case("MaxPoolV2", [whole(2, 4, 5, 3), i32(1, 2, 3, 1), i32(1, 2, 1, 1)], {"padding": "SAME"}),
    case(
        "MaxPoolV2",
        [whole(2, 4, 5, 3), i32(1, 2, 3), i32(1, 2, 1, 1)],
        {"padding": "SAME"},
        error=True,
    ),
    *(c for image, k, s, p in FLAT for c in gradients(image, k, s, p, False)),
    *(c for image, k, s, p in SOLID for c in gradients(image, k, s, p, True)),
    *(
        c
        for t in (F64, F16, I32, np.int64)
        for c in gradients((1, 4, 4, 2), (2, 2), (2, 2), "SAME", False, t)
    ),
    case(
        "MaxPoolGrad",
        [ODD, np.array([1, 1, -INF, INF], F32).reshape(4, 1, 1, 1), whole(4, 1, 1, 1)],
        PAIRS,
    ),
    case(
        "MaxPoolGradV2",
        [whole(1, 2, 2, 1), whole(1, 1, 1, 1), whole(1, 1, 1, 1), i32(1, 2, 2, 1), i32(1, 1, 1, 1)],
        {"padding": "VALID"},
    ),
    case(
        "MaxPoolGradGradV2",
        [
            np.arange(4, dtype=F32).reshape(1, 2, 2, 1),
            np.full((1, 1, 1, 1), 3, F32),
            whole(1, 2, 2, 1),
            i32(1, 2, 2, 1),
            i32(1, 1, 1, 1),
        ],
        {"padding": "VALID"},
    ),
    case(
        "MaxPoolGrad",
        [whole(1, 2, 2, 1), whole(1, 2, 1, 1), whole(1, 1, 1, 1)],
        window((2, 2), (1, 1), "VALID"),
        error=True,
    ),
    case(
        "MaxPoolGrad",
        [whole(1, 2, 2, 1), whole(1, 1, 1, 1), whole(1, 2, 1, 1)],
        window((2, 2), (1, 1), "VALID"),
        error=True,
    ),
]
ARGMAX = [
    *(
        case("MaxPoolWithArgmax", [whole(*image)], window(k, s, p, include_batch_in_index=b))
        for image, k, s, p in FLAT
        for b in (False, True)
        if image[0]
    ),
    case("MaxPoolWithArgmax", [ODD], window((1, 2), (1, 1), "VALID", Targmax=I32)),
    case("MaxPoolWithArgmax", [whole(1, 4, 4, 2, dtype=I32)], window((2, 2), (1, 1), "SAME")),
    *(
        case(
            "MaxPoolGradWithArgmax",
            [whole(2, 4, 4, 1), whole(2, 2, 2, 1), random.integers(0, 16, (2, 2, 2, 1))],
            window((2, 2), (2, 2), "VALID", include_batch_in_index=b),
        )
        for b in (False, True)
    ),
]
MEAN = [
    *(case("AvgPool", [whole(*image)], window(k, s, p)) for image, k, s, p in FLAT),
    *(case("AvgPool3D", [whole(*image)], window(k, s, p)) for image, k, s, p in SOLID),
    *(
        case("AvgPool", [whole(1, 4, 4, 2, dtype=t)], window((2, 2), (1, 1), "SAME"))
        for t in (F64, F16, BF16)
    ),
    *(
        case(
            "AvgPoolGrad",
            [i32(*image), whole(image[0], *outputs(image[1:3], k, s, p), image[3])],
            window(k, s, p),
        )
        for image, k, s, p in FLAT
    ),
    *(
        case(
            "AvgPool3DGrad",
            [i32(*image), whole(image[0], *outputs(image[1:4], k, s, p), image[4])],
            window(k, s, p),
        )
        for image, k, s, p in SOLID
    ),
    case(
        "AvgPoolGrad",
        [i32(1, 4, 4, 2), whole(1, 2, 2, 2, dtype=F64)],
        window((2, 2), (2, 2), "VALID"),
    ),
    case(
        "AvgPoolGrad",
        [i32(1, 4, 4), whole(1, 2, 2, 2)],
        window((2, 2), (2, 2), "VALID"),
        error=True,
    ),
    case(
        "AvgPool",
        [whole(2, 3, 4, 5)],
        {"ksize": [1, 1, 2, 2], "strides": [1, 1, 2, 2], "padding": "SAME", "data_format": "NCHW"},
    ),
]
PADDED = [
    case(
        op,
        [whole(1, 4, 4, 1), *more],
        window((2, 2), (1, 1), "EXPLICIT", explicit_paddings=[0, 0, 0, 2, 1, 1, 0, 0]),
        error=True,
    )
    for op, more in (("MaxPool", []), ("MaxPoolGrad", [whole(1, 5, 5, 1)] * 2))
]
CASES = MAX + ARGMAX + MEAN + PADDED
WITHOUT_CASE = {"MaxPoolGradGradWithArgmax": "TensorFlow has no kernel for it on the CPU"}


def far_apart(random, inputs):
    """Values of which no two are close, so that peaks stay where they are."""
    image = inputs[0]
    return [random.permutation(image.size).reshape(image.shape) / 8, *inputs[1:]]


def peaks_stay(random, inputs):
    """The image of the case and its pooled values, which determine the peaks.

    None where they do not, or where a window of a volume has several, which the gradients count
    in different ways.
    """
    image, pooled = inputs[:2]
    several = image.ndim == 5 and np.unique(image).size < image.size
    if several or np.isnan(image).any() or not np.isin(pooled, image).all():
        return None
    return [*inputs[:2], random.normal(size=inputs[2].shape), *inputs[3:]]


ENDINGS = ("Grad", "GradV2", "3DGrad", "GradGrad", "GradGradV2", "3DGradGrad")
BACK = [f"MaxPool{ending}" for ending in ENDINGS]
SMOOTH = {"MaxPool3D": far_apart} | dict.fromkeys(BACK, peaks_stay)
NO_FORMULA = dict.fromkeys(BACK, (0, 1))
NO_FORMULA |= {f"MaxPool{ending}WithArgmax": (0,) for ending in ("Grad", "GradGrad")}
OUR_GRADIENT = dict.fromkeys(
    ("MaxPoolGradGradV2", "MaxPoolGradWithArgmax", "MaxPoolGradGradWithArgmax"),
    "TensorFlow has none",
)
