"""`--tap-nonfinite` names the first NaN or Inf; `--tap NODE[13]` shows one iteration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

# doubles v three times: the second element overflows in iteration 1
GRAPH = """
one = Const() {dtype=int32, value=int32[]:1}
init = Const() {dtype=float32, value=float32[2]:[1.0,1.0e38]}
three = Const() {dtype=int32, value=int32[]:4}
limit = Enter(three) {frame_name="loop", is_constant=true}
k = Enter(one) {frame_name="loop"}
v = Enter(init) {frame_name="loop"}
mk = Merge(k, nk)
mv = Merge(v, nv)
less = Less(mk, limit)
cond = LoopCond(less)
sk = Switch(mk, cond)
sv = Switch(mv, cond)
step = Const(^mk) {dtype=int32, value=int32[]:1}
addk = AddV2(sk:1, step)
twice = AddV2(sv:1, sv:1)
nk = NextIteration(addk)
nv = NextIteration(twice)
exit = Exit(sv:0)
nan = Sub(exit, exit)
"""


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "g.graph"
    path.write_text(GRAPH)
    return path


def test_the_first_nonfinite_value_is_located(command: Any, graph: Path) -> None:
    done = command("run", graph, "--fetch", "nan", "--tap-nonfinite")
    assert done.code == 0
    assert done.lines[0] == "twice:0 /loop[1]  float32[2]  0 NaN, 1 Inf"
    assert "first NaN or Inf: twice:0 (AddV2), frame /loop[1], iteration 1" in done.err
    values = command("run", graph, "--fetch", "nan", "--tap-nonfinite", "--json").json["result"]
    first, *_, last = values["nonfinite"]
    assert (first["tensor"], first["iteration"], first["nan"], first["inf"]) == ("twice:0", 1, 0, 1)
    assert len(values["nonfinite"]) <= 10
    assert last["tensor"] in ("nan:0", "exit:0", "sv:0", "mv:0", "nv:0", "sv:1", "twice:0")


def test_a_run_without_nonfinite_values_says_so(command: Any, counter: Path) -> None:
    done = command("run", counter, "--feed", "n=2", "--tap-nonfinite")
    assert (done.code, "no NaN or Inf" in done.err) == (0, True)


def test_one_iteration_of_a_node_is_tapped(command: Any, graph: Path) -> None:
    done = command("run", graph, "--fetch", "exit", "--tap", "addk[2]", "--tap", "op:Less[0]")
    taps = [line for line in done.lines if "/loop" in line]
    assert taps == ["less:0 /loop[0]  bool[] = true", "addk:0 /loop[2]  int32[] = 4"]
    done = command("run", graph, "--fetch", "exit", "--tap", "addk:0[1]", "--tap", "twice[9]")
    assert "addk:0 /loop[1]  int32[] = 3" in done.lines
    assert "--tap twice[9] matched no executed node" in done.err
    assert command("run", graph, "--fetch", "exit", "--tap", "addq[1]").code == 2


def test_a_picture_as_svg_has_a_limit_of_nodes(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "large.graph"
    path.write_text("\n".join(f"n{i} = NoOp()" for i in range(2001)))
    done = command("show", path, "--svg", tmp_path / "large.svg")
    assert (done.code, "2001 nodes are too many for --svg" in done.err) == (2, True)
    assert not (tmp_path / "large.svg").exists()


def test_a_large_value_is_summarized(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "g.graph"
    path.write_text("x = Placeholder() {dtype=float32, shape=[40,40]}\ny = Identity(x)\n")
    array = np.full((40, 40), 2.0, "f")
    array[0, 0], array[0, 1], array[0, 2], array[0, 3] = np.nan, np.inf, -np.inf, -1
    np.save(tmp_path / "x.npy", array)
    run = ["run", path, "--feed", f"x=@{tmp_path}/x.npy", "--fetch", "y"]
    assert command(*run).lines[-1] == "  min -1, max 2, mean 1.99812, 1 NaN, 2 Inf"
    (value,) = command(*run, "--json").json["result"]["values"]
    assert (value["min"], value["max"], value["nan"], value["inf"]) == (-1, 2, 1, 2)
    assert "mean" not in command(*run, "--full").out
    whole = command("run", path, "--feed", "x=f32[40,40]:ones", "--tap", "y", "--fetch", "y")
    assert whole.lines.count("  min 1, max 1, mean 1") == 2
