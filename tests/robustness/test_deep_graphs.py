"""Graphs deeper than the recursion limit: chains of nodes, of functions, and of names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import growth
from cfgraph.cli import command_line as cli
from tests.little_stack import little_stack

DEPTH = 400


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    """A recursion limit below `DEPTH`, and above what commands need."""
    with little_stack(DEPTH - 50):
        yield


_X = "x0 = Placeholder() {dtype=float32, shape=[]}\n"
_P = "p = Placeholder() {dtype=bool, shape=[]}\n"


def chain(line: str, depth: int = DEPTH) -> str:
    return "".join(line.format(i=i, before=i - 1, after=i + 1) for i in range(1, depth))


FUNCTION = (
    "function f{i}(x: float32) -> (z: float32) {{\n  c = f{after}(x)\n  return z = c:z:0\n}}\n"
)
GRAPHS = {
    "controls": "x0 = NoOp()\n" + chain("x{i} = NoOp(^x{before})\n"),
    "data": _X + chain("x{i} = Neg(x{before})\n"),
    "name": "a/" * DEPTH + "x = NoOp()\n",
    "switches": _X + _P + "x1 = Switch(x0, p)\n"
    + "".join(f"x{i} = Switch(x{i - 1}:1, p)\n" for i in range(2, DEPTH)),
    "predicates": "x0 = Placeholder() {dtype=bool, shape=[]}\n"
    + chain("x{i} = LogicalNot(x{before})\n")
    + f"y = Placeholder() {{dtype=float32, shape=[]}}\nz = Switch(y, x{DEPTH - 1})\n",
    "functions": _X + "y = f1(x0)\n" + chain(FUNCTION)
    + f"function f{DEPTH}(x: float32) -> (z: float32) {{\n  return z = x\n}}\n",
    "groups": "x0 = NoOp()\n" + chain('x{i} = NoOp() {{_class=("loc:@x{before}",)}}\n'),
}  # fmt: skip
LINES = [
    "check g.graph",
    "show g.graph --nodes",
    "show g.graph --deadness",
    "show g.graph --html o.html",
    "lower g.graph -o o.pb",
    "optimize g.graph -o o.pb",
    "cluster g.graph -o o.pb",
    "partition g.graph --devices cpu:0,cpu:1 -o o.pb",
    "convert g.graph -o o.pbtxt",
    "diff g.graph g.graph --by structure",
]


@pytest.mark.parametrize("name", GRAPHS)
def test_no_command_recurses_over_a_graph(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("g.graph").write_text(GRAPHS[name])
    for line in LINES:
        assert cli.run(line.split()) == 0, (line, capsys.readouterr().err)


def test_a_node_outside_of_many_loops_is_explained_by_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # a trace of all nodes has n² tokens, each with a path of n loops
    path = growth.write("nested_loops", DEPTH, tmp_path)
    assert cli.run(["explain", str(path), "y", "--run", "--feed", "x=1.0"]) == 0
    assert "ran once" in capsys.readouterr().out


@pytest.mark.parametrize("subject", ["w0", pytest.param(f"w{DEPTH // 2}", marks=pytest.mark.slow)])
def test_a_loop_with_many_loops_inside_is_explained(
    subject: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = growth.write("nested_loops", DEPTH, tmp_path)
    assert cli.run(["explain", str(path), subject]) == 0
    assert "critical cycle" in capsys.readouterr().out


def test_lines_of_a_trace_do_not_grow_with_the_depth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # the last iteration of each loop is dead, and runs all loops inside: n² tokens are inherent
    tokens = []
    for depth in (6, 24):
        path = growth.write("nested_loops", depth, tmp_path)
        assert cli.run(["run", str(path), "--fetch", "y", "--feed", "x=1.0", "--trace"]) == 0
        lines = capsys.readouterr().err.splitlines()
        assert max(map(len, lines)) < 160
        tokens.append(len(lines))
    assert tokens[1] > 8 * tokens[0]
    assert any("]/… 16 loops …/w20[" in line for line in lines)
