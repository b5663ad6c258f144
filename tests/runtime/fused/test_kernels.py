"""Generated kernels give what NumPy gives: their source compiled as C++, launched on the host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfgraph.ir.dtypes import DType
from cfgraph.ops.evaluate import numpy_kernel
from cfgraph.runtime.fused.kernel_text import source_of
from tests.ops import harness
from tests.runtime.fused import nvrtc
from tests.runtime.fused.host import COMPILER, WHY_NOT, Batch
from tests.runtime.fused.nodes import FAMILIES, cases, group_of, sweep

needs_compiler = pytest.mark.skipif(COMPILER is None, reason=WHY_NOT)

TYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64"


@needs_compiler
def test_every_elementwise_op_computes_what_its_own_kernel_does(tmp_path: Path) -> None:
    assert sweep(Batch(tmp_path), 1) > 100


@needs_compiler
@pytest.mark.slow
def test_every_case_of_an_elementwise_op_computes_what_its_own_kernel_does(tmp_path: Path) -> None:
    assert sweep(Batch(tmp_path), 100) > 100


def some_values(dtype: DType, rng: np.random.Generator) -> np.ndarray:
    """Values of any bits, and floats of all sizes."""
    if dtype.kind == "bool":
        return rng.integers(0, 2, 100).astype(bool)
    kind = dtype.numpy
    values = rng.integers(0, 256, (70_000, kind.itemsize), np.uint8).view(kind).ravel()
    if not dtype.is_floating:
        return values
    sized = rng.standard_normal(30_000) * 10.0 ** rng.integers(-9, 6, 30_000)
    odd = [np.nan, np.inf, -np.inf, 0.0, -0.0, 65504, 65519.99, 65520, 2**-25, 3 * 2**-25]
    return np.concatenate([values, sized.astype(kind), np.array(odd).astype(kind)])


@needs_compiler
def test_a_cast_between_any_two_types_rounds_and_wraps_as_numpy_does(tmp_path: Path) -> None:
    machine, rng, found = Batch(tmp_path), np.random.default_rng(0), []
    types = [DType.named(name) for name in TYPES.split()]
    with np.errstate(all="ignore"):
        for source in types:
            values = some_values(source, rng)
            for target in types:
                node = harness.node_of(
                    harness.case("Cast", [values], {"SrcT": source.numpy, "DstT": target.numpy})
                )
                group, given = group_of(node, machine), [machine.to_device(values)]
                assert group.prepare(given)
                found.append((group, given, numpy_kernel(node, harness.lookup("Cast"))(values)))
        for group, given, want in found:
            got, values = np.asarray(group(*given)), np.asarray(given[0])
            same = (got == want) | (is_nan(got) & is_nan(want))
            if want.dtype == np.uint32 and values.dtype.kind not in "biu":
                # NumPy's loops do not agree with each other on what is out of range
                same |= ~((values > -1) & (values < 2.0**32))
            assert same.all(), (group.nodes[0].attrs, values[~same][:3], got[~same][:3])


def is_nan(values: np.ndarray) -> Any:
    return np.isnan(values) if values.dtype.kind not in "biu" else np.zeros(values.shape, bool)


needs_nvrtc = pytest.mark.skipif(nvrtc.library() is None, reason=nvrtc.WHY_NOT)


def written(machine: Batch, families: Sequence[str], each: int = 1) -> list[str]:
    """The kernels of some families of ops."""
    for item, node in cases(each, families):
        group_of(node, machine).prepare([machine.to_device(array) for array in item.inputs])
    return list(machine.texts.values())


@needs_nvrtc
@pytest.mark.parametrize("architecture", [pytest.param("sm_80", marks=pytest.mark.slow), "sm_90"])
def test_kernels_compile_for_a_card(architecture: str, tmp_path: Path) -> None:
    kernels = written(Batch(tmp_path), ["arithmetic", "cast", "elementary"])
    halves = [kernel for kernel in kernels if "cf_half_store" in kernel]
    kernels = [*dict.fromkeys([*kernels[::40], *halves[::20]])]
    assert halves
    assert nvrtc.compiled(source_of(*kernels), architecture)


@needs_nvrtc
def test_kernels_keep_numbers_below_the_least_normal_one(
    tmp_path: Path,
) -> None:
    kernels = written(Batch(tmp_path), ["arithmetic"])
    floats = [kernel for kernel in kernels if "float" in kernel and "*" in kernel][::20]
    code = nvrtc.compiled(source_of(*floats), "compute_90").decode()
    assert ".f32" in code
    assert ".ftz" not in code


@needs_nvrtc
@pytest.mark.slow
def test_the_kernel_of_every_op_compiles_for_a_card(tmp_path: Path) -> None:
    source = source_of(*written(Batch(tmp_path), FAMILIES))
    assert nvrtc.compiled(source, "sm_90")
