"""What `grad` is asked to do, by theme."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cfgraph.console.given import Given
from cfgraph.errors import UsageError
from cfgraph.options import split_list
from cfgraph.passes.gradients.checkpointing.policy import AUTO


@dataclass(frozen=True, slots=True)
class Asked:
    """The gradients that are wanted; names and weights as they were written."""

    ys: Sequence[str] = ()
    xs: Sequence[str] = ()
    grad_ys: Sequence[str] = ()
    stops: Sequence[str] = ()
    unconnected: str = "none"
    order: int = 1
    swap_memory: bool = False
    ignore_custom: bool = False
    recompute: str | None = None

    @property
    def interval(self) -> int | str | None:
        """Every how many iterations loops save their state. Raises UsageError for no number."""
        text = self.recompute
        if text is None or text == AUTO:
            return text
        if not text.isdecimal() or int(text) < 1:
            message = f"--recompute is {text!r}"
            raise UsageError(message, hint=f"a number of iterations, 1 or more, or {AUTO}")
        return int(text)


@dataclass(frozen=True, slots=True)
class Checked:
    """Whether to compare with finite differences, and at which inputs."""

    wanted: bool = False
    feeds: Sequence[str] = ()
    archives: Sequence[str] = ()
    inits: Sequence[str] = ()
    cases: int | None = None
    rtol: float | None = None
    seed: int | None = None
    timeout: float | None = None
    max_iterations: int | None = None
    verify: bool = False
    variables: str | None = None

    @property
    def given(self) -> Given:
        """At which inputs the result is to be run, where it is verified."""
        return Given(
            feeds=self.feeds,
            archives=self.archives,
            inits=self.inits,
            cases=self.cases,
            seed=self.seed,
            timeout=self.timeout,
            max_iterations=self.max_iterations,
            variables=self.variables,
        )

    @property
    def is_idle(self) -> bool:
        """True if something is said that only matters where something runs."""
        numbers = (self.cases, self.rtol, self.seed, self.timeout, self.max_iterations)
        texts = (self.feeds, self.archives, self.inits, self.variables)
        said = any(texts) or numbers.count(None) < len(numbers)
        return said and not self.wanted and not self.verify


@dataclass(frozen=True, slots=True)
class Written:
    """Where the graph goes, where the names go, and how to answer."""

    output: str | None = None
    to: str | None = None
    map_out: str | None = None
    json: bool = False
    quiet: bool = False


def names_in(texts: Iterable[str]) -> list[str]:
    """The names of repeated lists with commas."""
    return [name for text in texts for name in split_list(text)]


def values_in(texts: Iterable[str]) -> list[str]:
    """The values of repeated lists; commas inside of brackets and quotes belong to a value."""
    found: list[str] = []
    for text in texts:
        depth, quoted, start = 0, False, 0
        for place, char in enumerate(text):
            quoted ^= char == '"'
            depth += (char in "[(") - (char in ")]") if not quoted else 0
            if char == "," and not depth and not quoted:
                found.append(text[start:place].strip())
                start = place + 1
        found.append(text[start:].strip())
    return found
