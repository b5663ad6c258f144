"""`cfgraph fmt` formats files in place, all of them or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

UNTIDY = "x=Placeholder( ) {dtype=float32,shape=[]} # fed\ny=Neg(x)\n"
TIDY = "x = Placeholder() {dtype=float32, shape=[]}  # fed\ny = Neg(x) {T=float32}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "untidy.graph").write_text(UNTIDY)
    (tmp_path / "tidy.graph").write_text(TIDY)
    return tmp_path


def test_changed_files_are_named_and_a_second_run_changes_none(command: Any, folder: Path) -> None:
    done = command("fmt", "untidy.graph", "tidy.graph")
    assert (done.code, done.out, done.err) == (0, "untidy.graph\n", "1 of 2 files changed\n")
    assert (folder / "untidy.graph").read_text() == TIDY
    done = command("fmt", "untidy.graph", "tidy.graph", "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_a_check_writes_nothing_and_fails(command: Any, folder: Path) -> None:
    done = command("fmt", "--check", "untidy.graph", "tidy.graph")
    assert (done.code, done.out, done.err) == (1, "untidy.graph\n", "1 of 2 files would change\n")
    assert (folder / "untidy.graph").read_text() == UNTIDY
    assert command("fmt", "--check", "tidy.graph").code == 0


def test_a_faulty_file_keeps_all_files_as_they_are(
    command: Any, folder: Path, counter: Path
) -> None:
    (folder / "faulty.graph").write_text("x = Placeholder(\n")
    done = command("fmt", "untidy.graph", "faulty.graph")
    assert (done.code, done.out) == (3, "")
    assert "faulty.graph" in done.err
    assert "line 1" in done.err
    assert (folder / "untidy.graph").read_text() == UNTIDY
    done = command("fmt", counter)
    assert (done.code, "hint: cfgraph convert" in done.err) == (3, True)
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    (folder / "pointer.graph").write_text(pointer)
    assert "git lfs pull" in command("fmt", "pointer.graph").err
    (folder / "empty.graph").touch()
    assert command("fmt", "empty.graph").code == 3
    assert command("fmt", "missing.graph").code == 3


def test_standard_input_is_formatted_to_standard_output(command: Any) -> None:
    done = command("fmt", "-", stdin=UNTIDY.encode())
    assert (done.code, done.out, done.err) == (0, TIDY, "")
    assert command("fmt", "-", "--check", stdin=UNTIDY.encode()).code == 1
    assert command("fmt", "-", "a.graph", stdin=UNTIDY.encode()).code == 2
