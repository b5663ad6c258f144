"""The table of docs/functionalize.md: `python -m benchmarks converters [NAME ...]`.

Each graph is converted as TensorFlow writes it and as `functionalize` leaves it, and the values of
the converted models are compared with the original's. The results are kept in
benchmarks/results/converters.json, so that a call may measure some graphs alone.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import cfgraph
from benchmarks.converters.conversion import CONVERTERS, isolated, verdict
from benchmarks.converters.graphs import EXAMPLES, Arrays, LoweredGraph, build
from benchmarks.papers import filled

PAGE: Final = Path(__file__).parents[2] / "docs" / "functionalize.md"
RESULTS: Final = Path(__file__).parents[1] / "results" / "converters.json"
STAGES: Final = ("before", "after")
_MARKER: Final = "converters"
_KNOWN: Final = re.compile(
    r"Merge of two inputs that differ on more than one predicate"
    r"|Unable to determine predicate for merge node"
    r"|only merge nodes with two inputs supported"
    r"|No Op registered for \w+"
    r"|'tf\.\w+' op is neither a custom op nor a flex op"
    r"|failed to legalize operation 'tf\.\w+'"
    r"|Unable to convert type .*? into TensorProto element type"
    r"|'?[^'\s]* cannot be interpreted as a Tensor"
    r"|Please freeze the graph"
    r"|Invalid tensor data type 0"
)
_MAX_TEXT: Final = 90

# a verdict by `converter stage`
Verdicts = dict[str, str]


def main(words: Sequence[str]) -> None:
    """Measure the graphs that are named, or all, and rewrite the table."""
    description = "Convert lowered graphs, and rewrite the table of docs/functionalize.md."
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks converters", description=description
    )
    parser.add_argument("graphs", nargs="*", metavar="GRAPH", help=f"of {', '.join(EXAMPLES)}")
    names = parser.parse_args(words).graphs or list(EXAMPLES)
    if unknown := sorted({*names} - {*EXAMPLES}):
        parser.error(f"unknown graph {unknown[0]!r}")
    results = recorded()
    for name in names:
        results[name] = measure(name)
        print(name, *(f"  {key}: {text}" for key, text in results[name].items()), sep="\n")
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")


def recorded() -> dict[str, Verdicts]:
    """The verdicts of the last measurements, by name of the graph."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def measure(name: str) -> Verdicts:
    """Messages of each converter for a graph, before and after."""
    example = isolated(build, name)
    after = converted(example)
    stages = {"before": (example.data, example.feeds), "after": after}
    return {
        f"{converter} {stage}": shortened(verdict(converter, data, feeds, example.expected))
        for converter in CONVERTERS
        for stage, (data, feeds) in stages.items()
    }


def converted(example: LoweredGraph) -> tuple[bytes, Arrays]:
    """The graph as cfgraph writes it for converters, and the inputs that it still has."""
    graph = cfgraph.loads(example.data)
    outputs = list(example.expected)
    if example.variables:
        cfgraph.freeze(graph, example.variables, outputs=outputs, values=example.fixed)
    report = cfgraph.functionalize(graph, outputs, target="converter")
    assert not report.rejected
    feeds = {name: value for name, value in example.feeds.items() if name not in example.fixed}
    return cfgraph.dumps(graph), feeds


def shortened(text: str) -> str:
    """A verdict with the telling part of its message, in one line."""
    what, separator, message = text.partition(": ")
    if not separator:
        return text
    known = _KNOWN.search(message)
    line = known[0] if known else " ".join(message.split())
    if len(line) > _MAX_TEXT:
        line = line[:_MAX_TEXT].rsplit(" ", 1)[0] + " …"
    return f"{what}: {line}"


def page(text: str, results: Mapping[str, Verdicts]) -> str:
    """The page with the rows of these results."""
    return filled(text, _MARKER, [_row(name, results[name]) for name in EXAMPLES])


def _row(name: str, verdicts: Verdicts) -> str:
    keys = [f"{converter} {stage}" for converter in CONVERTERS for stage in STAGES]
    cells = [EXAMPLES[name].title, *(verdicts[key].replace("|", "/") for key in keys)]
    return f"| {' | '.join(cells)} |"
