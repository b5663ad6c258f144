"""Pooling over random regions, and the gradients for regions that are inputs."""

from itertools import pairwise

import numpy as np

from tests.ops.harness import case, i64

F32, F64, I32, I64 = np.float32, np.float64, np.int32, np.int64
NAN, INF = np.nan, np.inf
random = np.random.default_rng(31)
OPS = ("FractionalMaxPool", "FractionalAvgPool")
# with which each op on a 9 by 7 image of 5 by 3 regions, pooled at these rows and columns
ROWS, COLUMNS = i64(0, 2, 4, 6, 7, 9), i64(0, 2, 4, 7)


def image(*shape, dtype=F32):
    return random.integers(-20, 20, shape).astype(dtype)


def pooled(op, x, ratios=(1.0, 1.7, 2.2, 1.0), **attrs):
    seeds = {"deterministic": True, "seed": 5, "seed2": 7} | attrs
    return case(op, [x], {"pooling_ratio": [*map(float, ratios)], **seeds})


def refused(op, x, ratios=(1.0, 1.7, 2.2, 1.0), **attrs):
    return case(op, [x], {"pooling_ratio": [*map(float, ratios)], **attrs}, error=True)


def regions(x, combine, *, overlapping):
    """One value for each region."""
    bounds = [
        [slice(a, min(b + overlapping, size)) for a, b in pairwise(cuts)]
        for cuts, size in ((ROWS, 9), (COLUMNS, 7))
    ]
    rows = [[combine(x[:, r, c], axis=(1, 2)) for c in bounds[1]] for r in bounds[0]]
    return np.array(rows).transpose(2, 0, 1, 3).astype(x.dtype)


def gradients(dtype, overlapping):
    x, dy = image(2, 9, 7, 3, dtype=dtype), image(2, 5, 3, 3, dtype=dtype)
    y, attrs = regions(x, np.max, overlapping=overlapping), {"overlapping": overlapping}
    return [
        case("FractionalMaxPoolGrad", [x, y, dy, ROWS, COLUMNS], attrs),
        case("FractionalAvgPoolGrad", [i64(2, 9, 7, 3), dy, ROWS, COLUMNS], attrs),
    ]


def odd_image():
    """An image with regions of NaN, of infinity, and of both."""
    x = image(1, 8, 8, 2)
    x[0, :2, :2, 0], x[0, 2:4, :2, 0], x[0, 4, :2, 0], x[0, 5:, 5:, 1] = NAN, -INF, NAN, -INF
    return x


def max_gradient(x, y, dy, rows, columns, **more):
    return case("FractionalMaxPoolGrad", [x, y, dy, rows, columns], **more)


def mean_gradient(sizes, dy, rows, columns, **more):
    return case("FractionalAvgPoolGrad", [i64(*sizes), dy, rows, columns], **more)


PAIRS = i64(0, 2, 4)
FLAT = np.arange(16, dtype=F32).reshape(1, 4, 4, 1)
PEAKS = FLAT[:, 1::2, 1::2]

POOLS = [
    *(
        pooled(op, image(2, 23, 17, 3, dtype=t), pseudo_random=pseudo, overlapping=overlapping)
        for op in OPS
        for t in (F32, F64, I32, I64)
        for pseudo in (False, True)
        for overlapping in (False, True)
    ),
    *(
        pooled(op, image(1, 40, 31, 1), ratios, pseudo_random=pseudo)
        for op in OPS
        for ratios in ((1, 2, 1, 1), (1, 8.3, 31, 1), (1, 1.02, 10.5, 1))
        for pseudo in (False, True)
    ),
    *(
        pooled(op, image(1, 9, 9, 1), (1, 1.3, 1.9, 1), seed=a, seed2=b)
        for op in OPS
        for a, b in ((0, 4), (-5, 9), (1 << 40, 3), (8, 0))
    ),
    *(pooled(op, odd_image(), (1, 2, 2, 1)) for op in OPS),
    *(
        case(
            op,
            [image(2, 9, 8, 1, dtype=I32)],
            {"pooling_ratio": [1.0, 1.5, 2.0, 1.0], **a},
            compare="shape",
        )
        for op in OPS
        for a in ({}, {"deterministic": True}, {"pseudo_random": True})
    ),
    *(
        refused(op, image(2, 9, 9, 3), ratios)
        for op in OPS
        for ratios in (
            (1, 0.7, 1.3, 1),
            (1, 9.5, 1.3, 1),
            (1, 1.5, 1.3, 2),
            (2, 1.5, 1.3, 1),
            (1, NAN, 1.3, 1),
            (1, 1.5, 1.3, 1, 1),
        )
    ),
    *(refused(op, image(2, 9, 9, 3), seed=4) for op in OPS),
    *(refused(op, image(0, 9, 9, 3)) for op in OPS),
    *(refused(op, image(9, 9, 3)) for op in OPS),
]
GRADIENTS = [
    *(item for t in (F32, F64, I32, I64) for o in (False, True) for item in gradients(t, o)),
    max_gradient(FLAT, PEAKS, PEAKS, PAIRS, PAIRS),
    max_gradient(FLAT * 0, PEAKS * 0, PEAKS, PAIRS, PAIRS),  # all values are the maximum
    max_gradient(FLAT, PEAKS + 1, PEAKS, PAIRS, PAIRS, error=True),
    max_gradient(FLAT[0], PEAKS, PEAKS, PAIRS, PAIRS, error=True),
    max_gradient(
        FLAT[:, :2, :2], FLAT[:, :2, :2], FLAT[:, :2, :2], i64(0, 1, 2), i64(0, 1, 2), error=True
    ),
    mean_gradient((1, 4, 4, 1), PEAKS, i64(0, 2, 4, 9), PAIRS),
    mean_gradient((1, 4, 4, 1), PEAKS, i64(0, 3, 9), i64(3, 1, 4)),
    mean_gradient((1, 4, 4, 1), PEAKS[:, :0], PAIRS, PAIRS, error=True),
    mean_gradient((1, 4, 4, 1), PEAKS, i64(0, 2), PAIRS, error=True),
    mean_gradient((1, 4, 4, 1), PEAKS, i64(-1, 2, 4), PAIRS, error=True),
    mean_gradient((1, 4, 4, 1), PEAKS, PAIRS, i64(0, 2, -4), error=True),
    mean_gradient((1, 0, 4, 1), PEAKS, PAIRS, PAIRS, error=True),
    mean_gradient((1, 4, 4), PEAKS, PAIRS, PAIRS, error=True),
]
CASES = POOLS + GRADIENTS
NO_GRADIENT = dict.fromkeys(
    ("FractionalMaxPoolGrad", "FractionalAvgPoolGrad"), "TensorFlow has none"
)
# of regions that begin with NaN, or hold only infinity
FAILS = {"FractionalMaxPool": ("tensor_out_dup is not the same as tensor_out",)}
