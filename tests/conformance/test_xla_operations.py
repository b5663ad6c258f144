"""The operations of XLA compute what TensorFlow's compiler does, in every form and engine."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.conformance import recorded
from tests.conformance.agree.ways import Way
from tests.conformance.recorded_ways import difference

CASES = recorded.cases(recorded.XLA_OPERATIONS)
KINDS = sorted({case["id"].split("/")[1] for case in CASES})
without_xla = pytest.mark.skipif(find_spec("jax") is None, reason="jax (extra `xla`) is absent")


@pytest.mark.parametrize("kind", KINDS)
def test_an_operation_of_xla_agrees(kind: str) -> None:
    assert_agree(kind, "auto")


@pytest.mark.slow
@pytest.mark.parametrize(
    "way",
    [
        "tokens",
        "lower auto",
        "cluster compiled",
        "partition auto",
        pytest.param("xla", marks=[pytest.mark.xla, without_xla]),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_an_operation_of_xla_agrees_in_all_ways(kind: str, way: str) -> None:
    assert_agree(kind, way)


def assert_agree(kind: str, way: str) -> None:
    members = [case for case in CASES if case["id"].split("/")[1] == kind]
    failures = {case["id"]: difference(case, Way.parse(way)) for case in members}
    assert members
    assert {name: failure for name, failure in failures.items() if failure} == {}
