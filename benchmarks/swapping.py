"""The longest LSTM that trains in the memory of a simulated GPU, and the cost of swapping.

The experiment of the first paper, in virtual time: nothing is computed, sizes and times are what
the shapes and docs/cluster.toml say, so that the figures are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np

import cfgraph
from benchmarks.measurement import Row
from cfgraph.ir.graph import Graph
from cfgraph.ir.units import format_byte_size, parse_byte_size
from cfgraph.runtime.cost_model import CostModel, read_costs
from cfgraph.runtime.memory.accounting import DeviceMemory
from examples.paper.lstm import lstm, with_gradient

COSTS: Final = Path(__file__).parents[1] / "docs" / "cluster.toml"
DEVICE: Final = "gpu:0"
# lengths that are tried, as multiples of the longest one without swapping
_FURTHER: Final = (2, 4, 8)
# bytes per second of a link, and the budget of a step relative to one with all the memory: none
# if copies to the host take longer than the forward loop
_LINKS: Final = ((1.2e10, None), (2.4e10, 1.05))


@dataclass(frozen=True, slots=True)
class Experiment:
    """An LSTM by its units and the rows of a batch, on a GPU by its bytes."""

    units: int
    batch: int
    limit: int
    step: int  # lengths are multiples of it

    @property
    def name(self) -> str:
        """The name of the row."""
        return f"LSTM {self.units}x{self.batch} in {format_byte_size(self.limit)}"


PAPER: Final = Experiment(512, 512, parse_byte_size("4GiB"), 20)
TINY: Final = Experiment(32, 32, parse_byte_size("1MiB"), 5)


@dataclass(frozen=True, slots=True)
class Trained:
    """One training step: its length, its seconds in virtual time, and the device's memory."""

    length: int
    seconds: float
    memory: DeviceMemory


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """The greatest length without and with swapping, the bytes copied, and the waiting time."""
    experiment = TINY if tiny else PAPER
    plain, swapping = (training_step(experiment, swap_memory=swap) for swap in (False, True))
    short = furthest(plain, experiment)
    further = [times * short for times in _FURTHER]
    done = [train(swapping, experiment, length, experiment.limit) for length in further]
    longest = max((run.length for run in done if run), default=short)
    yield Row(f"{experiment.name}, no swapping", short, "steps", longest, 0.5)
    for bandwidth, budget in _LINKS:
        yield from cost_of_swapping((plain, swapping), experiment, further[0], bandwidth, budget)


def cost_of_swapping(
    graphs: tuple[Graph, Graph],
    experiment: Experiment,
    length: int,
    bandwidth: float,
    budget: float | None,
) -> Iterator[Row]:
    """The cost of swapping relative to unlimited memory, by the bandwidth of the link."""
    costs = _costs(bandwidth)
    free = train(graphs[0], experiment, length, None, costs)
    run = train(graphs[1], experiment, length, experiment.limit, costs)
    if free is None or run is None:
        return
    scale, memory = 1e6 / length, run.memory
    name = f"{length} steps, {bandwidth / 1e9:g} GB/s"
    yield Row(name, run.seconds * scale, "µs per step", free.seconds * scale, budget)
    yield Row(f"{name}, to the host", memory.swapped_out.bytes / 2**20, "MiB")
    yield Row(f"{name}, back", memory.swapped_in.bytes / 2**20, "MiB")
    if memory.stalls:
        yield Row(f"{name}, {memory.stalls} waits", memory.stalled * scale, "µs per step")


def _costs(bandwidth: float) -> CostModel:
    """The machines of docs/cluster.toml with other links."""
    costs = read_costs(str(COSTS))
    links = {name: {**link, "bandwidth": bandwidth} for name, link in costs.links.items()}
    return CostModel(costs.devices, links, costs.kernels)


def furthest(graph: Graph, experiment: Experiment) -> int:
    """The greatest length that fits, a multiple of the experiment's step."""
    fits, fails = 0, 0
    while not fails:
        tried = max(2 * fits, 1)
        ran = train(graph, experiment, tried * experiment.step, experiment.limit)
        fits, fails = (tried, 0) if ran else (fits, tried)
    while fails - fits > 1:
        tried = (fits + fails) // 2
        ran = train(graph, experiment, tried * experiment.step, experiment.limit)
        fits, fails = (tried, fails) if ran else (fits, tried)
    return fits * experiment.step


def train(
    graph: Graph,
    experiment: Experiment,
    length: int,
    limit: int | None,
    costs: CostModel | None = None,
) -> Trained | None:
    """Run a training step of a length; None where the memory does not suffice."""
    memory = {} if limit is None else {DEVICE: limit}
    costs = costs or read_costs(str(COSTS))
    session = cfgraph.Session(graph, devices=DEVICE, memory=memory, costs=costs)
    weights = np.zeros((2 * experiment.units, 4 * experiment.units), np.float32)
    feeds: dict[str, Any] = {"length:0": np.int32(length), "weights:0": weights}
    try:
        session.run(["loss:0", "gradient:0"], feeds, without_values=True)
    except cfgraph.ExecutionError as error:
        if error.code != "CFG711":
            raise
        return None
    return Trained(length, session.elapsed or 0.0, session.memory[DEVICE])


def training_step(experiment: Experiment, *, swap_memory: bool) -> Graph:
    """An LSTM over `length` inputs, its loss, and the gradient of its weights."""
    return with_gradient(lstm(experiment.units, experiment.batch), swap_memory=swap_memory)
