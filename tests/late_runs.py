"""Runs that end at a deadline, which passes in the place that a test is about."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cfgraph.errors import RunTimeout

# a busy machine may spend the first ones before that place, or let a thread stand still
_SECONDS = (0.1, 0.3, 1.0, 3.0, 10.0)


def late(run: Callable[[float], object], is_there: Callable[[RunTimeout], object]) -> RunTimeout:
    """The error of a run that takes its seconds, with the first ones after which it is there."""
    for seconds in _SECONDS:
        with pytest.raises(RunTimeout) as caught:
            run(seconds)
        if is_there(caught.value):
            return caught.value
    raise AssertionError(caught.value)
