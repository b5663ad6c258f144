"""Microseconds an iteration of loops and of an LSTM, forward and with its gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.measurement import Row, alternating_times, best_time
from benchmarks.peer import runner
from cfgraph.ir.serde import graph_def
from cfgraph.ops.kernels.matrix_products import multiply
from cfgraph.runtime.session import Session

BOUND = "NumPy computes elementwise ops one by one, on one core"
# steps of the LSTM whose products are computed at once
_JOINED_STEPS = 12
GRAPHS = Path(__file__).parents[1] / "fixtures" / "graphs"


@dataclass(frozen=True)
class Work:
    """One graph, how it is run, and its budget against TensorFlow."""

    name: str
    file: str
    fetches: list[str]
    iterations: int
    budget: float
    feeds: dict[str, Any] = field(default_factory=dict)
    # why the work may exceed its budget, and its matrix products alone
    exception: str = ""
    products: Callable[[], object] | None = None


def works(*, tiny: bool) -> Iterator[Work]:
    """The loops that are measured."""
    count = 50 if tiny else 20_000
    yield Work("counter", "counter.pb", ["count:0"], count, 0.12, {"n:0": np.int32(count)})
    yield Work("nested loops", "nested.pb", ["sum:0"], 10_000, 0.12)
    steps = 2 if tiny else 100
    random = np.random.default_rng(0)
    feeds = {
        "W:0": (random.standard_normal((512, 1024)) * 0.05).astype(np.float32),
        "x:0": random.standard_normal((steps, 32, 256)).astype(np.float32),
    }
    forward, backward = _products(steps, gradient=False), _products(steps, gradient=True)
    loss, both = ["loss:0"], ["loss:0", "dW:0"]
    yield Work("LSTM 32x256", "lstm.pb", loss, steps, 0.85, feeds, BOUND, forward)
    yield Work(
        "LSTM 32x256 with gradient", "lstm_grad.pb", both, steps, 0.55, feeds, BOUND, backward
    )


def _products(steps: int, *, gradient: bool) -> Callable[[], None]:
    """The matrix products of an LSTM alone, as they are computed: some for many steps at once."""
    random = np.random.default_rng(0)
    weights = random.standard_normal((512, 1024)).astype(np.float32)
    of_state = weights[256:]
    many = -(-steps // _JOINED_STEPS)
    inputs = random.standard_normal((32 * _JOINED_STEPS, 512)).astype(np.float32)
    gates = random.standard_normal((32 * _JOINED_STEPS, 1024)).astype(np.float32)
    dy = gates[:32]

    def run() -> None:
        for _ in range(steps):
            multiply(inputs[:32], weights)
        if gradient:
            for _ in range(steps):
                multiply(dy, of_state.T)
            for _ in range(many):
                multiply(inputs.T, gates)

    return run


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """Each loop in a session of ours and one of TensorFlow."""
    for work in works(tiny=tiny):
        path = GRAPHS / work.file
        session = Session(graph_def.graph_from_bytes(path.read_bytes()))
        peer = runner(tf, path, work.fetches, work.feeds) if tf else None

        def ours(session: Session = session, work: Work = work) -> object:
            return session.run(work.fetches, work.feeds)

        mine, theirs = alternating_times(ours, peer, repeats=1 if tiny else 5)
        scale = 1e6 / work.iterations
        per_iteration = None if theirs is None else theirs * scale
        unit = "µs per iteration"
        yield Row(work.name, mine * scale, unit, per_iteration, work.budget, work.exception)
        if work.products is not None:
            took = best_time(work.products, repeats=1 if tiny else 5) * scale
            yield Row("  its matrix products alone", took, unit, per_iteration)
