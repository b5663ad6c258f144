"""`run --repeat` measures several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def test_the_first_time_is_apart_from_the_others(command: Any, counter: Path) -> None:
    done = command("run", counter, "--feed", "n=3", "--repeat", "6", "--quiet")
    assert done.code == 0
    first, *_, title, one, median, spread = done.out.splitlines()
    assert (first, title) == ("count:0  int32[]  = 3", "times  6 runs")
    assert one.startswith("  first   ")
    assert median.endswith("of the 5 others")
    assert ", half of them " in spread
    assert "others" not in command("run", counter, "--feed", "n=3", "--repeat", "2").out


def test_the_document_has_the_time_of_each_run(command: Any, counter: Path) -> None:
    times = command("run", counter, "--feed", "n=3", "--repeat", "3", "--json").json["result"]
    assert len(times["times"]) == 3
    assert all(0 < seconds < 60 for seconds in times["times"])
    assert "times" not in command("run", counter, "--feed", "n=3", "--json").json["result"]


def test_variables_go_on_from_run_to_run(command: Any, tmp_path: Path) -> None:
    graph = tmp_path / "sum.graph"
    graph.write_text(
        "v = VarHandleOp() {dtype=float32, shape=[]}\n"
        "zero = Const() {dtype=float32, value=float32[]:0}\n"
        "one = Const() {dtype=float32, value=float32[]:1}\n"
        "init = AssignVariableOp(v, zero) {dtype=float32}\n"
        "add = AssignAddVariableOp(v, one) {dtype=float32}\n"
        "y = ReadVariableOp(v, ^add) {dtype=float32}\n"
    )
    done = command("run", graph, "--init", "init", "--fetch", "y", "--repeat", "4")
    assert done.out.startswith("y:0  float32[]  = 4"), done.err


@pytest.mark.parametrize("option", ["--trace", "--tap=*", "--clock=virtual", "--timeline"])
def test_what_would_change_the_times_is_rejected(option: str, command: Any, counter: Path) -> None:
    done = command("run", counter, "--feed", "n=3", "--repeat", "3", option)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: --repeat measures runs, which ")
