"""Kernels bound to CuPy agree with those bound to NumPy."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from cfgraph.backends.gpu.context import GpuContext
from cfgraph.backends.gpu.kernels import bind_on_gpu
from cfgraph.ops.opdef.op import lookup
from tests.backends.gpu.stand_in import Array, library
from tests.ops import harness
from tests.ops.harness import Case, assert_same, node_of, run_ours
from tests.sampled import sampled

CARD = GpuContext(library)
# ops without a GPU kernel for some or all dtypes; a run uses the host kernel
ON_HOST = {
    **dict.fromkeys(["Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2"], "hash table"),
    **dict.fromkeys(["SparseFillEmptyRows", "SparseFillEmptyRowsGrad"], "rows"),
    **dict.fromkeys(
        [
            *("RaggedBincount", "SparseTensorDenseAdd", "SparseTensorDenseMatMul", "SparseToDense"),
            *("RaggedFillEmptyRows", "RaggedFillEmptyRowsGrad", "SparseCountSparseOutput"),
            *("SparseBincount", "SparseSplit"),
        ],
        "rows",
    ),
    **dict.fromkeys(["DynamicStitch", "ParallelDynamicStitch"], "the last of equal places stays"),
    **dict.fromkeys(["LowerBound", "UpperBound", "StatelessMultinomial"], "row by row"),
    **dict.fromkeys(["MatrixTriangularSolve", "BatchMatrixTriangularSolve"], "broadcast batches"),
    **dict.fromkeys(["Dawsn", "FresnelCos", "FresnelSin", "Spence"], "not in cupyx.scipy.special"),
    **dict.fromkeys(["IgammaGradA", "RandomGammaGrad"], "a series whose length differs"),
    **dict.fromkeys(["SegmentProd", "UnsortedSegmentProd"], "no atomic product"),
    **dict.fromkeys(["BesselI0", "BesselI0e", "BesselI1", "BesselI1e"], "wrong at infinity"),
    **dict.fromkeys(["BesselJ0", "BesselJ1", "BesselK0e", "BesselK1e"], "wrong for large numbers"),
    **dict.fromkeys(["DenseCountSparseOutput", "RaggedCountSparseOutput"], "row by row"),
    **dict.fromkeys(["XlaConv", "XlaConvV2"], "windows of NumPy"),
    **{"SparseMatMul": "skips zeros", "XlaRngBitGenerator": "counters of NumPy"},
    "CumulativeLogsumexp": "no accumulate",
}
# ops whose kernels wait for the host: a size or an error depends on values, or the host computes
WAITS = {
    *("BandedTriangularSolve", "Eig", "Lu", "TridiagonalSolve"),
    *("MatrixExponential", "MatrixLogarithm", "MatrixSquareRoot"),
    *("Bincount", "DenseBincount", "DynamicPartition", "DynamicStitch", "ParallelDynamicStitch"),
    *("ListDiff", "MaxPoolGradWithArgmax", "SparseMatMul", "SparseTensorDenseAdd"),
    *("CropAndResize", "CropAndResizeGradBoxes", "CropAndResizeGradImage"),
    *("FusedPadConv2D", "FusedResizeAndPadConv2D", "SparseBincount"),
    *("IgammaGradA", "RandomGammaGrad", "SparseConcat", "SparseFillEmptyRows"),
    *("DrawBoundingBoxes", "DrawBoundingBoxesV2", "ExtractGlimpse", "ExtractGlimpseV2"),
    *(f"QuantizeAndDequantizeV{version}" for version in (2, 3, 4)),
    *("SegmentMax", "SegmentMean", "SegmentMin", "SegmentProd", "SegmentSum"),
}
# eigenvectors and singular vectors of one library differ from another's in sign
SIGN_FREE = {
    *("Svd", "BatchSvd", "SelfAdjointEig", "BatchSelfAdjointEig"),
    *("SelfAdjointEigV2", "BatchSelfAdjointEigV2"),
}
_SORTING = "Sorting arrays with dtype"
_WAIT_TOO = ("SparseSegment", "Stateless")


def inputs_of(item: Case, xp: Any) -> list[Any] | None:
    """The inputs of a case on the GPU; None for a case that never runs there."""
    op = lookup(item.op)
    if (
        op is None
        or op.effects.stateful
        or op.role
        or op.aliasing.is_identity
        or op.placement.host_only
        or op.algebra.shape_only
    ):
        return None
    node = node_of(item)
    reads, writes = node.input_types or [], node.output_types or []
    if not reads or item.error or not all(map(held, (*reads, *writes))):
        return None
    host = op.host_slots(node)
    if all(dtype.name == "int32" for slot, dtype in enumerate(reads) if slot not in host) and all(
        dtype.name in ("int32", "bool") for dtype in writes
    ):
        return None
    arrays = [array if array.ndim else array[()] for array in item.inputs]
    return [a if slot in host else xp.asarray(a) for slot, a in enumerate(arrays)]


def held(dtype: Any) -> bool:
    return not dtype.is_object and CARD.supports(np.dtype(dtype.numpy))


@cache
def by_op() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for item in harness.all_cases():
        if item.family == "nonfinite_matrices":
            continue  # a GPU returns what its library computes
        found.setdefault(item.op, []).append(item)
    return dict(sorted(found.items()))


def differs(item: Case, host: list[Any]) -> bool:
    """True for segments and resized images that are not finite, and for singular matrices.

    Extremes with NaN depend on the order; a product of matrices spreads what is not finite.
    """
    if item.op.startswith("Resize"):
        return any(
            array.dtype.kind == "f" and not np.isfinite(array).all() for array in item.inputs
        )
    if "Triangular" in item.op:
        return not all(np.isfinite(array).all() for array in host)
    return "Segment" in item.op and any(
        array.dtype.kind == "f" and np.isnan(array).any() for array in item.inputs
    )


@pytest.mark.parametrize("name", sampled(by_op(), 4))
def test_a_kernel_on_the_gpu_agrees_with_numpy(name: str) -> None:
    agree(name, CARD)


@pytest.mark.card
@pytest.mark.parametrize("name", sampled(by_op(), 20))
def test_a_kernel_on_a_real_gpu_agrees_with_numpy(name: str, real_card: GpuContext) -> None:
    agree(name, real_card)


def agree(name: str, card: GpuContext) -> None:
    """Compare the kernel with NumPy's, in all cases that run on a GPU."""
    op = lookup(name)
    for item in by_op()[name]:
        inputs = inputs_of(item, card.xp)
        if inputs is None or op is None:
            continue
        waited = Array.waits
        with np.errstate(all="ignore"):
            ours = run_ours(item)
            try:
                result = bind_on_gpu(node_of(item), op, card.xp)(*inputs)
            except Exception as error:
                # atomic instructions and sorting support few dtypes
                if name in ON_HOST or "only supports" in str(error) or _SORTING in str(error):
                    continue
                raise
        waits = name in WAITS or name.startswith(_WAIT_TOO)
        assert waits or Array.waits == waited, f"the host waits for {item.label}"
        many = result if isinstance(result, tuple | list) else () if result is None else (result,)
        if differs(item, ours):
            continue
        for mine, theirs in zip(map(card.to_host, many), ours, strict=True):
            if name in SIGN_FREE:
                # vectors beyond the singular values are any basis of the null space
                count = ours[0].shape[-1] if "Svd" in name else None
                ends = np.abs(mine[..., :count]), np.abs(theirs[..., :count])
                np.testing.assert_allclose(*ends, rtol=1e-3, atol=1e-5)
            else:
                assert_same(item, mine, theirs)


def test_what_is_said_to_have_no_kernel_on_the_card_has_none() -> None:
    for name in ON_HOST:
        op, broken = lookup(name), 0
        assert op is not None
        for item in by_op()[name]:
            inputs = inputs_of(item, library)
            if inputs is not None:
                try:
                    op.bind(node_of(item), library)(*inputs)
                except Exception:
                    broken += 1
        assert broken, f"{name} works now"
