"""Bundles for bug reports: graphs without constants, the command, its messages, and a trace."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.console.doctor import inspect_installation
from cfgraph.console.graph_files import artifact
from cfgraph.console.json_output import document, print_document, render_json
from cfgraph.console.output import note
from cfgraph.errors import CfgraphError, UsageError
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.files import dumps, load
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph

# integers and Booleans of so few elements are shapes, axes, and bounds of loops
_MAX_KEPT: Final = 16
_MAX_OUTPUT: Final = 1 << 20
_TRACED: Final = "run"
_TRACE_OPTION: Final = "--trace-out"
_README: Final = """\
A bug report of cfgraph. Look at the files before you send them.

environment.json   versions, packages, devices, configuration, environment variables of cfgraph
command.json       the command line, and how it ended
stderr.txt         its messages, with a traceback
graphs/            the graphs that it names{constants}
trace.jsonl        what ran, for `cfgraph run`{constants}
"""
_STRIPPED: Final = "; floats, strings, and large constants are zero or empty"


def strip_constants(graph: Graph) -> int:
    """Replace the values of constants by zeros, in functions too; returns their number.

    Integers and Booleans of at most 16 elements stay: without shapes and bounds nothing runs.
    Fields of the file that cfgraph does not know are dropped.
    """
    count = 0
    graph.origin = None
    for node in graph:
        node.origin = None
        attrs = _stripped_attrs(node.attrs)
        for key, value in attrs.items():
            graph.set_attr(node, key, value)
        count += len(attrs)
    for name, function in [*graph.functions.items()]:
        definition = function.definition
        nodes = []
        for body_node in definition.nodes:
            attrs = _stripped_attrs(body_node.attrs)
            count += len(attrs)
            nodes.append(replace(body_node, attrs={**body_node.attrs, **attrs}, origin=None))
        graph.functions[name] = Function(name, replace(definition, nodes=tuple(nodes)))
    return count


def _stripped_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes with tensors, with zeros instead of values."""
    changed = {key: _stripped(value) for key, value in attrs.items()}
    return {key: value for key, value in changed.items() if value is not attrs[key]}


def _stripped(value: Any) -> Any:
    if isinstance(value, TensorValue):
        return _zeros(value)
    if isinstance(value, tuple) and any(isinstance(item, TensorValue) for item in value):
        return tuple(map(_stripped, value))
    return value


def _zeros(value: TensorValue) -> TensorValue:
    array = value.array
    if array.dtype.kind in "iub" and array.size <= _MAX_KEPT:
        return value
    empty = np.full(array.shape, b"", object) if array.dtype.kind == "O" else np.zeros_like(array)
    return TensorValue(empty)


def write_bundle(
    path: str, command: Sequence[str], *, with_constants: bool, json_output: bool, quiet: bool
) -> int:
    """Run a command again, and write a bundle that describes how it ended; returns 0.

    Raises UsageError for a command that reads standard input.
    """
    if "-" in command:
        message = "a command that reads standard input cannot be repeated"
        raise UsageError(message, hint="name a file instead of -")
    constants = "" if with_constants else _STRIPPED
    members: dict[str, bytes] = {"README.txt": _README.format(constants=constants).encode()}
    installation = inspect_installation()
    members["environment.json"] = _rendered(document("doctor", result=installation.to_json()))
    outcome: dict[str, Any] = {"command": shlex.join(["cfgraph", *command]), "exit_code": None}
    if command:
        for text in command:
            _add_graph(members, text, with_constants)
        done, trace = _repeat(command)
        outcome |= {"exit_code": done.returncode, "stdout_bytes": len(done.stdout)}
        members["stderr.txt"] = done.stderr[-_MAX_OUTPUT:]
        if trace is not None:
            members["trace.jsonl"] = trace if with_constants else _without_values(trace)
    members["command.json"] = _rendered(outcome)
    with StagedFiles() as files:
        files.write(path, _zipped(members))
    note(f"wrote {path}: {', '.join(members)}", quiet)
    note("look at the files before you send them", quiet)
    if json_output:
        print_document(
            "doctor",
            summary={"faults": len(installation.faults), "files": len(members)},
            findings=installation.faults,
            result={**installation.to_json(), "bundle": [*members], **outcome},
            artifacts=[artifact("bundle", path)],
        )
    return 0


def _rendered(value: Any) -> bytes:
    return f"{render_json(value)}\n".encode()


def _add_graph(members: dict[str, bytes], text: str, with_constants: bool) -> None:
    """Add a graph that an argument names, and nothing for any other argument."""
    if text.startswith("-") or not os.path.exists(text):
        return
    try:
        graph = load(text)
    except CfgraphError:
        return  # not a graph, or an invalid one: a report of it needs its sender
    if not with_constants:
        strip_constants(graph)
    name = Path(text.rstrip("/")).name.removesuffix(".gz")
    stem, number = f"graphs/{Path(name).stem}", 1
    while f"{stem}.pb" in members:
        number += 1
        stem = f"graphs/{Path(name).stem}-{number}"
    members[f"{stem}.pb"] = dumps(graph, "pb")


def _repeat(command: Sequence[str]) -> tuple[subprocess.CompletedProcess[bytes], bytes | None]:
    """Run a command in a process of its own, with a traceback, and a trace if it is `run`."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace.jsonl")
        traced = _TRACED in command and not any(text.startswith(_TRACE_OPTION) for text in command)
        more = [_TRACE_OPTION, str(trace)] * traced
        done = subprocess.run(
            [sys.executable, "-m", "cfgraph", "--debug", *command, *more],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        return done, trace.read_bytes() if trace.exists() else None


def _without_values(trace: bytes) -> bytes:
    """Return the lines of a trace with the types of values only."""
    lines = []
    for text in trace.splitlines():
        event = json.loads(text)
        if "out" in event:
            event["out"] = [value and value.partition(" ")[0] for value in event["out"]]
        lines.append(json.dumps(event, separators=(",", ":")))
    return "\n".join([*lines, ""]).encode()


def _zipped(members: Mapping[str, bytes]) -> bytes:
    """Return a zip archive with the same bytes for the same members."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
