"""Projective transforms of images."""

import numpy as np

from tests.ops.harness import case

F16, F32, I32 = np.float16, np.float32, np.int32
random = np.random.default_rng(31)
IMAGES = random.uniform(0, 255, (3, 9, 11, 2)).astype(F32)
SHIFT = F32([[1, 0, -30.3, 0, 1, 41.7, 0, 0]])
EACH = F32(
    [
        [0.87, 0.21, -1.5, -0.23, 0.91, 2.31, 0, 0],
        [-1.3, 0.1, 9, 0.3, 1.7, -4, 0.01, -0.02],
        [1, 0, 0, 0, 1, 0, -0.25, 0],
    ]
)
SIZE = I32([8, 13])
MODES = ("CONSTANT", "REFLECT", "WRAP", "NEAREST")


def transform(images, transforms, mode, kind, *fill, size=SIZE, **more):
    op = f"ImageProjectiveTransformV{2 + len(fill)}"
    attrs = {"interpolation": kind, "fill_mode": mode}
    return case(op, [images, transforms, size, *fill], attrs, **more)


CASES = [
    *(
        transform(IMAGES.astype(dtype), transforms, mode, kind, F32(7))
        for mode in MODES
        for kind in ("NEAREST", "BILINEAR")
        for transforms in (EACH, SHIFT)
        for dtype in (F32, np.uint8)
    ),
    *(transform(IMAGES.astype(t), EACH, "CONSTANT", "NEAREST") for t in (F16, F32, I32)),
    *(transform(IMAGES[:, :1, :1], SHIFT, mode, "BILINEAR") for mode in MODES),
    transform(IMAGES, EACH[:2], "WRAP", "NEAREST", error=True),
    transform(IMAGES, EACH[:, :7], "WRAP", "NEAREST", error=True),
    transform(IMAGES[0], EACH, "WRAP", "NEAREST", error=True),
    transform(IMAGES, EACH, "WRAP", "NEAREST", size=I32([1]), error=True),
]
ESTIMATE = dict.fromkeys(
    ["ImageProjectiveTransformV2", "ImageProjectiveTransformV3"],
    "TensorFlow transforms the gradient by the inverse, which is not the transpose",
)
