"""Run a graph and print what it computes."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import IO, Any

from cfgraph.analysis.inputs import require_feeds
from cfgraph.compare.values import Difference, difference
from cfgraph.console.answer import print_document
from cfgraph.console.graphs import Source, artifact, read_graph
from cfgraph.console.live_trace import ShownTrace
from cfgraph.console.page import note, page
from cfgraph.console.run_files import TraceFile, folder_places, output_places, write_array
from cfgraph.console.run_text import print_differences, print_values
from cfgraph.console.taps import Taps
from cfgraph.console.values import value_json
from cfgraph.ir.graph import Output
from cfgraph.ir.staged import StagedFiles
from cfgraph.options import Color
from cfgraph.runtime.feed_grammar import split_feed
from cfgraph.runtime.feeds import read_feeds, read_value
from cfgraph.runtime.fetches import Fetches
from cfgraph.runtime.session import Session
from cfgraph.runtime.trace import Observer, Tee


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What to feed, fetch, expect, watch and write."""

    feeds: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()
    fetches: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    out_dir: str | None = None
    expects: tuple[str, ...] = ()
    rtol: float | None = None
    atol: float | None = None
    taps: tuple[str, ...] = ()
    trace: bool = False
    trace_out: str | None = None
    timeout: float | None = None
    max_iterations: int | None = None
    seed: int = 0
    schedule: str = "fifo"
    schedule_seed: int = 0
    json: bool = False
    full: bool = False
    quiet: bool = False
    color: Color = Color.auto


def run(path: str, options: RunOptions) -> int:
    """Run a graph and print what it computes; returns the exit code, 1 for another value than
    the expected one. Files are written only when it is 0.
    """
    return _Run(read_graph(path, quiet=options.quiet), options).run()


class _Run:
    """One `run`: what it needs is made ready, and refused, before anything runs."""

    def __init__(self, source: Source, options: RunOptions) -> None:
        self.source = source
        self.options = options
        graph = source.graph
        asked = Fetches(graph)
        for name in options.fetches:
            asked.fetch(name)
        for name in options.targets:
            asked.target(name)
        self.places = output_places(options.outputs, asked.outside_loops)
        expects = [split_feed(text) for text in options.expects]
        expected = {asked.outside_loops(name): text for name, text in expects}
        asked.tensors.update(dict.fromkeys((*self.places, *expected)))
        self.allow_dead = not (asked.tensors or asked.targets)
        if self.allow_dead:
            asked.default()
        self.fetches = tuple(asked.tensors)
        self.targets = tuple(asked.targets)
        if options.out_dir is not None:
            self.places = {**folder_places(options.out_dir, self.fetches), **self.places}
        self.feeds = read_feeds(graph, options.feeds, options.archives, options.seed)
        require_feeds(
            graph, self.fetches, self.targets, {graph.tensor(name) for name in self.feeds}
        )
        self.expected = {
            item: read_value(text, graph, item, f"expected value of {item.name}", options.seed)
            for item, text in expected.items()
        }
        stream = None if options.json else sys.stdout
        self.taps = Taps(graph, options.taps, stream, options.full) if options.taps else None

    def run(self) -> int:
        """Run, write the files and print; returns the exit code."""
        with StagedFiles() as files:
            if self.options.out_dir is not None:
                files.make_folder(self.options.out_dir)
            opened = {item: files.open(path) for item, path in self.places.items()}
            values = self.execute(files)
            differences = self.compare(values)
            if differences:
                files.discard()
            else:
                self.write(files, opened, values)
        code = 1 if differences else 0
        if self.options.json:
            self.print_json(values, differences, code)
        else:
            self.print_text(values, differences)
        return code

    def execute(self, files: StagedFiles) -> dict[Output, Any]:
        """Run the graph, observers listening; what it prints itself goes to stderr."""
        options, graph = self.options, self.source.graph
        session = Session(
            graph, schedule=options.schedule, schedule_seed=options.schedule_seed, seed=options.seed
        )
        saved = TraceFile(files, options.trace_out) if options.trace_out else None
        shown = ShownTrace(graph, options.color) if options.trace else None
        observers: list[Observer] = [item for item in (self.taps, saved, shown) if item]
        try:
            with redirect_stdout(sys.stderr):
                values = session.run(
                    [item.name for item in self.fetches],
                    self.feeds,
                    [node.name for node in self.targets],
                    trace=Tee(observers) if observers else None,
                    max_iterations=options.max_iterations,
                    timeout=options.timeout,
                    allow_dead=self.allow_dead,
                )
        finally:
            if shown:
                shown.close()
        if saved:
            saved.close()
        return dict(zip(self.fetches, values, strict=True))

    def compare(self, values: dict[Output, Any]) -> dict[Output, Difference]:
        """What differs from what was expected."""
        options = self.options
        found = {
            item: difference(values[item], want, options.rtol, options.atol)
            for item, want in self.expected.items()
        }
        return {item: gap for item, gap in found.items() if gap}

    def write(
        self, files: StagedFiles, opened: dict[Output, IO[bytes]], values: dict[Output, Any]
    ) -> None:
        """Write the arrays; a dead one leaves no file."""
        for item, file in opened.items():
            if values[item] is None:
                files.drop(file)
                del self.places[item]
            else:
                write_array(file, item, values[item])

    def print_text(self, values: dict[Output, Any], differences: dict[Output, Difference]) -> None:
        """Print the values, then the differences; notes go to stderr."""
        options = self.options
        out = page(options.color)
        print_values(out, values, {} if differences else self.places, options.full)
        print_differences(out, differences, self.expected)
        if self.expected and not differences:
            note("as expected: " + ", ".join(item.name for item in self.expected), options.quiet)
        if differences and (self.places or options.trace_out):
            note("no file is written, as a value differs", options.quiet)
        for pattern in self.taps.silent() if self.taps else ():
            note(f"--tap {pattern} saw nothing: what is fetched does not need it", options.quiet)

    def print_json(
        self, values: dict[Output, Any], differences: dict[Output, Difference], code: int
    ) -> None:
        """Print the JSON document."""
        written = [] if differences else [*self.places.values()]
        artifacts = [artifact("array", path) for path in written]
        if self.options.trace_out and not differences:
            artifacts.append(artifact("trace", self.options.trace_out))
        result: dict[str, Any] = {
            "values": [self.value_json(item, values[item]) for item in values]
        }
        if self.taps:
            result["taps"] = self.taps.values
        print_document(
            "run",
            inputs=[self.source.to_json()],
            result=result,
            summary={"expected": len(self.expected), "different": len(differences)},
            findings=[
                {"level": "error", "where": {"tensor": item.name}, **gap.to_json()}
                for item, gap in differences.items()
            ],
            artifacts=artifacts,
            exit_code=code,
        )

    def value_json(self, item: Output, value: Any) -> dict[str, Any]:
        """One fetched value as a member of the document."""
        if value is None:
            return {"tensor": item.name, "dead": True}
        place = {"path": self.places[item]} if item in self.places else {}
        return {"tensor": item.name, **value_json(value, self.options.full), **place}
