"""The experiments: values of their curves, in virtual time or in real time.

Virtual times come from a cost model (`machines.toml`, or the GPUs of `docs/cluster.toml`), so they
are the same on every machine. Nothing is computed for them but control flow. Real times are
processor times of this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

import cfgraph
from examples.paper.graphs import BATCHES, GPUS, GRAPHS, LAYERS, MACHINES, PARALLEL, UNITS, UNROLLED
from examples.paper.in_graph_training import COPY, TRAIN

LENGTHS: Final = (110, 220, 440, 880, 1760)
CALLS: Final = (0, 25, 50, 100, 200)
# steps of an LSTM on several GPUs
STEPS: Final = 50
MEMORY: Final = 4 * 2**30
# fetches of an LSTM, with its gradient and without
FETCHES: Final = (["loss:0", "gradient:0"], ["loss:0"])
NETWORK_COSTS: Final = Path(__file__).parent / "machines.toml"
GPU_COSTS: Final = Path(__file__).parents[2] / "docs" / "cluster.toml"

Lines = dict[str, list[float | None]]


class Curves(NamedTuple):
    """Values of an experiment over `xs`, by the name of the curve; None where there is none."""

    experiment: str
    kind: str  # virtual or measured
    axis: str
    unit: str
    xs: Sequence[int]
    lines: Mapping[str, Sequence[float | None]]


def points(xs: Sequence[int], *, quick: bool) -> Sequence[int]:
    """The first points of a curve, or all."""
    return xs[:2] if quick else xs


def gpu_costs() -> Any:
    """The cost model of GPUs of one host."""
    return cfgraph.read_costs(str(GPU_COSTS))


def loops(quick: bool) -> Iterator[Curves]:
    """Iterations per second of a distributed loop, over its machines."""
    machines = points(MACHINES, quick=quick)
    lines: Lines = {"no barrier": [], "barrier": []}
    for count in machines:
        for name, values in lines.items():
            suffix = "_barrier" if name == "barrier" else ""
            graph = GRAPHS[f"loop_{count}{suffix}"]()
            devices = [f"/job:worker/task:{k}/device:CPU:0" for k in range(count)]
            fetches = [f"out{k}:0" for k in range(count)]
            costs = cfgraph.read_costs(str(NETWORK_COSTS))
            values.append(1 / iteration_seconds(graph, devices, fetches, costs, even=64))
    yield Curves("loops", "virtual", "machines", "iterations per second", machines, lines)


def parallel(quick: bool) -> Iterator[Curves]:
    """Milliseconds per iteration of eight layers on eight GPUs, over the iterations in flight."""
    bounds = points(PARALLEL, quick=quick)
    values = []
    for bound in bounds:
        graph = GRAPHS[f"layers_{bound}"]()
        devices = ["cpu:0", "gpu:0-7"]
        costs = gpu_costs()
        values.append(1e3 * iteration_seconds(graph, devices, ["out:0"], costs, even=64))
    lines = {"8 GPUs": values}
    yield Curves("parallel", "virtual", "parallel_iterations", "ms per iteration", bounds, lines)


def iteration_seconds(
    graph: Any, devices: Sequence[str], fetches: Sequence[str], costs: Any, even: int
) -> float:
    """The virtual time of an iteration after `even` of them, when a loop runs evenly."""
    cfgraph.place(graph, devices=",".join(devices))
    cfgraph.partition(graph)
    session = cfgraph.Session(graph, costs=costs)
    ends = []
    for last in (even, 2 * even):
        feeds = {"n:0": np.int32(10 * last)}
        session.run(fetches, feeds, until_iteration=last, without_values=True)
        ends.append(session.elapsed or 0.0)
    return (ends[1] - ends[0]) / even


def swapping(quick: bool) -> Iterator[Curves]:
    """Microseconds per step of training an LSTM on a GPU of 4 GiB, over its length."""
    costs, lengths = gpu_costs(), points(LENGTHS, quick=quick)
    plain, marked = (GRAPHS[name]() for name in ("lstm", "lstm_swapping"))
    lines: Lines = {
        "4 GiB, no swapping": [step_microseconds(plain, n, costs, MEMORY) for n in lengths],
        "4 GiB, swapping": [step_microseconds(marked, n, costs, MEMORY) for n in lengths],
        "unlimited memory": [step_microseconds(plain, n, costs, None) for n in lengths],
    }
    yield Curves("swapping", "virtual", "steps", "µs per step", lengths, lines)


def step_microseconds(graph: Any, length: int, costs: Any, limit: int | None) -> float | None:
    """The virtual time per step; None if the memory does not suffice."""
    memory = {} if limit is None else {"gpu:0": limit}
    session = cfgraph.Session(graph, devices="gpu:0", memory=memory, costs=costs)
    try:
        session.run(["loss:0", "gradient:0"], lstm_feeds(length), without_values=True)
    except cfgraph.ExecutionError as error:
        if error.code != "CFG711":  # out of memory
            raise
        return None
    return (session.elapsed or 0.0) * 1e6 / length


def unrolling(quick: bool) -> Iterator[Curves]:
    """Excess time of an LSTM as a loop over the unrolled one, by the rows of a batch."""
    batches, costs = points(BATCHES, quick=quick), gpu_costs()

    def seconds(graph: Any, fetches: Sequence[str]) -> float:
        session = cfgraph.Session(graph, devices="gpu:0", costs=costs)
        session.run(fetches, feeds_of(graph), without_values=True)
        return session.elapsed or 0.0

    lines: Lines = {"with its gradient": [], "forward": []}
    for batch in batches:
        loop, unrolled = (GRAPHS[f"{name}_{batch}"]() for name in ("lstm", "unrolled"))
        for values, fetches in zip(lines.values(), FETCHES, strict=True):
            values.append(100 * (seconds(loop, fetches) / seconds(unrolled, fetches) - 1))
    yield Curves("unrolling", "virtual", "rows of a batch", "% longer", batches, lines)


def measured_unrolling(quick: bool) -> Iterator[Curves]:
    """The same on the CPU, in real time."""
    batches = BATCHES[:1] if quick else BATCHES
    lines: Lines = {"with its gradient": [], "forward": []}
    for batch in batches:
        graphs = [GRAPHS[f"{name}_{batch}"]() for name in ("lstm", "unrolled")]
        sessions = [cfgraph.Session(graph, blas_threads=1) for graph in graphs]
        feeds = [feeds_of(graph) for graph in graphs]
        for values, fetches in zip(lines.values(), FETCHES, strict=True):
            loop, unrolled = alternating_seconds(
                *(
                    partial(session.run, fetches, inputs)
                    for session, inputs in zip(sessions, feeds, strict=True)
                )
            )
            values.append(100 * (loop / unrolled - 1))
    yield Curves("unrolling", "measured", "rows of a batch", "% longer", batches, lines)


def pipeline(quick: bool) -> Iterator[Curves]:
    """Speed of eight LSTM layers divided among GPUs, relative to one GPU."""
    counts, costs = points(GPUS, quick=quick), gpu_costs()
    gradients = [f"gradient{layer}:0" for layer in range(LAYERS)]
    times: dict[str, list[float]] = {"with its gradient": [], "forward": []}
    for gpus in counts:
        graph = GRAPHS[f"layered_{gpus}"]()
        devices = ["cpu:0", *(f"gpu:{k}" for k in range(gpus))]
        session = cfgraph.Session(graph, devices=devices, costs=costs)
        feeds = {f"weights{layer}:0": lstm_weights() for layer in range(LAYERS)}
        feeds["length:0"] = np.int32(STEPS)
        for values, fetches in zip(
            times.values(), (["loss:0", *gradients], ["loss:0"]), strict=True
        ):
            session.run(fetches, feeds, without_values=True)
            values.append((session.elapsed or 0.0) * 1e3)
    yield Curves("pipeline-times", "virtual", "GPUs", "ms per run", counts, times)
    speed = {name: [values[0] / value for value in values] for name, values in times.items()}
    yield Curves("pipeline", "virtual", "GPUs", "times as fast as 1 GPU", counts, speed)


def training(quick: bool) -> Iterator[Curves]:
    """Microseconds per step of Q-learning, over the microseconds that a program takes per call."""
    steps, costs = 256, gpu_costs()
    inside, outside = training_sessions(devices="gpu:0", costs=costs)
    inside.run(["total:0"], {"n:0": np.int32(steps)})
    spent = (inside.elapsed or 0.0) * 1e6 / steps
    parts = TrainingProgram(outside)
    parts.run(steps)
    lines: Lines = {
        "one loop": [spent + call / steps for call in CALLS],
        "a call per part": [(parts.elapsed * 1e6 + parts.calls * call) / steps for call in CALLS],
    }
    yield Curves("training", "virtual", "µs per call", "µs per step", CALLS, lines)


def measured_training(quick: bool) -> Iterator[Curves]:
    """The same on the CPU, in real time, over the number of steps."""
    counts = (32,) if quick else (1024, 4096)
    inside, outside = training_sessions()
    lines: Lines = {"one loop": [], "a call per part": []}
    for steps in counts:
        feeds = {"n:0": np.int32(steps)}
        seconds = alternating_seconds(
            partial(inside.run, ["total:0"], feeds), partial(TrainingProgram(outside).run, steps)
        )
        for values, value in zip(lines.values(), seconds, strict=True):
            values.append(value * 1e6 / steps)
    yield Curves("training", "measured", "steps", "µs per step", counts, lines)


def training_sessions(**options: Any) -> tuple[Any, Any]:
    """Sessions of the whole loop, and of the parts of a step."""
    graphs = [GRAPHS[f"training_{name}"]() for name in ("loop", "parts")]
    return cfgraph.Session(graphs[0], **options), cfgraph.Session(graphs[1], **options)


class TrainingProgram:
    """The training loop as a program, which runs a part of the graph where it decides to."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.calls = 0
        self.elapsed = 0.0

    def run(self, steps: int) -> float:
        """The sum of the rewards."""
        start = self._call("start", 6, {})
        network, target, stored = start[:2], start[:2], start[2:]
        state, total = np.int32(0), 0.0
        for step in range(steps):
            i = {"i": np.int32(step)}
            if self._call("exploring", 1, i)[0]:
                (action,) = self._call("random", 1, i)
            else:
                (action,) = self._call("greedy", 1, {"state": state, "network": network})
            taken = {"state": state, "action": action}
            after, reward = self._call("moved", 2, taken)
            stored = self._call("store", 4, {**i, **taken, "stored": stored})
            if step % TRAIN == TRAIN - 1:
                known = {"network": network, "target": target, "stored": stored}
                network = self._call("train", 2, {**i, **known})
            if step % COPY == COPY - 1:
                target = network
            state, total = after, total + float(reward)
        return total

    def _call(self, part: str, outputs: int, values: Mapping[str, Any]) -> list[Any]:
        feeds: dict[str, Any] = {}
        for name, value in values.items():
            many = value if isinstance(value, list) else None
            feeds |= (
                {f"{name}{k}:0": x for k, x in enumerate(many)} if many else {f"{name}:0": value}
            )
        result = self.session.run([f"{part}{k}:0" for k in range(outputs)], feeds)
        self.calls += 1
        self.elapsed += self.session.elapsed or 0.0
        return list(result)


def alternating_seconds(*works: Callable[[], Any]) -> list[float]:
    """The least processor time of each, of some runs in turn after a first one."""
    for work in works:
        work()
    best = [float("inf")] * len(works)
    for _ in range(3):
        for k, work in enumerate(works):
            start = time.process_time()
            work()
            best[k] = min(best[k], time.process_time() - start)
    return best


def lstm_feeds(length: int) -> dict[str, Any]:
    """Inputs of an LSTM of a length."""
    return {"weights:0": lstm_weights(), "length:0": np.int32(length)}


def feeds_of(graph: Any) -> dict[str, Any]:
    """Inputs of an LSTM as a loop or unrolled."""
    feeds = lstm_feeds(UNROLLED)
    return {name: value for name, value in feeds.items() if name[:-2] in graph.nodes}


def lstm_weights() -> Any:
    """The weights of a layer."""
    return np.full((2 * UNITS, 4 * UNITS), 0.001, np.float32)


# by name: an experiment in virtual time, and in real time where one machine suffices
EXPERIMENTS: Final[Mapping[str, Sequence[Callable[[bool], Iterator[Curves]] | None]]] = {
    "loops": (loops, None),
    "parallel": (parallel, None),
    "swapping": (swapping, None),
    "unrolling": (unrolling, measured_unrolling),
    "pipeline": (pipeline, None),
    "training": (training, measured_training),
}


def results(names: Sequence[str], *, quick: bool, measure: bool) -> Iterator[Curves]:
    """The curves of the named experiments, or of all."""
    for name in names or EXPERIMENTS:
        experiment = EXPERIMENTS[name][measure]
        if experiment is not None:
            yield from experiment(quick)


def table(curves: Curves) -> str:
    """The values as a table of text."""
    head = [curves.axis, *curves.lines]
    rows = [
        [str(x), *("-" if line[k] is None else f"{line[k]:.4g}" for line in curves.lines.values())]
        for k, x in enumerate(curves.xs)
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [f"{curves.experiment}: {curves.unit}, {curves.kind}"]
    for row in (head, *rows):
        lines.append("  ".join(cell.rjust(n) for cell, n in zip(row, widths, strict=True)))
    return "\n".join(lines) + "\n"
