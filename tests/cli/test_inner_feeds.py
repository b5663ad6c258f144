"""Feeds of nodes inside of functions and loops in the commands that run a graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cfgraph
from tests.command_fixtures import Command, Done

# two calls of a function
CALLS = """
x = Placeholder() {dtype=float32, shape=[]}
first = twice(x)
second = twice(first)

function twice(a: float32) -> (y: float32) {
  one = Const() {dtype=float32, value=float32[]:1}
  sum = AddV2(a, one)
  return y = sum:z:0
}
"""
# the branch in a run, the branch of its function, and the end of the name; x < y takes it
NAMES = ("cond/then/Add", "cond_true_572/Add", "then/Add")


@pytest.fixture
def cond(graphs: Path) -> Path:
    return graphs / "cond_functional.pb"


@pytest.fixture
def wrong(cond: Path, tmp_path: Path) -> Path:
    """The lowered conditional, with a difference instead of a sum."""
    graph = cfgraph.load(cond)
    cfgraph.lower(graph)
    added = graph["cond/then/Add"]
    graph.set_op(added, "Sub", added.attrs)
    cfgraph.save(graph, tmp_path / "wrong.pb")
    return tmp_path / "wrong.pb"


def options(name: str, file: Path | None) -> list[str]:
    """Options that feed x, y, and the branch, or the branch by a file."""
    plain = ["--feed", "x=1", "--feed", "y=2"]
    if file is None:
        return [*plain, "--feed", f"{name}=100"]
    np.savez(file, **{name: np.float32(100)})
    return [*plain, "--feeds", str(file)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("suffix", ["", ".npz"])
def test_every_command_feeds_what_a_run_does(
    name: str, suffix: str, command: Command, cond: Path, wrong: Path, tmp_path: Path
) -> None:
    feeds = options(name, tmp_path / f"case{suffix}" if suffix else None)
    assert command("run", cond, *feeds).out == "out:0  float32[]  = 100.0\n"
    assert "ran once" in command("explain", cond, "out", *feeds).out
    for pair in ((cond, wrong), (wrong, cond)):
        assert command("diff", *pair, "--run").code == 1
        assert command("diff", *pair, "--run", *feeds).out == (
            "no differences: 1 fetch agrees in 4 cases\n"
        )
    part = tmp_path / "part.pb"
    done = command("extract", cond, "--outputs", "out", "--inputs", "cond", *feeds, "-o", part)
    assert "100.0" in done.err
    assert command("run", part).out == "out:0  float32[]  = 100.0\n"


def test_a_pair_that_differs_for_an_inner_feed_is_reduced(
    command: Command, cond: Path, wrong: Path, tmp_path: Path
) -> None:
    feeds = ("--feed", "Less=true", "--feed", "cond/else/Square=1")
    small = tmp_path / "small.pb"
    done = command("reduce", "pair", cond, wrong, *feeds, "-o", small)
    assert "op: - AddV2  + Sub" in done.err
    nodes = [cfgraph.load(path)["cond/then/Add"] for path in (small, tmp_path / "small.b.pb")]
    assert [node.op for node in nodes] == ["AddV2", "Sub"]


def test_a_difference_prints_an_inner_feed_that_repeats_it(
    command: Command, cond: Path, wrong: Path
) -> None:
    feeds = ("--feed", "x=1", "--feed", "y=2", "--feed", "z=3", "--feed", "cond/else/Square=1")
    done = command("diff", cond, wrong, "--run", *feeds)
    assert done.code == 1
    case = done.lines[-1].partition("with ")[2]
    assert command("diff", cond, wrong, "--run", *case.split()).lines == done.lines
    # the branch that is not taken stays dead
    assert command("run", cond, *case.split()).out == "out:0  float32[]  = 4.0\n"


def test_a_function_is_fed_in_all_calls(command: Command, tmp_path: Path) -> None:
    path, other = tmp_path / "calls.graph", tmp_path / "other.graph"
    path.write_text(CALLS)
    other.write_text(CALLS.replace("AddV2", "Sub"))
    assert command("diff", path, other, "--run", "--feed", "x=1").code == 1
    assert command("diff", path, other, "--run", "--feed", "twice/sum=5").code == 0
    assert command("diff", path, other, "--run", "--feed", "first/sum=5").code == 1


def test_python_compares_runs_with_an_inner_feed(cond: Path, wrong: Path) -> None:
    assert cfgraph.compare(cond, wrong, {"x": 1.0, "y": 2.0})
    assert not cfgraph.compare(cond, wrong, {"x": 1.0, "y": 2.0, "cond/then/Add": 5.0})


def test_a_part_that_has_the_fed_function_as_a_whole_is_refused(
    command: Command, cond: Path
) -> None:
    done = command("extract", cond, "--outputs", "out", *options("cond/then/Add", None))
    assert done.code == 2
    assert "cond/then/Add is inside a function, which the part calls" in done.err


def failed(command: Command, *line: str | Path) -> Done:
    done = command(*line)
    assert done.code == 2
    return done


def test_what_one_of_two_graphs_has_is_not_fed(
    command: Command, cond: Path, wrong: Path, tmp_path: Path
) -> None:
    graph = cfgraph.load(wrong)
    graph.rename(graph["cond/then/Add"], "cond/then/Other")
    cfgraph.save(graph, tmp_path / "renamed.pb")
    feeds, renamed = options("cond/then/Add", None), tmp_path / "renamed.pb"
    for pair, sides in (((cond, renamed), "A has it, B"), ((renamed, wrong), "B has it, A")):
        done = failed(command, "diff", *pair, "--run", *feeds)
        assert f"cond/then/Add cannot be fed in both graphs: {sides} does not" in done.err.replace(
            "Add:0", "Add"
        )


def test_errors_and_notes_name_what_was_fed(command: Command, cond: Path) -> None:
    feeds = ("--feed", "x=1", "--feed", "y=2", "--feed", "then/Add=text")
    for line in (("run", cond), ("explain", cond, "out")):
        assert "feed then/Add: cannot read the value 'text'" in failed(command, *line, *feeds).err
    tapped = command("run", cond, *options("cond/then/Add", None), "--tap", "cond/then/Add")
    assert "matched no executed node: a fed node does not run" in tapped.err


@pytest.mark.parametrize("options", [(), ("--engine", "tokens"), ("--engine", "compiled")])
@pytest.mark.parametrize("name", ["dense_1/BiasAdd", "sequential_1/dense_1/MatMul"])
def test_a_layer_after_a_loop_of_a_saved_model_is_fed(
    name: str, options: tuple[str, ...], command: Command, lstm: Path
) -> None:
    feeds = ("--feed", "keras_tensor=f32[1,6,4]:ones", "--feed", f"{name}=[[1,2]]")
    # the bias is zero
    assert command("run", lstm, *options, *feeds).lines[0].endswith(" float32[1,2]  = [[1.0, 2.0]]")


def test_the_end_of_a_name_is_fed_in_a_frozen_model_too(
    command: Command, lstm: Path, tmp_path: Path
) -> None:
    frozen = tmp_path / "frozen.pb"
    command("freeze", lstm, "-o", frozen)
    feeds = ("--feed", "serving_default_keras_tensor=f32[1,6,4]:ones")
    value = ("--feed", "dense_1/BiasAdd=[[1,2]]")
    for more in ((), ("--feed", "lstm_cell_1/mul_2=f32[1,8]:zeros")):
        done = command("run", frozen, *feeds, *value, *more)
        assert done.lines[0].endswith(" float32[1,2]  = [[1.0, 2.0]]")
        assert "note: dense_1/BiasAdd is StatefulPartitionedCall_1/" in done.err
