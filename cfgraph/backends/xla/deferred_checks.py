"""Checks that compiled code can only evaluate while it runs: indices, lists, limits of loops.

Compiled code cannot raise errors, and indexing clamps. A check (`defer_check`) that fails is a
result of the function; the cluster then runs on NumPy kernels, which extend the list or raise the
error.

A loop whose limit is exceeded makes a check fail, too: the loops end, and the NumPy kernels report
the limit with its place. Only runs with limits use guarded loops.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.limits import Limits


class DeferredCheckFailed(Exception):
    """A run whose error or limit NumPy kernels report, or whose list they extend."""


def all_hold(jax: Any, conditions: Sequence[Any]) -> Any:
    """The conjunction of conditions, as a jax scalar."""
    result = jax.numpy.bool_(True)
    for condition in conditions:
        result = jax.numpy.logical_and(result, condition)
    return result


# iterations between two looks at the clock, if the values of the loop are few and if they are many
_PERIOD: Final = 256
_LARGE_PERIOD: Final = 4
_LARGE_ELEMENTS: Final = 10_000
# the number of iterations of a loop that has ended since a check failed, above each limit
FAILED: Final = (1 << 63) - 1
_NO_LIMIT: Final = FAILED - 1
# the deadlines of calls that run, each its own
_CALLS: Final = dict[float, "CallDeadline"]()


class LoopGuard(NamedTuple):
    """The limits of a compiled function, as arguments of it; None without a deadline."""

    max_iterations: Any
    deadline: Any

    def checks(self, jax: Any, count: Any, state: Any) -> list[Any]:
        """The checks of a loop after `count` iterations, other than their number: the clock."""
        if self.deadline is None:
            return []
        size = sum(math.prod(leaf.shape) for leaf in jax.tree_util.tree_leaves(state))
        period = _LARGE_PERIOD if size > _LARGE_ELEMENTS else _PERIOD
        result = (jax.ShapeDtypeStruct((), np.bool_),)
        # an argument that changes prevents that the call is moved out of the loop
        in_time = jax.lax.cond(
            count % period == 0,
            lambda: jax.pure_callback(look_at_clock, result, count, self.deadline)[0],
            lambda: jax.numpy.bool_(True),
        )
        return [in_time]


def look_at_clock(count: Any, deadline: Any) -> tuple[Any]:
    """True before the deadline, unless the caller has given up; compiled code calls it."""
    limit = float(deadline)
    call = _CALLS.get(limit)
    is_abandoned = call is not None and call.is_abandoned
    return (np.bool_(time.monotonic() <= limit and not is_abandoned),)


class CallDeadline:
    """The deadline of one call of compiled code, which ends earlier if it `is_abandoned`.

    Calls of one deadline differ in the last bits of it, by which the code names its call.
    """

    def __init__(self, deadline: float) -> None:
        self.is_abandoned = False
        while _CALLS.setdefault(deadline, self) is not self:
            deadline = math.nextafter(deadline, -math.inf)
        self.deadline = deadline

    def abandon(self) -> None:
        """End the loops of the call."""
        self.is_abandoned = True

    def release(self) -> None:
        """Forget the call, which has ended."""
        del _CALLS[self.deadline]


def guard_arguments(limits: Limits) -> tuple[Any, ...]:
    """The arguments that a guarded function has before its own."""
    limit = limits.max_iterations
    count = _NO_LIMIT if limit is None else min(limit, _NO_LIMIT)
    deadline = () if limits.deadline == math.inf else (np.float64(limits.deadline),)
    return np.int64(count), *deadline


_GUARD: Final[ContextVar[LoopGuard | None]] = ContextVar("_GUARD", default=None)


def current_guard() -> LoopGuard | None:
    """The guard of the function that is traced, or None."""
    return _GUARD.get()


@contextmanager
def guarded_loops(arguments: tuple[Any, ...]) -> Iterator[None]:
    """Guard the loops that are traced, by traced `guard_arguments`; no arguments mean no guard."""
    guard = LoopGuard(*arguments, *(None,) * (2 - len(arguments))) if arguments else None
    token = _GUARD.set(guard)
    try:
        yield
    finally:
        _GUARD.reset(token)
