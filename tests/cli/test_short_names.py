"""Ends of names on command lines: which node they stand for, and where they are errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cfgraph
from cfgraph.build.builder import Builder
from tests.command_fixtures import Command

FEED = ("--feed", "keras_tensor=f32[1,6,4]:zeros")
LOOP = "StatefulPartitionedCall_1/StatefulPartitionedCall/sequential_1/lstm_1/while"
HIDDEN = f"{LOOP}/body/sequential_1/lstm_1/while/lstm_cell_1/mul_2"
HIDDEN_OF_ALL_CALLS = (
    "sequential_1_lstm_1_while_body_620/sequential_1/lstm_1/while/lstm_cell_1/mul_2"
)


@pytest.fixture
def scopes(tmp_path: Path) -> Path:
    """A graph in which `dense/b` is one node, `c` two, and `x` a name and an end."""
    b = Builder()
    x = b.placeholder("x", "float32", [])
    for name in ("left/dense/b", "left/c", "right/c", "right/x"):
        b.Neg(x, name=name)
    path = tmp_path / "scopes.pb"
    cfgraph.save(b.graph, path)
    return path


def test_the_end_of_a_name_stands_for_the_only_node_with_it(command: Command, scopes: Path) -> None:
    done = command("run", scopes, "--feed", "x=2", "--fetch", "dense/b")
    assert done.lines == ["left/dense/b:0  float32[]  = -2.0"]
    assert "note: dense/b is left/dense/b" in done.err


def test_json_names_the_node_that_an_end_stands_for(command: Command, scopes: Path) -> None:
    done = command("run", scopes, "--feed", "x=2", "--fetch", "b:0", "--json")
    assert done.json["names"] == {"b:0": "left/dense/b:0"}
    assert done.json["result"]["values"][0]["tensor"] == "left/dense/b:0"
    assert "names" not in command("run", scopes, "--feed", "x=2", "--json").json


def test_the_scope_of_a_loop_stands_for_the_only_loop_in_it(command: Command, graphs: Path) -> None:
    graph = graphs / "lstm.pb"
    explained = command("explain", graph, "lstm")
    assert explained.lines[0].startswith("/lstm/while_context  loop with")
    assert "note: lstm is /lstm/while_context" in explained.err
    shown = command("show", graph, "--loop", "lstm")
    assert shown.lines == command("show", graph, "--loop", "/lstm/while_context").lines


def test_the_end_of_several_names_lists_them(command: Command, scopes: Path) -> None:
    done = command("explain", scopes, "c")
    assert done.code == 2
    assert "'c' is the end of 2 names" in done.err
    assert "left/c, right/c" in done.err


def test_the_end_of_several_names_lists_the_names_of_the_signature_first(
    command: Command, lstm: Path
) -> None:
    fed = command("run", lstm, "--feed", "y=1")
    assert "'y' is the end of 3 names" in fed.err
    assert "hint: inputs of the signature: keras_tensor; or write more of one: " in fed.err
    fetched = command("run", lstm, *FEED, "--fetch", "y")
    assert "hint: outputs of the signature: output_0; or write more of one: " in fetched.err


def test_a_complete_name_is_not_the_end_of_another(command: Command, scopes: Path) -> None:
    done = command("explain", scopes, "x", "--json")
    assert done.json["result"]["node"]["name"] == "x"


def test_an_end_begins_at_a_scope(command: Command, scopes: Path) -> None:
    assert command("explain", scopes, "ense/b").code == 2


@pytest.mark.parametrize("written", ["…/dense/b", ".../dense/b"])
def test_an_abbreviated_name_can_be_pasted(command: Command, scopes: Path, written: str) -> None:
    assert command("show", scopes, "--node", written).lines[0].startswith("left/dense/b  Neg")


def test_of_nodes_with_one_end_those_count_that_the_signature_needs(
    command: Command, lstm: Path
) -> None:
    # the graph has two calls of the function, and the function a step that nothing reads
    done = command("explain", lstm, "mul_2", "--json")
    assert done.json["names"] == {"mul_2": HIDDEN_OF_ALL_CALLS}
    tapped = command("run", lstm, *FEED, "--tap", "mul_2[3]", "--json").json
    assert [(tap["tensor"], tap["iteration"]) for tap in tapped["result"]["taps"]] == [
        (f"{HIDDEN}:0", 3)
    ]


def test_a_name_that_a_run_prints_can_be_explained(command: Command, lstm: Path) -> None:
    done = command("explain", lstm, HIDDEN, "--json")
    assert done.json["names"] == {HIDDEN: HIDDEN_OF_ALL_CALLS}


def test_a_signature_comes_before_an_end(command: Command, lstm: Path) -> None:
    done = command("show", lstm, "--node", "keras_tensor")
    assert done.lines[0].startswith("serving_default_keras_tensor  Placeholder")


def test_a_fetch_inside_a_function_names_the_tap(command: Command, lstm: Path) -> None:
    done = command("run", lstm, *FEED, "--fetch", "mul_2")
    assert done.code == 2
    assert f"--tap {HIDDEN} prints it" in done.err


def test_the_end_of_a_name_finds_a_node_that_only_lowering_makes(
    command: Command, lstm: Path
) -> None:
    full = f"{LOOP}/Merge_5"
    for line in (("explain", lstm, "Merge_5"), ("show", lstm, "--node", "while/Merge_5")):
        done = command(*line)
        assert done.lines[0].startswith(f"{full}  Merge")
        assert f"note: {line[-1]} is {full}" in done.err
    fetched = command("run", lstm, *FEED, "--fetch", "Merge_5")
    assert (fetched.code, f"--tap {full} prints it" in fetched.err) == (2, True)
    tapped = command("run", lstm, *FEED, "--tap", "Merge_5:0[2]", "--json").json
    assert [tap["tensor"] for tap in tapped["result"]["taps"]] == [f"{full}:0"]


def test_a_run_of_a_node_that_only_lowering_makes_needs_the_lowered_graph(
    command: Command, graphs: Path
) -> None:
    done = command("explain", graphs / "while_functional.pb", "Merge_1", "--feed", "n=3")
    assert (done.code, "only lowering makes 'while/Merge_1'" in done.err) == (2, True)
    assert "hint: lower the graph first" in done.err


def test_a_pass_needs_complete_names_unless_a_person_types_them(
    command: Command, scopes: Path, tmp_path: Path
) -> None:
    output = tmp_path / "part.pb"
    by_script = command("extract", scopes, "--outputs", "dense/b", "-o", output, stdin=b"")
    assert by_script.code == 2
    assert "write the complete name, 'left/dense/b'" in by_script.err
    assert not output.exists()
    assert command("extract", scopes, "--outputs", "dense/b", "-o", output).code == 0


def test_a_pass_is_not_advised_to_name_a_node_that_only_lowering_makes(
    command: Command, graphs: Path, tmp_path: Path
) -> None:
    line = ("--outputs", "Merge_1", "-o", tmp_path / "part.pb")
    done = command("extract", graphs / "while_functional.pb", *line, stdin=b"")
    assert (done.code, "write the complete name" in done.err) == (2, False)


def test_a_pipeline_needs_complete_names(command: Command, scopes: Path, tmp_path: Path) -> None:
    done = command(
        "pipeline", scopes, "--passes", "extract{outputs=dense/b}", "-o", tmp_path / "part.pb"
    )
    assert done.code == 2
    assert "left/dense/b" in done.err


def test_a_configuration_needs_complete_names(
    command: Command, scopes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scopes.parent / "cfgraph.toml").write_text('[run]\nfetch = ["dense/b"]\n')
    monkeypatch.chdir(scopes.parent)
    done = command("run", scopes, "--feed", "x=2")
    assert done.code == 2
    assert "no node 'dense/b'" in done.err
    assert command("run", scopes, "--feed", "x=2", "--fetch", "dense/b").code == 0


def test_python_needs_complete_names(scopes: Path) -> None:
    session = cfgraph.Session(cfgraph.load(scopes))
    with pytest.raises(cfgraph.UsageError, match="no node 'dense/b'"):
        session.run("dense/b", {"x": 2.0})


@pytest.mark.parametrize(
    ("fetch", "feed", "hint"),
    [
        ("y", "keras_x", "write 'StatefulPartitionedCall:1', which is 'y' in a signature"),
        ("StatefulPartitionedCall:1", "x", "write 'serving_default_x:0', which is 'x' in a"),
    ],
)
def test_python_hints_at_the_tensor_that_a_signature_names(
    fixtures: Path, fetch: str, feed: str, hint: str
) -> None:
    session = cfgraph.Session(cfgraph.load(fixtures / "saved_model"))
    with pytest.raises(cfgraph.UsageError, match="no node") as caught:
        session.run(fetch, {feed: [[1.0, 2.0]]})
    assert hint in str(caught.value.hint)


def test_a_failed_command_names_the_node_in_its_document(command: Command, scopes: Path) -> None:
    done = command("run", scopes, "--fetch", "dense/b", "--json")
    document = json.loads(done.out)
    assert (document["status"], document["names"]) == ("error", {"dense/b": "left/dense/b"})


def test_a_node_of_a_function_is_fed_by_the_end_of_its_name(command: Command, lstm: Path) -> None:
    done = command("run", lstm, *FEED, "--feed", "mul_2=f32[1,8]:zeros", "--json")
    assert done.json["names"] == {"mul_2": HIDDEN}
    assert done.json["result"]["values"][0]["data"] == [[0.0, 0.0]]


def test_the_default_fetches_are_those_without_the_feed(command: Command, graphs: Path) -> None:
    feeds = ("--feed", "x=1", "--feed", "y=2", "--feed", "then/Add=7")
    done = command("run", graphs / "cond_functional.pb", *feeds)
    assert done.lines == ["out:0  float32[]  = 7.0"]
