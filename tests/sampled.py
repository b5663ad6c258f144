"""Sampling of long case lists: a part in every test run, the rest in `make sweep`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

# set by conftest.py before any test module is imported
sweep = False


def sampled(cases: Iterable[Any], every: int) -> list[Any]:
    """Return the first of each `every` cases; in a sweep the others, too, marked slow.

    With 0 for `every`, all are slow.
    """
    if not sweep:
        return list(cases)[::every] if every else []
    return [_slow(c) if not every or place % every else c for place, c in enumerate(cases)]


def few_of_each(groups: Mapping[str, Sequence[Any]], count: int) -> list[Any]:
    """Return at most `count` cases of each group in even steps; in a sweep the others, too."""
    parameters = []
    for name, cases in groups.items():
        step = max(1, -(-len(cases) // count))
        parameters.append(pytest.param(cases[::step], id=name))
        if sweep and step > 1:
            rest = [case for place, case in enumerate(cases) if place % step]
            parameters.append(pytest.param(rest, id=f"{name}-rest", marks=pytest.mark.slow))
    return parameters


def half(seeds: range) -> list[Any]:
    """Return the first half of the seeds of random cases; in a sweep the other one, too."""
    middle = len(seeds) // 2
    parameters = [pytest.param(seeds[:middle], id=f"{seeds[0]}-")]
    if sweep:
        rest = pytest.param(seeds[middle:], id=f"{seeds[middle]}-", marks=pytest.mark.slow)
        parameters.append(rest)
    return parameters


def in_sweep(cases: Iterable[Any]) -> list[Any]:
    """Return the cases of a test that is slow as a whole; without a sweep none are built."""
    return list(cases) if sweep else []


def _slow(case: Any) -> Any:
    if isinstance(case, (str, int)):
        return pytest.param(case, id=str(case), marks=pytest.mark.slow)
    return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.slow])
