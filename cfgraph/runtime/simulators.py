"""What runs a session's plans: in real time or by a virtual clock, its gpus on a card or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cfgraph.ir.graph import Graph, Output
from cfgraph.runtime.cost_model import CostModel
from cfgraph.runtime.devices.card import Card
from cfgraph.runtime.devices.card_run import CardSimulator
from cfgraph.runtime.devices.real import chosen
from cfgraph.runtime.memory.meter import Meter
from cfgraph.runtime.plan import Plan
from cfgraph.runtime.simulator import Simulator
from cfgraph.runtime.step import RunStep
from cfgraph.runtime.trace import Observer
from cfgraph.runtime.virtual import VirtualSimulator


def make_simulator(
    run: tuple[Graph, Sequence[Output], Any, Any],
    plans: Sequence[Plan],
    step: RunStep,
    trace: Observer | None,
    meter: Meter | None,
    *,
    costs: CostModel | None,
    gpu: Card | str | None,
) -> Simulator:
    """The simulator of the plans of a run. Raises Unsupported where a card is wanted in vain."""
    graph, fetches = run[0], run[1]
    if costs is not None:
        return VirtualSimulator(graph, plans, step, fetches, costs, trace, meter)
    card = chosen(gpu, plans)
    if card is not None:
        return CardSimulator(card, graph, plans, step, fetches, trace, meter)
    return Simulator(graph, plans, step, fetches, trace, meter)
