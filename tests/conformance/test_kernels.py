"""TensorFlow's kernel tests come out as recorded, in every form and engine."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from cfgraph.ir import registry
from cfgraph.ops.opdef.op import lookup
from tests.conformance import recorded
from tests.conformance.agree.ways import Way
from tests.conformance.recorded_ways import difference

CASES = recorded.cases(recorded.KERNELS)
# a new kernel leaves this list
WITHOUT_KERNEL = """
AddManySparseToTensorsMap AddSparseToTensorsMap Barrier BarrierClose BarrierInsertMany
BarrierReadySize BarrierTakeMany CSRSparseMatrixComponents CSRSparseMatrixToDense ConsumeMutexLock
DenseToCSRSparseMatrix MapClear MapIncompleteSize MapPeek MapSize MapStage MapUnstage
MapUnstageNoKey MutexLock MutexV2 OrderedMapStage TakeManySparseFromTensorsMap
""".split()  # noqa: SIM905
# cases whose values TensorFlow does not define, and why
UNDEFINED = {
    "data_structures.lookup_ops_test/DenseHashTableOpTest.testVectorKeys_False/0": (
        "exports the buckets of a table, in the order of their hashes"
    ),
    "ops.image_ops_more_test/SelectDistortedCropBoxTest.testWholeImageBoundingBox/0": (
        "the size of what it draws is random"
    ),
    "ops.image_ops_test/JpegTest.testDefaultDCTMethodIsIntegerFast/0": (
        "the fast transform of libjpeg differs by a few of 255 from the only one of Pillow"
    ),
}

UNDEFINED |= {
    f"math_ops.approx_topk_test/ApproxTopkTest.test_non_fused_max_k{case}/0": (
        "without aggregate_to_topk, ApproxTopK returns maxima of bins of its implementation"
    )
    for case in (
        "31 (tf.float16, 1, 500, 1, False)",
        "69 (tf.float32, 10, 500, 10, False)",
        "17 (tf.bfloat16, 10, 100, 128, False)",
        "5 (tf.bfloat16, 1, 100, 128, False)",
        "47 (tf.float16, 10, 500, 128, False)",
    )
}


def lacks_kernel(name: str) -> bool:
    op = lookup(name)
    if op is None:
        return registry.lookup(name) is not None  # the others are functions
    return not (op.compilation.runnable or op.calls.kind or op.role)


def failure_of(case: dict[str, Any], way: str) -> str:
    """The difference; nothing where it lies in an op without a kernel."""
    is_gradient = case["kind"] == "gradient" and way == "cluster compiled"
    failure = difference(case, Way.parse("jit=numpy" if is_gradient else way))
    is_expected = "Unsupported" in failure and not {*WITHOUT_KERNEL}.isdisjoint(case["ops"])
    return "" if is_expected or case["id"] in UNDEFINED else failure


without_xla = pytest.mark.skipif(find_spec("jax") is None, reason="jax (extra `xla`) is absent")
WAYS = ["auto", "lower auto", "cluster compiled", "partition auto"]


@pytest.mark.slow
@pytest.mark.parametrize("way", [*WAYS, pytest.param("xla", marks=[pytest.mark.xla, without_xla])])
@pytest.mark.parametrize("suite", sorted({case["id"].split("/")[0] for case in CASES}))
def test_a_suite_of_kernel_tests_agrees(suite: str, way: str) -> None:
    members = [case for case in CASES if case["id"].startswith(f"{suite}/")]
    failures = {case["id"]: failure_of(case, way) for case in members}
    assert {name: failure for name, failure in failures.items() if failure} == {}


def test_the_ops_of_kernel_tests_without_a_kernel_are_listed() -> None:
    ops = {name for case in CASES for name in case["ops"]}
    assert sorted(filter(lacks_kernel, ops)) == WITHOUT_KERNEL
