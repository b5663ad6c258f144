"""The page of the experiments is what `examples/paper` computes."""

from __future__ import annotations

import re

import pytest

from benchmarks.chart import Series, chart
from benchmarks.papers import (
    DOCS,
    PICTURES,
    experiments,
    files,
    measure,
    measured,
    rows,
)
from examples.paper.experiments import EXPERIMENTS, results

# experiments of which two points take more than a second
LONG = ("pipeline", "swapping")


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
def test_the_first_points_of_a_virtual_curve_are_on_the_page(name: str) -> None:
    page = (DOCS / "papers.md").read_text(encoding="utf-8").splitlines()
    for curves in results([name], quick=True, measure=False):
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


def test_lines_that_coincide_are_dashed_differently() -> None:
    text = chart("t", ("x", "y"), [1, 2], [Series("a", [1, 2]), Series("b", [1, 2])])
    first, second = re.findall(r'<polyline points="(.*)" fill="none" (.*)/>', text)
    assert first[0] == second[0]
    assert first[1] != second[1]


def test_an_x_axis_from_zero_is_linear() -> None:
    text = chart("t", ("x", "y"), [0, 50, 200], [Series("a", [0, 5, 20])])
    points = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', text)
    (x0, y0), (x1, y1), (x2, y2) = [(float(x), float(y)) for x, y in points]
    assert (x1 - x0) / (x2 - x0) == pytest.approx(0.25, abs=1e-3)
    assert (y1 - y0) / (y2 - y0) == pytest.approx(0.25, abs=1e-3)
