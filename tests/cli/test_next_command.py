"""The `next` line of `show` suggests a runnable command with the necessary feeds only."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

GRAPH = """
x = Placeholder() {dtype=float32, shape=[]}
y = Placeholder() {dtype=float32, shape=[]}
a = Neg(x) {T=float32}
b = Unheard(y) {T=float32}
"""


def test_what_can_run_is_suggested_with_the_feeds_that_it_needs(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-g.graph").write_text(GRAPH)
    line = command("show", "./-g.graph").lines[-1].strip()
    assert line == "cfgraph run ./-g.graph --feed x=1.0 --fetch a:0"
    assert command("show", "--", "-g.graph").lines[-1].strip() == line


def test_a_graph_of_which_nothing_can_run_is_to_be_checked(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "g.graph"
    path.write_text("b = Unheard()\n")
    assert command("show", path).lines[-1].strip() == f"cfgraph check {path}"


VARIABLES = """
x = Placeholder() {dtype=float32, shape=[]}
w = VarHandleOp() {dtype=float32, shape=[], shared_name="w"}
w/Assign = AssignVariableOp(w, two) {dtype=float32}
w/Read = ReadVariableOp(w) {dtype=float32}
two = Const() {dtype=float32, value=float32[]:2.0}
v = VariableV2() {dtype=float32, shape=[]}
v/Assign = Assign(v, two) {T=float32}
other = VariableV2() {dtype=float32, shape=[]}
other/Assign = Assign(other, two) {T=float32}
save/Assign = AssignVariableOp(w, x) {dtype=float32}
sum = AddN(x, w/Read, v) {N=3, T=float32}
"""


def test_variables_that_are_read_are_initialized_first(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "g.graph"
    path.write_text(VARIABLES)
    line = command("show", path).lines[-1].split()[1:]
    assert line[2:6] == ["--init", "w/Assign", "--init", "v/Assign"]
    assert command(*line, "--expect", "sum=5").code == 0


def test_variables_of_a_derived_graph_come_from_a_file(
    command: Any, tmp_path: Path, fixtures: Path
) -> None:
    source, path = fixtures / "saved_model", tmp_path / "lowered.pb"
    assert command("lower", source, "-o", path).code == 0
    line = command("show", path).lines[-1].strip()
    assert "--variables PATH" in line
    assert "ReadVariableOp" not in line
    assert command(*shlex.split(line.replace("PATH", str(source)))[1:]).code == 0


def test_one_node_that_initializes_all_stands_for_them(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "g.graph"
    path.write_text(f"{VARIABLES}init = NoOp(^w/Assign, ^v/Assign, ^other/Assign)\n")
    line = command("show", path).lines[-1].split()[1:]
    assert line[2:5] == ["--init", "init", "--feed"]
    assert command(*line, "--expect", "sum=5").code == 0


def test_what_sends_to_another_device_is_no_target(
    command: Any, tmp_path: Path, graphs: Path
) -> None:
    path = tmp_path / "cut.pb"
    options = ["--devices", "cpu:0-1", "--seed", "7", "-o", path]
    assert command("partition", graphs / "counter.pb", *options).code == 0
    assert "targets" not in command("show", path).lines
    assert "messages" in command("show", path).lines


def test_what_writes_to_a_variable_is_not_suggested(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "g.graph"
    path.write_text(f"{VARIABLES}y = Neg(sum)\nv/Update = Assign(v, sum)\n")
    assert "v/Update:0" in command("show", path).out.partition("next")[0]
    assert command("show", path).lines[-1].partition("--fetch")[2].strip() == "y:0"


def test_what_takes_the_most_nodes_is_fetched_first(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "g.graph"
    early = "".join(f"early_{i} = Neg(x) {{T=float32}}\n" for i in range(4))
    path.write_text(
        f"x = Placeholder() {{dtype=float32, shape=[]}}\n{early}loss = Neg(y)\ny=Abs(x)"
    )
    line = command("show", path).lines[-1].split("--fetch")
    assert [item.strip() for item in line[1:]] == ["loss:0", "early_0:0", "early_1:0"]


@pytest.mark.parametrize(("waits", "expected"), [("", "init"), (", ^sum", "v/Assign")])
def test_a_node_that_only_initializes_stands_for_one_variable(
    waits: str, expected: str, command: Any, tmp_path: Path
) -> None:
    path = tmp_path / "g.graph"
    text = "b = Square(v) {T=float32}\nsum = Neg(two) {T=float32}\n"
    lines = [line for line in VARIABLES.splitlines() if line.startswith(("v", "two"))]
    path.write_text("\n".join([*lines, text, f"init = NoOp(^v/Assign{waits})\n"]))
    line = command("show", path).lines[-1].split()
    assert line[line.index("--init") + 1] == expected


def test_the_deepest_outputs_of_a_large_graph_are_fetched(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "g.graph"
    size = 600
    feeds = [f"x{number} = Placeholder() {{dtype=float32, shape=[]}}" for number in range(size)]
    leaves = [f"leaf{number} = Neg(x{number})" for number in range(size)]
    chain = ["y0 = Identity(x0)", *(f"y{n} = AddV2(y{n - 1}, x{n})" for n in range(1, size))]
    path.write_text("\n".join([*feeds, *leaves, *chain]) + "\n")
    line = command("show", path).lines[-1].split()
    fetched = "--fetch y599:0 --fetch leaf0:0 --fetch leaf1:0"
    assert " ".join(line[3:]) == f"--feeds FILE.npz {fetched}"


def test_results_of_a_function_are_fetched_alone(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "g.graph"
    text = "x = Placeholder() {dtype=float32, shape=[]}\nwhile/Identity = Neg(a)\nunused = Neg(a)\n"
    path.write_text(f"{text}a = Abs(x)\nIdentity = Identity(x)\nIdentity_1 = Identity(a)\n")
    line = command("show", path).lines[-1].split("--fetch")
    assert [item.strip() for item in line[1:]] == ["Identity_1:0", "Identity:0"]
