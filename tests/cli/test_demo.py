"""The demo runs all its steps and says where its page is."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def demo(root: Path) -> dict[str, Any]:
    return runpy.run_path(str(root / "docs" / "demo.py"))


def test_the_demo_goes_from_a_dead_value_to_a_page_to_open(
    demo: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert demo["main"]("demo") == 0
    out, err = capfd.readouterr()
    parts = (
        "C:0 is dead: Switch 'switch' forwards nothing to output 1, as p:0 is false",
        "merge = Identity(double)",
        "functional.pb",
        "add:0 /loop[1]  int32[] = 2",
        "tensorflow:grappler   differs from cfgraph",
        "--timeline",
        "S:0: live in A, dead in B",
    )
    assert [*map(out.index, parts)] == sorted(map(out.index, parts))
    assert "no differences" in err
    assert "next:" not in err
    # a column of the timeline in which each device runs another iteration
    lines = [line for line in err.splitlines() if line.startswith(("cpu:0  ", "cpu:1  "))]
    rows = {line[:5]: line[7:] for line in lines}
    pairs = list(zip(rows["cpu:0"], rows["cpu:1"], strict=False))
    assert any(a.isdigit() and b.isdigit() and a != b for a, b in pairs), rows
    page = Path(out.splitlines()[-1])
    assert page.read_text().startswith("<!")


def test_a_step_that_fails_ends_the_demo(
    demo: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    steps = (demo["DemoStep"]("Nothing:", (("cfgraph show missing.pb", 0),)),)
    assert demo["main"](".", steps) == 1
    assert "exit code 3, expected 0" in capfd.readouterr().err
