"""Iterations overlap where messages between workers take long."""

from __future__ import annotations

import time
from typing import Any

import pytest

import cfgraph
from benchmarks.delayed_workers import DelayedWorkers
from benchmarks.workers import pipelined
from cfgraph.backends.workers.processes import Processes
from tests.backends.workers.threads import Threads
from tests.conformance import recorded
from tests.conformance.agree.ways import Way
from tests.conformance.recorded_ways import difference
from tests.runtime.partitioned_graphs import counting, nesting

_DELAY = 0.005


def session(graph: cfgraph.Graph, delay: float = _DELAY, **options: Any) -> cfgraph.Session:
    devices = "/job:worker/task:0-1/cpu:0"
    workers = DelayedWorkers(Threads(None), delay)
    return cfgraph.Session(graph, devices=devices, workers=workers, **options)


def test_parallel_iterations_overlap_messages() -> None:
    count = 60
    with session(pipelined(32), 0.05) as run:
        run.run(["out:0"], {"n:0": 1})
        assert "iterations overlap" in run.fallback
        start = time.monotonic()
        assert run.run(["out:0"], {"n:0": count}) == [count * (count - 1)]
        # in turn they would take 6 seconds
        assert time.monotonic() - start < count * 2 * 0.05


@pytest.mark.parametrize(
    ("parallel", "delay", "options"),
    [(1, _DELAY, {}), (32, 0.0, {}), (32, _DELAY, {"engine": "compiled"})],
    ids=["one at a time", "no delay", "chosen engine"],
)
def test_other_loops_run_as_generated_code(parallel: int, delay: float, options: Any) -> None:
    with session(pipelined(parallel), delay, **options) as run:
        assert run.run(["out:0"], {"n:0": 4}) == [12]
        assert not run.fallback


@pytest.mark.slow
def test_a_delay_between_processes_changes_no_value() -> None:
    graph = cfgraph.loads(counting().encode(), "graph")
    with cfgraph.Session(graph, workers=DelayedWorkers(Processes(2), _DELAY)) as run:
        start = time.monotonic()
        assert run.run(["out:0"], {"n": 20}) == [20]
        assert time.monotonic() - start > 20 * 2 * _DELAY


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["compiled", "tokens"])
def test_a_delay_changes_no_value_of_nested_loops(engine: str) -> None:
    workers = DelayedWorkers(Threads(2), _DELAY)
    graph = cfgraph.loads(nesting().encode(), "graph")
    with cfgraph.Session(graph, workers=workers, engine=engine) as run:
        assert run.run(["out:0"], {"n_outer": 3, "n_inner": 4}) == [12]
    case = next(c for c in recorded.cases() if c["id"].endswith("WhileGrad_ParallelInner/0"))
    options: dict[str, Any] = {"devices": "cpu:0-3", "workers": workers}
    assert not difference(case, Way(("partition=cpu:0-3",), engine), **options)
