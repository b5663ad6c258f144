"""Recorded sessions, clustered on the way, come out as TensorFlow's runtime had them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from tests.conformance import recorded
from tests.sampled import sampled

CASES = recorded.parameters("session")


def _assert_agrees(case: dict[str, Any], jit: str) -> None:
    failure = recorded.disagreement(case, jit=jit)
    assert not failure, failure


@pytest.mark.parametrize("case", sampled(CASES, 12))
def test_a_clustered_session_agrees(case: dict[str, Any]) -> None:
    _assert_agrees(case, "numpy")


@pytest.mark.skipif(find_spec("jax") is None, reason="jax (extra `xla`) is absent")
@pytest.mark.parametrize("case", sampled(CASES, 32))
def test_a_session_compiled_by_xla_agrees(case: dict[str, Any]) -> None:
    _assert_agrees(case, "xla")
