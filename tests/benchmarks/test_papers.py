"""The page of the experiments is what the script of the examples computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.chart import Series, chart
from benchmarks.papers import (
    DOCS,
    PICTURES,
    example_files,
    experiments,
    files,
    measure,
    measured,
    rows,
)
from cfgraph.console.paper.reproduce import EXPERIMENTS, Setting, results

# experiments of which two points take more than a second
LONG = ("pipeline", "swapping")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with example_files() as path:
        yield path


@pytest.mark.slow
def test_the_page_and_its_pictures_are_drawn_as_they_are(update: bool) -> None:
    made = files([*experiments(), *measured()])
    assert len(made) == len(PICTURES) + 1
    for name, text in made.items():
        if update:
            (DOCS / name).write_text(text, encoding="utf-8")
        assert text == (DOCS / name).read_text(encoding="utf-8"), name


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in EXPERIMENTS],
)
def test_the_first_points_of_a_virtual_curve_are_on_the_page(name: str, folder: Path) -> None:
    page = (DOCS / "papers.md").read_text(encoding="utf-8").splitlines()
    for curves in results(Setting(folder, quick=True), [name], measure=False):
        assert curves.kind == "virtual"
        assert set(rows(curves)) <= set(page)


@pytest.mark.slow
def test_real_times_are_measured() -> None:
    curves = list(measure(quick=True))
    assert {one.experiment for one in curves} == {"unrolling", "training"}
    (training,) = (one for one in curves if one.experiment == "training")
    assert training.lines["one loop"][0] < training.lines["a call per part"][0]


def test_a_chart_shows_negative_values_and_leaves_gaps() -> None:
    text = chart("t", ("x", "y"), [1, 2, 4], [Series("a", [-3, None, 5])])
    assert text.count("<circle") == 2
    assert ">-4<" in text
