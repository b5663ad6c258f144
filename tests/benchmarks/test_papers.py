"""The page of the experiments is what the script of the examples computes."""

from __future__ import annotations

import pytest

from benchmarks.papers import DOCS, PICTURES, experiments, files, measured, rows


@pytest.mark.slow
def test_the_page_and_its_pictures_are_drawn_as_they_are(update: bool) -> None:
    made = files([*experiments(measure=False), *measured()])
    assert len(made) == len(PICTURES) + 1
    for name, text in made.items():
        if update:
            (DOCS / name).write_text(text, encoding="utf-8")
        assert text == (DOCS / name).read_text(encoding="utf-8"), name


def test_the_first_points_of_each_virtual_curve_are_on_the_page() -> None:
    page = (DOCS / "papers.md").read_text(encoding="utf-8").splitlines()
    for curves in experiments(measure=False, quick=True):
        assert set(rows(curves)) <= set(page), curves.experiment
