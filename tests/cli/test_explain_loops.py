"""`explain GRAPH LOOP` and `show --loop`: variables, trip count, and loops in functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.build.builder import Builder
from tests.cli.test_picture_files import model_of_page
from tests.command_fixtures import Command

LOOP = "StatefulPartitionedCall_1/StatefulPartitionedCall/sequential_1/lstm_1/while"
ROLES = [
    (0, "loop_counter", "counter, +1 per iteration"),
    (2, "time", "counter, +1 per iteration"),
    (3, "TensorArrayV2_1", "list that collects variable 4"),
    (4, "zeros", "state, collected by variable 3"),
    (5, "zeros_1", "state"),
]


def roles(loop: dict[str, Any]) -> list[tuple[int, str, str]]:
    return [
        (variable["index"], variable["name"], variable["role"])
        for variable in loop["variables"]
        if variable["role"] != "unchanged"
    ]


@pytest.mark.parametrize("name", ["sequential_1/lstm_1/while", f"/{LOOP}", "lstm_1/while"])
def test_a_loop_of_a_function_has_the_name_that_show_prints(
    command: Command, lstm: Path, name: str
) -> None:
    loop = command("explain", lstm, name, "--json").json["result"]["loop"]
    assert loop["node"] == "__inference___call___709/sequential_1/lstm_1/while"
    assert loop["frame"] == f"/{LOOP}"
    assert (loop["trip_count"], loop["trip_count_is_exact"]) == (6, True)
    assert len(loop["variables"]) == 10
    assert roles(loop) == ROLES
    hidden = loop["variables"][4]
    assert (hidden["type"], hidden["initial"], hidden["updated"]) == (
        "float32[?,8]",
        "sequential_1/lstm_1/zeros:0",
        "sequential_1/lstm_1/while/lstm_cell_1/mul_2:0",
    )
    assert [variable["name"] for variable in loop["variables"][7:]] == [
        "kernel_1",
        "recurrent_kernel_1",
        "bias_1",
    ]
    assert "about 4.0 iterations can overlap" in loop["verdict"]


def test_the_loop_means_the_same_once_it_is_lowered(command: Command, lstm: Path) -> None:
    graph = cfgraph.load(lstm)
    cfgraph.lower(graph)
    cfgraph.save(graph, lstm / "lowered.pb")
    loop = command("explain", lstm / "lowered.pb", f"/{LOOP}", "--json").json["result"]["loop"]
    assert [role for _, _, role in roles(loop)] == [
        "counter, +1 per iteration",
        "counter, +1 per iteration",
        "list that collects variable 4",
        "state, collected by variable 3",
        "state",
    ]
    assert "node" not in loop


def test_a_loop_of_a_function_runs_in_virtual_time(command: Command, lstm: Path) -> None:
    feed = ("--feed", "keras_tensor=f32[1,6,4]:zeros")
    loop = command("explain", lstm, "lstm_1/while", *feed, "--json").json["result"]["loop"]
    assert loop["run"]["iterations"] == 7


def test_data_may_end_a_loop_before_its_bound(command: Command, tmp_path: Path) -> None:
    b = Builder()
    x = b.placeholder("x", "float32", [])
    b.while_loop(lambda i, y: b.LogicalAnd(i < 9, y < x), lambda i, y: (i + 1, y * 2.0), (0, 1.0))
    cfgraph.save(b.graph, tmp_path / "bound.pb")
    (loop,) = [node.name for node in b.graph if node.op.endswith("While")]
    done = command("explain", tmp_path / "bound.pb", loop, "--json").json["result"]["loop"]
    assert (done["trip_count"], done["trip_count_is_exact"]) == (9, False)
    assert [role for _, _, role in roles(done)] == ["counter, +1 per iteration", "state"]
    text = command("explain", tmp_path / "bound.pb", loop).out
    assert "≤ 9" in text


def test_the_end_of_two_loops_lists_them(command: Command, lstm: Path) -> None:
    graph = cfgraph.load(lstm)
    cfgraph.lower(graph)
    cfgraph.save(graph, lstm / "lowered.pb")
    done = command("explain", lstm / "lowered.pb", "lstm_1/while")
    assert done.code == 2
    assert f"/{LOOP}" in done.err
    assert command("explain", lstm / "lowered.pb", "StatefulPartitionedCall_1/…/while").code == 0


def test_show_has_one_loop_alone(command: Command, lstm: Path) -> None:
    done = command("show", lstm, "--loop", "sequential_1/lstm_1/while", "--json")
    result = done.json["result"]
    assert [variable["role"] for variable in result["variables"]][4] == ROLES[3][2]
    names = [node["name"] for node in result["nodes"]]
    assert f"{LOOP}/body/sequential_1/lstm_1/while/lstm_cell_1/mul_2" in names
    assert all(name.startswith(f"{LOOP}/") for name in names)
    text = command("show", lstm, "--loop", "lstm_1/while").lines
    assert text[0] == "goes on while  loop_counter < Max and time < 6"
    assert text[2].startswith("variables")
    assert any(line.split()[:1] == ["while/LoopCond"] for line in text)


def test_the_page_of_a_loop_has_its_nodes_alone(command: Command, lstm: Path) -> None:
    page = lstm.parent / "loop.html"
    done = command("show", lstm, "--loop", "lstm_1/while", "--html", page)
    assert (done.code, f"wrote {page}" in done.err) == (0, True)
    names = [node["name"] for node in model_of_page(page)["nodes"]]
    listed = command("show", lstm, "--loop", "lstm_1/while", "--json").json["result"]["nodes"]
    assert sorted(names) == sorted(node["name"] for node in listed)


def test_show_of_a_loop_includes_inner_loops(command: Command, graphs: Path) -> None:
    inner = "/while/while_context/while/while/while_context"
    counts = [
        len(command("show", graphs / "nested.pb", "--loop", path, "--json").json["result"]["nodes"])
        for path in ("/while/while_context", inner)
    ]
    assert counts[0] > counts[1] > 0


def test_a_node_is_not_a_loop(command: Command, lstm: Path) -> None:
    done = command("show", lstm, "--loop", "Const")
    assert (done.code, "'Const' is not a loop" in done.err) == (2, True)


def test_the_condition_of_a_loop_is_an_expression_of_its_variables(
    command: Command, tmp_path: Path
) -> None:
    builder = cfgraph.Builder()
    n = builder.placeholder("n", "int32", [])
    start = builder.const(2.0, name="a/x")
    builder.while_loop(
        lambda i, x, y: (((i + 1) * 2 < n) & ~(x > 0.5)) | (y == x),
        lambda i, x, y: (i + 1, x + 1, x),
        (0, 1.0, start),
        name="loop",
    )
    cfgraph.save(builder.graph, tmp_path / "loop.pb")
    # two variables are called x
    expected = "(i + 1) * 2 < n and not variable 1 > 0.5 or variable 2 == variable 1"
    path = tmp_path / "loop.pb"
    assert (
        command("explain", path, "loop", "--json").json["result"]["loop"]["condition"] == expected
    )
    assert command("show", path, "--loop", "loop", "--json").json["result"]["condition"] == expected
    assert f"  it goes on while {expected}" in command("explain", path, "loop").lines
    assert f"goes on while  {expected}" in command("show", path, "--loop", "loop").lines


def test_the_condition_of_a_functional_loop_has_the_names_of_its_variables(
    command: Command, lstm: Path
) -> None:
    loop = command("explain", lstm, "lstm_1/while", "--json").json["result"]["loop"]
    assert loop["condition"] == "loop_counter < Max and time < 6"


@pytest.mark.parametrize("subject", ["loop", "/loop"])
def test_the_condition_of_a_loop_has_the_values_of_constants(
    command: Command, tmp_path: Path, subject: str
) -> None:
    builder = cfgraph.Builder()
    x = builder.placeholder("x", "float32", [])
    small, missing = builder.const(0.001, dtype="float32"), builder.const(float("nan"))
    builder.while_loop(
        lambda v, s: (v > s) & (v != missing), lambda v, s: (v * 0.5, s), (x, small), name="loop"
    )
    if subject == "/loop":
        cfgraph.lower(builder.graph)
    cfgraph.save(builder.graph, tmp_path / "loop.pb")
    loop = command("explain", tmp_path / "loop.pb", subject, "--json").json["result"]["loop"]
    assert loop["condition"] == "x > 0.001 and x != NaN"
