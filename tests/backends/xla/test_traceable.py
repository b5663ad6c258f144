"""Traceable kernels, compiled by jax, return the same as with NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from cfgraph.ir import registry
from cfgraph.ops.families.convolution import Conv2D
from cfgraph.ops.opdef.op import Op, lookup
from tests.ops import harness
from tests.ops.harness import Case, assert_outputs_agree, node_of, run_ours
from tests.ops.test_ops import check
from tests.sampled import sampled

FEW = 3


@cache
def jax() -> Any:
    """jax on the CPU with all 64 bits, or None where it is not installed."""
    try:
        import jax
    except ImportError:
        return None
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    return jax


def is_traced(item: Case) -> bool:
    op = lookup(item.op)
    if op is None or not op.compilation.traceable or op.effects.stateful or item.error:
        return False
    return all(array.dtype != object for array in item.inputs)  # text is never traced


@cache
def representatives() -> dict[str, list[Case]]:
    """A few cases of each traceable op: other types and ranks, as far apart as they come."""
    kinds: dict[str, dict[Any, Case]] = {}
    for item in harness.all_cases():
        if is_traced(item):
            kind = tuple((array.dtype.kind, min(array.ndim, 2)) for array in item.inputs)
            kinds.setdefault(item.op, {}).setdefault((kind, tuple(item.attrs)), item)
    return {op: spread(list(cases.values())) for op, cases in sorted(kinds.items())}


def spread(cases: list[Case]) -> list[Case]:
    """The first case and others, evenly apart."""
    step = max(1, len(cases) / FEW)
    return [cases[int(place * step)] for place in range(min(FEW, len(cases)))]


def free_kernel(op: type[Op], item: Case, constant: Sequence[int]) -> tuple[Any, list[Any]]:
    """A function of all inputs but the constant arguments, which are closed over; and those."""
    node = node_of(item)
    kernel = op.bind(node, jax().numpy)
    free = sorted(set(range(len(item.inputs))) - op.slots_of(node, constant))

    def compute(*values: Any) -> Any:
        inputs: list[Any] = list(item.inputs)
        for slot, value in zip(free, values, strict=True):
            inputs[slot] = value
        return kernel(*inputs)

    return compute, [item.inputs[slot] for slot in free]


def traced(op: type[Op], item: Case) -> list[Any]:
    """The outputs under `jax.jit`."""
    compute, inputs = free_kernel(op, item, op.parsed().constant_inputs)
    result = jax().jit(compute)(*inputs)
    if result is None:
        return []
    return list(result) if isinstance(result, tuple) else [result]


# image, filter, stride: wide windows, one column, one that is mostly padding; few windows, and
# windows that are larger than the image; then float64
CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], int, Any]] = [
    ((2, 5, 6, 32), (3, 2, 32, 4), 1, np.float32),
    ((1, 9, 8, 16), (3, 3, 16, 2), 2, np.float32),
    ((1, 40, 1, 2), (30, 1, 2, 3), 3, np.float32),
    ((1, 6, 7, 1), (6, 6, 1, 2), 1, np.float32),
    ((1, 4, 4, 32), (3, 3, 32, 4), 1, np.float32),
    ((1, 7, 7, 32), (3, 3, 32, 4), 2, np.float32),
    ((1, 2, 2, 32), (3, 3, 32, 4), 1, np.float32),
    ((9, 2, 3, 16), (3, 3, 16, 2), 2, np.float32),
    ((2, 4, 1, 3), (7, 5, 3, 4), 1, np.float32),
    ((1, 5, 5, 32), (3, 3, 32, 2), 1, np.float64),
]


@pytest.mark.parametrize(("image", "window", "stride", "dtype"), CONVOLUTIONS)
@pytest.mark.parametrize("dilation", [1, 2])
def test_a_traced_convolution_and_its_gradients_are_those_of_numpy(
    image: tuple[int, ...], window: tuple[int, ...], stride: int, dtype: Any, dilation: int
) -> None:
    if jax() is None:
        pytest.skip("jax is not installed (extra `xla`)")
    if stride > 1 < dilation:
        pytest.skip("TensorFlow has no convolution with both")
    steps, spread = [1, stride, stride, 1], [1, dilation, dilation, 1]
    attrs = {"strides": steps, "dilations": spread, "padding": "SAME"}
    random = np.random.default_rng(7)
    x, w = (random.standard_normal(shape).astype(dtype) for shape in (image, window))
    forward = harness.case("Conv2D", [x, w], attrs)
    dy = random.standard_normal(run_ours(forward)[0].shape).astype(dtype)
    sizes = [np.array(shape, np.int32) for shape in (image, window)]
    dx = harness.case("Conv2DBackpropInput", [sizes[0], w, dy], attrs)
    dw = harness.case("Conv2DBackpropFilter", [x, sizes[1], dy], attrs)
    for item in (forward, dx, dw):
        op = lookup(item.op)
        assert op is not None
        expected = run_ours(item)[0]
        np.testing.assert_allclose(traced(op, item)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("image", "size", "is_product"),
    [((1, 2, 2, 32), 3, True), ((8, 2, 3, 32), 3, True), ((1, 64, 64, 16), 65, False)],
)
def test_a_window_larger_than_the_image_is_a_product_in_xla_if_patches_are_small(
    image: tuple[int, ...], size: int, *, is_product: bool
) -> None:
    if jax() is None:
        pytest.skip("jax is not installed (extra `xla`)")
    attrs = {"strides": [1, 1, 1, 1], "padding": "SAME"}
    x, w = (np.ones(shape, np.float32) for shape in (image, (size, size, image[-1], 8)))
    compute, inputs = free_kernel(Conv2D, harness.case("Conv2D", [x, w], attrs), ())
    # XLA exchanges image and window of such a convolution, which takes fifty times as long
    text = jax().jit(compute).lower(*inputs).as_text()
    assert ("convolution" not in text) == is_product


@pytest.mark.parametrize("image", [(2, 0, 5, 3), (1, 4, 0, 2), (0, 4, 4, 2)])
def test_an_image_without_pixels_has_no_traced_patches(image: tuple[int, ...]) -> None:
    if jax() is None:
        pytest.skip("jax is not installed (extra `xla`)")
    sizes = {"ksizes": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "rates": [1, 1, 1, 1]}
    images = np.zeros(image, np.float32)
    item = harness.case("ExtractImagePatches", [images], {**sizes, "padding": "SAME"})
    op = lookup(item.op)
    assert op is not None
    assert traced(op, item)[0].shape == run_ours(item)[0].shape


def can_trace(op: type[Op], item: Case, constant: Sequence[int]) -> bool:
    compute, inputs = free_kernel(op, item, constant)
    try:
        jax().eval_shape(compute, *inputs)
    except Exception:
        return False
    return True


@pytest.mark.parametrize("name", sampled(representatives(), 6))
def test_a_traceable_kernel_compiles_to_the_same(name: str) -> None:
    if jax() is None:
        pytest.skip("jax is not installed (extra `xla`)")
    op = lookup(name)
    assert op is not None

    def alike(item: Case) -> None:
        assert_outputs_agree(item, [*map(np.asarray, traced(op, item))], run_ours(item))

    check(representatives()[name], alike)


@pytest.mark.parametrize("name", representatives())
def test_no_input_is_called_constant_that_may_be_traced(name: str) -> None:
    if jax() is None:
        pytest.skip("jax is not installed (extra `xla`)")
    op = lookup(name)
    assert op is not None
    for argument in op.parsed().constant_inputs:
        others = [place for place in op.parsed().constant_inputs if place != argument]
        assert not all(can_trace(op, item, others) for item in representatives()[name])


def test_what_has_effects_or_moves_control_is_never_traced() -> None:
    ops = [lookup(name) for name in registry.op_names()]
    traced = [op for op in ops if op is not None and op.compilation.traceable]
    assert traced
    assert not [
        op.name for op in traced if op.effects.stateful or op.role or not op.compilation.runnable
    ]
