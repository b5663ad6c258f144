"""The `convert` command: write a graph in another format."""

from __future__ import annotations

import shlex
import sys
from typing import Final

from cfgraph.compare.diff import diff
from cfgraph.compare.differences import GraphDiff
from cfgraph.console.convert_python import PythonOptions, python_source, write_python
from cfgraph.console.diff import diff_json, print_diff
from cfgraph.console.graph_files import (
    STDIN,
    Source,
    artifact,
    output_format,
    read_graph,
    saved_model_state_of,
    write_graph,
)
from cfgraph.console.json_output import print_document
from cfgraph.console.output import note, page
from cfgraph.console.signatures import signature_names
from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir.files import FORMATS, dropped_field_bytes, dumps, loads
from cfgraph.ir.graph import Graph

# the format of `--to` that no command reads
PYTHON: Final = "py"


def convert(
    path: str,
    output: str | None,
    to: str | None,
    from_format: str | None,
    json: bool,
    quiet: bool,
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
    source = read_graph(path, from_format, quiet)
    if to == PYTHON or (to is None and output is not None and output.endswith(".py")):
        if verify:
            message = "--verify compares formats of graphs, and Python is none"
            raise UsageError(message, hint="run the file, and `cfgraph run --expect`")
        _convert_to_python(source, output, python or PythonOptions(), json, quiet)
        return 0
    if python is not None and python.is_set:
        message = "only a Python file has fetches, feeds, and targets"
        raise UsageError(message, hint="add --to py")
    if to is not None and to not in FORMATS:
        known = ", ".join((*FORMATS, PYTHON))
        raise UsageError(f"unknown format {to!r}", hint=f"use one of {known}")
    changes = diff(source.graph, _round_trip(source.graph, output, to)) if verify else GraphDiff()
    written = None if changes else write_graph(source.graph, output, to, quiet=quiet)
    if changes:
        out = page(stream=sys.stderr)
        out.heading("verify", "the input, and the result read back")
        print_diff(out, changes, (source, source), False)
        out.line("nothing was written", "red")
    elif verify:
        note("verify: the result reads back as the same graph", quiet)
    if json:
        artifacts = [artifact("graph", written)] if written else []
        result = {"verify": diff_json(changes) if verify else None}
        code = int(bool(changes))
        inputs = [source.to_json()]
        print_document("convert", inputs=inputs, result=result, artifacts=artifacts, exit_code=code)
    return int(bool(changes))


def _convert_to_python(
    source: Source, output: str | None, python: PythonOptions, json: bool, quiet: bool
) -> None:
    """Write a graph as a Python file; a note names the variables that it does not contain."""
    paths = write_python(python_source(source.graph, python, signature_names(source)), output)
    saved = saved_model_state_of(source)
    if saved is not None and saved.saver is not None:
        file = shlex.quote(paths[0] if paths else "FILE.py")
        values = f"python {file} --variables {shlex.quote(source.path)}"
        note(f"note: the file has no values of variables; to restore them: {values}", quiet)
    if json:
        kinds = ("python", "arrays")
        artifacts = [artifact(kind, path) for kind, path in zip(kinds, paths, strict=False)]
        result = {"verify": None}
        print_document("convert", inputs=[source.to_json()], result=result, artifacts=artifacts)


def _round_trip(graph: Graph, output: str | None, to: str | None) -> Graph:
    """Encode a graph in the output format and read it back."""
    kind = output_format(output, to)
    if lost := dropped_field_bytes(graph, kind):
        message = f"pbtxt has no form for {lost} bytes of unknown fields"
        raise Unsupported(message, hint="use pb or graph, which preserve them")
    return loads(dumps(graph, kind), kind)
