"""Functions of matrices with NaN or infinity, singular ones, and empty ones."""

import numpy as np

from tests.ops.harness import case

nan, inf = np.nan, np.inf
REAL, COMPLEX = ("float32", "float64"), ("complex64", "complex128")
GOOD = [[4.0, 1], [1, 3]]
WITH_NAN = {
    "first": [[nan, 1], [1, 1]],
    "right": [[1, nan], [1, 2]],
    "below": [[1, 2], [nan, 1]],
    "last": [[2, 1], [1, nan]],
    "inner": [[2, 0, 1], [0, nan, 0], [1, 0, 3]],
    "corners": [[2, 1, nan], [1, 3, 0], [nan, 0, 5]],
    "with_infinity": [[inf, nan], [1, 1]],
    "all": [[nan, nan], [nan, nan]],
    "one_by_one": [[nan]],
    "batch": [GOOD, [[2, nan], [1, 1]], GOOD],
}
WITH_INFINITY = {
    "first": [[inf, 1], [1, 1]],
    "right": [[1, inf], [1, 2]],
    "below": [[1, 2], [inf, 1]],
    "last": [[2, 1], [1, -inf]],
    "row": [[inf, inf], [1, 1]],
    "column": [[inf, 1], [inf, 1]],
    "inner": [[2, 0, 1], [0, inf, 0], [1, 0, 3]],
    "diagonal": [[inf, 0], [0, 1]],
    "one_by_one": [[inf]],
    "batch": [[[2, 1], [1, inf]], GOOD],
}
EMPTY = [np.zeros(shape) for shape in [(0, 0), (2, 0, 0), (0, 2, 2)]]


def matrices(dtype, *names, skip=()):
    """Those of both kinds, or of these names, but some."""
    kinds = {"nan": WITH_NAN, "infinity": WITH_INFINITY}
    for kind, items in kinds.items():
        for name, item in items.items():
            full = f"{kind}_{name}"
            if full not in skip and (not names or full in names):
                yield np.array(item, dtype)


def rhs(x, columns=2):
    """Right-hand sides of ones."""
    return np.ones((*x.shape[:-1], columns), x.dtype)


def good(dtype):
    return np.array(GOOD, dtype)


def same_first(ours, theirs):
    """The first output agrees: that of the others is not defined."""
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)


def same_triangle(ours, theirs):
    """The lower triangle agrees: the rest of what failed is not defined."""
    np.testing.assert_allclose(np.tril(ours[0]), np.tril(theirs[0]), rtol=1e-5)


# whose first pivot is NaN, and stays the least one
NO_PIVOT = ("nan_first", "nan_all", "nan_one_by_one")
# whose lower triangle has NaN, or infinity that meets another element
NO_EIGENVALUES = {f"nan_{name}" for name in WITH_NAN} - {"nan_right", "nan_one_by_one", "nan_batch"}
NO_EIGENVALUES -= {"nan_with_infinity"}
NO_EIGENVALUES |= {"infinity_below", "infinity_column", "infinity_inner"}

CASES = []
for dtype in (*REAL, *COMPLEX):
    for op in ("MatrixDeterminant", "LogMatrixDeterminant", "MatrixExponential"):
        CASES += [case(op, [x]) for x in matrices(dtype)]
        CASES += [case(op, [x.astype(dtype)]) for x in EMPTY]
    for op in ("Qr", "MatrixSquareRoot"):
        CASES += [case(op, [x]) for x in matrices(dtype)]
    CASES += [case("Cholesky", [x], compare=same_triangle) for x in matrices(dtype)]
    for x in matrices(dtype):
        # the signs of finite vectors are free
        CASES.append(case("Svd", [x], compare="values" if x.ndim == 2 else same_first))
    for x in matrices(dtype):
        CASES.append(case("Qr", [x], {"full_matrices": True}))
    for op, more in {"Lu": (), "MatrixInverse": (), "MatrixSolve": (rhs,)}.items():
        for x in matrices(dtype, skip=NO_PIVOT):
            CASES.append(case(op, [x, *(make(x) for make in more)]))
        for x in matrices(dtype, *NO_PIVOT):
            CASES.append(case(op, [x, *(make(x) for make in more)], error=True))
    singular = np.ones((2, 2), dtype)
    CASES.append(case("MatrixSolve", [singular, rhs(singular, 0)]))
    for lower in (True, False):
        for adjoint in (True, False):
            flags = {"lower": lower, "adjoint": adjoint}
            for x in matrices(dtype):
                CASES.append(case("MatrixTriangularSolve", [x, rhs(x)], flags))
            for value in (nan, inf):
                right = np.array([[1], [value]], dtype)
                CASES.append(case("MatrixTriangularSolve", [good(dtype), right], flags))
            bands = np.array([[2, 2, 2], [1, 1, 1]], dtype)[:: 1 if lower else -1]
            inputs = [bands, rhs(np.eye(3, dtype=dtype))]
            CASES.append(case("BandedTriangularSolve", inputs, flags))
            for value, place in [(nan, 1), (nan, 2), (0, 1), (nan, 0)]:
                changed = bands.copy()
                changed[0 if lower else 1, place] = value
                is_refused = value == 0 or place == 0
                if is_refused or dtype in REAL:
                    inputs = [changed, rhs(np.eye(3, dtype=dtype))]
                    CASES.append(case("BandedTriangularSolve", inputs, flags, error=is_refused))
    too_many = [np.ones((3, 2), dtype), np.ones((2, 1), dtype)]
    CASES.append(case("BandedTriangularSolve", too_many, error=True))
    for compute in (True, False):
        vectors = {"compute_v": compute}
        first = "values" if compute else same_first
        for x in matrices(dtype, "infinity_first", "infinity_last", "nan_one_by_one"):
            CASES.append(case("SelfAdjointEigV2", [x], vectors, compare=first))
        for x in matrices(dtype, *NO_EIGENVALUES):
            CASES.append(case("SelfAdjointEigV2", [x], vectors, error=True))
        out = {"Tout": "complex64" if dtype in ("float32", "complex64") else "complex128"}
        out = {"Tout": np.dtype(out["Tout"]), **vectors}
        for x in matrices(
            dtype,
            *(f"nan_{name}" for name in WITH_NAN),
            skip=["nan_one_by_one", "nan_with_infinity"],
        ):
            CASES.append(case("Eig", [x], out, error=True))
        lone = np.array([[nan]], dtype)
        CASES.append(case("Eig", [lone], out, error=dtype in REAL, compare=first))
    if dtype in REAL:
        CASES += [case("SelfAdjointEig", [x]) for x in matrices(dtype, "infinity_first")]
        bad = matrices(dtype, *NO_EIGENVALUES)
        CASES += [case("SelfAdjointEig", [x], error=True) for x in bad]
    for x in matrices(dtype):
        for fast in (True, False):
            inputs = [x, rhs(x), np.array(0.5 if fast else 0.0)]
            CASES.append(case("MatrixSolveLs", inputs, {"fast": fast}))
for dtype in COMPLEX:
    CASES += [case("MatrixLogarithm", [x]) for x in matrices(dtype)]
    CASES += [case("MatrixLogarithm", [x.astype(dtype)]) for x in EMPTY]
    for x in ([[0.0]], [[1, 1], [1, 1]], [[1, 0], [3, 0]], [GOOD, [[0, 0], [0, 0]]]):
        CASES.append(case("MatrixLogarithm", [np.array(x, dtype)]))
    # the pivot has the largest modulus, not the largest sum of both parts
    CASES.append(case("Lu", [np.array([[3 + 3j, 1], [5, 1]], dtype)]))
    CASES.append(case("Lu", [np.array([[3, 1], [3 + 3j, 2], [-5, 1]], dtype)[:, :1]], error=True))
    three = [[1, 2j, 3], [3 + 3j, 1, 1 - 1j], [5, 1j, 2]]
    CASES.append(case("Lu", [np.array([three, np.transpose(three)], dtype)]))

# columns of very different sizes: rows must not change places
steep = np.tril(np.random.default_rng(0).normal(size=(50, 50)))
for lower, triangle in [(True, steep), (False, steep.T.copy())]:
    inputs = [triangle, np.ones((3, 50, 1))]
    CASES.append(case("MatrixTriangularSolve", inputs, {"lower": lower}, rtol=1e-6))
# what is finite has no inverse
FAILS = {"MatrixSquareRoot": ("Input matrix is not invertible",)}
SMOOTH = dict.fromkeys(["MatrixSquareRoot", "MatrixLogarithm"], lambda random, inputs: None)
