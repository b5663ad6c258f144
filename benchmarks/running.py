"""Microseconds an iteration of loops and of an LSTM, forward and with its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.measurement import Row, alternating_times
from benchmarks.peer import runner
from cfgraph.ir.serde import graph_def
from cfgraph.runtime.session import Session

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


def works(*, tiny: bool) -> Iterator[Work]:
    """The loops that are measured."""
    count = 50 if tiny else 20_000
    yield Work("counter", "counter.pb", ["count:0"], count, 8, {"n:0": np.int32(count)})
    yield Work("nested loops", "nested.pb", ["sum:0"], 10_000, 8)
    steps = 2 if tiny else 100
    random = np.random.default_rng(0)
    feeds = {
        "W:0": (random.standard_normal((512, 1024)) * 0.05).astype(np.float32),
        "x:0": random.standard_normal((steps, 32, 256)).astype(np.float32),
    }
    yield Work("LSTM 32x256", "lstm.pb", ["loss:0"], steps, 1.5, feeds)
    both = ["loss:0", "dW:0"]
    yield Work("LSTM 32x256 with gradient", "lstm_grad.pb", both, steps, 1.5, feeds)


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
        yield Row(work.name, mine * scale, unit, per_iteration, work.budget)
