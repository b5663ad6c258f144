"""Concatenation, splitting, padding, reversal, blocks, and tensors made from a few numbers."""

import ml_dtypes
import numpy as np

from cfgraph.ir.shapes import Shape
from tests.ops.harness import case, i32, i64

I32, I64, F32 = np.int32, np.int64, np.float32
X = np.arange(24, dtype=F32).reshape(2, 3, 4)
TEXT = np.array([[b"a", b"bc", b""], [b"d", b"e", b"f"]], object)
NAN = float("nan")


def text(value):
    return np.array(value, object)


def bf16(*values):
    return np.array(values, ml_dtypes.bfloat16)


CONCATS = [
    *(case("ConcatV2", [X, X + 1, I32(a)]) for a in (0, 1, 2, -1, -3)),
    case("ConcatV2", [X, X[:, :1], np.zeros((2, 0, 4), F32), I64(1)]),
    case("ConcatV2", [TEXT, TEXT, I32(1)]),
    case("ConcatV2", [i32(1), i32(2, 3), I32(0)]),
    case("ConcatV2", [bf16(1), bf16(2), I32(0)]),
    case("ConcatV2", [np.array([True]), np.array([False]), I32(0)]),
    case("ConcatV2", [np.zeros((0, 2)), np.zeros((0, 2)), I32(0)]),
    case("ConcatV2", [X, X[:1], I32(1)], error=True),
    case("ConcatV2", [X, X[0], I32(0)], error=True),
    case("ConcatV2", [X, X, I32(3)], error=True),
    case("ConcatV2", [X, X, i32(0)], error=True),
    case("ConcatV2", [F32(1), F32(2), I32(0)], error=True),
    case("Concat", [I32(1), X, X + 1]),
    case("Concat", [I32(-1), TEXT, TEXT]),
    case("Concat", [I32(2), TEXT, TEXT], error=True),
    case("ConcatOffset", [I32(1), i32(2, 3, 5), i32(2, 7, 5), i32(2, 1, 5)]),
    case("ConcatOffset", [I32(-1), i32(2, 3), i32(2, 4)]),
    case("ConcatOffset", [I32(0), i64(2, 3), i64(4, 3)]),
    case("ConcatOffset", [I32(0), i32(2, 3), i32(4, 4)], error=True),
    case("ConcatOffset", [I32(2), i32(2, 3), i32(4, 3)], error=True),
    case("ConcatOffset", [I32(0), i32(2, 3), i32(4)], error=True),
    *(case("Pack", [X, X + 1], {"axis": a}) for a in (0, 1, 3, -1, -4)),
    case("Pack", [F32(1), F32(2), F32(3)]),
    case("Pack", [I32(1)]),
    case("Pack", [text(b"a"), text(b"b")]),
    case("Pack", [TEXT, TEXT], {"axis": 2}),
    case("Pack", [bf16(1, 2), bf16(3, 4)], {"axis": 1}),
    case("Pack", [np.bool_(True), np.bool_(False)]),
    case("Pack", [np.zeros((0, 2)), np.zeros((0, 2))], {"axis": 1}),
    case("Pack", [X, X], {"axis": 4}, error=True),
    case("Pack", [X, X[0]], error=True),
    case("Pack", [F32(1), F32([1])], error=True),
]
SPLITS = [
    *(case("Split", [I32(a), X], {"num_split": n}) for a, n in ((0, 2), (1, 3), (2, 2), (-1, 4))),
    case("Split", [I32(0), X], {"num_split": 1}),
    case("Split", [I32(1), TEXT], {"num_split": 3}),
    case("Split", [I32(0), np.zeros((0, 2))], {"num_split": 3}),
    case("Split", [I32(1), X], {"num_split": 2}, error=True),
    case("Split", [I32(3), X], {"num_split": 2}, error=True),
    case("Split", [i32(0), X], {"num_split": 2}, error=True),
    case("SplitV", [X, i64(1, 3), I32(2)], {"num_split": 2}),
    case("SplitV", [X, i32(1, -1, 0), I32(-1)], {"num_split": 3}),
    case("SplitV", [X, i32(2), I32(0)], {"num_split": 1}),
    case("SplitV", [X, i32(-1), I32(0)], {"num_split": 1}, error=True),
    case("SplitV", [TEXT, np.array([1, 2], np.int8), I32(1)], {"num_split": 2}),
    case("SplitV", [X, i64(1, 1), i32(0)], {"num_split": 2}),
    case("SplitV", [X, i64(1, 2), I32(0)], {"num_split": 2}, error=True),
    case("SplitV", [X, i64(-1, -1), I32(0)], {"num_split": 2}, error=True),
    case("SplitV", [X, i64(5, -1), I32(0)], {"num_split": 2}, error=True),
    case("SplitV", [X, i64(4, -2), I32(0)], {"num_split": 2}, error=True),
    case("SplitV", [X, i64(1, 1), I32(5)], {"num_split": 2}, error=True),
    case("SplitV", [X, i64(1, 1, 0), I32(0)], {"num_split": 2}, error=True),
    *(case("Unpack", [X], {"axis": a, "num": X.shape[a]}) for a in (0, 1, 2, -1, -3)),
    case("Unpack", [F32([1, 2])], {"num": 2}),
    case("Unpack", [TEXT[0]], {"num": 3}),
    case("Unpack", [TEXT], {"num": 3, "axis": 1}),
    case("Unpack", [F32([[7]])], {"num": 1}),
    case("Unpack", [np.zeros((2, 0))], {"num": 2}),
    case("Unpack", [X], {"num": 3}, error=True),
    case("Unpack", [X], {"num": 2, "axis": 3}, error=True),
    case("Unpack", [F32(1)], {"num": 1}, error=True),
]
WIDTHS = [i32([0, 0], [1, 2], [3, 0]), i64([1, 1], [0, 0], [0, 0]), i32([0, 0], [0, 0], [0, 0])]
PADS = [
    *(case("Pad", [X, w]) for w in WIDTHS),
    *(case("PadV2", [X, w, F32(7)]) for w in WIDTHS),
    case("Pad", [F32(2), np.zeros((0, 2), I32)]),
    case("Pad", [TEXT, i32([1, 0], [0, 1])]),
    case("PadV2", [TEXT, i32([1, 0], [0, 1]), text(b"-")]),
    case("Pad", [bf16(1, 2), i32([1, 1])]),
    case("Pad", [np.array([1 + 2j]), i32([1, 1])]),
    case("PadV2", [np.array([True]), i32([1, 1]), np.bool_(True)]),
    case("Pad", [np.zeros((0, 2)), i32([1, 1], [0, 2])]),
    case("PadV2", [np.array([5], np.int8), i32([0, 2]), np.int8(-128)]),
    case("Pad", [X, i32([0, 0], [0, 0])], error=True),
    case("Pad", [X, i32([0, 0, 0], [0, 0, 0], [0, 0, 0])], error=True),
    case("Pad", [F32([1]), i32([-1, 0])], error=True),
    case("PadV2", [F32([1]), i32([1, 0]), F32([1])], error=True),
    *(
        case("MirrorPad", [X, w], {"mode": mode})
        for mode in ("REFLECT", "SYMMETRIC")
        for w in (i32([0, 1], [2, 1], [3, 3]), i64([0, 0], [1, 0], [0, 2]), i32(*[[0, 0]] * 3))
    ),
    case("MirrorPad", [X, i32([2, 2], [3, 0], [4, 4])], {"mode": "SYMMETRIC"}),
    case("MirrorPad", [TEXT, i32([1, 0], [0, 2])], {"mode": "REFLECT"}),
    case("MirrorPad", [F32(2), np.zeros((0, 2), I32)], {"mode": "REFLECT"}),
    case("MirrorPad", [X, i32([2, 0], [0, 0], [0, 0])], {"mode": "REFLECT"}, error=True),
    case("MirrorPad", [X, i32([3, 0], [0, 0], [0, 0])], {"mode": "SYMMETRIC"}, error=True),
    case("MirrorPad", [X, i32([0, 0])], {"mode": "SYMMETRIC"}, error=True),
    *(
        case("MirrorPadGrad", [np.arange(60, dtype=F32).reshape(3, 4, 5), w], {"mode": mode})
        for mode in ("REFLECT", "SYMMETRIC")
        for w in (i32([0, 1], [1, 1], [2, 0]), i64([0, 0], [0, 1], [0, 2]), i32(*[[0, 0]] * 3))
    ),
    case("MirrorPadGrad", [np.arange(7), i32([2, 2])], {"mode": "REFLECT"}),
    case("MirrorPadGrad", [np.arange(9), i32([3, 3])], {"mode": "SYMMETRIC"}),
    case("MirrorPadGrad", [F32([1, 2, 3]), i32([2, 0])], {"mode": "REFLECT"}, error=True),
]
ORDERS = [
    *(case("ReverseV2", [X, a]) for a in (i32(), i32(0), i32(-1), i64(0, 2), i32(0, 1, 2))),
    case("ReverseV2", [TEXT, i32(1)]),
    case("ReverseV2", [F32(3), i32()]),
    case("ReverseV2", [np.zeros((0, 2)), i32(0)]),
    *(case("ReverseV2", [X, a], error=True) for a in (i32(3), i32(-4), i32(0, 0), i32(0, -3))),
    case("Reverse", [X, np.array([True, False, True])]),
    case("Reverse", [TEXT, np.array([False, False])]),
    case("Reverse", [F32(3), np.zeros(0, bool)]),
    case("Reverse", [X, np.array([True])], error=True),
    case("ReverseSequence", [X, i64(2, 0)], {"seq_dim": 1}),
    case("ReverseSequence", [X, i32(4, 0, 3)], {"seq_dim": 2, "batch_dim": 1}),
    case("ReverseSequence", [X, i32(1, 2, 2, 0)], {"seq_dim": 0, "batch_dim": 2}),
    case("ReverseSequence", [TEXT, i64(2, 3)], {"seq_dim": 1}),
    case("ReverseSequence", [X, i64(2, 4)], {"seq_dim": 1}, error=True),
    case("ReverseSequence", [X, i64(2, -1)], {"seq_dim": 1}, error=True),
    case("ReverseSequence", [X, i64(2)], {"seq_dim": 1}, error=True),
    case("ReverseSequence", [X, i64(2, 2)], {"seq_dim": 3}, error=True),
    case("ReverseSequence", [X, i64(2, 2)], {"seq_dim": 0}, error=True),
    case("Roll", [X, I32(2), I32(2)]),
    case("Roll", [X, i32(1, -1), i32(0, 2)]),
    case("Roll", [X, i64(7, -5, 1), i64(1, 2, 1)]),
    case("Roll", [X, i32(1), i32(-1)]),
    case("Roll", [TEXT, I32(1), I32(1)]),
    case("Roll", [np.zeros((0, 2)), I32(1), I32(0)]),
    case("Roll", [F32(1), I32(1), I32(0)], error=True),
    case("Roll", [X, I32(1), I32(3)], error=True),
    case("Roll", [X, i32(1, 2), i32(1)], error=True),
]
IMAGE = np.arange(2 * 4 * 6 * 4, dtype=F32).reshape(2, 4, 6, 4)
BLOCKS = [
    case("SpaceToBatchND", [IMAGE, i32(2, 3), i32([0, 0], [0, 0])]),
    case("SpaceToBatchND", [IMAGE, i64(2, 2), i64([1, 1], [2, 0])]),
    case("SpaceToBatchND", [np.arange(6), i32(), np.zeros((0, 2), I32)]),
    case("SpaceToBatchND", [IMAGE, i32(3), i32([1, 1])]),
    case("SpaceToBatchND", [IMAGE, i32(3, 2), i32([0, 0], [0, 0])], error=True),
    case("SpaceToBatchND", [IMAGE, i32(2, 0), i32([0, 0], [0, 0])], error=True),
    case("SpaceToBatchND", [IMAGE, i32(2, 2), i32([0, 0])], error=True),
    case("SpaceToBatchND", [IMAGE, i32(2, 2), i32([-1, 1], [0, 0])], error=True),
    case("BatchToSpaceND", [IMAGE, i32(2), i32([0, 0])]),
    case("BatchToSpaceND", [IMAGE.reshape(4, 2, 6, 4), i32(2, 2), i32([1, 0], [2, 3])]),
    case("BatchToSpaceND", [IMAGE, i32(1, 2), i64([1, 1], [0, 1])]),
    case("BatchToSpaceND", [IMAGE, i32(3), i32([0, 0])], error=True),
    case("BatchToSpaceND", [IMAGE, i32(2), i32([5, 4])], error=True),
    case("SpaceToBatch", [IMAGE, i32([0, 0], [1, 1])], {"block_size": 2}),
    case("SpaceToBatch", [IMAGE, i32([0, 0], [0, 1])], {"block_size": 2}, error=True),
    case("BatchToSpace", [IMAGE.reshape(4, 2, 6, 4), i32([0, 1], [1, 1])], {"block_size": 2}),
    case("BatchToSpace", [IMAGE, i32([0, 0], [0, 0])], {"block_size": 2}, error=True),
    case("SpaceToDepth", [IMAGE], {"block_size": 2}),
    case("SpaceToDepth", [np.arange(36, dtype=np.uint8).reshape(1, 6, 6, 1)], {"block_size": 3}),
    case("SpaceToDepth", [IMAGE], {"block_size": 4}, error=True),
    case("DepthToSpace", [IMAGE], {"block_size": 2}),
    case("DepthToSpace", [IMAGE.reshape(1, 2, 3, 32)], {"block_size": 4}),
    case("DepthToSpace", [IMAGE], {"block_size": 3}, error=True),
]
MADE = [
    *(case("Fill", [i32(2, 3), v]) for v in (F32(2), np.int8(3), text(b"x"), np.bool_(True), 1j)),
    case("Fill", [i64(), F32(1)]),
    case("Fill", [i64(2, 0), F32(1)]),
    case("Fill", [i32(2), bf16(3)[0]]),
    case("Fill", [i32(-1), F32(1)], error=True),
    case("Fill", [I32(1), F32(1)], error=True),
    case("Fill", [i32(1), F32([1])], error=True),
    case("Empty", [i32(2, 3)], {"dtype": F32, "init": True}),
    case("Empty", [i32(2, 3)], {"dtype": I64}, compare="shape"),
    *(
        case("Range", [t(a), t(b), t(c)])
        for t in (I32, I64, np.float64, F32)
        for a, b, c in ((0, 5, 1), (3, 18, 4), (5, -6, -3), (2, 2, 1), (-7, 7, 5))
    ),
    *(
        case("Range", [t(a), t(b), t(c)])
        for t in (F32, np.float64, np.float16, ml_dtypes.bfloat16)
        for a, b, c in ((0, 1, 0.1), (0.3, 30, 0.07), (1, -1, -0.25), (0, 2, 3))
    ),
    case("Range", [I32(-(2**31)), I32(2**31 - 1), I32(2**30)]),
    case("Range", [I64(-(2**63)), I64(2**63 - 1), I64(2**62)]),
    *(case("Range", [t(0), t(1), t(0)], error=True) for t in (I32, F32)),
    *(case("Range", [t(2), t(1), t(1)], error=True) for t in (I32, F32)),
    *(case("Range", [t(1), t(2), t(-1)], error=True) for t in (I32, F32)),
    case("Range", [i32(1), I32(2), I32(1)], error=True),
    *(
        case("LinSpace", [t(a), t(b), n])
        for t in (F32, np.float64)
        for a, b, n in (
            (0, 1, I32(5)),
            (3, -1, I64(7)),
            (2, 5, I32(1)),
            (2, 5, I32(2)),
            (1, 1, I32(3)),
        )
    ),
    case("LinSpace", [F32(0), F32(1), I32(0)], error=True),
    *(
        case("SobolSample", [I32(dim), I32(count), I32(skip)], {"dtype": t})
        for t in (F32, np.float64)
        for dim, count, skip in ((1, 1, 0), (7, 50, 0), (30, 9, 7), (2, 5, 6), (21_200, 2, 12_345))
    ),
    case("SobolSample", [I32(3), I32(4), I32(2**30 - 6)]),
    *(
        case("SobolSample", [I32(dim), I32(count), I32(skip)], error=True)
        for dim, count, skip in (
            (0, 1, 0),
            (21_201, 1, 0),
            (1, 0, 0),
            (1, 1, -1),
            (1, 9, 2**31 - 10),
            ([1], 1, 0),
        )
    ),
    case("LinSpace", [F32(0), F32(1), I32(-1)], error=True),
    case("LinSpace", [F32([0]), F32(1), I32(2)], error=True),
    *(
        case("OneHot", [indices, I32(3), F32(5), F32(-1)], {"axis": axis})
        for indices in (i64(0, 2, -1, 3), np.array([[0, 1], [2, 5]], np.uint8), i32(1))
        for axis in (-1, 0, 1)
    ),
    case("OneHot", [I64(1), I32(3), F32(5), F32(-1)]),
    case("OneHot", [i64(1), I32(0), F32(5), F32(-1)]),
    case("OneHot", [i64(0, 1), I32(2), text(b"on"), text(b"off")]),
    case("OneHot", [i32(0, 1), I32(2), np.bool_(True), np.bool_(False)], {"axis": 0}),
    case("OneHot", [np.zeros((0, 2), I64), I32(2), 1.0, 0.0]),
    case("OneHot", [np.array([-128, 127], np.int8), I32(200), I32(1), I32(0)]),
    case("OneHot", [i64(0), I32(-1), 1.0, 0.0], error=True),
    case("OneHot", [i64(0), I32(2), 1.0, 0.0], {"axis": 2}, error=True),
    case("OneHot", [i64(0), I32(2), 1.0, 0.0], {"axis": -2}, error=True),
    case("OneHot", [i64(0), i32(2), 1.0, 0.0], error=True),
]
FORMATS = {"src_format": "NDHWC", "dst_format": "CNWHD"}
DATA_FORMATS = [
    *(case("DataFormatDimMap", [x]) for x in (i32(0, 3, -1, -4), I64(2), i32([1, 2], [0, 3]))),
    case("DataFormatDimMap", [i64(0, 1, 2, 3, 4)], FORMATS),
    *(
        case("DataFormatVecPermute", [x])
        for x in (
            i32(7, 4, 9, 3),
            i64(7, 8),
            i64([1, 2], [3, 4], [5, 6], [7, 8]),
            i64([1, 2], [3, 4]),
        )
    ),
    case("DataFormatVecPermute", [i32(5, 6)], {"dst_format": "CWHN"}),
    *(case("DataFormatVecPermute", [i32(*range(n))], FORMATS) for n in (3, 5)),
    *(
        case("DataFormatVecPermute", [x], error=True)
        for x in (I32(1), i32(1, 2, 3), np.zeros((4, 3), I32), np.zeros((4, 2, 1), I32))
    ),
    *(
        case(op, [i32(0, 1, 2, 3)], {"src_format": source, "dst_format": target}, error=True)
        for op in ("DataFormatDimMap", "DataFormatVecPermute")
        for source, target in (("NHWC", "NHW"), ("NHWC", "NCHX"), ("HHWC", "HHWC"), ("NHC", "NCH"))
    ),
    *(
        case("ParallelConcat", [x[None] for x in rows], {"shape": Shape((2, *rows.shape[1:]))})
        for rows in (X, TEXT, np.arange(2))
    ),
    case("ParallelConcat", [X[:1], X[1:]], {"shape": Shape((2, 3, 5))}, error=True),
    case("ParallelConcat", [X, X], {"shape": Shape((2, 3, 4))}, error=True),
]
CASES = [*DATA_FORMATS, *CONCATS, *SPLITS, *PADS, *ORDERS, *BLOCKS, *MADE]
NO_GRADIENT = {"ParallelConcat": "TensorFlow has none"}
OUR_GRADIENT = {"PadV2 by 2": "TensorFlow has none by the border"}
FAILS = {"SplitV": ("Input must be scalar but has rank 1",)}
