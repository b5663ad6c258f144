"""The error of a kernel has the same text in each engine, in clusters, and in functions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph import Builder, ExecutionError, Graph

FEEDS = {"x": np.ones((2, 3), "f"), "w": np.ones((3, 3), "f"), "k": np.int32(2)}
LOOP = "AddV2: shapes float32[2,3] (while/body/cond/else/MatMul) and float32[2,4] (ones) do not broadcast"  # noqa: E501
LINE = "AddV2: shapes float32[2,3] (x) and float32[2,4] (ones) do not broadcast"


def loop() -> Graph:
    """A loop that adds a tensor of another shape from its third iteration on."""
    b = Builder()
    x, w = b.placeholder("x", "float32", [None, None]), b.placeholder("w", "float32", [None, None])
    k, ones = b.placeholder("k", "int32", []), b.const(np.ones((2, 4), "f"), name="ones")

    def body(i: Any, y: Any) -> Any:
        return i + 1, b.cond(i < k, lambda: y @ w, lambda: (y @ w) + ones)

    b.while_loop(lambda i, y: i < 5, body, [b.const(np.int32(0)), x], name="while")
    return b.graph


def lowered() -> Graph:
    graph = loop()
    cfgraph.lower(graph)
    return graph


def clustered(graph: Graph, **options: Any) -> Graph:
    cfgraph.cluster(graph, **options)
    assert any(node.op == "XlaLaunch" for node in graph)
    return graph


def line(*, effect: bool) -> Graph:
    text = (
        "x = Placeholder() {dtype=float32}\n"
        "ones = Const() {dtype=float32, value=float32[2,4]:[[1,1,1,1],[1,1,1,1]]}\n"
        'text = Const() {dtype=string, value=string[]:"hello"}\n'
        "print = PrintV2(text)\n"
        f"sum = AddV2(x, ones{', ^print' if effect else ''})\n"
    )
    return cfgraph.loads(text.encode())


def error_of(session: cfgraph.Session, fetch: str, feeds: Any) -> ExecutionError:
    with pytest.raises(ExecutionError) as caught:
        session.run([fetch], feeds)
    return caught.value


@pytest.mark.parametrize("engine", ["tokens", "compiled"])
@pytest.mark.parametrize(
    "make",
    [
        loop,
        lambda: clustered(lowered()),
        lambda: clustered(loop(), regions=True),
    ],
    ids=["loop", "clusters", "regions"],
)
def test_the_text_in_a_loop_is_the_same_everywhere(make: Callable[[], Graph], engine: str) -> None:
    error = error_of(cfgraph.Session(make(), engine=engine), "while:1", FEEDS)
    assert error.message == LOOP
    assert error.hint == "ones is a Const"
    assert str(error.node).endswith("while/body/cond/else/AddV2")


@pytest.mark.parametrize("engine", ["tokens", "compiled"])
def test_the_error_has_the_iteration(engine: str) -> None:
    error = error_of(cfgraph.Session(loop(), engine=engine), "while:1", FEEDS)
    assert error.frame == "/while[2]"


@pytest.mark.parametrize("engine", ["tokens", "compiled", "auto"])
@pytest.mark.parametrize("effect", [False, True])
def test_the_text_of_a_straight_line_is_the_same_in_each_run(engine: str, effect: bool) -> None:
    session = cfgraph.Session(line(effect=effect), engine=engine)
    for _ in range(3):
        assert error_of(session, "sum", {"x": FEEDS["x"]}).message == LINE


def test_operands_whose_buffer_may_be_reused_are_named() -> None:
    text = (
        "x = Placeholder() {dtype=float32}\ny = Placeholder() {dtype=float32}\n"
        'text = Const() {dtype=string, value=string[]:"hello"}\nprint = PrintV2(text)\n'
        "double = Mul(x, x, ^print)\nsum = AddV2(double, y)\n"
    )
    session = cfgraph.Session(cfgraph.loads(text.encode()), engine="compiled")
    feeds = {"x": np.ones((300, 300), "f"), "y": np.ones((301, 300), "f")}
    assert error_of(session, "sum", feeds).message == (
        "AddV2: shapes float32[300,300] (double) and float32[301,300] (y) do not broadcast"
    )


@pytest.mark.parametrize("engine", ["tokens", "compiled"])
def test_a_variable_is_read_and_named(engine: str) -> None:
    text = (
        "v = VarHandleOp() {dtype=float32, shape=[2,3]}\n"
        "one = Const() {dtype=float32, value=float32[2,3]:[[1,1,1],[1,1,1]]}\n"
        "init = AssignVariableOp(v, one)\n"
        "read = ReadVariableOp(v) {dtype=float32}\n"
        "x = Placeholder() {dtype=float32}\nsum = AddV2(read, x)\n"
    )
    session = cfgraph.Session(cfgraph.loads(text.encode()), engine=engine)
    session.run([], targets=["init"])
    error = error_of(session, "sum", {"x": np.zeros(4, "f")})
    assert error.message == (
        "AddV2: shapes float32[2,3] (read) and float32[4] (x) do not broadcast"
    )
    assert error.hint == "read has the shape of v, a VarHandleOp of shape [2,3]"


def test_a_python_file_names_shapes(tmp_path: Path) -> None:
    cfgraph.save(line(effect=False), tmp_path / "g.graph")
    source = tmp_path / "g.py"
    command = [sys.executable, "-m", "cfgraph", "convert", tmp_path / "g.graph"]
    subprocess.run([*command, "--fetch", "sum", "--to", "py", "-o", source], check=True)
    words = [sys.executable, source, "--feed", "x=f32[2,3]:ones"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert "AddV2: the inputs do not fit: float32[2,3] (x), float32[2,4] (ones)" in done.stderr
    assert done.returncode == 5
