"""Fast paths of kernels give what the general ways give."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.special

from cfgraph.ir.dtypes import DType, float32
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families import rejection_lanes
from cfgraph.ops.kernels import matrix_products, philox
from cfgraph.ops.opdef.op import OpError, lookup

RANDOM = np.random.default_rng(0)


def floats(*sizes: int) -> Any:
    return RANDOM.standard_normal(sizes).astype(np.float32)


def compute(op: str, *inputs: Any, **attrs: Any) -> Any:
    graph, feeds = Graph(), []
    for number, value in enumerate(inputs):
        dtype = DType.from_numpy(value.dtype)
        node = graph.add("Placeholder", name=f"x{number}", dtype=dtype, shape=Shape(value.shape))
        feeds.append(Output(node, 0))
    definition = lookup(op)
    assert definition is not None
    return definition.bind(graph.add(op, *feeds, name="y", attrs=attrs), np)(*inputs)


@pytest.mark.parametrize("sizes", [(32, 512, 256), (2, 1024, 512), (3, 64, 64)])
def test_few_rows_times_a_transposed_matrix_are_rows_in_memory(sizes: tuple[int, int, int]) -> None:
    rows, inner, columns = sizes
    random = np.random.default_rng(0)
    a = random.standard_normal((rows, inner))
    b = random.standard_normal((columns, inner))
    product = compute("MatMul", a, b, transpose_b=True)
    assert product.flags.c_contiguous
    np.testing.assert_allclose(product, a @ b.T)


@pytest.mark.parametrize("sizes", [(2, 600, 512), (16, 512, 512), (4, 128, 1 << 14)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_few_rows_times_a_large_matrix_are_a_sum_of_products(
    sizes: tuple[int, int, int], order: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, inner, columns = sizes
    left, right = floats(rows, inner), np.asarray(floats(inner, columns), order=order)
    exact = left.astype(np.float64) @ right
    sliced = []
    monkeypatch.setattr(matrix_products, "has_one_thread", lambda: sliced.append(1) or True)
    product = compute("MatMul", left, right, transpose_a=False, transpose_b=False)
    np.testing.assert_allclose(product, exact, rtol=1e-4, atol=1e-3)
    assert bool(sliced) == (order == "C")


COUNTS = ((0, 0), (1, 0), (7, 3), (48, 5), (399, 1))
KEYS = (0, 1, 2**32 - 1, 2**64 - 1, 0x0123456789ABCDEF)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("low", KEYS)
@pytest.mark.parametrize("high", [0, 2**64 - 1])
def test_few_random_words_are_those_of_many(
    key: int, low: int, high: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = philox.PhiloxStream(key, low, high)
    few = [stream.sequence(count, start) for count, start in COUNTS]
    numbers = stream.unit_numbers([3, 4, 600])
    monkeypatch.setattr(philox, "_FEW", -1)
    many = [stream.sequence(count, start) for count, start in COUNTS]
    for left, right in zip(few, many, strict=True):
        assert left.dtype == right.dtype
        assert np.array_equal(left, right)
    pairs = philox.unit_float64(stream.words([3, 4, 600]))
    assert numbers == pairs[:, ::-1].reshape(-1).tolist()


DISTRIBUTIONS = {
    "StatelessRandomGammaV2": ([0.3, 1, 2.5],),
    "StatelessRandomPoisson": ([0, 0.3, 4, 9.9, 10, 2000],),
    "StatelessRandomBinomial": (
        [0, 9, 9, 30, 400, 1000, 1000, 50],
        [0.5, 0, 1, 0.3, 0.2, 0.01, 0.99, 0.5],
    ),
}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("op", sorted(DISTRIBUTIONS))
def test_few_samples_are_those_of_arrays(
    op: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = [np.array(x, np.float32) for x in DISTRIBUTIONS[op]]
    inputs = np.array([2, len(parameters[0])]), np.array([seed, 5]), *parameters
    few = compute(op, *inputs, dtype=float32)
    monkeypatch.setattr(rejection_lanes, "MAX_FEW", 0)
    np.testing.assert_allclose(few, compute(op, *inputs, dtype=float32), rtol=1e-6)


def test_samples_without_a_distribution_are_nan() -> None:
    rates = np.array([-1, np.inf, np.nan, 2.0])
    few = compute("StatelessRandomPoisson", np.array([4]), np.array([1, 2]), rates, dtype=float32)
    assert np.isnan(few[:3]).all()
    assert few[3] >= 0


@pytest.mark.parametrize("op", ["Fast", "Strong", ""])
def test_hashes_of_many_texts_are_those_of_each(op: str) -> None:
    texts = np.array([RANDOM.bytes(size) for size in range(70) for _ in range(8)], object)
    attrs = {"num_buckets": 2**63 - 1} | ({"key": [-1, 7]} if op == "Strong" else {})
    name = f"StringToHashBucket{op}"
    each = [compute(name, texts[place : place + 1], **attrs)[0] for place in range(len(texts))]
    assert compute(name, texts, **attrs).tolist() == each


def test_the_contrast_of_a_large_image_has_an_exact_mean() -> None:
    image = RANDOM.uniform(200, 256, (600, 1500, 3)).astype(np.float32)
    mean = image.mean(axis=(0, 1), dtype=np.float64)
    value = compute("AdjustContrastv2", image, np.float32(2))
    np.testing.assert_allclose(value, (image - mean) * 2 + mean, atol=1e-3)


EQUATIONS = {
    "ij,jk->ik": ((2, 3), (3, 4)),
    "ij,jk->ki": ((2, 3), (3, 4)),
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)),
    "aecd,abcd->acbe": ((2, 5, 3, 4), (2, 6, 3, 4)),
    "bd,btd->bt": ((3, 8), (3, 6, 8)),
    "i,j->ij": ((3,), (4,)),
    "i,i->": ((3,), (3,)),
    "ij,ij->ij": ((2, 3), (2, 3)),
    "ij,k->ki": ((2, 3), (4,)),  # j is summed alone
    "ii,ij->j": ((3, 3), (3, 2)),
    "...ij,...jk->...ik": ((7, 2, 3), (7, 3, 4)),
    "...i,i...->...": ((1, 4), (4, 3)),
    "b...d,...d->b...": ((2, 5, 3), (5, 3)),
    "ij...,j->...i": ((2, 3, 0), (3,)),
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_a_product_of_a_pair_is_that_of_numpy(equation: str) -> None:
    x, y = (floats(*shape) for shape in EQUATIONS[equation])
    found = compute("Einsum", x, y, equation=equation.encode(), N=2)
    expected = np.einsum(equation, x, y)
    assert found.shape == expected.shape
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_pair_with_unequal_sizes_of_a_label_is_rejected() -> None:
    with pytest.raises(OpError, match="Expected dimension 1 at label 'j' but got 3"):
        compute("Einsum", floats(2, 1), floats(3, 4), equation=b"ij,jk->ik", N=2)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("axes", [[0], [0, 1], [0, 1, 2], [1, 2], [0, 1, 2, 3], []])
@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Min", "Prod"])
def test_long_reductions_are_those_of_numpy(op: str, axes: list[int], keep: bool) -> None:
    x = floats(2, 17, 13, 16) * np.float32(0.01) + np.float32(1)
    found = compute(op, x, np.array(axes, np.int32), keep_dims=keep)
    expected = getattr(x.astype(np.float64), op.lower())(axis=tuple(axes), keepdims=keep)
    assert found.shape == expected.shape
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=2e-4)


WINDOWS = list(itertools.product([1, 2], [1, 2], [b"SAME", b"VALID"], [1, 2, 3]))


@pytest.mark.parametrize("channels", [3, 130])
@pytest.mark.parametrize(("stride", "dilation", "padding", "size"), WINDOWS)
def test_convolutions_are_sums_over_windows(
    stride: int, dilation: int, padding: bytes, size: int, channels: int
) -> None:
    x, w = floats(2, 7, 6, channels), floats(size, size, channels, 4)
    depthwise = floats(size, size, channels, 1)
    attrs: dict[str, Any] = {
        "strides": (1, stride, stride, 1),
        "dilations": (1, dilation, dilation, 1),
        "padding": padding,
    }
    dense = compute("Conv2D", x, w, **attrs)
    single = compute("DepthwiseConv2dNative", x, depthwise, **attrs)
    # a dense filter that is zero between channels
    diagonal = np.zeros((size, size, channels, channels), np.float32)
    diagonal[..., range(channels), range(channels)] = depthwise[..., 0]
    np.testing.assert_allclose(single, compute("Conv2D", x, diagonal, **attrs), atol=1e-5)
    # gradients are adjoint: <conv(x, w), y> = <x, input gradient> = <w, filter gradient>
    for kernel, op, y in (
        (w, "Conv2D", floats(*dense.shape)),
        (depthwise, "DepthwiseConv2dNative", floats(*single.shape)),
    ):
        forward = np.vdot(dense if op == "Conv2D" else single, y)
        x_sizes, w_sizes = (np.array(v.shape, np.int32) for v in (x, kernel))
        dx = compute(f"{op}BackpropInput", x_sizes, kernel, y, **attrs)
        dw = compute(f"{op}BackpropFilter", x, w_sizes, y, **attrs)
        np.testing.assert_allclose(np.vdot(x, dx), forward, rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(np.vdot(kernel, dw), forward, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_windows_of_an_image_do_not_depend_on_the_strides_of_its_single_elements(
    axis: int, stride: int
) -> None:
    sizes = [size for position, size in enumerate((2, 9, 8, 3)) if position != axis]
    image = np.zeros(np.insert(sizes, axis, 1), np.float32)
    # indexing gives the added dimension the stride 0
    added: Any = tuple(np.newaxis if position == axis else slice(None) for position in range(4))
    view = floats(*sizes)[added]
    image[...] = view
    rows, columns = (1 if axis == position else 3 for position in (1, 2))
    attrs: dict[str, Any] = {"strides": (1, stride, stride, 1), "padding": b"VALID"}
    ksize = (1, rows, columns, 1)
    for op in ("MaxPool", "AvgPool"):
        ours, same = (compute(op, x, ksize=ksize, **attrs) for x in (view, image))
        np.testing.assert_array_equal(ours, same)
    for op in ("Conv2D", "DepthwiseConv2dNative"):
        w = floats(rows, columns, image.shape[-1], 2)
        ours, same = (compute(op, x, w, **attrs) for x in (view, image))
        np.testing.assert_array_equal(ours, same)
        shape, dy = np.array(w.shape, np.int32), floats(*same.shape)
        dw = [compute(f"{op}BackpropFilter", x, shape, dy, **attrs) for x in (view, image)]
        np.testing.assert_array_equal(*dw)


@pytest.mark.parametrize("shape", [(3,), (1, 4), (2, 1, 3)])
def test_tiles_are_those_of_numpy(shape: tuple[int, ...]) -> None:
    x = floats(*shape)
    for counts in itertools.product([0, 1, 3], repeat=len(shape)):
        expected = np.tile(x, counts)
        assert np.array_equal(compute("Tile", x, np.array(counts, np.int32)), expected)


def test_index_vectors_out_of_bounds_are_rejected() -> None:
    x = floats(3, 4)
    for bad in ([3, 0], [0, 4], [-1, 0], [0, -1]):
        with pytest.raises(OpError, match="does not index into shape"):
            compute("GatherNd", x, np.array([[0, 0], bad], np.int32))
    for index in (-1, 4):
        indices = np.array([[0], [1], [index]], np.int32)
        with pytest.raises(OpError, match=r"indices\[2\] = \[-?\d\] does not index into shape"):
            compute("GatherNd", floats(4, 3), indices)
        with pytest.raises(OpError, match="is not in"):
            compute("GatherV2", x, indices, np.int32(1), batch_dims=1)


@pytest.mark.parametrize("sizes", [(64, 300), (2, 3, 500), (4000,)])
@pytest.mark.parametrize("k", [1, 5, 8])
@pytest.mark.parametrize("special", [None, np.nan, -np.inf])
def test_few_largest_elements_are_those_of_a_sort(
    sizes: tuple[int, ...], k: int, special: float | None
) -> None:
    x = RANDOM.integers(-40, 40, sizes).astype(np.float32)  # with many equal elements
    if special is not None:
        x[..., 7:] = special
    values, indices = compute("TopKV2", x, np.int32(k))
    # NaN is the largest; the first of equal elements comes first
    order = np.flip(np.flip(x, -1).argsort(axis=-1, kind="stable"), -1)
    expected = (x.shape[-1] - 1 - order)[..., :k]
    assert np.array_equal(indices, expected)
    assert np.array_equal(values, np.take_along_axis(x, expected, -1), equal_nan=True)


@pytest.mark.parametrize("sizes", [(2, 36), (4, 0), (0, 4), (1, 3, 5), (2, 3, 1)])
def test_few_elements_are_sorted(sizes: tuple[int, ...]) -> None:
    x = RANDOM.integers(-3, 3, sizes).astype(np.float32)  # with equal elements
    order = np.flip(np.flip(x, -1).argsort(axis=-1, kind="stable"), -1)
    for k in range(min(sizes[-1], 3) + 1):
        values, indices = compute("TopKV2", x, np.int32(k))
        expected = (x.shape[-1] - 1 - order)[..., :k]
        assert np.array_equal(indices, expected)
        assert np.array_equal(values, np.take_along_axis(x, expected, -1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_cube_is_the_power_of_three(dtype: Any) -> None:
    special = [0, -0.0, np.inf, -np.inf, np.nan, 1e-14, -1e-40, 1e13, -3e38]
    x = np.concatenate([special, RANDOM.standard_normal(200)]).astype(dtype)
    with np.errstate(all="ignore"):
        cube, expected = compute("Pow", x, dtype(3)), np.power(x, dtype(3))
    assert np.array_equal(np.signbit(cube), np.signbit(expected))
    np.testing.assert_array_max_ulp(cube, expected, 3)


@pytest.mark.parametrize("shape", [(), (3,), (1, 1, 3)])
@pytest.mark.parametrize("sizes", [(3,), (2, 3), (2, 3, 700), (2, 0, 3), (0,), (2, -1)])
def test_broadcasts_are_those_of_numpy(shape: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    x = floats(*shape)
    try:
        expected = np.broadcast_to(x, sizes)
    except ValueError:
        with pytest.raises(OpError, match="Incompatible shapes"):
            compute("BroadcastTo", x, np.array(sizes, np.int32))
    else:
        assert np.array_equal(compute("BroadcastTo", x, np.array(sizes, np.int32)), expected)


@pytest.mark.parametrize("op", ["Max", "Min"])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("length", [2, 9, 32, 33])
def test_reductions_of_short_rows_are_those_of_numpy(op: str, keep: bool, length: int) -> None:
    x = floats(3, 400, length)
    x[1, 5, 1] = np.nan
    expected = getattr(x, op.lower())(axis=-1, keepdims=keep)
    actual = compute(op, x, np.array([-1], np.int32), keep_dims=keep)
    assert np.array_equal(actual, expected, equal_nan=True)


@pytest.mark.parametrize("op", ["Erf", "Erfc"])
def test_error_functions_are_those_of_scipy(op: str) -> None:
    x = np.append(np.linspace(-12, 12, 20_001), [0.0, -0.0, np.inf, -np.inf, np.nan])
    x = x.astype(np.float32)
    expected = getattr(scipy.special, op.lower())(x.astype(np.float64))
    actual = compute(op, x)
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize(("images", "rows"), [(40, 24), (2, 480)])
def test_convolutions_of_many_windows_are_sums_of_products(images: int, rows: int) -> None:
    attrs = {"strides": (1, 1, 1, 1), "padding": b"SAME"}
    x, w, dy = floats(images, rows, 16, 4), floats(3, 3, 4, 5), floats(images, rows, 16, 5)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [padded[:, i : i + rows, j : j + 16] for i in range(3) for j in range(3)]
    sums = sum(image @ offset for image, offset in zip(shifted, w.reshape((9, 4, 5)), strict=True))
    np.testing.assert_allclose(compute("Conv2D", x, w, **attrs), sums, atol=1e-4)
    found = compute("Conv2DBackpropFilter", x, np.array(w.shape, np.int32), dy, **attrs)
    expected = [np.tensordot(image, dy, ((0, 1, 2), (0, 1, 2))) for image in shifted]  # type: ignore[arg-type]
    np.testing.assert_allclose(found.reshape((9, 4, 5)), expected, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("padding", [b"SAME", b"VALID"])
@pytest.mark.parametrize("filters", [1, 4])
def test_gradients_of_convolutions_are_their_transposes(
    dilation: int, padding: bytes, filters: int
) -> None:
    x, steps = floats(2, 7, 6, 3), (1, 1, 1, 1)
    attrs = {"strides": steps, "dilations": (1, dilation, dilation, 1), "padding": padding}
    name, w = ("Conv2D", floats(2, 3, 3, filters))
    if filters == 1:
        name = "DepthwiseConv2dNative"
    y = compute(name, x, w, **attrs)
    dy = floats(*y.shape)
    sizes = np.array(x.shape, np.int32)
    dx = compute(f"{name}BackpropInput", sizes, w, dy, **attrs)
    np.testing.assert_allclose((dx * x).sum(), (dy * y).sum(), rtol=1e-3, atol=1e-3)
    probe = floats(*x.shape)
    moved = compute(name, probe, w, **attrs)
    np.testing.assert_allclose((dx * probe).sum(), (dy * moved).sum(), rtol=1e-3, atol=1e-3)


def test_a_continued_fraction_ends_for_each_element() -> None:
    a, x = np.array([0.5, 3.0, 20.0, 50.0]), np.array([2.0, 9.0, 21.0, 400.0])
    together = compute("IgammaGradA", a, x)
    step = 1e-5
    difference = scipy.special.gammainc(a + step, x) - scipy.special.gammainc(a - step, x)
    np.testing.assert_allclose(together, difference / (2 * step), rtol=1e-5, atol=1e-10)
    alone = [compute("IgammaGradA", a[i : i + 1], x[i : i + 1])[0] for i in range(4)]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_floats_are_quantized_in_float32(name: str) -> None:
    narrow = DType.from_name(name).numpy
    bounds = np.array([-4, 9], narrow)
    x = np.linspace(-5, 9, 15).astype(narrow)
    wide = [v.astype(np.float32) for v in (x, *bounds)]
    attrs = {"num_bits": 16, "range_given": True}
    exact = compute("QuantizeAndDequantizeV2", *wide, **attrs)
    result = compute("QuantizeAndDequantizeV2", x, *bounds, **attrs)
    assert np.array_equal(result, exact.astype(narrow))


def test_patches_of_an_empty_batch_have_channels() -> None:
    attrs = {"ksizes": [1, 2, 2, 1], "strides": [1] * 4, "rates": [1] * 4, "padding": b"SAME"}
    assert compute("ExtractImagePatches", floats(0, 7, 6, 3), **attrs).shape == (0, 7, 6, 12)


@pytest.mark.parametrize("count", [0, 1, 3, 8, 9, 60])
def test_sums_of_few_and_many_sparse_elements_are_those_of_dense_tensors(count: int) -> None:
    sizes = np.array([7, 11])
    dense = np.zeros((2, 7, 11), np.float32)
    for tensor in dense:
        np.put(tensor, RANDOM.permutation(tensor.size)[:count], floats(count))
    parts = [(np.argwhere(tensor), tensor[tensor != 0], sizes) for tensor in dense]
    indices, values, _ = compute("SparseAdd", *parts[0], *parts[1], np.float32(0))
    total = compute("SparseToDense", indices, sizes, values, np.float32(0))
    np.testing.assert_array_equal(total, dense.sum(axis=0))


@pytest.mark.parametrize("count", [3, 60])
def test_a_wrong_index_among_few_and_many_is_named(count: int) -> None:
    rows, size = (
        np.stack([np.arange(count), np.arange(count) * 0 + 1], axis=1),
        np.array([count, 2]),
    )
    values = floats(count)
    for row, message in (([0, 2], "is out of bounds"), ([0, 1], "is repeated|out of order")):
        wrong = rows.copy()
        wrong[1] = row
        with pytest.raises(OpError, match=message):
            compute("SparseToDense", wrong, size, values, np.float32(0))


def test_windows_of_one_shape_have_the_same_noise_in_each_run() -> None:
    images, size = floats(2, 5, 5, 1), np.array([4, 4], np.int32)
    attrs = {"centered": False, "normalized": False, "uniform_noise": False, "noise": b"gaussian"}
    outside, partly = np.full((2, 2), 9, np.float32), np.full((2, 2), 3, np.float32)
    noise = compute("ExtractGlimpseV2", images, size, outside, **attrs)
    mixed = compute("ExtractGlimpseV2", images, size, partly, **attrs)
    np.testing.assert_array_equal(mixed[:, :2, :2], images[:, 3:, 3:])
    np.testing.assert_array_equal(mixed[:, 2:], noise[:, 2:])
    np.testing.assert_array_equal(
        compute("ExtractGlimpseV2", images, size, outside, **attrs), noise
    )
