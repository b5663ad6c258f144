"""Conditions on values that kernels cannot test while they are traced.

Traced code computes the condition, and whoever runs it decides what follows if it does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

_SCOPE: Final[ContextVar[list[Any] | None]] = ContextVar("_SCOPE", default=None)


def defer_check(condition: Callable[[], Any]) -> None:
    """Require an array of Booleans to be all true; without a scope nothing checks it."""
    scope = _SCOPE.get()
    if scope is not None:
        scope.append(condition().all())


def require(condition: Any) -> None:
    """Add a condition to the current scope."""
    scope = _SCOPE.get()
    assert scope is not None
    scope.append(condition)


@contextmanager
def collected_checks() -> Iterator[list[Any]]:
    """Open a scope and return its conditions; a loop, branch, or function body is a scope."""
    conditions: list[Any] = []
    token = _SCOPE.set(conditions)
    try:
        yield conditions
    finally:
        _SCOPE.reset(token)
