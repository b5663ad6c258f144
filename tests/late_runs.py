"""Runs that end at a deadline, which passes in the place that a test is about."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cfgraph.errors import RunTimeout

# a busy machine may spend the first ones before that place, or let a thread stand still
_SECONDS = (0.1, 0.3, 1.0, 3.0, 10.0)


def timeout_error_at(
    run: Callable[[float], object], is_expected: Callable[[RunTimeout], object]
) -> RunTimeout:
    """The first expected error of a run that takes its timeout, for growing timeouts."""
    for seconds in _SECONDS:
        with pytest.raises(RunTimeout) as caught:
            run(seconds)
        if is_expected(caught.value):
            return caught.value
    raise AssertionError(caught.value)
