"""Initializers in Python files of graphs: `--init` of a file, as of `cfgraph run`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.cli import command_line as cli
from cfgraph.console.transforms.convert import PythonOptions
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph
from tests.integrations.python_export.generated_python import source_fault
from tests.integrations.python_export.test_decompiled import loaded
from tests.runtime.compiled.agreement import difference
from tests.runtime.compiled.test_generated_code import graph_of

# the initial values are random, and both functions have the constant 1 and a node called `scale`
TRAINING = """
x = Placeholder() {dtype=float32, shape=[2]}
w = VarHandleOp() {dtype=float32, shape=[2], shared_name="w"}
b = VarHandleOp() {dtype=float32, shape=[], shared_name="b"}
two = Const() {dtype=int32, value=int32[1]:[2]}
random = RandomStandardNormal(two) {T=int32, dtype=float32, seed=3, seed2=7}
one = Const() {dtype=float32, value=float32[]:1}
init/scale = AddV2(random, one)
w/Assign = AssignVariableOp(w, init/scale) {dtype=float32}
b/Assign = AssignVariableOp(b, one) {dtype=float32}
init = NoOp(^w/Assign, ^b/Assign)
w/Read = ReadVariableOp(w) {dtype=float32}
b/Read = ReadVariableOp(b) {dtype=float32}
scale = Mul(x, w/Read)
y = AddV2(scale, b/Read)
noise = RandomStandardNormal(two) {T=int32, dtype=float32, seed=5, seed2=9}
z = AddV2(y, noise)
step = AssignAddVariableOp(b, one) {dtype=float32}
"""
# the initial value is fed, or has a default
FED = """
start = Placeholder() {dtype=float32, shape=[]}
five = Const() {dtype=float32, value=float32[]:5}
factor = PlaceholderWithDefault(five) {dtype=float32, shape=[]}
v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
value = Mul(start, factor)
assign = AssignVariableOp(v, value) {dtype=float32}
read = ReadVariableOp(v) {dtype=float32}
y = Mul(read, factor)
"""


def program(file: Path, *options: str) -> tuple[int, str, str]:
    line = [sys.executable, str(file), *options]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def initialized(graph: Graph, init: str, fetches: list[str], feeds: dict[str, Any]) -> list[Any]:
    session = cfgraph.Session(graph, engine="tokens")
    session.run([], feeds, [init])
    return session.run(fetches, feeds)


def test_a_file_runs_an_initializer_first_as_run_does(tmp_path: Path, capsys: Any) -> None:
    file, feed = tmp_path / "training.py", ("--feed", "x=[1, 2]")
    graph = tmp_path / "training.pb"
    cfgraph.save(graph_of(TRAINING), graph)
    assert cli.run(["convert", str(graph), "-o", str(file), "--fetch", "z"]) == 0
    note = f"note: to initialize the variables first: python {file} --init init"
    assert " ".join(capsys.readouterr().err.split()) == note
    assert cli.run(["run", str(graph), "--fetch", "z", *feed, "--init", "init"]) == 0
    expected = capsys.readouterr().out
    assert program(file, *feed, "--init", "init") == (0, expected, "")
    code, _, message = program(file, *feed)
    assert code == 5
    assert "run its initializer first" in message
    code, _, message = program(file, *feed, "--init", "w/Assign")
    assert (code, message) == (
        2,
        "error: the file has no initializer 'w/Assign'\n"
        "  hint: it has init; to add another one, convert the graph with --init w/Assign\n",
    )


def test_values_after_an_initializer_are_those_of_a_session(tmp_path: Path) -> None:
    graph, x = graph_of(TRAINING), np.array([1, 2], np.float32)
    names = loaded(graph, PythonOptions(["y", "z"]), tmp_path)
    assert not source_fault(tmp_path / "converted.py")
    names["script"].initialize("init")
    expected = initialized(graph, "init", ["y", "z"], {"x": x})
    assert not any(map(difference, names["run"](x), expected))


def test_initializers_run_in_order_and_may_be_repeated(tmp_path: Path) -> None:
    options = PythonOptions(["b/Read"], inits=["init", "step"])
    names = loaded(graph_of(TRAINING), options, tmp_path)
    script = names["script"]
    for name in ("init", "step", "^step"):
        script.initialize(name)
    assert names["run"]() == [3]


def test_an_initializer_has_feeds_and_defaults(tmp_path: Path) -> None:
    graph = graph_of(FED)
    names = loaded(graph, PythonOptions(["y"], inits=["assign"]), tmp_path)
    script = names["script"]
    assert [*script.tensors] == ["factor", "start"]
    with pytest.raises(UsageError, match="a feed is missing: start:0"):
        script.initialize("assign")
    script.initialize("assign", start=2)
    assert names["run"]() == initialized(graph, "assign", ["y"], {"start": 2})
    script.initialize("assign", start=2, factor=3)
    assert names["run"](4) == [24]
    feeds = ("--feed", "start=2", "--feed", "factor=3")
    assert program(tmp_path / "converted.py", *feeds, "--init", "assign")[1].endswith("= 18.0\n")
    code, _, message = program(tmp_path / "converted.py", "--init", "assign")
    assert (code, message.splitlines()[0]) == (
        2,
        "error[CFG036]: a feed is missing: start:0 (float32[])",
    )


def test_a_file_without_its_arrays_names_the_file(tmp_path: Path) -> None:
    b = cfgraph.Builder()
    value = b.const(np.arange(1000, dtype=np.float32), name="big")
    b.Square(value, name="out")
    loaded(b.graph, PythonOptions(["out"]), tmp_path)
    (tmp_path / "converted.npz").unlink()
    code, _, message = program(tmp_path / "converted.py")
    assert (code, message.splitlines()[-3:]) == (
        1,
        [
            "cfgraph.errors.InvalidInput: cannot read the arrays: No such file or directory",
            f"  at {tmp_path / 'converted.npz'}",
            "  hint: `convert --to py` writes this file next to the Python file: keep both",
        ],
    )


def test_a_file_has_only_the_initializers_that_it_needs(tmp_path: Path) -> None:
    graph = graph_of(TRAINING)
    assert not loaded(graph, PythonOptions(["random"]), tmp_path)["script"].initializers
    one = loaded(graph, PythonOptions(["b/Read"]), tmp_path)
    assert [*one["script"].initializers] == ["init"]
    with pytest.raises(UsageError, match="no initializer 'x'"):
        one["script"].initialize("x")
    named = loaded(graph, PythonOptions(["b/Read"], inits=["b/Assign"]), tmp_path)
    assert [*named["script"].initializers] == ["b/Assign"]
