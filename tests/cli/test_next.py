"""The `next` line of `show`: it names what can be run, and feeds no more than that needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

GRAPH = """
x = Placeholder() {dtype=float32, shape=[]}
y = Placeholder() {dtype=float32, shape=[]}
a = Neg(x) {T=float32}
b = Unheard(y) {T=float32}
"""


def test_what_can_run_is_suggested_with_the_feeds_that_it_needs(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-g.graph").write_text(GRAPH)
    line = command("show", "./-g.graph").lines[-1].strip()
    assert line == "cfgraph run ./-g.graph --feed x=1.0 --fetch a:0"
    assert command("show", "--", "-g.graph").lines[-1].strip() == line


def test_a_graph_of_which_nothing_can_run_is_to_be_checked(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "g.graph"
    path.write_text("b = Unheard()\n")
    assert command("show", path).lines[-1].strip() == f"cfgraph check {path}"
