"""Generated code of deeply nested loops and conditionals, which consists of several functions."""

from __future__ import annotations

import gc
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.console.transforms.convert import PythonOptions
from cfgraph.ir.graph import Graph
from cfgraph.runtime.compiled import outlining
from cfgraph.runtime.program import Program
from cfgraph.runtime.session import Session
from tests.integrations.python_export.generated_python import source_fault
from tests.integrations.python_export.test_decompiled import loaded, run
from tests.late_runs import timeout_error_at
from tests.runtime.compiled.agreement import Pair
from tests.runtime.compiled.deep_graphs import nested_conditionals, nested_loops
from tests.runtime.compiled.test_random_programs import assert_both_agree
from tests.sampled import in_sweep, sampled

LIMITS = ("MAX_LOOPS", "MAX_DEPTH")
FAILING_LOOP = "inner = FloorDiv(one{i}, zero{i})"
FAILING_BRANCH = "zero = ZerosLike(yes{i})\ninner = FloorDiv(yes{i}, zero)"
ASSIGNED = """
v = VarHandleOp() {dtype=int32, shape=[], shared_name="v"}
effect = AssignVariableOp(v, x) {dtype=int32}
"""


def loop_feeds(count: int) -> dict[str, Any]:
    return {"n:0": np.int32(count), "x:0": np.int32(0)}


def branch_feeds(p: bool) -> dict[str, Any]:
    return {"p:0": np.bool_(p), "x:0": np.int32(5)}


@pytest.mark.parametrize(("depth", "count"), [(9, 2), (11, 2), (21, 1), (120, 1), (120, 0)])
def test_nested_loops_are_compiled(depth: int, count: int) -> None:
    pair = Pair(lambda: nested_loops(depth))
    pair.run(["out:0"], loop_feeds(count))
    assert not pair.fallback


@pytest.mark.parametrize("p", [False, True])
@pytest.mark.parametrize("depth", [49, 51, 101, 300])
def test_nested_conditionals_are_compiled(depth: int, p: bool) -> None:
    pair = Pair(lambda: nested_conditionals(depth))
    assert pair.run(["out:0"], branch_feeds(p)) == [5 + depth if p else -5]
    assert not pair.fallback


@pytest.mark.parametrize("effect", ["", ASSIGNED])
def test_an_error_in_an_inner_function_is_located(effect: str) -> None:
    targets = ["effect"] if effect else []
    pair = Pair(lambda: nested_loops(25, FAILING_LOOP + effect))
    outcome = pair.run(["out:0"], loop_feeds(3), targets)
    frame = "".join(f"/loop{i}[0]" for i in range(25))
    assert (outcome[1], outcome[3], outcome[4]) == ("CFG705", "inner", frame)
    pair = Pair(lambda: nested_conditionals(120, FAILING_BRANCH + effect))
    outcome = pair.run(["out:0"], branch_feeds(True), targets)
    assert (outcome[1], outcome[3], outcome[4]) == ("CFG705", "inner", "/")
    assert not pair.fallback


@pytest.mark.parametrize("effect", ["", ASSIGNED])
def test_an_iteration_limit_holds_in_an_inner_function(effect: str) -> None:
    text = "inner = Identity(body{i})" + effect
    pair = Pair(lambda: nested_loops(8, text))
    targets = ["effect"] if effect else []
    pair.run(["out:0"], loop_feeds(2), targets, max_iterations=2)
    compiled = pair.sessions["compiled"]
    with pytest.raises(cfgraph.ExecutionError, match="more than 1 iterations") as caught:
        compiled.run(["out:0"], loop_feeds(2), targets, max_iterations=1)
    assert caught.value.code == "CFG704"


def test_a_deadline_ends_an_inner_function_and_names_its_iterations() -> None:
    session = Session(nested_loops(14), engine="compiled")
    session.run(["out:0"], loop_feeds(1))
    error = timeout_error_at(
        lambda seconds: session.run(["out:0"], loop_feeds(30), timeout=seconds),
        lambda error: re.fullmatch(r"(/loop\d+\[\d+\]){1,14}", str(error.frame)),
    )
    assert error.message == "the run exceeded its timeout"


@pytest.mark.parametrize("limits", [(1, 1), (1, 3), (2, 0)])
@pytest.mark.parametrize("chunk", sampled([str(number) for number in range(50)], 25))
def test_random_programs_of_many_functions_agree(
    chunk: str, limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, limit in zip(LIMITS, limits, strict=True):
        monkeypatch.setattr(Program, name, limit)
    for seed in range(int(chunk) * 10, (int(chunk) + 1) * 10):
        assert_both_agree(seed)


def test_a_run_of_too_many_nested_calls_uses_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlining, "_MAX_CALLS", 2)
    pair = Pair(lambda: nested_conditionals(200))
    assert pair.run(["out:0"], branch_feeds(True)) == [205]
    assert pair.fallback == "loops and conditionals need more than 2 nested calls"


def test_a_run_on_a_full_stack_uses_tokens() -> None:
    session = Session(nested_conditionals(200), engine="compiled")

    def nested(calls: int) -> Any:
        return nested(calls - 1) if calls else session.run(["out:0"], branch_feeds(True))

    nested(0)
    assert not session.fallback
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    assert nested(sys.getrecursionlimit() - depth - 100) == [205]
    assert session.fallback.startswith("the stack of Python has no room")


@pytest.mark.parametrize(
    ("graph", "feeds"),
    [(nested_loops(12), loop_feeds(2)), (nested_conditionals(120), branch_feeds(True))],
)
def test_the_python_file_of_a_deep_graph_runs(
    graph: Graph, feeds: dict[str, Any], tmp_path: Path
) -> None:
    expected = Session(graph, engine="tokens").run(["out:0"], feeds)
    names = loaded(graph, PythonOptions(["out:0"], tuple(feeds)), tmp_path)
    assert run(names, feeds) == expected
    assert "_region1" in names
    assert not source_fault(tmp_path / "converted.py")


@pytest.mark.parametrize("kind", in_sweep(["loops", "conditionals"]))
@pytest.mark.slow
def test_the_time_is_linear_in_the_depth(kind: str) -> None:
    make, feeds, depth = nested_loops, loop_feeds(1), 1000
    if kind == "conditionals":
        make, feeds, depth = nested_conditionals, branch_feeds(True), 5000
    seconds = []
    for size in (depth // 4, depth):
        graph = make(size)
        session = Session(graph, engine="compiled")
        gc.disable()  # a collection takes time for the objects of all earlier tests
        try:
            start = time.process_time()
            session.run(["out:0"], feeds)
            seconds.append(time.process_time() - start)
        finally:
            gc.enable()
        assert not session.fallback
    assert seconds[1] < 4 * seconds[0] * 2
