"""Levenshtein distances."""

import numpy as np

from tests.ops.harness import case

random = np.random.default_rng(29)


def sparse(rows, dtype=np.int32):
    """The three parts of a sparse matrix with these rows."""
    indices = [(i, j) for i, row in enumerate(rows) for j in range(len(row))]
    values = [value for row in rows for value in row]
    array = np.array(values, object if dtype is object else dtype)
    shape = [len(rows), max(map(len, rows))]
    return [np.array(indices, np.int64).reshape(-1, 2), array, np.array(shape, np.int64)]


def random_rows(count, longest):
    return [random.integers(0, 4, random.integers(0, longest)).tolist() for _ in range(count)]


WORDS = sparse([[b"a", b"b", b"c"], [b"x"]], object), sparse([[b"a", b"c"], [b"x"]], object)
LONG = sparse(random_rows(12, 90)), sparse(random_rows(12, 90))
EMPTY = sparse([[1, 2], [], [3]]), sparse([[], [4, 5], [3], [7]])
CASES = [
    *(
        case("EditDistance", [*ours, *truth], {"normalize": normalize})
        for ours, truth in (WORDS, LONG, EMPTY, EMPTY[::-1])
        for normalize in (True, False)
    ),
    case("EditDistance", [*EMPTY[0], *EMPTY[1][:2], np.array([4])], error=True),
]
