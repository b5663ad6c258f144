"""From what is given on the command line to points at which graphs are run to be compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cfgraph.compare.equivalence import DEFAULT_CASES, ComparisonRunOptions
from cfgraph.compare.sample_point import DimensionSizes, SampleOptions
from cfgraph.console.given import Given
from cfgraph.console.graphs import Source
from cfgraph.console.run_saved import Restoring
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph
from cfgraph.options import split_list
from cfgraph.runtime.feeds import read_feeds
from cfgraph.runtime.fetches import Fetches
from cfgraph.runtime.frame_state import MOST_ITERATIONS

_MAX_DIGITS: Final = 10


def run_options(given: Given, source: Source, quiet: bool) -> ComparisonRunOptions:
    """What is given, understood. Raises UsageError for what does not fit the graph."""
    graph = source.graph
    asked = Fetches(graph)
    for name in given.fetches:
        asked.fetch(name)
    for name in given.targets:
        asked.target(name)
    inits = [graph[name.removeprefix("^")] for name in given.inits]
    named = [*(item.node for item in asked.tensors), *asked.targets]
    wanted = [*named, *inits] if named else None
    limit = given.max_iterations
    setting = SampleOptions(
        read_feeds(graph, given.feeds, given.archives, given.seed or 0),
        tuple(given.inits),
        read_sizes(graph, given.sizes),
        MOST_ITERATIONS if limit is None else limit,
        given.timeout,
        Restoring(given.variables, quiet).state(source, wanted),
    )
    return ComparisonRunOptions(
        setting,
        tuple(item.name for item in asked.tensors),
        tuple(node.name for node in asked.targets),
        DEFAULT_CASES if given.cases is None else given.cases,
        given.seed or 0,
        given.rtol,
        given.atol,
    )


def read_sizes(graph: Graph, texts: Iterable[str]) -> DimensionSizes:
    """Sizes for what has none: `4` for all, `x=4` or `x=4,8` for one tensor.

    Raises UsageError for what is neither.
    """
    default, of = DimensionSizes().default, {}
    for text in texts:
        name, sign, numbers = text.rpartition("=")
        found = tuple(_size(text, number) for number in split_list(numbers))
        if sign and found:
            of[graph.tensor(name).name] = found
        elif len(found) == 1:
            (default,) = found
        else:
            raise _no_size(text)
    return DimensionSizes(default, of)


def _size(text: str, number: str) -> int:
    if not (number.isascii() and number.isdigit() and len(number) < _MAX_DIGITS):
        raise _no_size(text)
    return int(number)


def _no_size(text: str) -> UsageError:
    return UsageError(f"--size {text} is no size", hint="as in --size 4, or --size x=4,8")
