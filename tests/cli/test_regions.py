"""`cfgraph cluster --regions` and `cfgraph run --jit --regions`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cfgraph


def test_a_loop_goes_into_a_cluster_and_the_file_runs(
    command: Any, graphs: Path, tmp_path: Path
) -> None:
    file = tmp_path / "out.pb"
    done = command("cluster", graphs / "nested.pb", "--regions", "-o", file)
    assert done.err.startswith("clustered 40 of 40 nodes  100 %, in 1 cluster")
    assert [node.op for node in cfgraph.load(file)] == ["XlaLaunch", "Identity", "Identity"]
    done = command("run", file, "--engine", "numpy", "--fetch", "sum", "--expect", "sum=10000")
    assert done.code == 0


def test_explain_says_what_became_of_each_region(command: Any, graphs: Path) -> None:
    done = command("cluster", graphs / "eight_devices.pb", "--regions", "--explain")
    assert "regions  0 of 1 in clusters" in done.out
    assert "its nodes are not on one device" in done.out
    done = command("cluster", graphs / "counter.pb", "--regions", "--explain", "--json")
    (region,) = done.json["result"]["regions"]
    assert (region["kind"], region["name"]) == ("loop", "/while/while_context")
    assert (region["clustered"], region["reason"]) == (True, None)


def test_run_takes_whole_loops(command: Any, graphs: Path) -> None:
    options = ("--jit", "--engine", "numpy", "--regions", "--fetch", "count", "--feed", "n=7")
    done = command("run", graphs / "counter.pb", *options, "--expect", "count=7")
    assert done.code == 0
    assert "1 cluster run by NumPy: 1 call" in done.err


def test_regions_go_with_jit(command: Any, graphs: Path) -> None:
    done = command("run", graphs / "counter.pb", "--regions")
    assert done.code == 2
    assert "add --jit" in done.err
