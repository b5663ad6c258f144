"""Microseconds per iteration of compiled loops, compared with TensorFlow and handwritten jax.

The peer of each line is named in it: TensorFlow as it is, TensorFlow with automatic clustering, or
jax. The first run, which compiles, is a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final

import numpy as np

from benchmarks.measurement import Row, alternating_times, single_time
from benchmarks.peer import runner
from benchmarks.running import GRAPHS, Work, works
from cfgraph.backends.xla.jax_library import has_jax, load_jax
from cfgraph.ir.serde import graph_def
from cfgraph.runtime.session import Session

UNIT: Final = "µs per iteration"
# against TensorFlow without and with automatic clustering
BUDGETS: Final = {"counter.pb": (0.1, None), "nested.pb": (0.1, None), "lstm_grad.pb": (None, 1.0)}


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """Each loop as one cluster."""
    for work in works(tiny=tiny):
        yield from measure_work(tf, work, "compiled" if tiny or not has_jax() else "xla", tiny=tiny)


def measure_work(tf: ModuleType | None, work: Work, engine: str, *, tiny: bool) -> Iterator[Row]:
    """One loop against each peer that there is."""
    path, repeats = GRAPHS / work.file, 1 if tiny else 5
    graph = graph_def.graph_from_bytes(path.read_bytes())
    session = Session(graph, engine=engine)

    def ours() -> object:
        return session.run(work.fetches, work.feeds)

    first, scale = single_time(ours), 1e6 / work.iterations
    budgets = BUDGETS.get(work.file, (None, None))
    peers: list[tuple[str, Callable[[], object] | None, float | None]] = []
    if tf is not None:
        peers.append(("TensorFlow", runner(tf, path, work.fetches, work.feeds), budgets[0]))
        jit = runner(tf, path, work.fetches, work.feeds, jit=True)
        peers.append(("TensorFlow with auto-jit", jit, budgets[1]))
    if engine == "xla":
        peers.append(("jax by hand", handwritten_jax(work), None))
    for name, peer, budget in peers or [("", None, None)]:
        mine, theirs = alternating_times(ours, peer, repeats)
        label = f"{work.name}, regions, {engine}" + (f"; {name}" if name else "")
        yield Row(label, mine * scale, UNIT, None if theirs is None else theirs * scale, budget)
    yield Row("  the first run", first, "s")


def handwritten_jax(work: Work) -> Callable[[], object]:
    """The same work as a function of jax, compiled."""
    written = {
        "counter.pb": _counter,
        "nested.pb": _nested,
        "lstm.pb": _lstm,
        "lstm_grad.pb": _lstm_with_gradient,
    }[work.file]
    call, inputs = written(load_jax()), list(work.feeds.values())

    def run() -> Any:
        return [np.asarray(item) for item in call(*inputs)]

    return run


def _counter(jax: Any) -> Any:
    def count(n: Any) -> Any:
        return [jax.lax.while_loop(lambda i: i < n, lambda i: i + 1, np.int32(0))]

    return jax.jit(count)


def _nested(jax: Any) -> Any:
    def inner(total: Any) -> Any:
        return jax.lax.fori_loop(0, 100, lambda i, x: x + 1, total)

    def count() -> Any:
        return [jax.lax.fori_loop(0, 100, lambda i, x: inner(x), np.float32(0))]

    return jax.jit(count)


def _loss(jax: Any, weights: Any, inputs: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        cell, hidden = state
        gates = jax.numpy.concatenate([x, hidden], 1) @ weights
        forget, write, new, out = jax.numpy.split(gates, 4, 1)
        sigmoid, tanh = jax.nn.sigmoid, jax.numpy.tanh
        cell = sigmoid(forget) * cell + sigmoid(write) * tanh(new)
        return (cell, sigmoid(out) * tanh(cell)), None

    zeros = jax.numpy.zeros((32, 256), np.float32)
    return jax.lax.scan(step, (zeros, zeros), inputs)[0][1].sum()


def _lstm(jax: Any) -> Any:
    return jax.jit(lambda weights, inputs: [_loss(jax, weights, inputs)])


def _lstm_with_gradient(jax: Any) -> Any:
    return jax.jit(jax.value_and_grad(lambda weights, inputs: _loss(jax, weights, inputs)))
