"""Long lists of cases: a part of them in every run of the tests, the rest in `make sweep`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], every: int) -> list[Any]:
    """All cases; those that are not the first of `every` are marked slow."""
    return [_slow(case) if place % every else case for place, case in enumerate(cases)]


def _slow(case: Any) -> Any:
    if isinstance(case, str):
        return pytest.param(case, id=case, marks=pytest.mark.slow)
    return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.slow])
