"""Second-order gradients of all recorded cases: the slopes of first order, and TensorFlow's."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cfgraph.errors import ExecutionError
from tests.conformance import recorded, second_order, second_order_tf
from tests.sampled import in_sweep, sampled

CASES = recorded.parameters("gradient")
SMOOTH = [case for case in CASES if "random" not in case.values[0]["tags"]]
# the gradient of a gradient array that grows: the array has a fixed size
_FIXED_SIZE = "tensor_array_ops_test_v1/TensorArrayTest.testSkipEagerTensorArraySplitDynamic/grad56"

# TensorFlow takes over five minutes and 12 GB to differentiate the gradients of their loops
_UNBOUNDED = (
    "v2/ControlFlowTest.testWhileAndTensorArray/grad19",
    "v1/ControlFlowTest.testWhileAndTensorArrayWithControlFlowV2/grad75",
)


@pytest.mark.parametrize("case", sampled([case for case in SMOOTH if case.id != _FIXED_SIZE], 12))
def test_second_order_is_the_slope_of_the_first(case: dict[str, Any]) -> None:
    assert not second_order.difference_from_slopes(case)


# reasons for which TensorFlow has no second order of an imported graph
NO_SECOND_ORDER = (
    "No gradient defined for operation",  # of SymbolicGradient, which calls through `Defun` become
    "Connecting to invalid output",  # a recorded gradient whose forward loop was rewritten already
    second_order_tf.PRIMITIVE_LOOP,
    second_order_tf.ARRAY_HANDLE,
    "was expected to be a",  # saved values of a branch that was differentiated before
    "without handle data",  # of a variable inside an imported function
    "has a reference type",  # a variable of version 1 inside an imported function
)
# TensorFlow saves for a loop that was differentiated before what its own gradient needs twice:
# half of the slope, which is ours
_HALVED = tuple(
    f"ControlFlowTest.testNestedWhileGradAfterSessionRun{suffix}"
    for suffix in ("/grad13", "WithControlFlowV2/grad52")
)


def disagreement(case: dict[str, Any]) -> str:
    """The difference from TensorFlow, or ``; nothing where it has no second order."""
    pytest.importorskip("tensorflow", reason="needs the extra `interop`")
    first, second = second_order.computed(case)
    try:
        theirs = second_order_tf.computed(case, first)
    except second_order_tf.NoSecondOrder as error:
        return "" if re.search("|".join(NO_SECOND_ORDER), str(error)) else str(error)
    random = "random" in case["tags"]
    return second_order_tf.difference(second, theirs.second, case["xs"], random=random)


STOPPED = [case for case in CASES if "StopGradient" in case.values[0]["ops"]]


@pytest.mark.interop
@pytest.mark.parametrize("case", STOPPED[4::7])
def test_a_second_order_of_tensorflow_agrees(case: dict[str, Any]) -> None:
    assert not disagreement(case)


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.parametrize("case", in_sweep(CASES))
def test_every_second_order_of_tensorflow_agrees(case: dict[str, Any]) -> None:
    if case["id"] == _FIXED_SIZE:
        with pytest.raises(ExecutionError, match="not marked as dynamically resizeable"):
            disagreement(case)
        return
    if case["id"].endswith(_HALVED):
        assert disagreement(case)
        assert not second_order.difference_from_slopes(case)
        return
    if case["id"].endswith(_UNBOUNDED):
        assert not second_order.difference_from_slopes(case)
        return
    assert not disagreement(case)
