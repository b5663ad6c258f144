"""Diagonals and bands: of whole tensors, and of matrices in all alignments."""

import ml_dtypes
import numpy as np

from tests.ops.harness import case

TYPES = ("float32", "float64", "int32", "int64", "complex64", "float16", ml_dtypes.bfloat16)
ALIGNMENTS = ("LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT")
CASES = []
for dtype in TYPES:
    CASES += [case("Diag", [np.arange(1, 4).astype(dtype)])]
    CASES += [case("DiagPart", [np.arange(9).reshape(3, 3).astype(dtype)])]
    CASES += [case("MatrixDiag", [np.arange(6).reshape(2, 3).astype(dtype)])]
    x = np.arange(24).reshape(2, 3, 4).astype(dtype)
    CASES += [case("MatrixDiagPart", [x]), case("MatrixSetDiag", [x, x[:, :, 0]])]
    for lower, upper in ((0, 0), (1, 0), (-1, 1), (0, -1), (2, 3), (-1, -1), (3, 4)):
        CASES.append(case("MatrixBandPart", [x, np.int64(lower), np.int64(upper)]))
CUBE = np.arange(24.0).reshape(2, 3, 4)
CASES += [
    case("Diag", [CUBE[0]]),
    case("Diag", [np.zeros((0,))]),
    case("Diag", [np.float64(1)], error=True),
    case("DiagPart", [np.arange(36.0).reshape(2, 3, 2, 3)]),
    case("DiagPart", [np.zeros((0, 0))]),
    case("DiagPart", [np.ones((2, 3))], error=True),
    case("DiagPart", [np.ones((2, 2, 2))], error=True),
    case("MatrixBandPart", [CUBE, np.int32(1), np.int32(0)]),
    case("MatrixBandPart", [CUBE > 5, np.int64(1), np.int64(0)]),
    case("MatrixBandPart", [np.zeros((0, 3)), np.int64(0), np.int64(0)]),
    case("MatrixBandPart", [CUBE, np.int64(5), np.int64(0)], error=True),
    case("MatrixBandPart", [CUBE, np.int64(0), np.int64(5)], error=True),
    case("MatrixBandPart", [CUBE[0, 0], np.int64(0), np.int64(0)], error=True),
    case("MatrixBandPart", [CUBE, np.array([0]), np.int64(0)], error=True),
    case("BatchMatrixBandPart", [CUBE, np.int64(1), np.int64(0)]),
    case("MatrixDiag", [CUBE]),
    case("MatrixDiag", [CUBE[0, 0] > 2]),
    case("MatrixDiag", [np.zeros((2, 0))]),
    case("MatrixDiag", [np.float64(1)], error=True),
    case("BatchMatrixDiag", [CUBE]),
    case("MatrixDiagPart", [CUBE[0].T.copy()]),
    case("MatrixDiagPart", [CUBE[:, :0]]),
    case("MatrixDiagPart", [CUBE[0, 0]], error=True),
    case("BatchMatrixDiagPart", [CUBE]),
    case("MatrixSetDiag", [CUBE[0].T.copy(), np.array([7.0, 8, 9])]),
    case("MatrixSetDiag", [CUBE > 3, CUBE[:, :, 0] < 5]),
    case("MatrixSetDiag", [CUBE, CUBE[:, 0]], error=True),
    case("MatrixSetDiag", [CUBE[0, 0], np.float64(1)], error=True),
    case("BatchMatrixSetDiag", [CUBE, CUBE[:, :, 0]]),
]
BANDS = [0, 1, -1, 3, -2, [0], [0, 0], [-1, 1], [0, 2], [-2, 0], [-2, 3], [1, 2], [-2, -1], [2, 3]]
ANY = np.int32(-1)


def banded(k, rows, columns):
    """Diagonals of the shape that a band of such matrices has."""
    low, high = np.ravel(k)[0], np.ravel(k)[-1]
    length = min(rows + min(high, 0), columns - max(low, 0))
    shape = (length,) if low == high else (high - low + 1, length)
    return np.arange(1.0, 1 + 2 * np.prod(shape)).reshape(2, *shape)


for k in BANDS:
    index, padding = np.array(k, "int32"), np.float64(-9)
    for align in (None, *ALIGNMENTS):
        version, flags = ("V3", {"align": align}) if align else ("V2", {})
        CASES.append(case("MatrixDiagPart" + version, [CUBE, index, padding], flags))
        tall = CUBE.swapaxes(1, 2)
        if np.min(k) > -4 and np.max(k) < 3:
            CASES.append(case("MatrixDiagPart" + version, [tall, index, padding], flags))
        bands = banded(k, 3, 4)
        CASES.append(case("MatrixSetDiag" + version, [CUBE, bands, index], flags))
        sizes = [np.int32(3), np.int32(4), padding]
        CASES.append(case("MatrixDiag" + version, [bands, index, *sizes], flags))
        CASES.append(case("MatrixDiag" + version, [bands, index, ANY, ANY, padding], flags))
        CASES.append(case("MatrixDiag" + version, [bands, index, np.int32(3), ANY, padding], flags))
        CASES.append(case("MatrixDiag" + version, [bands, index, ANY, np.int32(4), padding], flags))
for version in ("V2", "V3"):
    zero, one = np.float64(0), np.int32(0)
    CASES += [
        case("MatrixDiagPart" + version, [CUBE, np.int32(4), zero], error=True),
        case("MatrixDiagPart" + version, [CUBE, np.int32(-3), zero], error=True),
        case("MatrixDiagPart" + version, [CUBE, np.array([1, 0], "int32"), zero], error=True),
        case("MatrixDiagPart" + version, [CUBE, np.array([0, 1, 2], "int32"), zero], error=True),
        case("MatrixDiagPart" + version, [CUBE[0, 0], one, zero], error=True),
        case("MatrixSetDiag" + version, [CUBE, CUBE[:, 0], one], error=True),
        case("MatrixSetDiag" + version, [CUBE, CUBE[:, :, 0], np.int32(9)], error=True),
        case("MatrixDiag" + version, [CUBE[0], one, np.int32(2), ANY, zero], error=True),
        case("MatrixDiag" + version, [CUBE[0], one, np.int32(7), np.int32(7), zero], error=True),
        case(
            "MatrixDiag" + version, [CUBE[0], np.array([0, 1], "int32"), ANY, ANY, zero], error=True
        ),
        case(
            "MatrixDiagPart" + version,
            [np.arange(6, dtype="int32").reshape(2, 3), one, np.int32(5)],
        ),
    ]

PADDED = ("MatrixDiagV3 by 4", "MatrixDiagPartV3 by 2")
OTHERWISE = ("MatrixDiagV2", "MatrixDiagPartV2", "MatrixSetDiagV2")
OUR_GRADIENT = {
    **{f"BatchMatrix{name}": "TensorFlow has none" for name in ("Diag", "DiagPart", "SetDiag")},
    "BatchMatrixBandPart": "TensorFlow has none",
    **dict.fromkeys(PADDED, "TensorFlow has none by the padding"),
    **dict.fromkeys(OTHERWISE, "TensorFlow takes the diagonals as those of V3 lie"),
}
