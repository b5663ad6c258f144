"""Inputs at which graphs are run for a comparison, as options of a command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunInputs:
    """Feeds, fetches, number of cases, limits, and tolerances; all as the user wrote them."""

    fetches: Sequence[str] = ()
    targets: Sequence[str] = ()
    feeds: Sequence[str] = ()
    archives: Sequence[str] = ()
    inits: Sequence[str] = ()
    sizes: Sequence[str] = ()
    cases: int | None = None
    seed: int | None = None
    rtol: float | None = None
    atol: float | None = None
    timeout: float | None = None
    max_iterations: int | None = None
    variables: str | None = None

    @property
    def is_set(self) -> bool:
        """True if any of the options was used."""
        lists = (self.fetches, self.targets, self.feeds, self.archives, self.inits, self.sizes)
        scalars = (
            self.cases,
            self.seed,
            self.rtol,
            self.atol,
            self.timeout,
            self.max_iterations,
            self.variables,
        )
        return any(lists) or any(value is not None for value in scalars)
