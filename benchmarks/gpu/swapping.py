"""Training an LSTM in little memory, on a GPU: its length without swapping and with it.

The experiment of the first paper: 512 units, a batch of 512, 4 GiB.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

import cfgraph
from benchmarks.gpu.figures import Bench
from benchmarks.swapping import DEVICE, PAPER, TINY, Experiment, training_step
from cfgraph.ir.graph import Graph
from cfgraph.runtime.memory.accounting import DeviceMemory

FURTHEST: Final = "Training in little memory: how far"
TABLE: Final = "Training in little memory: time and copies"
# how many times further than without swapping is tried
_FURTHER: Final = (2, 4)


@dataclass(frozen=True, slots=True)
class Ran:
    """A training step that fitted: its seconds, and what the device held and copied."""

    seconds: float
    memory: DeviceMemory


def measure(bench: Bench) -> None:
    """The furthest length without swapping, then the same and further lengths with it."""
    experiment = TINY if bench.tiny else PAPER
    plain, swapping = (training_step(experiment, swap_memory=swap) for swap in (False, True))
    name = experiment.name

    def furthest() -> float:
        return float(_furthest(bench, plain, experiment))

    short = bench.take(FURTHEST, name, "steps without swapping", "", furthest)
    longest = short
    for times in (1, *_FURTHER):
        length = int(times * (short or 0))
        if not length:
            break
        row = f"{name}, {length} steps"
        free = _step(bench, plain, experiment, length, None)
        _note(bench, row, "µs per step, all memory", "µs", free, lambda ran: ran.seconds)
        ran = _step(bench, swapping, experiment, length, experiment.limit)
        _note(bench, row, "µs per step, swapping", "µs", ran, lambda ran: ran.seconds)
        if isinstance(ran, Ran):
            longest = length
            _traffic(bench, row, ran)
    if longest:
        bench.take(FURTHEST, name, "tried with swapping", "", lambda: float(longest))


def _note(bench: Bench, row: str, column: str, unit: str, ran: Ran | str, of: Any) -> None:
    steps = int(row.rsplit(" ", 2)[1])
    bench.take(
        TABLE, row, column, unit, lambda: ran if isinstance(ran, str) else of(ran) * 1e6 / steps
    )


def _traffic(bench: Bench, row: str, ran: Ran) -> None:
    """The bytes copied to the host and back, and the waiting time."""
    memory = ran.memory
    out, back = memory.swapped_out.bytes, memory.swapped_in.bytes
    for column, value, unit in (
        ("to the host", out / 2**20, "MiB"),
        ("back", back / 2**20, "MiB"),
        ("copied", (out + back) / ran.seconds / 1e9, "GB/s"),
        ("stalls", float(memory.stalls), ""),
        ("waited", memory.stalled * 1e3, "ms"),
    ):
        bench.take(TABLE, row, column, unit, lambda value=value: value)


def _furthest(bench: Bench, graph: Graph, experiment: Experiment) -> int:
    """The greatest length that fits, a multiple of the experiment's step."""
    fits, fails = 0, 0
    while not fails or fails - fits > 1:
        tried = (fits + fails) // 2 if fails else max(2 * fits, 1)
        ran = _step(bench, graph, experiment, tried * experiment.step, experiment.limit, once=True)
        fits, fails = (tried, fails) if isinstance(ran, Ran) else (fits, tried)
        if bench.late:
            break
    return fits * experiment.step


def _step(
    bench: Bench,
    graph: Graph,
    experiment: Experiment,
    length: int,
    limit: int | None,
    *,
    once: bool = False,
) -> Ran | str:
    """A training step, the better of two unless `once`; in words why there is none."""
    if bench.late:
        return "no time left"
    memory = {} if limit is None else {DEVICE: limit}
    session = bench.session(graph, devices=DEVICE, memory=memory)
    weights = np.full((2 * experiment.units, 4 * experiment.units), 0.01, np.float32)
    feeds: dict[str, Any] = {"length:0": np.int32(length), "weights:0": weights}
    taken = []
    try:
        for _ in range(1 if once or bench.tiny else 2):
            bench.sync()
            began = time.perf_counter()
            session.run(["loss:0"], feeds, targets=["gradient"])
            bench.sync()
            taken.append(time.perf_counter() - began)
    except cfgraph.ExecutionError as error:
        if error.code != "CFG711":
            raise
        return "out of memory"
    return Ran(min(taken), session.memory[DEVICE])
