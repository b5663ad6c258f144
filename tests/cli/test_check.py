"""`cfgraph check`: findings with codes, and exit codes that scripts can rely on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.ir.graph import Graph


@pytest.fixture
def faulty(fixtures: Path) -> Path:
    return fixtures / "errors" / "CFG201_tensors_of_two_loops.graph"


@pytest.fixture
def dangling(fixtures: Path) -> Path:
    return fixtures / "errors" / "CFG105_dangling_input.graph"


@pytest.fixture
def warned(tmp_path: Path) -> Path:
    (tmp_path / "warned.graph").write_text("a = NoSuchOp()\n")
    return tmp_path / "warned.graph"


def test_the_graphs_to_try_have_no_findings(command: Any, graphs: Path) -> None:
    files = sorted(graphs.glob("*.pb"))
    done = command("check", *files, "--ignore", "CFG224")
    assert (done.code, done.err) == (0, "")
    assert done.lines == [f"{file}: no findings" for file in files]


def test_a_fetch_that_may_be_dead_is_warned_of_when_it_is_named(command: Any, graphs: Path) -> None:
    file = graphs / "deadness_mismatch.pb"
    done = command("check", file)
    assert done.lines[0].startswith("note[CFG224]: 'T:0' has no reader and is dead in some runs")
    assert command("check", file, "--fetch", "A:0").lines == [f"{file}: no findings"]
    done = command("check", file, "--fetch", "T:0", "--fail-level", "warning")
    assert done.code == 1
    assert done.lines[0] == ("warning[CFG224]: 'T:0' is fetched and may be dead: with `p` false")


def test_a_fetch_has_the_short_name_of_a_node_or_a_name_of_the_signature(
    command: Any, graphs: Path, root: Path
) -> None:
    done = command("check", graphs / "lstm.pb", "--fetch", "Less")
    assert (done.code, "note: Less is lstm/Less" in done.err) == (0, True)
    assert command("check", root / "fixtures" / "saved_model", "--fetch", "y").code == 0
    several = command("check", graphs / "nested.pb", "--fetch", "Enter")
    assert (several.code, "is the end of" in several.err) == (2, True)


def test_an_unknown_fetch_is_a_usage_error(command: Any, graphs: Path) -> None:
    done = command("check", graphs / "counter.pb", "--fetch", "nosuch")
    assert done.code == 2
    assert "nosuch" in done.err


def test_a_finding_is_what_where_and_a_count(command: Any, dangling: Path) -> None:
    done = command("check", dangling)
    assert done.code == 1
    assert done.lines[0] == "error[CFG105]: input 'weights' does not exist in the graph"
    assert done.lines[1] == f"  at {dangling}, node 'y'"
    assert done.lines[-1] == f"{dangling}: 1 error"
    assert done.err == ""


def test_a_finding_of_the_analysis_names_its_code(command: Any, faulty: Path) -> None:
    done = command("check", faulty)
    assert done.code == 1
    assert done.out.startswith("error[CFG201]: ")


def test_warnings_count_only_where_they_are_to(command: Any, warned: Path) -> None:
    assert command("check", warned).code == 0
    assert "warning[CFG101]" in command("check", warned).out
    assert command("check", warned, "--fail-level", "warning").code == 1
    assert command("check", warned, "--fail-level", "warning", "--exit-zero").code == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--ignore", "CFG105"], 0),
        (["--ignore", "cfg1*"], 0),
        (["--ignore", "CFG104,CFG106"], 1),
        (["--select", "CFG2*"], 0),
        (["--select", "CFG2*, CFG105"], 1),
    ],
)
def test_codes_are_selected_and_ignored(
    options: list[str], code: int, command: Any, dangling: Path
) -> None:
    assert command("check", dangling, *options).code == code


@pytest.mark.parametrize("option", ["--select", "--ignore"])
def test_a_code_that_there_is_not_hides_nothing(option: str, command: Any, dangling: Path) -> None:
    done = command("check", dangling, option, "CFG1O5")
    assert done.code == 2
    assert "unknown code 'CFG1O5'" in done.err
    assert "did you mean" in done.err


def test_the_worst_input_decides_the_exit_code(
    command: Any, counter: Path, dangling: Path, empty: Path
) -> None:
    assert command("check", counter, dangling).code == 1
    done = command("check", dangling, empty, counter)
    assert done.code == 3
    assert "the file is empty" in done.err
    assert f"{counter}: no findings" in done.lines
    assert "error[CFG105]" in done.out


def test_exit_zero_hides_findings_but_no_unreadable_file(command: Any, empty: Path) -> None:
    assert command("check", empty, "--exit-zero").code == 3


def test_what_cannot_be_read_is_a_finding_in_json_too(
    command: Any, counter: Path, empty: Path
) -> None:
    answer = command("check", counter, empty, "--json").json
    assert answer["exit_code"] == 3
    assert answer["status"] == "error"
    assert answer["error"]["where"] == {"path": str(empty)}
    (finding,) = answer["findings"]
    assert finding["code"] == "CFG002"
    assert finding["where"]["path"] == str(empty)
    assert [item["path"] for item in answer["inputs"]] == [str(counter), str(empty)]


def test_json_has_every_finding_with_its_place(command: Any, dangling: Path) -> None:
    done = command("check", dangling, "--format", "json")
    assert done.code == 1
    answer = done.json
    assert (answer["schema"], answer["status"]) == ("cfgraph.check/1", "findings")
    assert answer["summary"] == {"error": 1, "warning": 0, "note": 0}
    (finding,) = answer["findings"]
    assert finding["where"] == {"path": str(dangling), "node": "y"}
    assert finding["level"] == "error"


def test_tsv_is_a_line_a_finding(command: Any, dangling: Path) -> None:
    head, row = command("check", dangling, "--format", "tsv").lines
    assert head.split("\t")[:4] == ["path", "level", "code", "node"]
    assert row.split("\t")[:4] == [str(dangling), "error", "CFG105", "y"]


def test_many_findings_of_a_kind_are_grouped(command: Any, tmp_path: Path) -> None:
    graph = Graph()
    for number in range(30):
        graph.create(f"a{number}", f"NoSuchOp{number}")
    path = tmp_path / "g.pb"
    cfgraph.save(graph, path)
    short, full = command("check", path), command("check", path, "--full")
    assert short.out.count("warning[CFG101]") == 10
    assert "and 20 more of CFG101; --full prints them" in short.lines
    assert full.out.count("warning[CFG101]") == 30
    assert short.lines[-1] == full.lines[-1] == f"{path}: 30 warnings"


def test_standard_input_is_checked_once(command: Any, counter: Path) -> None:
    done = command("check", "-", stdin=counter.read_bytes())
    assert done.lines == ["-: no findings"]
    assert command("check", "-", "-", stdin=counter.read_bytes()).code == 2


@pytest.mark.parametrize(
    "options", [["--fail-level", "fatal"], ["--format", "xml"], ["--no-such-option"], []]
)
def test_wrong_usage_is_exit_code_two(options: list[str], command: Any, counter: Path) -> None:
    arguments = [counter, *options] if options else []
    assert command("check", *arguments).code == 2


def test_findings_are_coloured_on_a_terminal_only(command: Any, dangling: Path) -> None:
    assert "\x1b[31merror[CFG105]" in command("check", dangling, terminal=True).out
    assert "\x1b" not in command("check", dangling).out


def test_fetches_and_targets_say_what_is_of_one_run(command: Any, tmp_path: Path) -> None:
    graph = tmp_path / "race.graph"
    graph.write_text(
        'v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}\n'
        "one = Const() {dtype=float32, value=float32[]:1}\n"
        "two = Const() {dtype=float32, value=float32[]:2}\n"
        "first = AssignVariableOp(v, one) {dtype=float32}\n"
        "second = AssignVariableOp(v, two) {dtype=float32}\n"
        "y = ReadVariableOp(v, ^first) {dtype=float32}\n"
    )
    assert command("check", graph, "--fail-level", "warning").code == 0
    done = command("check", graph, "--fetch", "y", "--target", "second", "--fail-level", "warning")
    assert (done.code, done.out.count("CFG225")) == (1, 2)
    assert command("check", graph, "--target", "nosuch").code == 2
