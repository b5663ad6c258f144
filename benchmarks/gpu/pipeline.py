"""Eight layers of an LSTM over gpus that share one card, and how many iterations run at once.

Each is timed, then traced once: how long the gpus computed, and how long several did at once. The
times of its kernels are the costs of a virtual clock, whose time is compared with the measured one.
The larger layers have products of about 100 us on a third of a card.
"""

from __future__ import annotations

from functools import cached_property
from itertools import product
from typing import Any, Final

import numpy as np

from benchmarks.gpu.figures import Bench
from benchmarks.gpu.overlap import EventRecorder, overlap
from cfgraph.build.builder import Builder
from cfgraph.ir.graph import Graph
from cfgraph.ir.nested_text import parse_toml
from cfgraph.runtime.cost_model import Calibration, CostModel
from cfgraph.runtime.trace.events import Tee

TABLE: Final = "Eight layers over gpus of one card, ms per run"
TOGETHER: Final = "Eight layers over gpus of one card, time in which two or more compute"
PREDICTED: Final = "Eight layers over gpus of one card, ms per run by the virtual clock"
LAYERS: Final = 8
_SIZES: Final = ((128, 1024), (256, 256))
_GPUS: Final = (1, 2, 4, 8)
_AT_ONCE: Final = (1, 2, 4, 8, 16, 32)


def measure(bench: Bench) -> None:
    """Each number of gpus with each `parallel_iterations`, node by node and clustered."""
    at_once = _AT_ONCE[1:2] if bench.tiny else _AT_ONCE
    kinds = product(_SIZES[:1] if bench.tiny else _SIZES, (False, True), _GPUS, at_once)
    for (rows, units), clustered, gpus, parallel in kinds:
        run = Run(bench, gpus, parallel, clustered, rows, units)
        column = f"parallel_iterations {parallel}"
        bench.take(TABLE, run.name, column, "ms", run.timed)
        bench.take(TOGETHER, run.name, column, "%", run.traced)
        if not clustered:
            bench.take(PREDICTED, run.name, column, "ms", run.predicted)


class Run:
    """The layers on a number of GPUs and iterations in flight, clustered or not."""

    def __init__(
        self, bench: Bench, gpus: int, parallel: int, clustered: bool, rows: int, units: int
    ) -> None:
        self.bench, self.gpus, self.parallel, self.clustered = bench, gpus, parallel, clustered
        scale = 32 if bench.tiny else 1
        self.steps = 3 if bench.tiny else 50
        self.rows, self.units = rows // scale, units // scale
        self.calibration = Calibration()

    @property
    def name(self) -> str:
        """The name of the row."""
        gpus = f"{self.gpus} gpu{'s' * (self.gpus > 1)}{', clustered' * self.clustered}"
        return f"{gpus}, {self.steps} steps of {self.rows} x {self.units}"

    @cached_property
    def session(self) -> Any:
        """The kind of execution."""
        return self.make_session(jit="numpy" if self.clustered else None)

    def make_session(self, **options: Any) -> Any:
        """A session on the gpus."""
        devices = f"cpu:0,gpu:0-{self.gpus - 1}" if self.gpus > 1 else "cpu:0,gpu:0"
        graph = layers(self.gpus, self.parallel, self.steps, self.rows, self.units)
        return self.bench.session(graph, devices=devices, **options)

    def timed(self) -> float:
        """The milliseconds of a run."""
        return self.bench.median(lambda: self.session.run(["out:0"]), repeats=3, warm=1) * 1e3

    def traced(self) -> float:
        """The percent of the loop in which two gpus or more compute; the rest is kept, too."""
        kept = EventRecorder()
        self.session.run(["out:0"], trace=Tee([kept, self.calibration]))
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

    def predicted(self) -> float:
        """The milliseconds of a run by the virtual clock, with the times of the traced kernels."""
        kernels = parse_toml(self.calibration.text())["kernels"]
        session = self.make_session(costs=CostModel(kernels=kernels), gpu=None)
        session.run(["out:0"])
        return float(session.elapsed) * 1e3


def layers(gpus: int, parallel: int, steps: int, rows: int, units: int) -> Graph:
    """A loop in which each layer takes what the layer below it gave in this iteration."""
    b = Builder()
    random = np.random.default_rng(0)
    places = [f"/device:GPU:{layer * gpus // LAYERS}" for layer in range(LAYERS)]
    weights, states = [], []
    for place in places:
        with b.device(place):
            data = random.standard_normal((2 * units, 4 * units)).astype(np.float32) / units
            weights.append(b.Identity(b.const(data)))
            states += [b.Fill(b.const([rows, units]), b.const(0.0, "float32")) for _ in "hc"]
    with b.device(places[0]):
        row = b.Fill(b.const([rows, units]), b.const(1.0, "float32"))

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
