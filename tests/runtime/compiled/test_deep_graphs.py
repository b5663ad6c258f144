"""Deeply nested loops and conditionals: generated code up to the limits of CPython, else tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.console.transforms.convert import PythonOptions
from cfgraph.runtime.session import Session
from tests.integrations.python_export.test_decompiled import loaded, run
from tests.runtime.compiled.agreement import Pair
from tests.runtime.compiled.deep_graphs import nested_conditionals, nested_loops

REASON = "more than 20 loops or 98 conditionals are nested"
FAILING_LOOP = "inner = FloorDiv(one{i}, zero{i})"
ASSIGNED = """
v = VarHandleOp() {dtype=int32, shape=[], shared_name="v"}
effect = AssignVariableOp(v, x) {dtype=int32}
"""


def loop_feeds(count: int) -> dict[str, Any]:
    return {"n:0": np.int32(count), "x:0": np.int32(0)}


def branch_feeds(p: bool) -> dict[str, Any]:
    return {"p:0": np.bool_(p), "x:0": np.int32(5)}


@pytest.mark.parametrize(("depth", "count"), [(9, 2), (20, 1), (21, 1), (120, 1), (120, 0)])
def test_nested_loops_agree(depth: int, count: int) -> None:
    pair = Pair(lambda: nested_loops(depth))
    pair.run(["out:0"], loop_feeds(count))
    assert pair.fallback == (REASON if depth > 20 else "")


@pytest.mark.parametrize("p", [False, True])
@pytest.mark.parametrize("depth", [49, 97, 99, 300])
def test_nested_conditionals_agree(depth: int, p: bool) -> None:
    pair = Pair(lambda: nested_conditionals(depth))
    assert pair.run(["out:0"], branch_feeds(p)) == [5 + depth if p else -5]
    assert pair.fallback == (REASON if depth > 98 else "")


@pytest.mark.parametrize("effect", ["", ASSIGNED])
@pytest.mark.parametrize("depth", [19, 25])
def test_an_error_in_an_inner_loop_is_located(depth: int, effect: str) -> None:
    pair = Pair(lambda: nested_loops(depth, FAILING_LOOP + effect))
    outcome = pair.run(["out:0"], loop_feeds(3), ["effect"] if effect else [])
    frame = "".join(f"/loop{i}[0]" for i in range(depth))
    assert (outcome[1], outcome[3], outcome[4]) == ("CFG705", "inner", frame)


def test_the_python_file_of_a_deep_graph_runs(tmp_path: Path) -> None:
    graph, feeds = nested_loops(20), loop_feeds(1)
    expected = Session(graph, engine="tokens").run(["out:0"], feeds)
    assert run(loaded(graph, PythonOptions(["out:0"], tuple(feeds)), tmp_path), feeds) == expected


def test_a_graph_that_is_too_deep_has_no_python_file(tmp_path: Path) -> None:
    with pytest.raises(cfgraph.Unsupported, match=REASON):
        loaded(nested_loops(21), PythonOptions(["out:0"], ("n:0", "x:0")), tmp_path)
