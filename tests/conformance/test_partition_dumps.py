"""TensorFlow's partition dumps of the recorded sessions run with the values it computes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.partition_dumps import outcome, recorded_programs
from tests.sampled import sampled

pytestmark = pytest.mark.interop

tf: Any = pytest.importorskip("tensorflow", reason="needs the extra `interop`").compat.v1

CASES = [pytest.param(program, id=program.name) for program in recorded_programs()]


@pytest.fixture(autouse=True)
def graph_mode() -> Any:
    """Sessions instead of eager execution."""
    with tf.Graph().as_default():
        yield


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("program", sampled(CASES, 100))
def test_the_dumps_of_a_program_agree(program: Any, seed: int | None) -> None:
    result = outcome(tf, program, seed)
    if result.kind in ("uninitialized variable", "not dumped", "not placed"):
        pytest.skip(result.failure)
    assert not result.failure
