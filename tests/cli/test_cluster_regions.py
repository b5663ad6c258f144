"""`cfgraph cluster --regions`, and runs of what it writes."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

import cfgraph


def test_a_loop_goes_into_a_cluster_and_the_file_runs(
    command: Any, graphs: Path, tmp_path: Path
) -> None:
    file = tmp_path / "out.pb"
    done = command("cluster", graphs / "nested.pb", "--regions", "-o", file)
    assert done.err.startswith("clustered 40 of 40 nodes  100 %, in 1 cluster")
    assert [node.op for node in cfgraph.load(file)] == ["XlaLaunch", "Identity", "Identity"]
    done = command("run", file, "--engine", "compiled", "--fetch", "sum", "--expect", "sum=10000")
    assert done.code == 0


def test_explain_says_what_became_of_each_region(command: Any, graphs: Path) -> None:
    done = command("cluster", graphs / "eight_devices.pb", "--regions", "--explain")
    assert "regions  0 of 1 in clusters" in done.out
    assert "its nodes are not on one device" in done.out
    done = command("cluster", graphs / "counter.pb", "--regions", "--explain", "--json")
    (region,) = done.json["result"]["regions"]
    assert (region["kind"], region["name"]) == ("loop", "/while/while_context")
    assert (region["clustered"], region["reason"]) == (True, None)


def test_run_takes_whole_loops(command: Any, graphs: Path, tmp_path: Path) -> None:
    clustered = tmp_path / "clustered.pb"
    assert command("cluster", graphs / "counter.pb", "--regions", "-o", clustered).code == 0
    options = ("--engine", "compiled", "--fetch", "count", "--feed", "n=7")
    done = command("run", clustered, *options, "--expect", "count=7")
    assert done.code == 0
    assert "1 cluster run by NumPy: 1 call" in done.err


def lines_of_the_page() -> list[str]:
    """Commands in docs/clusters.md."""
    page = Path(__file__).parents[2] / "docs" / "clusters.md"
    return [line for line in page.read_text().splitlines() if line.startswith("cfgraph ")]


def test_what_the_page_shows_can_be_typed(
    command: Any, graphs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fixtures").symlink_to(graphs.parent)
    lines = lines_of_the_page()
    assert len(lines) == 4
    for line in lines:
        assert command(*shlex.split(line)[1:]).code == 0, line
