"""An LSTM and its gradient: plain, in clusters, by XLA, by jax, and by PyTorch; ms per run.

All data is on the GPU beforehand, in constants of the graph. Products are in full float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import cfgraph
from benchmarks.gpu.figures import Bench
from benchmarks.gpu.peers import jax_lstm, torch_lstm
from cfgraph.backends.xla.jax_library import has_jax
from cfgraph.build.builder import Builder
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph

GRAPHS: Final = Path(__file__).parents[2] / "fixtures" / "graphs"
TABLE: Final = "An LSTM, ms per run"
# how our own column runs clusters; deprecated options alone form them on a GPU without whole loops
_OURS: Final[dict[str, dict[str, Any]]] = {
    "cfgraph, plain": {},
    "cfgraph, clusters": {"jit": "numpy"},
    "cfgraph, XLA": {"jit": "xla"},
    "cfgraph, XLA, whole loop": {"engine": "xla"},
}


@dataclass(frozen=True)
class Case:
    """An LSTM of a size; `file` is that of a graph in the fixtures, else it is built."""

    steps: int
    batch: int
    units: int
    gradient: bool
    file: str = ""

    @property
    def name(self) -> str:
        """The name of the row."""
        what = "LSTM and gradient" if self.gradient else "LSTM"
        return f"{what}, {self.steps} steps of {self.batch} x {self.units}"

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """The inputs and the weights."""
        random = np.random.default_rng(0)
        x = random.standard_normal((self.steps, self.batch, self.units)).astype(np.float32)
        weights = random.standard_normal((2 * self.units, 4 * self.units)) / self.units
        return x, weights.astype(np.float32)

    def graph(self) -> Graph:
        """The graph, its data in constants."""
        graph = cfgraph.load(GRAPHS / self.file) if self.file else built(self)
        x, weights = self.data()
        for name, value in (("x", x), ("W", weights)):
            dtype = DType.from_numpy(value.dtype)
            made = graph.add("Const", name=f"{name}_value", value=TensorValue(value), dtype=dtype)
            graph.replace_uses(graph[name].output(), made.output())
        return graph


def cases(*, tiny: bool) -> Iterator[Case]:
    """The sizes that are measured."""
    steps = 2 if tiny else 100
    yield Case(steps, 32, 256, False, "lstm.pb")
    yield Case(steps, 32, 256, True, "lstm_grad.pb")
    if not tiny:
        yield Case(steps, 512, 512, False)
        yield Case(steps, 512, 512, True)


def built(case: Case) -> Graph:
    """An LSTM of any size, with the names of the fixtures."""
    b = Builder()
    x = b.placeholder("x", "float32", [case.steps, case.batch, case.units])
    weights = b.placeholder("W", "float32", [2 * case.units, 4 * case.units])
    start = b.Fill(b.const([case.batch, case.units]), b.const(0.0, "float32"))

    def body(i: Any, h: Any, c: Any) -> Any:
        row = b.GatherV2(x, i, b.const(0))
        gates = b.MatMul(b.ConcatV2([row, h], b.const(1)), weights)
        forget, enter, new, leave = b.Split(b.const(1), gates, num_split=4)
        c = b.AddV2(b.Mul(b.Sigmoid(forget), c), b.Mul(b.Sigmoid(enter), b.Tanh(new)))
        return b.AddV2(i, b.const(1)), b.Mul(b.Sigmoid(leave), b.Tanh(c)), c

    steps = b.const(case.steps)
    _, h, _ = b.while_loop(lambda i, h, c: b.Less(i, steps), body, [b.const(0), start, start])
    b.Sum(h, b.const([0, 1]), name="loss")
    if case.gradient:
        made = cfgraph.gradients(b.graph, ys=["loss:0"], xs=["W:0"])
        b.graph.add("Identity", b.graph.tensor(str(made[0])), name="dW")
    return b.graph


def measure(bench: Bench) -> None:
    """Every case, ours and the peers' in turn."""
    for case in cases(tiny=bench.tiny):
        for column, options in _OURS.items():
            bench.take(TABLE, case.name, column, "ms", _cfgraph_time(bench, case, options))
        for column, peer in (("jax, by hand", jax_lstm), ("PyTorch, eager", torch_lstm)):
            bench.take(TABLE, case.name, column, "ms", _peer_time(bench, case, peer))


def _cfgraph_time(bench: Bench, case: Case, options: dict[str, Any]) -> Callable[[], float | str]:
    def figure() -> float | str:
        if "xla" in options.values() and not has_jax():
            return "jax is not installed"
        session = bench.session(case.graph(), **options)
        targets = ["dW"] if case.gradient else []
        taken = bench.median(lambda: session.run(["loss:0"], targets=targets))
        refused = [c.refused for c in session.cluster_runner.clusters.values() if c.refused]
        return (
            f"not compiled: {refused[0]}" if refused and "xla" in options.values() else taken * 1e3
        )

    return figure


def _peer_time(bench: Bench, case: Case, peer: Any) -> Callable[[], float | str]:
    def figure() -> float | str:
        found = peer(*case.data(), gradient=case.gradient, gpu_plan=not bench.simulated)
        return found if isinstance(found, str) else bench.median(found) * 1e3

    return figure
