"""The figures in docs/devices.md are what the virtual clock says."""

from __future__ import annotations

import re

import pytest

from benchmarks.gpu_cluster import (
    DEVICES,
    DOCS,
    MANY_DEVICES,
    PARALLEL,
    fan_out_row,
    files,
    growth,
    pipeline,
)


def column(page: str, name: str, place: int) -> list[str]:
    """A column of the table that a comment of this name ends."""
    table = page.partition(f"\n\n<!-- {name} -->")[0].rpartition("\n\n")[2]
    return [row.split(" | ")[place].strip("| ") for row in table.splitlines()[2:]]


@pytest.fixture(scope="module")
def page() -> str:
    return (DOCS / "devices.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_pictures_and_tables_are_drawn_anew_as_they_are(update: bool) -> None:
    for name, text in files().items():
        if update:
            (DOCS / name).write_text(text, encoding="utf-8")
        assert text == (DOCS / name).read_text(encoding="utf-8"), name


def test_a_few_points_of_the_first_picture_are_what_the_clock_says(page: str) -> None:
    few = DEVICES[:4]
    for place, barrier in ((1, False), (2, True)):
        shown = [f"{value:.1f}" for value in growth(barrier=barrier, devices=few)]
        assert shown == column(page, "growth", place)[: len(few)]


def test_what_runs_at_once_is_what_the_clock_says(page: str) -> None:
    shown = [f"{value:.1f}" for value in pipeline((1, 4))]
    rows = dict(zip(map(str, PARALLEL), column(page, "pipeline", 1), strict=True))
    assert shown == [rows["1"], rows["4"]]


@pytest.mark.slow
@pytest.mark.parametrize("devices", MANY_DEVICES[:2])
def test_the_gain_of_a_fan_out_is_what_the_clock_says(page: str, devices: int) -> None:
    assert fan_out_row(devices) in page.splitlines()


def test_every_picture_is_shown_and_described() -> None:
    pages = [DOCS.parent / "README.md", *DOCS.glob("*.md")]
    texts = "".join(path.read_text(encoding="utf-8") for path in pages)
    shown = re.findall(r"!\[[^\]]{10,}\]\((?:docs/)?(\S+)\)", texts)
    shown += re.findall(r'<img src="docs/(\S+)"[^>]* alt="[^"]{10,}"', texts)
    drawn = [path for kind in ("*.svg", "*.png", "*.webp") for path in DOCS.rglob(kind)]
    assert set(shown) == {str(path.relative_to(DOCS)) for path in drawn}
