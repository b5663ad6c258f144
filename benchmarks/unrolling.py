"""The time of an LSTM as a loop, relative to the same LSTM unrolled, in virtual time."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import cfgraph
from benchmarks.swapping import COSTS, DEVICE
from cfgraph.ir.graph import Graph
from cfgraph.runtime.cost_model import read_costs
from examples.paper.lstm import lstm, unrolled_lstm, with_gradient

BATCHES: Final = (64, 128, 256, 512)
UNITS: Final = 512
STEPS: Final = 40


def slowdowns(*, gradient: bool, batches: tuple[int, ...] = BATCHES) -> list[float]:
    """By how many percent a loop takes longer than the unrolled graph, for each batch."""
    return [
        100
        * (
            _seconds(lstm(UNITS, batch), gradient)
            / _seconds(unrolled_lstm(UNITS, batch, STEPS), gradient)
            - 1
        )
        for batch in batches
    ]


def _seconds(graph: Graph, gradient: bool) -> float:
    fetches = ["loss:0"]
    if gradient:
        with_gradient(graph)
        fetches.append("gradient:0")
    feeds: dict[str, Any] = {"weights:0": np.zeros((2 * UNITS, 4 * UNITS), np.float32)}
    if "length" in graph.nodes:
        feeds["length:0"] = np.int32(STEPS)
    session = cfgraph.Session(graph, devices=DEVICE, costs=read_costs(str(COSTS)))
    session.run(fetches, feeds, without_values=True)
    return session.elapsed or 0.0
