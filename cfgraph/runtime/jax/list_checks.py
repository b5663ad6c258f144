"""Checks of compiled code on lists, which it can only evaluate while it runs.

Compiled code cannot raise errors, and indexing clamps. A check that fails is a result of the
function; the cluster then runs on NumPy kernels, which extend the list or raise the error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

_SCOPE: Final[ContextVar[list[Any]]] = ContextVar("_SCOPE")


class ListCheckFailed(Exception):
    """A run accessed a list in a way that compiled code does not support."""


def require(condition: Any) -> None:
    """Add a condition to the current scope."""
    _SCOPE.get().append(condition)


@contextmanager
def collected_checks() -> Iterator[list[Any]]:
    """Open a scope and return its conditions; a loop, branch, or function body is a scope."""
    conditions: list[Any] = []
    token = _SCOPE.set(conditions)
    try:
        yield conditions
    finally:
        _SCOPE.reset(token)


def all_hold(jax: Any, conditions: Sequence[Any]) -> Any:
    """The conjunction of conditions, as a jax scalar."""
    result = jax.numpy.bool_(True)
    for condition in conditions:
        result = jax.numpy.logical_and(result, condition)
    return result
