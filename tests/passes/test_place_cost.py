"""Placement by cost: effects of work and bytes, and determinism."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cfgraph
from cfgraph.analysis.loops.frames import frames
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Graph
from tests.passes.test_place import placed


def product(size: int) -> str:
    return f"""
    a = Placeholder() {{dtype=float32, shape=[{size},{size}]}}
    b = Placeholder() {{dtype=float32, shape=[{size},{size}]}}
    c = MatMul(a, b) {{T=float32}}
    d = MatMul(c, b) {{T=float32}}
    out = Sum(d, axes) {{T=float32, Tidx=int32}}
    axes = Const() {{dtype=int32, value=int32[2]:[0,1]}}
    """


def test_heavy_work_goes_to_the_faster_device() -> None:
    assert placed(product(2048))["c"] == placed(product(2048))["d"] == "gpu:0"
    assert set(placed(product(8)).values()) == {"cpu:0"}


def test_a_chain_stays_on_one_device() -> None:
    lines = ["n0 = Placeholder() {dtype=float32, shape=[64]}"]
    lines += [f"n{k + 1} = Neg(n{k}) {{T=float32}}" for k in range(50)]
    assert set(placed("\n".join(lines), "cpu:0-3").values()) == {"cpu:0"}


def test_heavy_independent_work_spreads() -> None:
    lines = []
    for k in range(4):
        lines += [f"p{k} = Placeholder() {{dtype=float32, shape=[1024,1024]}}"]
        lines += [f"q{k} = MatMul(p{k}, p{k}) {{T=float32}}"]
    placement = placed("\n".join(lines), "cpu:0-3")
    assert len({placement[f"q{k}"] for k in range(4)}) == 4
    assert all(placement[f"p{k}"] == placement[f"q{k}"] for k in range(4))


def test_a_node_without_inputs_follows_its_reader() -> None:
    text = """
    c = Const() {dtype=float32, value=float32[]:1}
    x = Placeholder() {dtype=float32, shape=[]}
    y = AddV2(x, c) {T=float32} @"/gpu:0"
    """
    assert set(placed(text).values()) == {"gpu:0"}


def drivers(graph: Graph) -> Iterator[set[str]]:
    """Return the devices of the drivers of each loop."""
    placement = frames(graph)
    for frame in placement.all[1:]:
        nodes = [*frame.merges, *frame.next_iterations, *frame.loop_conds, *frame.exits]
        yield {short_device_name(node.device) for node in nodes}


@pytest.mark.parametrize("name", ["counter", "nested", "lstm", "while_functional"])
def test_drivers_of_a_loop_are_on_one_device(name: str, fixtures: Path) -> None:
    graph = cfgraph.load(fixtures / "graphs" / f"{name}.pb")
    cfgraph.place(graph, devices="cpu:0-1,gpu:0")
    assert all(len(devices) == 1 for devices in drivers(graph))


def test_a_loop_of_heavy_work_goes_to_the_faster_device_as_a_whole(fixtures: Path) -> None:
    graph = cfgraph.load(fixtures / "graphs" / "lstm.pb")
    cfgraph.place(graph, devices="cpu:0,gpu:0")
    assert list(drivers(graph)) == [{"gpu:0"}]


def test_a_small_loop_stays_where_a_chain_would(fixtures: Path) -> None:
    graph = cfgraph.load(fixtures / "graphs" / "nested.pb")
    cfgraph.place(graph, devices="cpu:0-7")
    assert {short_device_name(node.device) for node in graph} == {"cpu:0"}


PRINT = """
import sys, hashlib, cfgraph
for seed in (None, 3):
    graph = cfgraph.load(sys.argv[1])
    cfgraph.place(graph, devices="cpu:0-2,gpu:0", seed=seed)
    print(hashlib.sha256(cfgraph.dumps(graph)).hexdigest())
"""


def test_the_hash_seed_of_the_process_changes_nothing(fixtures: Path) -> None:
    path = fixtures / "graphs" / "lstm_grad.pb"
    placement = {
        subprocess.run(
            [sys.executable, "-c", PRINT, str(path)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(placement) == 1
