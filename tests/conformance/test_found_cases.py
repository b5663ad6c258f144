"""Random programs that once differed from TensorFlow agree in the way in which they did."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance import recorded
from tests.conformance.agree.found_cases import subject_of
from tests.conformance.agree.ways import Way, disagreement

_CASES = [pytest.param(case, id=case["id"]) for case in recorded.cases(recorded.FOUND)]


@pytest.mark.parametrize("case", _CASES)
def test_a_program_that_once_differed_agrees(case: dict[str, Any]) -> None:
    assert not disagreement(subject_of(case, recorded.FOUND), Way.parse(case["way"]))
