"""Long names on terminals and in pipes: a scope is printed once, and what is printed is a name."""

from __future__ import annotations

from pathlib import Path

import pytest

import cfgraph
from cfgraph.build.builder import Builder
from tests.command_fixtures import Command

FEED = ("--feed", "keras_tensor=f32[1,6,4]:zeros")
CALL = "StatefulPartitionedCall_1"
LOOP = f"{CALL}/StatefulPartitionedCall/sequential_1/lstm_1/while"
SCOPE = f"{CALL}/…/sequential_1/lstm_1/while/"


@pytest.fixture(scope="module")
def lowered(lstm: Path) -> Path:
    """The SavedModel with its two loops as nodes of the graph."""
    graph = cfgraph.load(lstm)
    cfgraph.lower(graph)
    cfgraph.save(graph, lstm / "lowered.pb")
    return lstm / "lowered.pb"


def test_the_scope_of_tapped_values_is_printed_once(command: Command, lstm: Path) -> None:
    done = command("run", lstm, *FEED, "--tap", "*/mul_2:0", "--tap", "*/mul_1:0")
    heads = [line.partition("  ")[0] for line in done.lines if not line.startswith((" ", "["))]
    assert heads[0] == f"{SCOPE}:"
    assert heads[1:3] == ["lstm_cell_1/mul_1:0 [0]", "lstm_cell_1/mul_2:0 [0]"]
    assert sum(head.endswith(":") for head in heads) == 1
    assert "lstm_cell_1/mul_2:0 [6]  dead" in done.lines


def test_a_printed_tap_can_be_pasted(command: Command, lstm: Path) -> None:
    done = command("run", lstm, *FEED, "--tap", f"{SCOPE}lstm_cell_1/mul_2:0 [3]", "--json")
    assert [(tap["tensor"], tap["iteration"]) for tap in done.json["result"]["taps"]] == [
        (f"{LOOP}/body/sequential_1/lstm_1/while/lstm_cell_1/mul_2:0", 3)
    ]


@pytest.mark.parametrize("columns", [80, 120])
def test_the_critical_cycle_of_a_loop_takes_a_line_per_node(
    command: Command, lowered: Path, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    done = command("explain", lowered, f"/{LOOP}", "--color", "never", terminal=True)
    table = done.lines[-14:]
    assert done.lines[-15] == "  below …/sequential_1/lstm_1/while/:"
    assert table[1].split()[:2] == ["Merge_4", "Merge"]
    assert max(map(len, table)) <= columns


def test_a_long_name_in_a_heading_is_not_broken(
    command: Command, lowered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    name = f"{LOOP}/body/sequential_1/lstm_1/while/lstm_cell_1/mul_2"
    done = command("explain", lowered, name, "--color", "never", terminal=True)
    assert done.lines[:2] == [f"{name}  Mul", "  Product of two tensors with broadcasting."]


def test_two_calls_of_a_function_are_distinct(command: Command, lowered: Path) -> None:
    done = command("show", lowered, "--filter", "*/while/*/mul_2", "--nodes")
    names = [line.split()[0] for line in done.lines[1:]]
    assert names == [
        f"{call}/…/sequential_1/lstm_1/while/lstm_cell_1/mul_2"
        for call in ("StatefulPartitionedCall", CALL)
    ]
    assert command("show", lowered, "--node", names[1]).lines[0].startswith(LOOP)


def test_loops_of_two_calls_are_distinct_and_can_be_pasted(command: Command, lowered: Path) -> None:
    done = command("show", lowered, "--frames")
    names = [line.split()[0] for line in done.lines[1:]]
    assert names == [f"StatefulPartitionedCall/…/{LOOP[-12:]}", f"{CALL}/…/{LOOP[-12:]}"]
    assert command("explain", lowered, names[1]).lines[0].startswith(f"/{LOOP}  loop")


def test_a_difference_has_names_below_their_scope(
    command: Command, lstm: Path, lowered: Path
) -> None:
    done = command("diff", lstm, lowered)
    scope = f"{CALL.removesuffix('_1')}/StatefulPartitionedCall/sequential_1/lstm_1/"
    assert f"+ below {scope}:" in done.lines
    assert "+ while/Merge = Merge(while/Enter, while/NextIteration) {N=2}" in done.lines
    assert f"+ {scope}while/Merge = Merge(" in command("diff", lstm, lowered, "--full").out


def test_json_and_tsv_have_complete_names(command: Command, lowered: Path) -> None:
    name = f"{LOOP}/body/sequential_1/lstm_1/while/lstm_cell_1/mul_2"
    for format in ("json", "tsv"):
        done = command("show", lowered, "--filter", f"{CALL}*mul_2", "--nodes", "--format", format)
        assert name in done.out
        assert "…" not in done.out


def test_short_names_are_printed_as_they_are(command: Command, graphs: Path) -> None:
    done = command("explain", graphs / "lstm.pb", "/lstm/while_context")
    assert "  lstm/Merge_2" in done.out
    assert "below" not in done.out


def test_many_inputs_of_one_condition_are_one_line(command: Command, tmp_path: Path) -> None:
    b = Builder()
    inputs = [b.const(float(number), name=f"c{number}") for number in range(320)]
    b.AddN(inputs, name="sum")
    cfgraph.save(b.graph, tmp_path / "sum.pb")
    done = command("explain", tmp_path / "sum.pb", "sum")
    assert [" ".join(line.split()) for line in done.lines if "inputs" in line] == [
        "waits for all of its inputs",
        "320 inputs c0:0, c1:0, c2:0 and 317 more always live",
    ]
    assert len(command("explain", tmp_path / "sum.pb", "sum", "--full").lines) > 320
