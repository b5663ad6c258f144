"""What a `run` will do, made ready and refused before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cfgraph.analysis.feeds_and_fetches import require_feeds
from cfgraph.console.graphs import Source, require_one_stdin
from cfgraph.console.run_files import folder_places, output_places
from cfgraph.console.run_options import RunOptions
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Node, Output
from cfgraph.runtime.feed_grammar import split_feed
from cfgraph.runtime.feeds import read_feeds, read_value
from cfgraph.runtime.fetches import Fetches
from cfgraph.runtime.sight import Sight


@dataclass(frozen=True, slots=True)
class Job:
    """What to fetch, run and feed, what to expect, and the file for each array that is kept.

    `inits` run before, one after the other; `notes` are remarks on what was understood.

    Where nothing was named the graph's outputs are fetched, and a dead one is no error.
    """

    fetches: tuple[Output, ...]
    targets: tuple[Node, ...]
    inits: tuple[Node, ...]
    feeds: dict[str, Any]
    expected: dict[Output, Any]
    places: dict[Output, str]
    allow_dead: bool
    notes: tuple[str, ...] = ()


def make_job(source: Source, options: RunOptions) -> Job:
    """Understand the options. Raises UsageError where they do not fit the graph."""
    wanted, seed = options.wanted, options.limits.seed
    require_one_stdin(source, [*wanted.feeds, *options.expected.values])
    graph = Sight(source.graph).of(_names(options)).graph
    asked = Fetches(graph)
    for name in wanted.fetches:
        asked.fetch(name)
    for name in wanted.targets:
        asked.target(name)
    places = output_places(wanted.outputs, asked.outside_loops)
    texts = dict(split_feed(text, "expected value") for text in options.expected.values)
    compared = {asked.outside_loops(name): text for name, text in texts.items()}
    asked.tensors.update(dict.fromkeys((*places, *compared)))
    _require_arrays([*places, *compared])
    nothing_named = not (asked.tensors or asked.targets)
    if nothing_named:
        asked.default()
    if wanted.out_dir is not None:
        places = {**folder_places(wanted.out_dir, asked.tensors), **places}
    feeds = read_feeds(graph, wanted.feeds, wanted.archives, seed)
    require_feeds(graph, asked.tensors, asked.targets, {graph.tensor(name) for name in feeds})
    expected = {
        item: read_value(text, graph, item, f"expected value of {item.name}", seed)
        for item, text in compared.items()
    }
    fetches, targets = tuple(asked.tensors), tuple(asked.targets)
    inits = tuple(graph[name.removeprefix("^")] for name in wanted.inits)
    notes = tuple(asked.notes)
    return Job(fetches, targets, inits, feeds, expected, places, nothing_named, notes)


def _names(options: RunOptions) -> list[str]:
    """All names of tensors and nodes that are given."""
    wanted = options.wanted
    texts = [*wanted.feeds, *wanted.outputs, *options.expected.values]
    return [
        *(text.partition("=")[0] for text in texts),
        *wanted.fetches,
        *wanted.targets,
        *wanted.inits,
    ]


def _require_arrays(tensors: list[Output]) -> None:
    for item in tensors:
        if item.dtype is not None and item.dtype.kind in ("resource", "variant"):
            message = f"{item.name} is a {item.dtype}, which no file and no value can hold"
            hint = "name a tensor that is read from it"
            raise UsageError(message, node=item.node, hint=hint, code="CFG034")
