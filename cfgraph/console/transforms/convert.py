"""The `convert` command: write a graph in another format, or as a Python file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cfgraph.cli.json_output import print_document
from cfgraph.cli.output import note, page
from cfgraph.cli.transform_options import STDIN
from cfgraph.comparison.diff import diff
from cfgraph.comparison.differences import GraphDiff
from cfgraph.console.comparisons.diff import print_diff, structure_report
from cfgraph.console.documents import StructureReport
from cfgraph.console.graph_files import (
    artifact,
    output_format,
    read_graph,
    write_graph,
)
from cfgraph.errors import Unsupported, UsageError
from cfgraph.extensions import CONVERTER, extension
from cfgraph.ir.files import FORMATS, dropped_field_bytes, dumps, loads
from cfgraph.ir.graph import Graph
from cfgraph.reports import DocumentResult

# the format of `--to` that no command reads
PYTHON: Final = "py"


class ConvertResult(DocumentResult, command="convert"):
    """The comparison of the graph with the result read back."""

    verify: StructureReport | None = None


def convert(
    path: str,
    output: str | None,
    to: str | None,
    from_format: str | None,
    json: bool,
    verify: bool = False,
    python: PythonOptions | None = None,
) -> int:
    """Read a graph and write it; returns the exit code.

    It is 1, and nothing is written, if the verification finds a difference. Raises UsageError if
    binary data would be written to a terminal, Unsupported if the file has a part that the format
    to verify drops.
    """
    if json and output in (None, STDIN):
        message = "the JSON document is written to standard output"
        raise UsageError(message, hint="write the graph to a file: -o FILE")
    source = read_graph(path, from_format)
    if to == PYTHON or (to is None and output is not None and output.endswith(".py")):
        if verify:
            message = "--verify compares formats of graphs, and Python is none"
            raise UsageError(message, hint="run the file, and `cfgraph run --expect`")
        extension(CONVERTER, PYTHON)(source, output, python or PythonOptions(), json)
        return 0
    if python is not None and python.is_set:
        message = "only a Python file has fetches, feeds, targets, initializers, and a signature"
        hint = "add --to py; `cfgraph run` takes values"
        raise UsageError(message, hint=hint)
    if to is not None and to not in FORMATS:
        known = ", ".join((*FORMATS, PYTHON))
        raise UsageError(f"unknown format {to!r}", hint=f"use one of {known}")
    changes = diff(source.graph, _round_trip(source.graph, output, to)) if verify else GraphDiff()
    written = None if changes else write_graph(source.graph, output, to)
    if changes:
        out = page(stream=sys.stderr)
        out.heading("verify", "the input, and the result read back")
        print_diff(out, changes, (source, source), False)
        out.line("nothing was written", "red")
    elif verify:
        note("verify: the result reads back as the same graph")
    if json:
        artifacts = [artifact("graph", written)] if written else []
        result = ConvertResult(structure_report(changes) if verify else None)
        code = int(bool(changes))
        print_document(result, inputs=[source], artifacts=artifacts, exit_code=code)
    return int(bool(changes))


def _round_trip(graph: Graph, output: str | None, to: str | None) -> Graph:
    """Encode a graph in the output format and read it back."""
    kind = output_format(output, to)
    if lost := dropped_field_bytes(graph, kind):
        message = f"pbtxt has no form for {lost} bytes of unknown fields"
        raise Unsupported(message, hint="use pb or graph, which preserve them")
    return loads(dumps(graph, kind), kind)


@dataclass(frozen=True, slots=True)
class PythonOptions:
    """Names of the tensors that the Python function returns and takes, of its targets, of the
    initializers, and of the signature that names tensors.
    """

    fetches: Sequence[str] = ()
    feeds: Sequence[str] = ()
    targets: Sequence[str] = ()
    inits: Sequence[str] = ()
    signature: str | None = None

    @property
    def is_set(self) -> bool:
        """True if any of the options was used."""
        named = self.fetches or self.feeds or self.targets or self.inits
        return bool(named) or self.signature is not None
