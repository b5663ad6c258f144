"""Inputs at which graphs are run for a comparison, and the interface of `--verify`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cfgraph.console.graph_files import Source
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class RunInputs:
    """What to feed and fetch, how often, and how close is close enough."""

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
    def said(self) -> bool:
        """True if anything is said of runs."""
        lists = (self.fetches, self.targets, self.feeds, self.archives, self.inits, self.sizes)
        numbers = (self.cases, self.seed, self.rtol, self.atol, self.timeout, self.max_iterations)
        said = any(lists) or any(number is not None for number in numbers)
        return said or self.variables is not None


class Verdict(Protocol):
    """How a result compares with what it was made of; true where they compute the same."""

    def __bool__(self) -> bool:
        """True where both compute the same."""

    def to_json(self) -> dict[str, Any]:
        """The verdict as a member of a command's JSON document."""


class Verification(Protocol):
    """What a command asks before and after it changes a graph; `console.verify` has the costly one.

    A command that compares nothing shall not load what runs graphs.
    """

    def before(self, source: Source, quiet: bool) -> None:
        """Take note of the graph that is about to change. Raises UsageError for wrong inputs."""

    def after(self, graph: Graph, quiet: bool) -> Verdict | None:
        """Compare the result, and show how it compares; None where nobody asks for it."""


@dataclass(frozen=True, slots=True)
class NullVerification:
    """Compares nothing."""

    given: RunInputs

    def before(self, source: Source, quiet: bool) -> None:
        """Raise UsageError for inputs that nothing would run with."""
        if self.given.said:
            raise UsageError("feeds and other run options require --verify", hint="add --verify")

    def after(self, graph: Graph, quiet: bool) -> None:
        """There is no verdict."""


NO_VERIFICATION = NullVerification(RunInputs())
