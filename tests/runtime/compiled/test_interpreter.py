"""The first run of a graph without control flow is interpreted; the second one generates code."""

from __future__ import annotations

import signal
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import CfgraphError
from cfgraph.runtime.compiled import engine
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.session import Session
from cfgraph.stack_position import stack_position
from tests.command_fixtures import command
from tests.late_runs import timeout_error_at
from tests.runtime.compiled.agreement import Pair
from tests.runtime.compiled.test_generated_code import counter, graph_of

__all__ = ["command"]

CHAIN = """
x = Placeholder() {dtype=float32, shape=?}
a = Mul(x, x) {T=float32}
b = AddV2(a, x) {T=float32}
y = Neg(b) {T=float32}
"""
FEEDS = {"x:0": np.float32(3)}


def test_the_second_run_generates_code(generated: list[Any]) -> None:
    session = Session(graph_of(CHAIN))
    counts, interpreted = [], []
    for _ in range(3):
        assert session.run(["y:0", "b:0"], FEEDS) == [-12, 12]
        counts.append(len(generated))
        interpreted.append(session.is_interpreted)
    assert counts == [0, 1, 1]
    assert interpreted == [True, False, False]
    # another fetch-set starts again
    assert session.run(["a:0"], FEEDS) == [9]
    assert len(generated) == 1


def test_threads_that_share_a_session_generate_code_once(
    generated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(graph_of(CHAIN))
    session.run(["y:0"], FEEDS)
    original = engine.generate_run

    def generate(*arguments: Any) -> Any:
        time.sleep(0.05)
        return original(*arguments)

    monkeypatch.setattr(engine, "generate_run", generate)
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(session.run, ["y:0"], FEEDS) for _ in range(4)]
        assert [run.result() for run in runs] == [[-12]] * 4
    assert len(generated) == 1


def test_the_command_says_what_it_interprets(command: Any, tmp_path: Path) -> None:
    file = tmp_path / "chain.graph"
    file.write_text(CHAIN)
    options = ["run", file, "--feed", "x=3", "--explain-engine"]
    assert "engine: compiled, interpreted in the first run" in command(*options).err
    assert "interpreted" not in command(*options, "--engine", "compiled").err
    assert command(*options, "--json").json["result"]["engine"]["interpreted"]


def test_what_surely_runs_by_generated_code_has_it_at_once(generated: list[Any]) -> None:
    assert Session(graph_of(CHAIN), engine="compiled").run(["y:0"], FEEDS) == [-12]
    assert len(generated) == 1
    assert Session(counter()).run(["count:0"], {"n:0": np.int32(3)}) == [3]
    assert len(generated) == 2


def test_several_devices_are_interpreted(generated: list[Any]) -> None:
    text = CHAIN.replace("{T=float32}\ny", '{T=float32} @"/cpu:1"\ny')
    session = Session(graph_of(text), devices="cpu:0-1")
    assert session.run(["y:0"], FEEDS) == [-12]
    assert not generated


VARIABLES = """
v = VarHandleOp() {dtype=float32, shape=[3]}
one = Const() {dtype=float32, value=float32[3]:[1, 2, 3]}
init = AssignVariableOp(v, one) {dtype=float32}
add = AssignAddVariableOp(v, one, ^init) {dtype=float32}
read = ReadVariableOp(v, ^add) {dtype=float32}
i = Placeholder() {dtype=int32, shape=[]}
axis = Const() {dtype=int32, value=int32[]:0}
y = GatherV2(read, i, axis, ^add) {Tparams=float32, Tindices=int32, Taxis=int32}
"""


def test_an_error_after_an_effect_names_its_node() -> None:
    pair = Pair(lambda: graph_of(VARIABLES))
    assert pair.run(["y:0"], {"i:0": np.int32(2)}) == [6]
    for _ in range(2):
        code, node = pair.run(["y:0"], {"i:0": np.int32(7)})[1:4:2]
        assert (code, node) == ("CFG705", "y")
    # the effect that precedes the error has happened in each run, once
    assert pair.run(["read:0"])[0].tolist() == [2, 4, 6]


def test_references_are_read_where_a_value_is_needed() -> None:
    text = """
v = VariableV2() {dtype=float32, shape=[2]}
one = Const() {dtype=float32, value=float32[2]:[1, 2]}
init = Assign(v, one) {T=float32}
forwarded = RefIdentity(init) {T=float32}
add = AssignAdd(forwarded, one) {T=float32}
read = Identity(add) {T=float32}
y = Mul(read, one) {T=float32}
unset = VariableV2() {dtype=float32, shape=[2]}
wrong = Neg(unset) {T=float32}
"""
    pair = Pair(lambda: graph_of(text))
    assert [value.tolist() for value in pair.run(["y:0", "add:0"])] == [[2, 8], [2, 4]]
    assert pair.run(["wrong:0"])[0] == "ExecutionError"


def test_a_fed_output_of_several_is_not_computed_over() -> None:
    text = """
x = Placeholder() {dtype=float32, shape=[4]}
axis = Const() {dtype=int32, value=int32[]:0}
s = Split(axis, x) {T=float32, num_split=2}
y = AddV2(s, s:1) {T=float32}
"""
    pair = Pair(lambda: graph_of(text))
    feeds = {"x:0": np.arange(4, dtype=np.float32), "s:1": np.array([10, 20], np.float32)}
    assert [value.tolist() for value in pair.run(["y:0", "s:0", "s:1", "x:0"], feeds)] == [
        [10, 21],
        [0, 1],
        [10, 20],
        [0, 1, 2, 3],
    ]


def test_a_value_is_dropped_after_its_last_use() -> None:
    lines = ["x = Placeholder() {dtype=float32, shape=?}", "v0 = Neg(x) {T=float32}"]
    lines += [f"v{number} = Exp(v{number - 1}) {{T=float32}}" for number in range(1, 20)]
    session = Session(graph_of("\n".join(lines) + "\n"))
    array = np.zeros(1 << 18, np.float32)
    tracemalloc.start()
    try:
        session.run(["v19:0"], {"x:0": array})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * array.nbytes


def run_long_chain(size: int, engine: str = "auto", **limits: Any) -> None:
    """Run nodes that take half a millisecond each, for a million elements."""
    b = cfgraph.Builder()
    last = b.placeholder("x", "float32", [size])
    for number in range(400):
        last = b.Tanh(last, name=f"p{number}")
    Session(b.graph, engine=engine).run(["p399:0"], {"x:0": np.ones(size, np.float32)}, **limits)


@pytest.mark.parametrize("name", ["tokens", "auto"])
def test_a_timeout_ends_the_run(name: str) -> None:
    timeout_error_at(
        lambda seconds: run_long_chain(1 << 23, name, timeout=seconds),
        lambda error: error.frame == "/",
    )


def test_a_signal_handler_sees_the_node() -> None:
    seen: list[str | None] = []

    def note(number: int, frame: Any) -> None:
        position = stack_position(frame)
        seen.append(position and position.node)

    before = signal.signal(signal.SIGALRM, note)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        run_long_chain(1 << 20)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert any(node is not None and node.startswith("p") for node in seen)


def test_two_effects_without_an_order_run_on_tokens() -> None:
    text = """
v = VarHandleOp() {dtype=float32, shape=[]}
one = Const() {dtype=float32, value=float32[]:1}
init = AssignVariableOp(v, one) {dtype=float32}
add = AssignAddVariableOp(v, one) {dtype=float32}
"""
    session = Session(graph_of(text), state=State())
    with pytest.raises(CfgraphError):
        session.run([], {}, ["add"])
    session.run([], {}, ["init"])
    session.run([], {}, ["init", "add"])
    assert "no defined order" in session.fallback
