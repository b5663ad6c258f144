"""Recorded sessions, whole loops and conditionals clustered on the way, come out as recorded."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from tests.conformance import recorded
from tests.sampled import sampled

CASES = recorded.parameters("session")
# one case in so many: all of them take a minute, and XLA compiles for a fifth of a second and more
_EVERY = 12
_EVERY_COMPILED = 40


def _assert_agrees(case: dict[str, Any], jit: str) -> None:
    failure = recorded.disagreement(case, jit=jit, regions=True)
    assert not failure, failure


@pytest.mark.parametrize("case", sampled(CASES, _EVERY))
def test_a_session_with_whole_regions_agrees(case: dict[str, Any]) -> None:
    _assert_agrees(case, "numpy")


@pytest.mark.skipif(find_spec("jax") is None, reason="jax (extra `xla`) is absent")
@pytest.mark.parametrize("case", CASES[::_EVERY_COMPILED])
def test_a_session_with_whole_regions_compiled_agrees(case: dict[str, Any]) -> None:
    _assert_agrees(case, "xla")
