"""Tables on pipes and on terminals that are too narrow for them."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest

from cfgraph.cli import command_line as cli
from cfgraph.cli.output import (
    Column,
    OutputTable,
    Page,
    RichPage,
    folded,
    note,
    pad,
    plain_lines,
    shortened_name,
    width,
)

LONG = "TensorArrayUnstack/strided_slice/stack_1"


def lines_on_terminal(
    table: OutputTable, columns: int, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """The lines of a table on a terminal of that width."""
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    RichPage(stream, color=False).table(table)
    return [re.sub("\x1b[^m]*m", "", line).rstrip() for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("columns", [24, 40, 200])
def test_a_long_cell_is_folded_and_complete(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table = OutputTable([Column("name"), Column("op")], [(LONG, "Const")], headings=False)
    lines = lines_on_terminal(table, columns, monkeypatch)
    assert all(len(line) <= columns for line in lines)
    assert "".join("".join(lines).split()).replace("Const", "") == LONG


def test_a_name_is_folded_after_a_slash() -> None:
    assert folded(LONG, 24).split("\n") == ["TensorArrayUnstack/", "strided_slice/stack_1"]
    assert folded(LONG, 40) == LONG


def test_a_text_without_room_is_folded_to_single_letters() -> None:
    assert folded("ab/c", -3).split("\n") == ["a", "b", "/", "c"]
    assert folded("a" * 25, 10).split("\n") == ["a" * 10, "a" * 10, "a" * 5]


@pytest.mark.parametrize("columns", range(2, 50))
def test_a_shortened_name_is_its_end(columns: int) -> None:
    text = shortened_name(LONG, columns)
    assert width(text) <= columns
    assert LONG.endswith(text.removeprefix("…"))
    assert (text == LONG) == (columns >= len(LONG))


def test_a_shortened_name_has_whole_scopes_if_they_fit() -> None:
    assert shortened_name(LONG, 24) == "…/strided_slice/stack_1"
    assert shortened_name(LONG, 20) == "…/stack_1"
    assert shortened_name("a" * 9, 5) == "…aaa"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_note_is_wrapped_between_words(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("COLUMNS", "30")
    words = f"note: restored 5 variables from /{'folder/' * 8}variables and 2 tables"
    note(words)
    lines = stream.getvalue().splitlines()
    assert " ".join(map(str.strip, lines)) == words
    assert (len(lines) > 1) == terminal
    assert f"  /{'folder/' * 8}variables" in lines or not terminal


@pytest.mark.parametrize("text", ["", " ", "a  b", "x/", "/", "日本語/テスト"])
def test_folding_loses_nothing_but_blanks_at_ends_of_lines(text: str) -> None:
    for columns in range(2, 12):
        lines = folded(text, columns).split("\n")
        assert "".join("".join(lines).split()) == "".join(text.split())


def test_a_number_is_never_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(LONG, 1)] * 9 + [(LONG, 123456789)]
    table = OutputTable([Column("name"), Column("bytes", right=True)], [*rows])
    assert "123456789" in " ".join(lines_on_terminal(table, 30, monkeypatch))


def test_a_table_without_room_for_its_texts_is_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [Column(f"n{index}", right=True) for index in range(4)]
    table = OutputTable([Column("name"), *numbers], [(LONG, *[123456789] * 4)])
    _, row = lines_on_terminal(table, 50, monkeypatch)
    assert row.split() == [LONG, *["123456789"] * 4]
    assert max(map(len, lines_on_terminal(table, 60, monkeypatch))) <= 60


def test_a_spare_column_is_omitted_where_it_finds_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    table = OutputTable([Column("name"), Column("inputs", spare=True)], [(LONG, LONG)])
    assert lines_on_terminal(table, 60, monkeypatch)[-1].startswith("  no room for inputs")
    assert LONG in lines_on_terminal(table, 120, monkeypatch)[1].split()[1]


def test_a_name_that_is_too_long_breaks_before_a_capital(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["AssignVariableOp", "StatefulPartitionedCall:0", "x" * 30]
    table = OutputTable([Column("op")], [[name] for name in names])
    lines = lines_on_terminal(table, 14, monkeypatch)
    assert [line.strip() for line in lines[1:6]] == [
        "Assign",
        "VariableOp",
        "Stateful",
        "Partitioned",
        "Call:0",
    ]
    assert max(map(len, lines)) <= 14


def test_off_a_terminal_nothing_is_truncated() -> None:
    table = OutputTable([Column("a"), Column("empty", optional=True)], [("x" * 500, None)])
    stream = io.StringIO()
    Page(stream).table(table)
    assert stream.getvalue() == f"  a\n  {'x' * 500}\n"


def test_wide_characters_are_aligned() -> None:
    table = OutputTable([Column("a"), Column("b")], [("日本", 1), ("x", 2)], headings=False)
    assert list(plain_lines(table)) == ["日本  1", "x     2"]
    assert width(pad("日本", 6)) == 6


@pytest.mark.parametrize("columns", [50, 80])
def test_messages_of_errors_are_wrapped_on_a_terminal_and_hints_can_be_copied(
    columns: int, command: Any, fixtures: Path, graphs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    message, hint = command("run", graphs / "lstm.pb").err.splitlines()
    *wrapped, shown = command("run", graphs / "lstm.pb", terminal=True).err.splitlines()
    assert (" ".join(map(str.strip, wrapped)), shown) == (message, hint)
    assert len(wrapped) > 1
    assert max(map(len, wrapped)) <= columns
    file = fixtures / "errors" / "CFG201_inner_tensor_outside.graph"
    plain = command("check", file).lines[0]
    lines = command("check", file, "--color", "never", terminal=True).lines
    first = lines[: next(index for index, line in enumerate(lines) if line.startswith("  at "))]
    assert " ".join(map(str.strip, first)) == plain
    assert max(map(len, first)) <= columns


def test_a_quiet_command_hides_no_note_of_what_follows_in_its_process(
    counter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["show", str(counter), "--quiet"]) == 0
    capsys.readouterr()
    note("a note")
    assert capsys.readouterr().err == "a note\n"
