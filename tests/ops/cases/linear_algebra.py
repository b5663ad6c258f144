"""Products, decompositions and solutions; what is unique up to a sign is compared by product."""

import ml_dtypes
import numpy as np

from tests.ops.harness import case

FLOATS = ("float32", "float64", "float16", ml_dtypes.bfloat16)
COMPLEX = ("complex64", "complex128")
WHOLE = ("int32", "int64", "uint8", "uint16", "uint32", "uint64")
SOLVABLE = ("float32", "float64", *COMPLEX)
RANDOM = np.random.default_rng(7)


def values(*shape, dtype="float64"):
    """Small numbers of a type, complex ones with an imaginary part."""
    x = RANDOM.integers(-4, 5, shape) / 4
    if np.dtype(dtype).kind == "c":
        x = x + 1j * RANDOM.integers(-4, 5, shape) / 4
    return x.astype(dtype)


def whole(*shape, dtype):
    """Small whole numbers of a type."""
    return RANDOM.integers(0, 9, shape).astype(dtype)


def regular(*shape, dtype):
    """Matrices that are far from singular."""
    return (values(*shape, dtype=dtype) + 3 * np.eye(shape[-1])).astype(dtype)


def positive(*shape, dtype):
    """Positive definite matrices."""
    x = values(*shape, dtype=dtype)
    return (x @ x.swapaxes(-1, -2).conj() + 2 * np.eye(shape[-1])).astype(dtype)


CASES = []
for dtype in (*FLOATS, *COMPLEX, *WHOLE):
    make = whole if dtype in WHOLE else values
    a, b = make(2, 3, dtype=dtype), make(3, 4, dtype=dtype)
    CASES += [case("MatMul", [a, b]), case("MatMul", [a.T, b], {"transpose_a": True})]
    CASES.append(case("MatMul", [a, b.T], {"transpose_b": True}))
    CASES.append(case("MatMul", [a.T, b.T], {"transpose_a": True, "transpose_b": True}))
    CASES.append(case("MatMul", [a[:, :0], b[:0]]))
    CASES.append(case("MatMul", [a[:0], b]))
    CASES.append(case("MatMul", [a, b], {"grad_a": True, "grad_b": True}))
for dtype in ("float32", ml_dtypes.bfloat16):
    a, b = values(2, 3, dtype=dtype), values(3, 4, dtype="float32")
    CASES.append(case("SparseMatMul", [a, b], {"a_is_sparse": True}))
    turned_both = {"transpose_a": True, "transpose_b": True}
    CASES.append(case("SparseMatMul", [a.T, b.T], turned_both))
for op in ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"):
    for dtype in (*FLOATS, *COMPLEX, "int32", "int64"):
        make = whole if dtype in WHOLE else values
        x, y = make(2, 3, 4, dtype=dtype), make(2, 4, 5, dtype=dtype)
        out = {"Tout": x.dtype} if op == "BatchMatMulV3" else {}
        CASES += [
            case(op, [x, y], out),
            case(op, [x.swapaxes(1, 2), y], {"adj_x": True, **out}),
            case(op, [x, y.swapaxes(1, 2)], {"adj_y": True, **out}),
            case(op, [x.swapaxes(1, 2), y.swapaxes(1, 2)], {"adj_x": True, "adj_y": True, **out}),
            case(op, [x[0], y[0]], out),
            case(op, [x[:, :, :0], y[:, :0]], out),
            case(op, [x[:0], y[:0]], out),
        ]
        if op != "BatchMatMul":
            CASES += [case(op, [x, y[0]], out), case(op, [x[0], y[:, None]], out)]
    out = {"Tout": np.float64} if op == "BatchMatMulV3" else {}
    CASES += [
        case(op, [np.ones((2, 3, 4)), np.ones((3, 4, 5))], out, error=True),
        case(op, [np.ones((2, 3, 4)), np.ones((2, 3, 5))], out, error=True),
        case(op, [np.ones(4), np.ones((4, 5))], out, error=True),
    ]
CASES += [
    case("BatchMatMul", [np.ones((2, 3, 4)), np.ones((4, 5))], error=True),
    case("MatMul", [np.ones((2, 3)), np.ones((2, 3))], error=True),
    case("MatMul", [np.ones(3), np.ones((3, 2))], error=True),
    case("MatMul", [np.ones((2, 2, 3)), np.ones((3, 2))], error=True),
    case(
        "BatchMatMulV3", [whole(2, 3, dtype="int8"), whole(3, 2, dtype="int8")], {"Tout": np.int32}
    ),
    case(
        "BatchMatMulV3", [whole(2, 3, dtype="uint8"), whole(3, 2, dtype="int8")], {"Tout": np.int32}
    ),
]
X, Y, Z = values(2, 3), values(3, 4), values(2, 3, 4)
for equation, inputs in {
    "ij,jk->ik": [X, Y],
    "ij,kj->ik": [X, Y.T],
    "ij->ji": [X],
    "ij->": [X],
    "ij->i": [X],
    "ijk->kj": [Z],
    "ii->i": [values(3, 3)],
    "ii->": [values(3, 3)],
    "i,j->ij": [X[0], Y[0]],
    "i,i->": [X[0], X[1]],
    "ij,ij->ij": [X, X],
    "bij,bjk->bik": [Z, values(2, 4, 5)],
    "...ij,...jk->...ik": [Z, values(4, 5)],
    "...i->...": [Z],
    "i...->...i": [Z],
    "...ij->i...j": [Z],
    "i...j,jk->i...k": [Z, values(4, 5)],
    "ij,...jk->...ik": [X, values(2, 3, 4)],
    "iijk->k": [values(2, 2, 3, 4)],
    "abc,cd->abd": [Z, values(4, 2)],
    "bhwc,hkc->bwhk": [values(2, 3, 4, 5), values(3, 2, 5)],
    "i->ii": [X[0]],
    "ij->iij": [X],
    "iji,j->ij": [values(2, 3, 2), X[0]],
    "ab,b->a": [X, X[0]],
    "Ab,bC->AC": [X, Y],
    ",ij->ij": [np.float64(2), X],
}.items():
    CASES.append(case("Einsum", inputs, {"equation": equation}))
    if equation.count(",") < 2:
        small = [v.astype("float32") for v in inputs]
        CASES.append(case("Einsum", small, {"equation": equation}))
for dtype in (*COMPLEX, "int32", "int64", "float16", ml_dtypes.bfloat16):
    make = whole if dtype in WHOLE else values
    pair = [make(2, 3, dtype=dtype), make(3, 4, dtype=dtype)]
    CASES.append(case("Einsum", pair, {"equation": "ij,jk->ik"}))
for equation, inputs in {
    "ij,jk": [X, Y],
    "ij->ik": [X],
    "ij->i": [X[0]],
    "ij,jk->ik": [X, X],
    "ij,jk->ij": [X],
    "i,i->i": [X[0], X[0, :1]],
    "i j , j k -> i k": [X, Y],
}.items():
    CASES.append(case("Einsum", inputs, {"equation": equation}, error=True))
for dtype in ("float32", "float64", "int32", "int8", "uint8", "int64", "float16"):
    make = values if dtype in FLOATS else whole
    CASES.append(case("Cross", [make(4, 3, dtype=dtype), make(4, 3, dtype=dtype)]))
    CASES.append(case("Cross", [make(3, dtype=dtype), make(3, dtype=dtype)]))
CASES += [
    case("Cross", [np.zeros((0, 3)), np.zeros((0, 3))]),
    case("Cross", [np.ones((2, 2)), np.ones((2, 2))], error=True),
    case("Cross", [np.ones((2, 3)), np.ones((1, 3))], error=True),
]


def close(dtype):
    """Wider tolerances: the algorithms differ."""
    fine = np.dtype(dtype) in (np.float64, np.complex128)
    return {"rtol": 1e-8 if fine else 1e-3, "atol": 1e-10 if fine else 1e-4}


def same_product(product):
    """Compare what the factors make together, and all that is unique."""

    def compare(ours, theirs, inputs):
        tolerance = close(inputs[0].dtype)
        for mine, wanted in zip(ours, theirs, strict=True):
            assert mine.shape == wanted.shape
            assert mine.dtype == wanted.dtype
        np.testing.assert_allclose(
            product(*ours, inputs[0]), product(*theirs, inputs[0]), **tolerance
        )

    return compare


def turned(x):
    """The adjoint."""
    return x.swapaxes(-1, -2).conj()


def from_svd(s, u, v, x):
    """The matrix again, or the singular values where the factors were not wanted."""
    count = s.shape[-1]
    return np.concatenate(
        [
            (
                s
                if not u.shape[-1] or u.ndim < 2
                else (u[..., :count] * s[..., None, :]) @ turned(v[..., :count])
            ).ravel(),
            s.ravel(),
        ]
    )


def same_values(ours, theirs, inputs):
    """Compare the first output; TensorFlow leaves outputs that were not requested undefined."""
    assert ours[0].dtype == theirs[0].dtype
    np.testing.assert_allclose(ours[0], theirs[0], **close(inputs[0].dtype))


def same_triangle(ours, theirs):
    """Compare what is not above the diagonal, where TensorFlow may leave anything."""
    np.testing.assert_array_equal(np.tril(ours[0]), np.tril(theirs[0]))


def from_eigen(e, v, x):
    """The eigenvalues in order, and by how much the eigenvectors fail."""
    order = np.sort_complex(np.round(e.astype(complex), 5))
    if v.ndim < 2:
        return order.ravel()
    return np.concatenate([order.ravel(), (x @ v - v * e[..., None, :]).ravel()])


def same_spectrum(ours, theirs, inputs):
    """Compare the eigenvalues alone, in order."""
    nothing = np.zeros(0)
    mine, wanted = (from_eigen(result[0], nothing, inputs[0]) for result in (ours, theirs))
    np.testing.assert_allclose(mine, wanted, **close(inputs[0].dtype))


for dtype in SOLVABLE:
    more = close(dtype)
    a, b = regular(2, 3, 3, dtype=dtype), values(2, 3, 2, dtype=dtype)
    spd = positive(2, 3, 3, dtype=dtype)
    for op in ("MatrixInverse", "BatchMatrixInverse"):
        if op[0] == "B" and dtype in COMPLEX:
            continue
        for adjoint in (False, True):
            CASES.append(case(op, [a], {"adjoint": adjoint}, **more))
        CASES.append(case(op, [a[0]], **more))
        CASES.append(case(op, [np.zeros((0, 0), dtype)]))
        CASES.append(case(op, [np.zeros((2, 2), dtype)], error=True))
        CASES.append(case(op, [np.zeros((2, 3), dtype)], error=True))
    for op in ("MatrixDeterminant", "BatchMatrixDeterminant", "LogMatrixDeterminant"):
        CASES += [case(op, [a], **more), case(op, [a[0]], **more)]
        CASES += [case(op, [np.zeros((0, 0), dtype)]), case(op, [np.ones((2, 2), dtype)])]
        CASES += [case(op, [np.ones((2, 3), dtype)], error=True)]
    for op in ("Cholesky", "BatchCholesky"):
        if op[0] == "B" and dtype in COMPLEX:
            continue
        CASES += [case(op, [spd], **more), case(op, [spd[0]], **more)]
        CASES += [case(op, [np.tril(spd)], **more), case(op, [np.zeros((0, 0), dtype)])]
        CASES.append(case(op, [b], error=True))
        if dtype not in COMPLEX:  # there TensorFlow has zeros
            CASES.append(case(op, [-spd[0]], compare=same_triangle))
    if dtype not in COMPLEX:
        for op in ("CholeskyGrad", "BatchCholeskyGrad"):
            root = np.linalg.cholesky(spd)
            CASES.append(case(op, [root, values(2, 3, 3, dtype=dtype)], **more))
            CASES.append(case(op, [root[0], np.tril(values(3, 3, dtype=dtype))], **more))
    for shape in ((3, 3), (4, 3), (3, 4), (2, 4, 3), (2, 3, 5), (0, 3), (3, 0), (1, 1)):
        x = values(*shape, dtype=dtype)
        for full in (False, True):
            flags = {"full_matrices": full}
            CASES.append(case("Qr", [x], flags, compare=same_product(lambda q, r, x: q @ r)))
            for op in ("Svd", "BatchSvd"):
                CASES.append(case(op, [x], flags, compare=same_product(from_svd)))
        CASES.append(case("Svd", [x], {"compute_uv": False}, compare=same_values))
    for op in ("SelfAdjointEigV2", "BatchSelfAdjointEigV2", "Eig"):
        if op[0] == "B" and dtype in COMPLEX:
            continue
        out = {"Tout": np.result_type(dtype, np.complex64)} if op == "Eig" else {}
        for x in (spd, spd[0], spd[:, :1, :1], np.zeros((0, 0), dtype)):
            CASES.append(case(op, [x], out, compare=same_product(from_eigen)))
            CASES.append(case(op, [x], {"compute_v": False, **out}, compare=same_spectrum))
        CASES.append(case(op, [np.ones((2, 3), dtype)], out, error=True))
    out = {"Tout": np.result_type(dtype, np.complex64)}
    CASES.append(case("Eig", [a], out, compare=same_product(from_eigen)))
    for op in ("SelfAdjointEig", "BatchSelfAdjointEig"):
        if dtype not in COMPLEX:
            split = same_product(lambda o, x: from_eigen(o[..., 0, :], o[..., 1:, :], x))
            CASES += [case(op, [spd], compare=split), case(op, [spd[0]], compare=split)]
    for op in ("MatrixSolve", "BatchMatrixSolve"):
        if op[0] == "B" and dtype in COMPLEX:
            continue
        for adjoint in (False, True):
            CASES.append(case(op, [a, b], {"adjoint": adjoint}, **more))
        CASES += [case(op, [a[0], b[0]], **more), case(op, [a[:0], b[:0]])]
        CASES.append(case(op, [a[:, :0, :0], b[:, :0]]))
        CASES.append(case(op, [np.zeros((3, 3), dtype), b[0]], error=True))
        CASES.append(case(op, [a, b[0]], error=True))
        CASES.append(case(op, [a[0], b[0, :2]], error=True))
    for op in ("MatrixTriangularSolve", "BatchMatrixTriangularSolve"):
        if op[0] == "B" and dtype in COMPLEX:
            continue
        for lower in (False, True):
            for adjoint in (False, True):
                flags = {"lower": lower, "adjoint": adjoint}
                CASES.append(case(op, [a, b], flags, **more))
        CASES.append(case(op, [a[0], b[0]], **more))
        CASES.append(case(op, [np.zeros((3, 3), dtype), b[0]]))
        CASES.append(case(op, [a[0], b[0, :2]], error=True))
    CASES.append(case("MatrixTriangularSolve", [a[0], b], **more))
    CASES.append(case("MatrixTriangularSolve", [a[:, None], b], **more))
    for lower in (False, True):
        for adjoint in (False, True):
            flags = {"lower": lower, "adjoint": adjoint}
            bands = values(2, 2, 3, dtype=dtype)
            bands[:, 0 if lower else 1] += 3
            CASES.append(case("BandedTriangularSolve", [bands, b], flags, **more))
            CASES.append(case("BandedTriangularSolve", [bands[0], b[0]], flags, **more))
    tall, flat = values(2, 4, 3, dtype=dtype), values(2, 2, 3, dtype=dtype)
    for op in ("MatrixSolveLs", "BatchMatrixSolveLs"):
        if op[0] == "B" and dtype in COMPLEX:
            continue
        for x, y in ((tall, values(2, 4, 2, dtype=dtype)), (flat, values(2, 2, 1, dtype=dtype))):
            CASES.append(case(op, [x, y, np.float64(0.3)], **more))
            CASES.append(case(op, [x[0], y[0], np.float64(0)], {"fast": False}, **more))
    CASES.append(case("Lu", [a], **more))
    CASES.append(case("Lu", [a[0, ::-1].copy()], {"output_idx_type": np.int64}, **more))
    CASES.append(case("Lu", [np.array([[0, 1, 2], [3, 4, 5], [6, 7, 9]], dtype)], **more))
    CASES.append(case("Lu", [np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]], dtype)], **more))
    CASES.append(case("Lu", [np.zeros((0, 0), dtype)]))
    CASES.append(case("Lu", [np.zeros((2, 2), dtype)], error=True))
    diagonals = values(2, 3, 4, dtype=dtype)
    diagonals[:, 1] += 4
    rhs = values(2, 4, 2, dtype=dtype)
    for pivoting in (False, True):
        flags = {"partial_pivoting": pivoting}
        CASES.append(case("TridiagonalSolve", [diagonals, rhs], flags, **more))
        CASES.append(case("TridiagonalSolve", [diagonals[0], rhs[0]], flags, **more))
        CASES.append(case("TridiagonalSolve", [diagonals[:0], rhs[:0]], flags))
        for special in () if dtype in COMPLEX else (0, np.nan, np.inf):
            changed = diagonals.copy()
            changed[1, 1, 0] = special
            CASES.append(case("TridiagonalSolve", [changed, rhs], flags, **more))
            CASES.append(case("TridiagonalSolve", [changed[:, :, :1], rhs[:, :1]], flags, **more))
    if dtype not in COMPLEX:  # there TensorFlow has zeros
        flags = {"partial_pivoting": False}
        CASES.append(case("TridiagonalSolve", [np.zeros((3, 4), dtype), rhs[0]], flags))
    CASES.append(case("TridiagonalSolve", [diagonals[0], rhs[0, :2]], error=True))
    CASES.append(case("TridiagonalSolve", [diagonals[:, :, :1], rhs[:, :1]], **more))
    bands = [diagonals[:, i : i + 1] for i in range(3)]
    CASES.append(case("TridiagonalMatMul", [*bands, rhs], **more))
    CASES.append(case("TridiagonalMatMul", [*(band[0] for band in bands), rhs[0]], **more))
    CASES.append(case("MatrixExponential", [a / 2], **more))
    CASES.append(case("MatrixExponential", [a[0] / 9], **more))
    CASES.append(case("MatrixSquareRoot", [spd], **more))
    CASES.append(case("MatrixSquareRoot", [spd[0]], **more))
    if dtype in COMPLEX:
        CASES.append(case("MatrixLogarithm", [spd], **more))
        CASES.append(case("MatrixLogarithm", [a[0]], **more))

OF_MATRICES = ("Inverse", "Determinant", "Solve", "TriangularSolve", "SolveLs")
OUR_GRADIENT = {
    **{f"BatchMatrix{name}": "TensorFlow has none" for name in OF_MATRICES},
    **dict.fromkeys(("MatrixExponential", "MatrixLogarithm", "Lu"), "TensorFlow has none"),
    **dict.fromkeys(("BatchCholesky", "BatchSvd", "BatchSelfAdjointEigV2"), "TensorFlow has none"),
    **dict.fromkeys(("Svd", "SelfAdjointEigV2", "Eig"), "the vectors have another sign there"),
    "MatrixSolveLs": "TensorFlow has none by the regularizer, nor where it is slow",
    **dict.fromkeys(
        (
            *("TridiagonalSolve complex", "MatrixSquareRoot complex"),
            *("MatrixDeterminant complex", "LogMatrixDeterminant complex"),
        ),
        "TensorFlow does not conjugate",
    ),
}
FAILS = dict.fromkeys(["MatrixDeterminant", "LogMatrixDeterminant"], ("Input is not invertible",))


def determined(random, inputs):
    """Random real matrices, of whose vectors only the sign is free."""
    (x,) = inputs
    free = abs(x.shape[-1] - x.shape[-2]) > 1 or not x.size or x.dtype.kind == "c"
    return None if free else [random.normal(size=x.shape)]


SMOOTH = dict.fromkeys(("Svd", "BatchSvd", "Qr"), determined)
SMOOTH |= dict.fromkeys(("SelfAdjointEigV2", "BatchSelfAdjointEigV2"), determined)
ESTIMATE = {
    **dict.fromkeys(("Cholesky", "BatchCholesky"), "one triangle is read, both have a gradient"),
    "Eig": "the phases of vectors are free",
}
NO_GRADIENT = {
    **dict.fromkeys(("CholeskyGrad", "BatchCholeskyGrad"), "TensorFlow has none"),
    **dict.fromkeys(("SelfAdjointEig", "BatchSelfAdjointEig"), "TensorFlow has none"),
}

INTEGERS = np.arange(-600, 600).reshape(30, 40)
CASES += [
    case(op, [INTEGERS.astype(t) * t(scale), INTEGERS.T.astype(t)])
    for op in ("MatMul", "BatchMatMulV2")
    for t in (np.int32, np.int64)
    for scale in (1, 2**24)
]
