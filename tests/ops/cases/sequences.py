"""Connectionist temporal classification, and n-grams of strings."""

import numpy as np

from tests.ops.harness import case

F32, F64, I32, I64 = np.float32, np.float64, np.int32, np.int64
random = np.random.default_rng(31)
LOGITS = random.standard_normal((6, 3, 5)) * 2
LONG = np.random.default_rng(32).standard_normal((25, 2, 9)) * 3
LENGTHS = I32([6, 4, 5])
# steps after the end of a sequence, of any value
PADDED = np.where((np.arange(6)[:, None] < LENGTHS)[:, :, None], LOGITS, np.nan)
LABELS = np.array([[0, 0], [0, 1], [1, 0], [2, 0], [2, 1], [2, 2]])
VALUES = I32([1, 2, 3, 2, 2, 1])
NEAR = {"rtol": 1e-4, "atol": 1e-5}
STEPS = random.standard_normal((4, 2, 3))
PAIRS = np.array([[0, 0], [0, 1], [1, 0]])
FLAGS = [
    {},
    {"preprocess_collapse_repeated": True},
    {"ctc_merge_repeated": False},
    {"ignore_longer_outputs_than_inputs": True},
]

CTC = [
    *(
        case("CTCGreedyDecoder", [LOGITS.astype(t), LENGTHS], {"merge_repeated": m, **blank})
        for t in (F32, F64)
        for m in (False, True)
        for blank in ({}, {"blank_index": 0})
    ),
    case("CTCGreedyDecoder", [LOGITS, I32([7, 1, 1])], error=True),
    *(
        case(
            "CTCBeamSearchDecoder",
            [LOGITS.astype(t), LENGTHS],
            {"beam_width": width, "top_paths": paths, "merge_repeated": m},
            **NEAR,
        )
        for t in (F32, F64)
        for width, paths in ((100, 3), (3, 2), (1, 1))
        for m in (False, True)
    ),
    *(
        case(
            "CTCBeamSearchDecoder", [LONG, I32([25, 17])], {"beam_width": w, "top_paths": 2}, **NEAR
        )
        for w in (4, 30)
    ),
    case("CTCBeamSearchDecoder", [LOGITS, LENGTHS], {"beam_width": 1, "top_paths": 2}, error=True),
    *(
        case("CTCLoss", [LOGITS.astype(t), LABELS, VALUES, LENGTHS], flags, **NEAR)
        for t in (F32, F64)
        for flags in FLAGS
    ),
    *(
        case("CTCLossV2", [LOGITS.astype(F32), LABELS, VALUES, LENGTHS], flags, **NEAR)
        for flags in FLAGS
    ),
    case("CTCLoss", [PADDED, LABELS, VALUES, LENGTHS], **NEAR),
    case("CTCLoss", [LOGITS, LABELS, VALUES, I32([6, 4, 2])], error=True),
    # the last class and those above it end the labels of a sequence
    *(
        case("CTCLoss", [STEPS, PAIRS, I32(labels), I32([4, 4])], flags, **NEAR)
        for labels in ([0, 2, 1], [1, 2, 0], [1, 5, 0])
        for flags in ({}, {"preprocess_collapse_repeated": True})
    ),
    *(
        case("CTCLoss", [STEPS, places, I32(labels), I32([4, 4])], error=True)
        for places, labels in (
            (PAIRS, [2, 0, 1]),
            (PAIRS, [-1, 0, 1]),
            (PAIRS[[2, 1, 0]], [0, 1, 0]),
            (PAIRS[[0, 0, 2]], [0, 1, 0]),
            (PAIRS[:2], [0, 1]),
            (PAIRS[:0], []),
        )
    ),
]
WORDS = ["aa", "b", "c", "dd", "e", "f"]
GRAMS = [
    case(
        "StringNGrams",
        [WORDS, np.array(splits, t)],
        {
            "separator": "|",
            "ngram_widths": widths,
            "left_pad": "L",
            "right_pad": "R",
            "pad_width": pad,
            "preserve_short_sequences": short,
        },
    )
    for t in (I32, I64)
    for splits in ([0, 3, 3, 5, 6], [0, 6])
    for widths in ([2], [3, 1], [4])
    for pad in (0, 1, -1, 5)
    for short in (False, True)
]
BAD_GRAMS = [
    case(
        "StringNGrams",
        [WORDS, I64([0, 6])],
        {
            "separator": "|",
            "ngram_widths": widths,
            "left_pad": "L",
            "right_pad": "R",
            "pad_width": -1,
            "preserve_short_sequences": True,
        },
        error=True,
    )
    for widths in ([0], [2, -1], [])
]
CASES = CTC + GRAMS + BAD_GRAMS
NO_GRADIENT = dict.fromkeys(["CTCGreedyDecoder", "CTCBeamSearchDecoder"], "TensorFlow has none")
RESERVED = {"CTCLoss": (1,), "CTCLossV2": (1,)}
NO_SECOND = dict.fromkeys(["CTCLoss", "CTCLossV2"], "it prevents one, as in TensorFlow")
