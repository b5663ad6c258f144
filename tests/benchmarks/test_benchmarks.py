"""The benchmarks cannot rot: each runs once on a tiny size."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.__main__ import SECTIONS, cells, main
from benchmarks.gpu.__main__ import main as gpu_main


@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_a_benchmark_measures_something(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # collecting takes long in a process that holds TensorFlow
    monkeypatch.setattr("benchmarks.measurement.gc.collect", int)
    monkeypatch.setattr("benchmarks.growth.REPEATS", 0)
    rows = list(SECTIONS[name].measure(None, tiny=True))
    assert rows
    assert all(row.ours > 0 for row in rows)
    assert all(row.work in cells(row) for row in rows)


@pytest.mark.smallest
@pytest.mark.parametrize("program", [main, gpu_main])
@pytest.mark.parametrize(("word", "status"), [("--help", 0), ("--tinny", 2), ("runing", 2)])
def test_nothing_is_measured_for_help_or_a_wrong_word(
    program: Callable[[list[str]], object],
    word: str,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("benchmarks.__main__.tensorflow", pytest.fail)
    monkeypatch.setattr("benchmarks.gpu.__main__.gpu_context", pytest.fail)
    with pytest.raises(SystemExit) as exit_request:
        program([word])
    assert exit_request.value.code == status
    printed = capsys.readouterr()
    assert "usage: python -m benchmarks" in printed.out + printed.err
    assert word in printed.out + printed.err


def test_the_page_of_papers_is_not_rewritten_for_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.papers.files", pytest.fail)
    with pytest.raises(SystemExit) as exit_request:
        main(["papers", "--help"])
    assert exit_request.value.code == 0
