"""At which inputs graphs are run to be compared, as it was written on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cfgraph.compare.drawn_point import Setting
from cfgraph.compare.random_inputs import Sizes
from cfgraph.compare.runs import CASES, RunOptions
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph
from cfgraph.options import split_list
from cfgraph.runtime.feeds import read_feeds
from cfgraph.runtime.fetches import Fetches

_MAX_ITERATIONS = 100_000


@dataclass(frozen=True, slots=True)
class Given:
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

    @property
    def said(self) -> bool:
        """True if anything is said of runs."""
        lists = (self.fetches, self.targets, self.feeds, self.archives, self.inits, self.sizes)
        numbers = (self.cases, self.seed, self.rtol, self.atol, self.timeout, self.max_iterations)
        return any(lists) or any(number is not None for number in numbers)

    def options(self, graph: Graph) -> RunOptions:
        """The same, understood. Raises UsageError for what does not fit the graph."""
        asked = Fetches(graph)
        for name in self.fetches:
            asked.fetch(name)
        for name in self.targets:
            asked.target(name)
        limit = self.max_iterations
        setting = Setting(
            read_feeds(graph, self.feeds, self.archives, self.seed or 0),
            tuple(self.inits),
            read_sizes(graph, self.sizes),
            _MAX_ITERATIONS if limit is None else limit,
            self.timeout,
        )
        return RunOptions(
            setting,
            tuple(item.name for item in asked.tensors),
            tuple(node.name for node in asked.targets),
            CASES if self.cases is None else self.cases,
            self.seed or 0,
            self.rtol,
            self.atol,
        )


NOTHING: Final = Given()


def read_sizes(graph: Graph, texts: Iterable[str]) -> Sizes:
    """Sizes for what has none: `4` for all, `x=4` or `x=4,8` for one tensor.

    Raises UsageError for what is neither.
    """
    default, of = Sizes().default, {}
    for text in texts:
        name, sign, numbers = text.rpartition("=")
        found = tuple(_size(text, number) for number in split_list(numbers))
        if sign and found:
            of[graph.tensor(name).name] = found
        elif len(found) == 1:
            (default,) = found
        else:
            raise _no_size(text)
    return Sizes(default, of)


def _size(text: str, number: str) -> int:
    if not (number.isascii() and number.isdigit() and len(number) < _MAX_DIGITS):
        raise _no_size(text)
    return int(number)


_MAX_DIGITS = 10


def _no_size(text: str) -> UsageError:
    return UsageError(f"--size {text} is no size", hint="as in --size 4, or --size x=4,8")
