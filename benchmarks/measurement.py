"""Measured rows, and timing functions."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of ours, the peer's where there is one, and the budget on their ratio.

    With an `exception` the ratio may exceed the budget for that reason.
    """

    work: str
    ours: float
    unit: str
    peer: float | None = None
    budget: float | None = None
    exception: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours over the peer's."""
        return None if not self.peer else self.ours / self.peer

    @property
    def verdict(self) -> str:
        """`within`, `OVER`, the exception, or nothing where no budget is set."""
        if self.budget is None or self.ratio is None:
            return ""
        if self.ratio <= self.budget:
            return "within"
        return f"exception: {self.exception}" if self.exception else "OVER"


def best_time(work: Callable[[], object], repeats: int = 5) -> float:
    """The least seconds that `work` took, after one run that does not count."""
    work()
    least = float("inf")
    for _ in range(repeats):
        gc.collect()
        began = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - began)
    return least


def alternating_times(
    ours: Callable[[], object], peer: Callable[[], object] | None, repeats: int = 5
) -> tuple[float, float | None]:
    """The least seconds of both, taken alternately so that a drift of the machine hits both."""
    if peer is None:
        return best_time(ours, repeats), None
    mine, theirs = float("inf"), float("inf")
    ours()
    peer()
    for _ in range(repeats):
        mine = min(mine, single_time(ours))
        theirs = min(theirs, single_time(peer))
    return mine, theirs


def single_time(work: Callable[[], object]) -> float:
    """The seconds of one run."""
    gc.collect()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
