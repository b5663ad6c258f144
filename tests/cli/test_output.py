"""Tables wider than the terminal: column widths and folded cells."""

from __future__ import annotations

import pytest

from cfgraph.console.output import Column, OutputTable, fitted_widths, folded


def test_a_name_is_folded_behind_a_slash() -> None:
    text = "TensorArrayUnstack/strided_slice/stack_1"
    assert folded(text, 24).split("\n") == ["TensorArrayUnstack/", "strided_slice/stack_1"]
    assert folded(text, 40) == text


def test_a_word_that_is_too_long_is_broken() -> None:
    assert folded("a" * 25, 10).split("\n") == ["a" * 10, "a" * 10, "a" * 5]


@pytest.mark.parametrize("text", ["", " ", "a  b", "x/", "/", "日本語/テスト"])
def test_nothing_but_blanks_at_ends_of_lines_is_lost(text: str) -> None:
    for columns in range(2, 12):
        lines = folded(text, columns).split("\n")
        assert "".join("".join(lines).split()) == "".join(text.split())


def test_a_column_of_short_words_keeps_its_room_next_to_one_of_long_names() -> None:
    rows = [("scope/of/a/long/name" * 3, "Placeholder", 12345)] * 9
    table = OutputTable([Column("name"), Column("op"), Column("bytes", right=True)], list(rows))
    name, op, size = fitted_widths(table, 50)
    assert (op, size) == (11, 5)
    assert name + op + size <= 50


def test_one_long_cell_does_not_take_the_room_of_all_others() -> None:
    rows = [("n" * 30, "short")] * 20 + [("n", "w" * 200)]
    assert fitted_widths(OutputTable([Column("a"), Column("b")], list(rows)), 60)[0] == 30


def test_a_number_is_never_broken_however_late_it_comes() -> None:
    rows = [("name", 1)] * 300 + [("name", 123456789)]
    assert (
        fitted_widths(OutputTable([Column("a"), Column("b", right=True)], list(rows)), 12)[1] == 9
    )
    assert folded("text", 0).split("\n") == list("text")
