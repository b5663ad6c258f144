"""`cfgraph diff`: differences between two graphs as text and JSON."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.compare.racing_graphs import NEGATED, READS_FIRST, SQUARED, WRITES_FIRST


@pytest.fixture
def other(command: Any, counter: Path, tmp_path: Path) -> Path:
    """The counter with step two, still up to n."""
    text = command("convert", counter, "--to", "graph").out
    text = text.replace("int32[]:1}", "int32[]:2}").replace("= Less(", "= LessEqual(")
    (tmp_path / "other.graph").write_text(text + "extra = Neg(count)\n")
    return tmp_path / "other.graph"


def test_a_graph_is_like_itself_in_another_format(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    command("convert", counter, "-o", tmp_path / "again.pbtxt")
    done = command("diff", counter, tmp_path / "again.pbtxt")
    assert (done.code, done.out, done.err) == (0, "no differences in 15 nodes\n", "")


def test_a_difference_is_shown_as_what_was_and_what_is(
    command: Any, counter: Path, other: Path
) -> None:
    done = command("diff", counter, other)
    assert done.code == 1
    assert done.lines == [
        f"--- {counter} (15 nodes)",
        f"+++ {other} (16 nodes)",
        "+ extra = Neg(count)",
        "~ while/Less",
        "    op: - Less  + LessEqual",
        "~ while/add/y (Const)",
        "    attr value: - int32[]:1  + int32[]:2",
        "1 node added, 2 nodes changed",
    ]


def test_the_document_has_the_same(command: Any, counter: Path, other: Path) -> None:
    done = command("diff", counter, other, "--json")
    assert (done.code, done.json["status"]) == (1, "findings")
    assert done.json["summary"]["added"] == 1
    assert done.json["result"]["structure"]["changed"][0] == {
        "node": "while/Less",
        "now": "while/Less",
        "op": "LessEqual",
        "changes": [{"part": "op", "before": "Less", "after": "LessEqual"}],
    }
    assert command("diff", counter, counter, "--json").json["result"]["structure"]["equal"]


def test_many_nodes_are_counted_unless_all_are_wanted(command: Any, graphs: Path) -> None:
    files = (graphs / "lstm.pb", graphs / "lstm_grad.pb")
    done = command("diff", *files)
    assert "+ and 94 more; --full prints them" in done.lines
    assert len(command("diff", *files, "--full").lines) > 110


def test_one_graph_may_come_from_standard_input(command: Any, counter: Path) -> None:
    assert command("diff", "-", counter, stdin=counter.read_bytes()).code == 0
    assert command("diff", "-", "-", stdin=counter.read_bytes()).code == 2


@pytest.mark.parametrize(
    "options", [["--by", "luck"], ["--ignore", "order,colour"], ["--format", "xml"]]
)
def test_unknown_words_are_usage_errors(command: Any, counter: Path, options: list[str]) -> None:
    assert command("diff", counter, counter, *options).code == 2


def test_a_missing_graph_is_an_input_error(command: Any, counter: Path, tmp_path: Path) -> None:
    assert command("diff", counter, tmp_path / "no.pb").code == 3


def test_runs_that_agree_say_what_was_compared(command: Any, graphs: Path, tmp_path: Path) -> None:
    file = graphs / "while_functional.pb"
    command("lower", file, "-o", tmp_path / "lowered.pb")
    done = command("diff", file, tmp_path / "lowered.pb", "--run", "--cases", "2")
    assert (done.code, done.out) == (0, "no differences: 4 fetches agree in 2 cases\n")


def test_runs_that_differ_name_the_first_wrong_node(
    command: Any, counter: Path, other: Path
) -> None:
    done = command("diff", "--run", counter, other, "--feed", "n=3")
    assert done.code == 1
    assert done.lines == [
        "first diverging node: while/add/y (Const) in /while/while_context[0], iteration 0",
        "  the value differs, output 0",
        "  A int32[] 1, B int32[] 2",
        "  attr value: - int32[]:1  + int32[]:2",
        "count:0: the value differs",
        "  A int32[] 3, B int32[] 4",
        "found in case 1, with --feed n=3",
    ]


def test_the_document_of_runs_has_the_same(command: Any, counter: Path, other: Path) -> None:
    done = command("diff", "--run", counter, other, "--feed", "n=3", "--json")
    runs = done.json["result"]["runs"]
    assert (done.code, runs["equal"]) == (1, False)
    assert runs["differences"][0]["what"] == "count:0"
    assert (runs["first"]["node"], runs["first"]["iteration"]) == ("while/add/y", 0)
    assert runs["inputs"]["n:0"]["data"] == 3
    assert done.json["summary"] == {"fetches": 1, "cases": 1, "differences": 1}


@pytest.mark.parametrize(
    "options",
    [
        ["--feed", "n=3"],
        ["--run", "--ignore", "notes"],
        ["--run", "--by", "structure"],
        ["--run", "--size", "much"],
        ["--run", "--size", "nosuch=3"],
        ["--run", "--size", "3", "--size", "4"],
        ["--run", "--fetch", "nosuch"],
    ],
)
def test_options_that_do_not_fit_are_usage_errors(
    command: Any, counter: Path, options: list[str]
) -> None:
    assert command("diff", counter, counter, *options).code == 2


def test_an_output_that_is_lost_is_a_difference(command: Any, tmp_path: Path) -> None:
    text = "x = Const() {dtype=int32, value=int32[]:1}\ny = Neg(x)\n"
    (tmp_path / "b.graph").write_text(text)
    (tmp_path / "a.graph").write_text(text + "z = Abs(x)\n")
    files = tmp_path / "a.graph", tmp_path / "b.graph"
    done = command("diff", "--run", *files)
    reported = ["z:0: missing in B", "everything else agrees: 1 fetch agrees in 4 cases"]
    assert (done.code, done.lines) == (1, reported)
    done = command("diff", "--run", *files, "--json")
    assert (done.code, done.json["summary"]["differences"]) == (1, 1)
    assert not done.json["result"]["runs"]["equal"]
    assert "CFG806" in command("diff", "--run", *files, "--format", "github").out
    assert command("diff", "--run", *files, "--fetch", "y").code == 0


def test_a_fetch_whose_value_is_not_defined_is_not_compared(command: Any, tmp_path: Path) -> None:
    files = tmp_path / "a.graph", tmp_path / "b.graph"
    files[0].write_text(READS_FIRST)
    files[1].write_text(WRITES_FIRST)
    race = "ReadVariableOp 'early' and AssignVariableOp 'assign' both use 'v' in no defined order"
    done = command("diff", *files, "--run")
    assert (done.code, done.lines) == (
        0,
        [
            f"not compared: sum:0; two runs of A itself may differ: {race}",
            "no differences: 1 fetch agrees in 4 cases",
        ],
    )
    document = command("diff", *files, "--run", "--json").json
    assert document["result"]["runs"]["not_compared"] == ["sum:0"]
    assert [item["code"] for item in document["findings"]] == ["CFG225"]
    done = command("diff", *files, "--run", "--fetch", "sum")
    assert (done.code, done.err.splitlines()[0]) == (
        2,
        f"error[CFG225]: two runs of the first graph may differ: {race}",
    )


def test_fetches_without_a_common_order_are_compared_in_several_runs(
    command: Any, tmp_path: Path
) -> None:
    files = tmp_path / "a.graph", tmp_path / "b.graph"
    files[0].write_text(NEGATED)
    files[1].write_text(SQUARED)
    done = command("diff", *files, "--run")
    assert (done.code, "value:0: the value differs" in done.lines) == (1, True)
    assert not any("early" in line for line in done.lines)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "a second graph is missing"),
        (("--run", "--with", "pytorch"), "invalid --with 'pytorch'"),
        (("--run", "--with", "tensorflow:fast"), "invalid --with 'tensorflow:fast'"),
        (("--with", "tensorflow"), "--with compares runs"),
        (("--run", "--against", "tensorflow:graph"), "apply to a comparison with TensorFlow"),
        (
            ("--run", "--with", "tensorflow:jit", "--against", "tensorflow:jit"),
            "--with and --against name the same mode, jit",
        ),
    ],
)
def test_a_comparison_with_tensorflow_names_its_modes(
    command: Any, counter: Path, words: tuple[str, ...], message: str
) -> None:
    done = command("diff", counter, *words)
    assert done.code == 2
    assert message in done.err


def test_assets_of_saved_models_are_compared(command: Any, fixtures: Path, tmp_path: Path) -> None:
    model, other = fixtures / "saved_model_tables", tmp_path / "other"
    shutil.copytree(model, other)
    assert command("diff", model, other).code == 0
    (other / "assets" / "vocab.txt").write_text("x\ny\n")
    done = command("diff", model, other)
    assert done.code == 1
    assert "asset of asset_path_initializer: - vocab.txt, 6 B, sha256" in done.out


@pytest.mark.parametrize(
    ("shape", "option"),
    [("1,4", "--size x=1"), ("?,4", None), ("7,5", None), ("3,?", "--size x=3")],
)
def test_a_run_of_a_graph_with_fixed_shapes_hints_at_the_sizes(
    command: Any, tmp_path: Path, shape: str, option: str | None
) -> None:
    text = "x = Placeholder() {dtype=float32, shape=[?,4]}\ny = Neg(x)\n"
    a, b = tmp_path / "a.graph", tmp_path / "b.graph"
    a.write_text(text)
    b.write_text(text.replace("?,4", shape))
    done = command("diff", a, b, "--run")
    assert ("--size" in done.out) == (option is not None)
    if option is not None:
        assert f"add {option}: random inputs then fit both graphs" in done.out
        assert command("diff", a, b, "--run", *option.split()).code == 0


def test_a_difference_in_a_call_hints_at_the_lowered_graphs(
    command: Any, graphs: Path, tmp_path: Path
) -> None:
    a = graphs / "while_functional.pb"
    command("convert", a, "--to", "graph", "-o", tmp_path / "a.graph")
    text = (tmp_path / "a.graph").read_text()
    one = "Add/y = Const() {dtype=int32, value=int32[]:"
    (tmp_path / "b.graph").write_text(text.replace(f"{one}1", f"{one}2"))
    hint = "hint: to compare the nodes inside of while, `cfgraph lower` both graphs"
    assert hint in command("diff", a, tmp_path / "b.graph", "--run", "--feed", "n=3").out
    for name in ("a", "b"):
        lowered = tmp_path / f"{name}.pb"
        assert command("lower", tmp_path / f"{name}.graph", "-o", lowered).code == 0
    done = command("diff", tmp_path / "a.pb", tmp_path / "b.pb", "--run", "--feed", "n=3")
    assert (done.code, "hint: " in done.out) == (1, False)
