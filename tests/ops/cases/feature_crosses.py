"""Crosses of sparse, dense, and ragged columns, and fingerprints."""

import numpy as np

from tests.ops.harness import case

I32, I64, TEXT = np.int32, np.int64, np.dtype(object)
ROWS = np.array([[0, 0], [0, 1], [1, 0]], I64)
UNORDERED = np.array([[0, 0], [1, 0], [0, 1]], I64)
OUTSIDE = np.array([[0, 0], [5, 1], [1, 0]], I64)
NEGATIVE = np.array([[-1, 0], [0, 1], [1, 0]], I64)
TEXTS = np.array([b"a", b"", b"c, longer than sixteen bytes"], object)
NUMBERS = np.array([7, -8, 1 << 40], I64)
SIZE = np.array([2, 2], I64)
DENSE = np.array([[5], [7]], I64)
WORDS = np.array([[b"x", b"yz"], [b"", b"x"]], object)
SPLITS = np.array([0, 2, 3], I64)
NONE = np.zeros(0, I64)


def types(columns):
    return tuple(TEXT if values.dtype == object else I64 for values in columns)


def cross(op, sparse=(), dense=(), more=(), error=False, **attrs):
    """A cross of sparse columns, each of indices, values, and a shape, and of dense ones."""
    parts = [part for kind in zip(*sparse, strict=True) for part in kind]
    attrs |= {"N": len(sparse), "sparse_types": types(column[1] for column in sparse)}
    attrs |= {"dense_types": types(dense)}
    return case(op, [*parts, *dense, *more], attrs, error=error)


def first(sparse=(), dense=(), hashed=False, internal=I64, buckets=0, key=956888297470, **more):
    attrs = {"hashed_output": hashed, "num_buckets": buckets, "hash_key": key}
    attrs |= {"out_type": I64 if hashed else TEXT, "internal_type": internal}
    return cross("SparseCross", sparse, dense, **attrs, **more)


def hashed(sparse=(), dense=(), buckets=0, strong=False, salt=(1, -2), **more):
    options = [I64(buckets), np.bool_(strong), np.array(salt, I64)]
    return cross("SparseCrossHashed", sparse, dense, options, **more)


def ragged(order, values=(), sparse=(), dense=(), splits=SPLITS, hashed=False, error=False, **more):
    parts = [part for kind in zip(*sparse, strict=True) for part in kind]
    splits_type = splits.dtype.type
    attrs = {
        "Nsparse": len(sparse),
        "input_order": order,
        "hashed_output": hashed,
        "num_buckets": 0,
        "hash_key": 3,
        "ragged_values_types": types(values),
        "ragged_splits_types": (splits_type,) * len(values),
        "sparse_values_types": types(column[1] for column in sparse),
        "dense_types": types(dense),
        "out_values_type": I64 if hashed else TEXT,
        "out_row_splits_type": splits_type,
    } | more
    return case(
        "RaggedCross", [*values, *[splits] * len(values), *parts, *dense], attrs, error=error
    )


A, B = (ROWS, TEXTS, SIZE), (ROWS, NUMBERS, SIZE)
WRONG = [
    (ROWS[:, 0].copy(), TEXTS, SIZE),
    (ROWS, TEXTS[:2], SIZE),
    (ROWS, TEXTS, SIZE[:1]),
    (np.zeros((3, 3), I64), TEXTS, SIZE),
    (ROWS, TEXTS, np.array([2, 2, 2], I64)),
    (ROWS, TEXTS, np.array([3, 2], I64)),
]
CASES = [
    first([A, B], [DENSE, WORDS]),
    first([A, B], [DENSE, WORDS], hashed=True),
    first([A, A], [WORDS], hashed=True, buckets=10),
    first([A], [WORDS], internal=TEXT),
    first([A], [DENSE], internal=TEXT, error=True),
    first([B], [WORDS], internal=TEXT, error=True),
    first([], [WORDS, DENSE]),
    first(),
    first([A], [DENSE[:1]], error=True),
    first([A], [DENSE[0]], error=True),
    *(first([B, column], error=True) for column in WRONG),
    *(first([(rows, TEXTS, SIZE)], [DENSE]) for rows in (UNORDERED, OUTSIDE, NEGATIVE)),
    first([(ROWS[:0], TEXTS[:0], SIZE)], [DENSE]),
    cross("SparseCrossV2", [A, B], [DENSE, WORDS], [b"-"]),
    cross("SparseCrossV2", [A, (OUTSIDE, NUMBERS, SIZE)], [], [b""]),
    cross("SparseCrossV2", [A], [DENSE], [[b"-"]], error=True),
    hashed([A, B], [DENSE, WORDS]),
    hashed([A, B], [WORDS], buckets=7),
    hashed([A, B], [WORDS], strong=True),
    hashed([A], buckets=-3),
    hashed([A], salt=[1], error=True),
    ragged("RSD", [TEXTS], [A], [WORDS]),
    ragged("DRSR", [TEXTS, NUMBERS], [B], [DENSE]),
    ragged("DRSR", [TEXTS, NUMBERS], [B], [DENSE], hashed=True),
    ragged("RR", [TEXTS, NUMBERS], splits=SPLITS.astype(I32), hashed=True, num_buckets=6),
    *(ragged("S", (), [(rows, TEXTS, SIZE)]) for rows in (UNORDERED, OUTSIDE, NEGATIVE)),
    ragged(""),
    ragged("R", [TEXTS], dense=[DENSE], error=True),
    ragged("RX", [TEXTS], dense=[DENSE], error=True),
    ragged("RD", [TEXTS], dense=[DENSE[:1]], error=True),
    *(
        ragged("R", [TEXTS], splits=np.array(splits, I64), error=True)
        for splits in ([1, 2, 3], [0, 2], [0, 2, 1, 3], [0, 5], [])
    ),
    *(
        case("Fingerprint", [data, b"farmhash64"])
        for data in (DENSE, WORDS, TEXTS, NUMBERS.astype(I32), WORDS.reshape(2, 1, 2), NUMBERS > 0)
    ),
    case("Fingerprint", [np.zeros((2, 0), np.float32), b"farmhash64"]),
    case("Fingerprint", [I64(3), b"farmhash64"], error=True),
    case("Fingerprint", [NUMBERS, b"md5"], error=True),
    case("Fingerprint", [NUMBERS, [b"farmhash64"]], error=True),
]
