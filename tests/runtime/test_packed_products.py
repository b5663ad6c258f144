"""Products by a library that packs matrices: values, copies, and threads."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cfgraph.ops.kernels import packed_products as packed
from cfgraph.ops.kernels.packed_products import PackingLibrary, add_product, multiply_in_loop
from tests.runtime.test_row_products import FORWARD, agreed, expected, feeds

BY_ROWS, BY_COLUMNS = 111, 112


class PackingInPython:
    """The functions of MKL that cfgraph calls, for float32, in NumPy."""

    def __init__(self) -> None:
        self.threads = 3
        self.packed: list[tuple[int, ...]] = []
        self.computed_with: list[int] = []

    def __getitem__(self, name: str) -> Any:
        kind = name.partition("gemm_")[2]
        value = ctypes.c_size_t if kind == "pack_get_size" else None
        address, size, real = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
        arguments = {
            "pack_get_size": [size] * 4,
            "pack": [*[size] * 6, real, address, size, address],
            "compute": [*[size] * 6, *[address, size] * 2, real, address, size],
        }
        return ctypes.CFUNCTYPE(value, *arguments[kind])(getattr(self, kind))

    def MKL_Set_Interface_Layer(self, code: int) -> None:
        assert code == 0

    def MKL_Set_Dynamic(self, flag: int) -> None:
        assert flag == 0

    def MKL_Set_Num_Threads_Local(self, count: int) -> int:
        before, self.threads = self.threads, count
        return before

    def pack_get_size(self, _: int, m: int, n: int, k: int) -> int:
        return 4 * n * k

    def pack(self, *call: Any) -> None:
        _, _, order, m, n, k, _, source, stride, target = call
        self.packed.append((m, n, k))
        matrix(target, BY_ROWS, (k, n), n)[:] = matrix(source, order, (k, n), stride)

    def compute(self, *call: Any) -> None:
        _, order, _, m, n, k, left, stride, right, _, scale, out, width = call
        self.computed_with.append(self.threads)
        product = matrix(left, order, (m, k), stride) @ matrix(right, BY_ROWS, (k, n), n)
        result = matrix(out, BY_ROWS, (m, n), width)
        result[:] = product + scale * result if scale else product


def matrix(address: int, order: int, shape: tuple[int, int], stride: int) -> Any:
    """The matrix in memory that BLAS would read."""
    lines, width = shape if order == BY_ROWS else shape[::-1]
    numbers = (ctypes.c_float * (stride * (lines - 1) + width)).from_address(address)
    strides = (4 * stride, 4) if order == BY_ROWS else (4, 4 * stride)
    return np.lib.stride_tricks.as_strided(np.frombuffer(numbers, np.float32), shape, strides)


@pytest.fixture(name="library")
def _library(monkeypatch: pytest.MonkeyPatch) -> Iterator[PackingInPython]:
    functions: Any = PackingInPython()
    library = PackingLibrary(functions, lambda: 2)
    monkeypatch.setattr(packed, "packing_library", lambda: library)
    packed.packed_copies.clear()
    yield functions
    packed.packed_copies.clear()


@pytest.fixture(name="mkl")
def _mkl() -> None:
    if packed.packing_library() is None:
        pytest.skip("the extra `mkl` is not installed")


def random(*shape: int, dtype: str = "f") -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def views(rows: int, columns: int, dtype: str = "f") -> dict[str, Any]:
    """Matrices of one shape that are in memory in different ways."""
    whole = random(2 * rows, 2 * columns, dtype=dtype)
    return {
        "rows": whole[:rows, :columns].copy(),
        "columns": whole[:rows, :columns].copy("F"),
        "part": whole[3 : 3 + rows, 5 : 5 + columns],
        "transposed part": random(2 * columns, 2 * rows, dtype=dtype)[:columns, :rows].T,
        "every second": whole[::2, ::2],
        "one row": np.broadcast_to(whole[:1, :columns], (rows, columns)),
    }


VIEWS = list(views(2, 2))


@pytest.mark.parametrize("left", VIEWS)
@pytest.mark.parametrize("right", VIEWS)
def test_matrices_may_be_in_memory_in_any_way(
    left: str, right: str, library: PackingInPython
) -> None:
    a, b = views(32, 128)[left], views(128, 300)[right]
    np.testing.assert_allclose(multiply_in_loop(a, b), a @ b, rtol=1e-4, atol=1e-3)
    assert library.packed == [(32, 300, 128)]


@pytest.mark.usefixtures("mkl")
@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("right", VIEWS)
def test_mkl_multiplies_as_numpy(right: str, dtype: str) -> None:
    b = views(128, 300, dtype)[right]
    for a in views(32, 128, dtype).values():
        tolerance = 1e-3 if dtype == "f" else 1e-11
        np.testing.assert_allclose(multiply_in_loop(a, b), a @ b, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("mkl")
def test_engines_agree_with_mkl() -> None:
    fed = feeds(20, 16)
    np.testing.assert_allclose(agreed(RECURRENT, fed), expected(fed), rtol=1e-4, atol=1e-4)


RECURRENT = FORWARD.replace("?,4,256", "?,16,256").replace("[4,128]", "[16,128]")


def test_a_loop_packs_its_weights_once_for_each_number_of_rows(library: PackingInPython) -> None:
    fed = feeds(50, 16)
    np.testing.assert_allclose(agreed(RECURRENT, fed), expected(fed), rtol=1e-4, atol=1e-4)
    # the inputs of 24 steps at once, and of the last two
    assert library.packed == 2 * [(384, 128, 256), (32, 128, 256)]
    assert packed.packed_copies == {}


def test_a_product_of_two_matrices_in_a_loop_packs_an_invariant_one_once(
    library: PackingInPython,
) -> None:
    source = RECURRENT.replace("ConcatV2(element, before, axis)", "Tanh(before)")
    fed = feeds(5, 64) | {"w:0": random(128, 128) * np.float32(0.1)}
    state = fed["start:0"]
    for _ in range(5):
        state = np.tanh(np.tanh(state) @ fed["w:0"])
    result = agreed(source.replace("16,", "64,"), fed)
    np.testing.assert_allclose(result, state, rtol=1e-4, atol=1e-4)
    assert library.packed == 2 * [(64, 128, 128)]


def test_a_product_is_added_to_a_sum_or_a_copy(library: PackingInPython) -> None:
    a, b, total = random(64, 128), random(128, 256), random(64, 256)
    expected_sum, before = total + a @ b, total.copy()
    result = add_product(total, a, b, overwrites=False)
    np.testing.assert_allclose(result, expected_sum, rtol=1e-4, atol=1e-3)
    assert total.tobytes() == before.tobytes()
    assert add_product(total, a, b, overwrites=True) is total
    assert total.tobytes() == result.tobytes()
    assert library.packed == [(64, 256, 128)]


def test_elements_that_are_read_again_have_the_same_products(library: PackingInPython) -> None:
    source = (
        FORWARD.replace("4,", "64,")
        .replace("=true, identical", "=false, identical")
        .replace(
            "element = TensorArrayReadV3(handle, body, flow_in)",
            "three = Const(^body) {dtype=int32, value=int32[]:3}\nagain = FloorMod(body, three)\n"
            "element = TensorArrayReadV3(handle, again, flow_in)",
        )
    )
    fed = feeds(20, 64)
    result = expected(fed, [index % 3 for index in range(20)])
    np.testing.assert_allclose(agreed(source, fed), result, rtol=1e-4, atol=1e-4)
    assert library.packed == 2 * [(384, 128, 256), (64, 128, 128)]


def test_a_copy_is_made_again_for_other_memory_or_rows(library: PackingInPython) -> None:
    a, b = random(64, 128), random(128, 256)
    for left, right in ((a, b), (a, b), (a[:32], b), (a, b.copy()), (a, b[:, :255])):
        result = multiply_in_loop(left, right, repeats=True)
        np.testing.assert_allclose(result, left @ right, rtol=1e-4, atol=1e-3)
    assert library.packed == [(64, 256, 128), (32, 256, 128), (64, 256, 128), (64, 255, 128)]
    for _ in range(40):
        multiply_in_loop(a, random(128, 256), repeats=True)
    assert len(packed.packed_copies) <= 16


def test_products_use_the_threads_of_numpy_and_small_ones_one(library: PackingInPython) -> None:
    for rows in (32, 256):
        multiply_in_loop(random(rows, 256), random(256, 256))
    assert library.computed_with == [1, 2]
    assert library.threads == 3


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (random(16, 64), random(64, 128)),
        (random(1, 2048), random(2048, 1024)),
        (random(4096, 8), random(8, 64)),
        (random(64, 256, dtype="e"), random(256, 256, dtype="e")),
    ],
)
def test_small_and_narrow_products_are_those_of_numpy(
    left: Any, right: Any, library: PackingInPython
) -> None:
    assert multiply_in_loop(left, right, repeats=True).tobytes() == left.dot(right).tobytes()
    assert library.packed == []
