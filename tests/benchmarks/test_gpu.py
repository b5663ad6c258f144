"""The figures of a card can be taken: the same code runs on simulated gpus, and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import __main__ as program
from benchmarks.gpu import lstm, report
from benchmarks.gpu.figures import Figure
from cfgraph.errors import Unsupported


@pytest.mark.slow
def test_the_section_of_the_lstm_takes_figures_of_the_gradient_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    takes_figures("lstm", monkeypatch)


@pytest.mark.slow
def test_the_section_of_models_takes_figures_by_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    takes_figures("models", monkeypatch)


@pytest.mark.parametrize("name", sorted(program.SECTIONS.keys() - {"models"}))
def test_a_section_takes_figures(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = next(lstm.cases(tiny=True))
    monkeypatch.setattr(lstm, "cases", lambda *, tiny: iter([first]))
    takes_figures(name, monkeypatch)


def takes_figures(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # collecting takes long in a process that holds TensorFlow
    monkeypatch.setattr("benchmarks.gpu.figures.gc.collect", int)
    bench = program.measured("simulated", [name], tiny=True)
    missing = {figure.why for figure in bench.figures if figure.value is None}
    assert missing <= {"no card here", "PyTorch is not installed", "jax is not installed"}
    recorded = report.record(bench)
    assert recorded["simulated"]
    assert recorded["device"] == "simulated by NumPy"
    assert any(figure["value"] for figure in recorded["figures"])


def test_a_section_without_time_says_so() -> None:
    bench = program.measured("simulated", ["overhead"], tiny=True, seconds=-1.0)
    assert {figure.why for figure in bench.figures} == {"no time left"}


def test_without_a_card_nothing_is_measured_and_nothing_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> Any:
        message = "no real GPU can be used"
        raise Unsupported(message)

    monkeypatch.setattr(program, "gpu_context", none)
    monkeypatch.setattr(program, "SECTIONS", {})
    monkeypatch.setattr(report, "save", pytest.fail)
    assert program.main([]) == 4
    assert "--tiny" in capsys.readouterr().err
    assert program.main(["--tiny"]) == 0
    assert "nothing is written" in capsys.readouterr().out


def test_tables_go_between_their_marks_and_report_what_is_missing(tmp_path: Path) -> None:
    figures = [
        Figure("LSTM", "one", "ours", 1.25, "ms"),
        Figure("LSTM", "one", "theirs", None, "ms", "not installed"),
    ]
    text = report.tables(figures)
    assert "| one | 1.25 ms | - |" in text
    assert "- in theirs: not installed" in text
    recorded = {"device": "a card", "date": "2026-01-02", "python": "3", "libraries": {"jax": "1"}}
    whole = report.PAGE.read_text(encoding="utf-8")
    once = report.filled(whole, recorded, text)
    assert "a card, 2026-01-02: Python 3, jax 1." in once
    assert report.filled(once, recorded, text) == once
    assert report.save(recorded, tmp_path).name == "gpu-2026-01-02.json"
    with pytest.raises(ValueError, match="no place"):
        report.filled("nothing here", recorded, text)
