"""Reports of faults of TensorFlow, with a stand-in for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cfgraph
from cfgraph.comparison.equivalence import ComparisonRunOptions
from cfgraph.comparison.sample_point import SampleOptions
from cfgraph.integrations.tensorflow.culprit import Culprit
from cfgraph.integrations.tensorflow.mode_report import ModeFault, issue_text, simplest_fault
from cfgraph.integrations.tensorflow.mode_script import array_literal, repro_script, text_literal
from cfgraph.integrations.tensorflow.modes import MODES
from cfgraph.integrations.tensorflow.processes import PROGRAM, ModePool
from cfgraph.integrations.tensorflow.reduce_mode import start_oracle

STAND_IN = replace(PROGRAM, module="tests.integrations.tensorflow.misbehaving_worker")
MODE = MODES["autojit"]


@pytest.fixture(scope="module")
def pool() -> Iterator[ModePool]:
    with ModePool(STAND_IN, seconds=90.0, memory=1 << 30) as pool:
        yield pool


def constant(name: str, value: str = "4", more: str = "") -> cfgraph.Graph:
    lines = ["versions producer=1", f"{name} = Const() {{dtype=float32, value=float32[]:{value}}}"]
    return cfgraph.loads("\n".join([*lines, more]).encode())


def fault(pool: ModePool, graph: cfgraph.Graph, **changes: Any) -> ModeFault:
    options = ComparisonRunOptions(locate=False, **changes)
    oracle, delta = start_oracle(pool, graph, MODE, None, options)
    return ModeFault(oracle, graph, delta, "0.0")


def script(item: ModeFault) -> str:
    return repro_script(item.oracle, item.graph, item.delta, item.title)


def test_a_message_of_tensorflow_is_no_code(pool: ModePool) -> None:
    item = fault(pool, constant("hostile"))
    assert "SystemExit" in item.title
    text = script(item)
    harmless = repro_script(item.oracle, item.graph, item.delta, "title")
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(harmless))
    assert not any("hostile" in line or "#" in line for line in text.splitlines()[:2]), (
        "a declaration of an encoding counts in two lines"
    )


@pytest.mark.parametrize(
    "text", ['"""\nraise\n"""', "a\\", "\r\n", "\x00", "ü\u2028", "\udc80", "a\nb"]
)
def test_a_text_is_one_literal(text: str) -> None:
    assert ast.literal_eval(text_literal(text)) == text


@pytest.mark.parametrize(
    "value",
    [
        np.float32([np.nan, np.inf, -np.inf, 1.5]),
        np.array([b"nan", b"inf\0'\""], object),
        np.array([complex(np.nan, np.inf), 1j], np.complex64),
        np.array(2 - 1j),
        np.array([np.nan, 2], ml_dtypes.bfloat16),
        np.zeros((0, 3), np.int64),
        np.array(True),
    ],
    ids=str,
)
def test_a_literal_is_the_array(value: Any) -> None:
    result = eval(array_literal(value), {"np": np, "nan": np.nan, "inf": np.inf})
    assert result.dtype == value.dtype
    assert result.shape == value.shape
    assert repr(result.tolist()) == repr(value.tolist())


def test_an_issue_quotes_what_the_graph_says(pool: ModePool) -> None:
    item = fault(pool, constant("hostile"))
    lines = issue_text(item, Culprit()).splitlines()
    assert lines[0].endswith(
        r' InvalidArgumentError: ``node """; raise SystemExit(9); """|`x`<b>\x1b``'
    )
    row = next(line for line in lines if line.startswith("| `autojit`"))
    assert row.replace(r"\|", "").count("|") == 3


def test_an_issue_escapes_what_markdown_takes_for_emphasis(pool: ModePool) -> None:
    text = issue_text(fault(pool, constant("__no__kernel")), Culprit())
    assert "__no" not in re.sub("`.*?`|```.*?```", "", text, flags=re.DOTALL)


def test_a_report_is_for_the_simplest_mode_that_fails(pool: ModePool) -> None:
    item = fault(pool, constant("y"))
    assert simplest_fault(item).mode.name == "graph"
    against = replace(item.oracle, against=MODES["graph"])
    assert simplest_fault(replace(item, oracle=against)).mode == MODE, "others agree with graph"


def test_an_issue_names_the_sides_and_says_what_dead_is(pool: ModePool) -> None:
    more = "p = Placeholder() {dtype=bool, shape=[]}\ns = Switch(x, p) {T=float32}\n"
    item = fault(
        pool, constant("x", more=more), fetches=("s:0",), setting=SampleOptions({"p:0": True})
    )
    lines = issue_text(item, Culprit()).splitlines()
    assert (
        lines[0] == "# TensorFlow (autojit) returns a wrong s:0: dead in cfgraph, live in autojit"
    )
    assert "| `jit` | s:0: dead in cfgraph, live in jit |" in lines
    assert any(line.startswith("Dead: the tensor has no value") for line in lines)
    assert "- In the graph, `s:0` runs when `p` is false." in lines


def test_targets_and_tolerances_are_in_the_report(pool: ModePool) -> None:
    more = "t = Const() {dtype=float32, value=float32[]:3}\n"
    graph = constant("y", more=more)
    item = fault(pool, graph, fetches=("y",), targets=("t",), rtol=0.01)
    text = script(item)
    assert "TARGETS = ['t']" in text
    assert "'y:0': (0.01, 1e-06)" in text
    command = issue_text(item, Culprit()).splitlines()[-2]
    options = "--fetch y:0 --target t --rtol 0.01 --run-timeout 90"
    assert command == f"cfgraph diff graph.pb --run --with {MODE.text} {options}"
    again = item.oracle.compare(graph)
    assert [gap.what for gap in again.gaps] == ["y:0"], "fetches count with targets, too"


def test_long_values_are_whole_in_a_command(pool: ModePool) -> None:
    item = fault(pool, constant("y"))
    delta = replace(item.delta, inputs={"x:0": np.arange(300, dtype=np.int32)})
    lines = issue_text(replace(item, delta=delta), Culprit()).splitlines()
    assert lines[-2].endswith(f"--feed 'x={list(range(300))}'")


def test_a_hang_is_one_by_its_kind(pool: ModePool, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as shorter:
        shorter.setattr(pool, "seconds", 1.0)
        assert "signal.alarm(1)" in script(fault(pool, constant("hang")))
    assert "signal" not in script(fault(pool, constant("hangs")))
