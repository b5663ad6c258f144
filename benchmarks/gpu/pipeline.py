"""Eight layers of an LSTM over gpus that share one card, and how many iterations run at once.

Each is timed, then traced once: how long the gpus computed, and how long several did at once.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np

from benchmarks.gpu.figures import Bench
from benchmarks.gpu.overlap import EventRecorder, overlap
from cfgraph.build.builder import Builder
from cfgraph.ir.graph import Graph

TABLE: Final = "Eight layers over gpus of one card, ms per run"
TOGETHER: Final = "Eight layers over gpus of one card, time in which two or more compute"
LAYERS: Final = 8
_GPUS: Final = (1, 2, 4, 8)
_AT_ONCE: Final = (1, 2, 4, 8, 16, 32)


def measure(bench: Bench) -> None:
    """Each number of gpus with each `parallel_iterations`, node by node and clustered."""
    for clustered in (False, True):
        for gpus in _GPUS:
            for parallel in _AT_ONCE[1:2] if bench.tiny else _AT_ONCE:
                run = Run(bench, gpus, parallel, clustered)
                column = f"parallel_iterations {parallel}"
                bench.take(TABLE, run.name, column, "ms", run.timed)
                bench.take(TOGETHER, run.name, column, "%", run.traced)


class Run:
    """The layers on a number of GPUs and iterations in flight, clustered or not."""

    def __init__(self, bench: Bench, gpus: int, parallel: int, clustered: bool) -> None:
        self.bench, self.gpus, self.parallel, self.clustered = bench, gpus, parallel, clustered
        self.steps, self.side = (3, 8) if bench.tiny else (50, 256)

    @property
    def name(self) -> str:
        """The name of the row."""
        gpus = f"{self.gpus} gpu{'s' * (self.gpus > 1)}{', clustered' * self.clustered}"
        return f"{gpus}, {self.steps} steps of {self.side} x {self.side}"

    @cached_property
    def session(self) -> Any:
        """The kind of execution."""
        devices = f"cpu:0,gpu:0-{self.gpus - 1}" if self.gpus > 1 else "cpu:0,gpu:0"
        graph = layers(self.gpus, self.parallel, self.steps, self.side)
        return self.bench.session(graph, devices=devices, jit="numpy" if self.clustered else None)

    def timed(self) -> float:
        """The milliseconds of a run."""
        return self.bench.median(lambda: self.session.run(["out:0"]), repeats=3, warm=1) * 1e3

    def traced(self) -> float:
        """The percent of the loop in which two gpus or more compute; the rest is kept, too."""
        kept = EventRecorder()
        self.session.run(["out:0"], trace=kept)
        found, bench = overlap(kept.events), self.bench
        setting = {
            "gpus": self.gpus,
            "clustered": self.clustered,
            "parallel_iterations": self.parallel,
        }
        bench.pipeline.append({**setting, **found.to_json()})
        if self.gpus == _GPUS[-1] and found.share >= bench.most:
            bench.most, bench.trace = found.share, kept.events
        return found.share * 100


def layers(gpus: int, parallel: int, steps: int, side: int) -> Graph:
    """A loop in which each layer takes what the layer below it gave in this iteration."""
    b = Builder()
    random = np.random.default_rng(0)
    places = [f"/device:GPU:{layer * gpus // LAYERS}" for layer in range(LAYERS)]
    weights, states = [], []
    for place in places:
        with b.device(place):
            data = random.standard_normal((2 * side, 4 * side)).astype(np.float32) / side
            weights.append(b.Identity(b.const(data)))
            states += [b.Fill(b.const([side, side]), b.const(0.0, "float32")) for _ in "hc"]
    with b.device(places[0]):
        row = b.Fill(b.const([side, side]), b.const(1.0, "float32"))

    def body(i: Any, *before: Any) -> list[Any]:
        after, given = [], row
        for layer, place in enumerate(places):
            with b.device(place):
                h, c = before[2 * layer : 2 * layer + 2]
                gates = b.MatMul(b.ConcatV2([given, h], b.const(1)), weights[layer])
                forget, enter, new, leave = b.Split(b.const(1), gates, num_split=4)
                c = b.AddV2(b.Mul(b.Sigmoid(forget), c), b.Mul(b.Sigmoid(enter), b.Tanh(new)))
                given = b.Mul(b.Sigmoid(leave), b.Tanh(c))
                after += [given, c]
        return [b.AddV2(i, b.const(1)), *after]

    with b.device("/device:CPU:0"):
        count, start = b.const(steps), b.const(0)

    def cond(i: Any, *states: Any) -> Any:
        with b.device("/device:CPU:0"):
            return b.Less(i, count)

    made = b.while_loop(cond, body, [start, *states], parallel_iterations=parallel)
    with b.device(places[-1]):
        b.Sum(made[2 * LAYERS - 1], b.const([0, 1]), name="out")
    return b.graph
