"""The time of an LSTM as a loop, relative to the same LSTM unrolled, in virtual time."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import cfgraph
from benchmarks.swapping import COSTS, DEVICE, lstm, lstm_cell
from cfgraph.build.builder import Builder
from cfgraph.ir.graph import Graph
from cfgraph.runtime.cost_model import read_costs

BATCHES: Final = (64, 128, 256, 512)
UNITS: Final = 512
STEPS: Final = 40


def slowdowns(*, gradient: bool, batches: tuple[int, ...] = BATCHES) -> list[float]:
    """By how many percent a loop takes longer than the unrolled graph, for each batch."""
    return [
        100 * (_seconds(lstm(UNITS, batch), gradient) / _seconds(unrolled(batch), gradient) - 1)
        for batch in batches
    ]


def unrolled(batch: int) -> Graph:
    """The graph of `lstm` without a loop: a copy of the cell per step."""
    b = Builder()
    weights = b.placeholder("weights", "float32", [2 * UNITS, 4 * UNITS])
    sizes = b.Pack([b.const(STEPS), b.const(batch), b.const(UNITS)])
    inputs = b.Fill(sizes, b.const(1.0, "float32"))
    h: Any = b.Fill(b.const([batch, UNITS]), b.const(0.0, "float32"))
    c: Any = h
    for step in range(STEPS):
        x = b.GatherV2(inputs, b.const(step), b.const(0))
        h, c = lstm_cell(b, x, h, c, weights)
    b.Sum(h, b.const([0, 1]), name="loss")
    return b.graph


def _seconds(graph: Graph, gradient: bool) -> float:
    fetches = ["loss:0"]
    if gradient:
        made = cfgraph.gradients(graph, ys=["loss:0"], xs=["weights:0"])
        fetches.append(str(made[0]))
    feeds: dict[str, Any] = {"weights:0": np.zeros((2 * UNITS, 4 * UNITS), np.float32)}
    if "length" in graph.nodes:
        feeds["length:0"] = np.int32(STEPS)
    session = cfgraph.Session(graph, devices=DEVICE, costs=read_costs(str(COSTS)))
    session.run(fetches, feeds, without_values=True)
    return session.elapsed or 0.0
