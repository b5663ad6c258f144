"""Overhead of a node: microseconds per node of a long chain of short kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from benchmarks.gpu.figures import Bench
from cfgraph.build.builder import Builder
from cfgraph.ir.graph import Graph

TABLE: Final = "Overhead, µs a node"
ROW: Final = "chain of Tanh of 1024 numbers"
_SHORT, _LONG = 20, 220


def measure(bench: Bench) -> None:
    """Our executor on the gpu and on the CPU, one launch for the whole chain, and bare CuPy."""
    columns: dict[str, Callable[[int], Callable[[], object]]] = {
        "cfgraph on a gpu": lambda count: _ours(bench, count, {}),
        "cfgraph on a gpu, clusters": lambda count: _ours(bench, count, {"jit": "numpy"}),
        "cfgraph on the CPU": lambda count: _ours(bench, count, {"devices": "cpu:0"}),
        "CuPy alone": lambda count: _bare(bench, count),
    }
    for column, work in columns.items():
        bench.take(TABLE, ROW, column, "µs", lambda work=work: _a_node(bench, work))


def _a_node(bench: Bench, work: Callable[[int], Callable[[], object]]) -> float | str:
    """The time of one more node: that of a long chain less that of a short one."""
    if bench.simulated and work(1) is None:
        return "no card here"
    short, long = (bench.median(work(count), repeats=30) for count in (_SHORT, _LONG))
    return max(long - short, 0.0) / (_LONG - _SHORT) * 1e6


def chain(count: int) -> Graph:
    """`count` nodes one behind the other, and a number of what comes out."""
    b = Builder()
    # fed: what depends on constants alone is computed once
    value = b.Fill(b.const([1024]), b.placeholder("start", "float32", []))
    for _ in range(count):
        value = b.Tanh(value)
    b.Sum(value, b.const([0]), name="out")
    return b.graph


def _ours(bench: Bench, count: int, options: dict[str, Any]) -> Callable[[], object]:
    session = bench.session(chain(count), **options)
    feeds = {"start:0": np.float32(0.5)}
    return lambda: session.run(["out:0"], feeds)


def _bare(bench: Bench, count: int) -> Any:
    """The same kernels called in a row."""
    if isinstance(bench.gpu, str):
        return None
    xp = bench.gpu.xp
    start = xp.asarray(np.full(1024, 0.5, np.float32))

    def run() -> object:
        value = start
        for _ in range(count):
            value = xp.tanh(value)
        return float(value.sum())

    return run
