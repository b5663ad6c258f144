"""Boxes of images, crops, patches, and resizing by kernels."""

import numpy as np

from tests.ops.harness import case

F16, F32, F64, I32, I64 = np.float16, np.float32, np.float64, np.int32, np.int64
random = np.random.default_rng(17)

CORNERS = random.uniform(0, 1, (30, 4)).astype(F32)
CORNERS[:, 2:] = CORNERS[:, :2] + random.uniform(0.1, 0.6, (30, 2)).astype(F32)
CORNERS[3] = CORNERS[3, [2, 3, 0, 1]]
CORNERS[4, 2] = CORNERS[4, 0]
SCORES = random.uniform(0, 1, 30).astype(F32)
SCORES[5] = SCORES[7]
SIZE = I32(12)
HALVES = [CORNERS.astype(F16), SCORES.astype(F16)]
NMS = [
    *(case("NonMaxSuppression", [CORNERS, SCORES, SIZE], {"iou_threshold": t}) for t in (0.5, 0.1)),
    *(case("NonMaxSuppressionV2", [CORNERS, SCORES, SIZE, F32(t)]) for t in (0.0, 0.3, 1.0)),
    *(
        case("NonMaxSuppressionV3", [CORNERS, SCORES, I32(n), F32(0.4), F32(least)])
        for n in (0, 3, 99)
        for least in (0.0, 0.5, 2.0, -np.inf)
    ),
    case("NonMaxSuppressionV3", [*HALVES, SIZE, F32(0.4), F32(0.2)]),
    case("NonMaxSuppressionV3", [CORNERS, SCORES[:3], SIZE, F32(0.4), F32(0)], error=True),
    case("NonMaxSuppressionV3", [CORNERS, SCORES, I32(-1), F32(0.4), F32(0)], error=True),
    case("NonMaxSuppressionV3", [CORNERS, SCORES, SIZE, F32(1.5), F32(0)], error=True),
    case("NonMaxSuppressionV3", [CORNERS[:, :3], SCORES, SIZE, F32(0.5), F32(0)], error=True),
    *(
        case(
            "NonMaxSuppressionV4",
            [CORNERS, SCORES, SIZE, F32(0.2), F32(0.3)],
            {"pad_to_max_output_size": pad},
        )
        for pad in (False, True)
    ),
    *(
        case(
            "NonMaxSuppressionV5",
            [CORNERS, SCORES, I32(20), F32(0.4), F32(least), F32(sigma)],
            {"pad_to_max_output_size": pad},
        )
        for pad in (False, True)
        for sigma in (0, 0.5, 0.1)
        for least in (0, 0.2)
    ),
    *(
        case(
            "NonMaxSuppressionWithOverlaps",
            [random.uniform(0, 1, (9, 9)).astype(F32), SCORES[:9], I32(5), F32(t), F32(0.1)],
        )
        for t in (0.5, 0.9)
    ),
    *(
        case(
            "CombinedNonMaxSuppression",
            [
                CORNERS[:24].reshape(2, 6, q, 4)[:, :6] * F32(1.5),
                random.uniform(0, 1, (2, 6, 2)).astype(F32),
                I32(n),
                I32(total),
                F32(0.4),
                F32(0.2),
            ],
            {"pad_per_class": pad, "clip_boxes": clip},
        )
        for q in (2,)
        for n, total in ((3, 8), (2, 3))
        for pad in (False, True)
        for clip in (False, True)
    ),
    case(
        "CombinedNonMaxSuppression",
        [
            CORNERS[:12].reshape(2, 6, 1, 4),
            random.uniform(0, 1, (2, 6, 3)).astype(F32),
            I32(4),
            I32(9),
            F32(0.4),
            F32(0.2),
        ],
    ),
]
IMAGE = random.uniform(-2, 2, (2, 7, 6, 3)).astype(F32)
BOXES = F32([[0, 0, 1, 1], [0.1, 0.2, 0.7, 0.9], [-0.31, 0.1, 1.42, 0.5], [0.9, 0.8, 0.1, 0.2]])
INDEX = I32([0, 1, 1, 0])
CROP = [
    *(
        case(
            "CropAndResize",
            [IMAGE.astype(t), BOXES, INDEX, I32(size)],
            {"method": method, "extrapolation_value": 0.5},
        )
        for t in (F32, F64, F16, np.uint8)
        for size in ([4, 5], [1, 3])
        for method in ("bilinear", "nearest")
    ),
    case("CropAndResize", [IMAGE, BOXES, I32([0, 1, 2, 0]), I32([4, 5])], error=True),
    case("CropAndResize", [IMAGE, BOXES, INDEX, I32([0, 5])], error=True),
    case("CropAndResize", [IMAGE, BOXES * F32(np.nan), INDEX, I32([4, 5])], error=True),
    *(
        case(
            "CropAndResizeGradImage",
            [random.standard_normal((4, *size, 3)).astype(F32), BOXES, INDEX, I32([2, 7, 6, 3])],
            {"method": method, "T": t},
        )
        for size in ((4, 5), (1, 3))
        for method in ("bilinear", "nearest")
        for t in (F32, F64)
    ),
    *(
        case(
            "CropAndResizeGradBoxes",
            [random.standard_normal((4, *size, 3)).astype(F32), IMAGE, BOXES, INDEX],
        )
        for size in ((4, 5), (1, 3))
    ),
    *(
        case(
            op,
            [IMAGE, I32([3, 4]), F32([[0.2, -0.4], [1.6, 0.1]]) * (1 if normalized else 3)],
            {"centered": c, "normalized": normalized, "uniform_noise": False, "noise": "zero"},
        )
        for op in ("ExtractGlimpse", "ExtractGlimpseV2")
        for c in (False, True)
        for normalized in (False, True)
    ),
    case("ExtractGlimpseV2", [IMAGE, I32([3, 4]), F32([[2, 2], [0, 0]])], compare="shape"),
]
DRAWN = F32([[[0.1, 0.2, 0.8, 0.7], [-0.2, 0.3, 0.5, 1.3]], [[0.9, 0, 0.2, 1], [0, 0, 1, 1]]])
DRAW = [
    *(
        case("DrawBoundingBoxes", [np.zeros((2, 9, 8, depth), t), DRAWN])
        for depth in (1, 3, 4)
        for t in (F32, F16)
    ),
    *(
        case(
            "DrawBoundingBoxesV2",
            [np.zeros((2, 9, 8, depth), F32), DRAWN, F32(colors)],
        )
        for depth in (1, 3)
        for colors in ([[0.5, 0.25, 0.75]], [[1, 2, 3, 4], [5, 6, 7, 8]])
    ),
    case("DrawBoundingBoxesV2", [np.zeros((2, 9, 8, 3), F32), DRAWN, np.zeros((0, 4), F32)]),
    case("DrawBoundingBoxes", [np.zeros((2, 9, 8, 2), F32), DRAWN], error=True),
]
PATCHES = [
    *(
        case(
            "ExtractImagePatches",
            [IMAGE.astype(t)],
            {"ksizes": [1, 3, 2, 1], "strides": [1, 2, 1, 1], "rates": rates, "padding": padding},
        )
        for t in (F32, F64, np.uint8)
        for rates in ([1, 1, 1, 1], [1, 2, 2, 1])
        for padding in ("SAME", "VALID")
    ),
    *(
        case(
            "ExtractVolumePatches",
            [random.standard_normal((1, 4, 3, 5, 2)).astype(F32)],
            {"ksizes": [1, 2, 2, 3, 1], "strides": [1, 1, 2, 1, 1], "padding": padding},
        )
        for padding in ("SAME", "VALID")
    ),
]
GRIDS = [{}, {"align_corners": True}, {"half_pixel_centers": True}]
SIZES = [I32([10, 9]), I32([3, 2]), I32([7, 6]), I32([1, 1])]
KERNELS = ("lanczos1", "lanczos3", "lanczos5", "gaussian", "box", "triangle", "keyscubic")
NEAR = {"rtol": 1e-4, "atol": 2e-5}
RESIZE = [
    *(
        case("ResizeBicubic", [IMAGE.astype(t), size], grid, **NEAR)
        for t in (F32, F64, np.uint8)
        for size in SIZES
        for grid in GRIDS
    ),
    *(
        case("ResizeBicubicGrad", [random.standard_normal((2, *s, 3)).astype(F32), IMAGE], grid)
        for s in ((10, 9), (3, 2))
        for grid in GRIDS
    ),
    *(
        case("ResizeArea", [IMAGE.astype(t), size], grid, **NEAR)
        for t in (F32, np.uint8)
        for size in SIZES
        for grid in GRIDS[:2]
    ),
    *(
        case(
            "ScaleAndTranslate",
            [IMAGE, size, F32(scale), F32([0.5, -1])],
            {"kernel_type": kernel, "antialias": smooth},
            **NEAR,
        )
        for kernel in (*KERNELS, "mitchellcubic")
        for smooth in (False, True)
        for size, scale in ((SIZES[0], [1.5, 1.25]), (SIZES[1], [0.5, 0.4]))
    ),
    case("ScaleAndTranslate", [IMAGE, SIZES[0], F32([0, 1]), F32([0, 0])], error=True),
    *(
        case(
            "ScaleAndTranslateGrad",
            [
                random.standard_normal((2, 10, 9, 3)).astype(F32),
                IMAGE,
                F32([1.5, 1.2]),
                F32([0, 1]),
            ],
            {"kernel_type": kernel},
        )
        for kernel in KERNELS
    ),
]
BOX = F32([[[0.1, 0.2, 0.6, 0.9], [0.5, 0.5, 0.4, 0.7]]])
COVERED = F32(0.3)
WHOLE, NO_BOX = F32([[[0, 0, 1, 1]]]), np.zeros((1, 0, 4), F32)
RULES = {"aspect_ratio_range": (0.5, 2.0), "area_range": (0.01, 0.6)}


def sampled(boxes=BOX, size=(40, 50, 3), covered=COVERED, seed=(1, 2), kind=I32, **more):
    error, compare = more.pop("error", False), more.pop("compare", "values")
    inputs = [np.array(size, kind), np.array(boxes, F32), covered, np.array(seed, I64)]
    return case(
        "StatelessSampleDistortedBoundingBox", inputs, RULES | more, error=error, compare=compare
    )


BOXES = [
    *(sampled(seed=(number, 7)) for number in range(30)),
    *(sampled(size=size, covered=F32(c)) for size in ((200, 9, 1), (9, 200, 3)) for c in (0, 0.9)),
    *(sampled(WHOLE, kind=kind, size=(100, 50, 1)) for kind in (np.uint8, np.int16, I64)),
    sampled(NO_BOX, use_image_if_no_bounding_boxes=True),
    sampled(WHOLE, size=(1, 1, 3)),
    sampled(WHOLE, size=(0, 50, 3)),
    sampled(WHOLE, area_range=(1.0, 1.0)),
    sampled(WHOLE, area_range=(0.5, 0.1)),
    sampled(covered=F32(2)),
    sampled(NO_BOX, error=True),
    *(sampled(box, error=True) for box in (BOX[0], BOX[:, :, :3], BOX * 2, -BOX, BOX * np.nan)),
    *(sampled(covered=covered, error=True) for covered in (F32(-1), F32([0.1]))),
    *(sampled(area_range=bounds, error=True) for bounds in ((0.5,), (0.0, 1.0), (0.5, 2.0))),
    *(sampled(aspect_ratio_range=bounds, error=True) for bounds in ((1.0,), (0.0, 1.0))),
    sampled(size=(40, 50), error=True),
    sampled(seed=(1,), error=True),
    sampled(max_attempts=0, error=True),
    *(
        case(op, [I32([40, 50, 3]), BOX, *more], RULES | {"seed": 4}, compare="shape")
        for op, more in (
            ("SampleDistortedBoundingBox", []),
            ("SampleDistortedBoundingBoxV2", [COVERED]),
        )
    ),
]
CASES = BOXES + NMS + CROP + DRAW + PATCHES + RESIZE
ESTIMATE = {"CropAndResize": "bends at each pixel, in float32; of nearest pixels a bilinear one"}
NO_GRADIENT = {
    **dict.fromkeys(
        ["NonMaxSuppressionV5", "CombinedNonMaxSuppression", "DrawBoundingBoxesV2"],
        "TensorFlow has none",
    ),
    **dict.fromkeys(["ExtractGlimpse", "ExtractGlimpseV2"], "TensorFlow has none"),
    **dict.fromkeys(
        ["CropAndResizeGradImage", "CropAndResizeGradBoxes", "ResizeBicubicGrad"],
        "TensorFlow has none",
    ),
    "ScaleAndTranslateGrad": "TensorFlow has none",
    "StatelessSampleDistortedBoundingBox": "TensorFlow has none",
    "ResizeArea": "TensorFlow has none",
}
NO_FORMULA = {"ScaleAndTranslate": (2, 3)}
NO_SECOND = {
    "CropAndResize": "its gradients have no gradient",
    "ResizeBicubic": "ResizeBicubicGrad has no gradient",
    "ScaleAndTranslate": "ScaleAndTranslateGrad has no gradient",
}
