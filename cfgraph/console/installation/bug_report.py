"""Bundles for bug reports: graphs without constants, the command, its messages, and a trace."""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.cli.json_output import document, print_document, render_json
from cfgraph.cli.output import note
from cfgraph.console.graph_files import artifact
from cfgraph.console.installation.doctor import (
    BundleReport,
    CommandOutcome,
    DoctorSummary,
    Installation,
    inspect_installation,
)
from cfgraph.errors import CfgraphError, UsageError
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import EncodedAttr, Func, TensorValue
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.files import dumps, load
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph
from cfgraph.processes.child_process import start_module

# integers and Booleans of so few elements are shapes, axes, and bounds of loops
_MAX_KEPT: Final = 16
# longer texts of attributes are no names: compiled programs with their constants, such as XLA's
_MAX_TEXT: Final = 1024
_MAX_OUTPUT: Final = 1 << 20
_MAX_TRACE: Final = 16 << 20
# options that write to standard output for -
_OUTPUT_OPTIONS: Final = frozenset({"-o", "--output"})
_UNSAFE_IN_NAME: Final = re.compile(r"[^\w.-]|^\.+", re.ASCII)
_PROGRAM: Final = "cfgraph"
_TRACED: Final = "run"
_TRACE_OPTION: Final = "--trace-out"
_TRACE: Final = "trace.jsonl"
_STDERR: Final = "stderr"
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
    Texts of more than 1024 bytes in attributes, such as compiled programs, become empty, and fields
    of the file that cfgraph does not know are dropped.
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
        stripped = replace(
            definition,
            nodes=tuple(nodes),
            attrs={**definition.attrs, **_stripped_attrs(definition.attrs)},
            arg_attrs={
                index: {**attrs, **_stripped_attrs(attrs)}
                for index, attrs in definition.arg_attrs.items()
            },
        )
        graph.functions[name] = Function(name, stripped)
    return count


def _stripped_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes with values of constants, without these values."""
    changed = {key: _stripped(value) for key, value in attrs.items()}
    return {key: value for key, value in changed.items() if value is not attrs[key]}


def _stripped(value: Any) -> Any:
    if isinstance(value, TensorValue):
        return _zeros(value)
    if isinstance(value, EncodedAttr):
        return EncodedAttr(b"")
    if isinstance(value, Func):
        attrs = _stripped_attrs(value.attrs)
        return Func(value.name, {**value.attrs, **attrs}) if attrs else value
    if isinstance(value, str | bytes) and len(value) > _MAX_TEXT:
        return type(value)()
    if isinstance(value, tuple):
        items = tuple(map(_stripped, value))
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value


def _zeros(value: TensorValue) -> TensorValue | EncodedAttr:
    array = value.array
    if array.dtype.kind in "iub" and array.size <= _MAX_KEPT:
        return value
    if array.dtype.kind != "O":
        zero = np.zeros((), array.dtype)
    elif value.dtype is dtypes.string:
        zero = np.array(b"", object)
    else:
        return EncodedAttr(b"")
    return TensorValue(np.broadcast_to(zero, array.shape))


def write_bundle(
    path: str, command: Sequence[str], *, with_constants: bool, json_output: bool
) -> int:
    """Run a command again, and write a bundle that describes how it ended; returns 0.

    The command may begin with `cfgraph`. Raises UsageError for one that reads standard input, and,
    before it runs, for a bundle that cannot be written.
    """
    if command and Path(command[0]).name == _PROGRAM:
        command = command[1:]
    _require_repeatable(path, command)
    with StagedFiles() as files:
        file = files.open(path)
        members, installation, outcome = _contents(command, with_constants)
        file.write(_zipped(members))
    note(f"wrote {path}: {', '.join(members)}")
    if command:
        note(f"the command exits with {outcome.exit_code}")
    note("look at the files before you send them")
    if json_output:
        print_document(
            installation.result(BundleReport([*members], outcome)),
            summary=DoctorSummary(len(installation.faults), files=len(members)),
            findings=installation.faults,
            artifacts=[artifact("bundle", path)],
        )
    return 0


def _contents(
    command: Sequence[str], with_constants: bool
) -> tuple[dict[str, bytes], Installation, CommandOutcome]:
    """Run a command again; return the files of a bundle, the installation, and how it ended."""
    constants = "" if with_constants else _STRIPPED
    members: dict[str, bytes] = {"README.txt": _README.format(constants=constants).encode()}
    installation = inspect_installation()
    members["environment.json"] = _rendered(document("doctor", result=installation.result()))
    outcome = CommandOutcome(shlex.join([_PROGRAM, *command]), None)
    if command:
        for text in command:
            _add_graph(members, text, with_constants)
        with tempfile.TemporaryDirectory() as folder:
            outcome = replace(outcome, **_repeat(command, Path(folder)))
            members["stderr.txt"] = _end_of_file(Path(folder, _STDERR), _MAX_OUTPUT)
            if Path(folder, _TRACE).exists():
                trace = _end_of_trace(Path(folder, _TRACE))
                members["trace.jsonl"] = trace if with_constants else _without_values(trace)
    members["command.json"] = _rendered(outcome)
    return members, installation, outcome


def _require_repeatable(path: str, command: Sequence[str]) -> None:
    """Raise UsageError for a command that cannot run again, or whose file would be replaced."""
    previous = ["", *command]
    if any(a not in _OUTPUT_OPTIONS for a, b in zip(previous, command, strict=False) if b == "-"):
        message = "a command that reads standard input cannot be repeated"
        raise UsageError(message, hint="name a file instead of -")
    if Path(path).resolve() in [Path(text).resolve() for text in command]:
        message = "the bundle would replace a file of the command"
        raise UsageError(message, path=path, hint="use --bundle with another name, such as bug.zip")


def _rendered(value: Any) -> bytes:
    return f"{render_json(value)}\n".encode()


def _add_graph(members: dict[str, bytes], text: str, with_constants: bool) -> None:
    """Add a graph that an argument names, and nothing for any other argument."""
    if text.startswith("-") or not os.path.exists(text):
        return
    try:
        graph = load(text)
        if not with_constants:
            strip_constants(graph)
        data = dumps(graph, "pb")
    except CfgraphError:
        return  # not a graph, or an invalid one: a report of it needs its sender
    name = Path(Path(text).name.removesuffix(".gz")).stem
    # names that mean the same on every system, in every program for archives
    stem, number = f"graphs/{_UNSAFE_IN_NAME.sub('_', name) or 'graph'}", 1
    member = f"{stem}.pb"
    while member in members:
        number += 1
        member = f"{stem}-{number}.pb"
    members[member] = data


def _repeat(command: Sequence[str], folder: Path) -> dict[str, Any]:
    """Run a command in a process of its own; returns how it ended.

    The folder receives its messages with a traceback, and a trace if it is `run`.
    """
    name = next((text for text in command if not text.startswith("-")), "")
    traced = name == _TRACED and not any(text.startswith(_TRACE_OPTION) for text in command)
    line = list(command)
    if traced:
        start = line.index(name) + 1
        line[start:start] = [_TRACE_OPTION, str(folder / _TRACE)]
    with (
        Path(folder, _STDERR).open("wb") as errors,
        Path(folder, "stdout").open("wb") as output,
        start_module(["cfgraph", "--debug", *line], stdout=output, stderr=errors) as process,
    ):
        try:
            status = process.wait()
        finally:
            process.kill()
        size = os.fstat(output.fileno()).st_size
    return {"exit_code": status, "stdout_bytes": size}


def _end_of_file(path: Path, size: int) -> bytes:
    """Return the last bytes of a file."""
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - size))
        return file.read(size)


def _end_of_trace(path: Path) -> bytes:
    """Return the first line of a trace, which is its header, and the last events."""
    if path.stat().st_size <= _MAX_TRACE:
        return path.read_bytes()
    with path.open("rb") as file:
        header = file.readline()
    return header + _end_of_file(path, _MAX_TRACE).partition(b"\n")[2]


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
