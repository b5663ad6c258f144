"""Overhead of a node of a long chain of short kernels, and of a run whose chain is one kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from benchmarks.gpu.figures import Bench
from cfgraph.backends.xla.jax_library import has_jax, load_jax
from cfgraph.build.builder import Builder
from cfgraph.ir.graph import Graph

TABLE: Final = "Overhead, µs a node"
ROW: Final = "chain of Tanh of 1024 numbers"
_SHORT, _LONG = 20, 220
CALLS: Final = "Overhead, ms a run"
CALLED: Final = f"chain of {_SHORT} Tanh of 1024 numbers"


def measure(bench: Bench) -> None:
    """Our executor on the gpu and on the CPU, one launch for the whole chain, and bare CuPy."""
    columns: dict[str, Callable[[int], Callable[[], object]]] = {
        "cfgraph on a gpu": lambda count: _ours(bench, count, {}),
        "cfgraph on a gpu, tokens": lambda count: _ours(bench, count, {"engine": "tokens"}),
        "cfgraph on a gpu, clusters": lambda count: _ours(bench, count, {"jit": "numpy"}),
        "cfgraph on the CPU": lambda count: _ours(bench, count, {"devices": "cpu:0"}),
        "CuPy alone": lambda count: _bare(bench, count),
    }
    for column, work in columns.items():
        bench.take(TABLE, ROW, column, "µs", lambda work=work: _a_node(bench, work))
    for column, options in {"cfgraph": {}, "cfgraph, XLA": {"engine": "xla"}}.items():
        bench.take(CALLS, CALLED, column, "ms", lambda options=options: _a_run(bench, options))
    bench.take(CALLS, CALLED, "jax, by hand", "ms", lambda: _jax_run(bench))


def _a_node(bench: Bench, work: Callable[[int], Callable[[], object]]) -> float | str:
    """The time of one more node: that of a long chain less that of a short one."""
    if bench.simulated and work(1) is None:
        return "no card here"
    short, long = (bench.median(work(count), repeats=30) for count in (_SHORT, _LONG))
    return max(long - short, 0.0) / (_LONG - _SHORT) * 1e6


def _a_run(bench: Bench, options: dict[str, Any]) -> float | str:
    """The milliseconds of a run, of which kernels take few."""
    if "engine" in options and not has_jax():
        return "jax is not installed"
    return bench.median(_ours(bench, _SHORT, options), repeats=100, warm=5) * 1e3


def _jax_run(bench: Bench) -> float | str:
    """The milliseconds of the same chain in a call of jax, whose result is copied to the host."""
    if not has_jax():
        return "jax is not installed"
    jax = load_jax()
    if not bench.simulated and jax.devices()[0].platform == "cpu":
        return "jax has no CUDA here"

    def chained(start: Any) -> Any:
        value = jax.numpy.full(1024, start)
        for _ in range(_SHORT):
            value = jax.numpy.tanh(value)
        return value.sum()

    call, start = jax.jit(chained), np.float32(0.5)
    return bench.median(lambda: np.asarray(call(start)), repeats=100, warm=5) * 1e3


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
