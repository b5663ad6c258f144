"""Write a graph in another format."""

from __future__ import annotations

from cfgraph.console.answer import print_document
from cfgraph.console.graphs import STDIN, artifact, read_graph, write_graph
from cfgraph.errors import UsageError


def convert(
    path: str, output: str | None, to: str | None, from_format: str | None, json: bool, quiet: bool
) -> None:
    """Read a graph and write it. Raises UsageError where a terminal would get binary data."""
    if json and output in (None, STDIN):
        message = "the JSON answer takes standard output"
        raise UsageError(message, hint="say where the graph goes: -o FILE")
    source = read_graph(path, from_format, quiet)
    written = write_graph(source.graph, output, to)
    if json:
        artifacts = [artifact("graph", written)] if written else []
        print_document("convert", inputs=[source.to_json()], artifacts=artifacts)
