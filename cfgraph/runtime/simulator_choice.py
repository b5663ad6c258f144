"""Choice of the simulator of a run: virtual clock, real GPU, or NumPy alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir.graph import Graph, Output
from cfgraph.runtime.cost_model import CostModel
from cfgraph.runtime.engine.plan import Plan
from cfgraph.runtime.engine.step import RunStep
from cfgraph.runtime.gpu.context import GpuContext, gpu_context, has_gpu
from cfgraph.runtime.gpu.executor import GpuSimulator
from cfgraph.runtime.gpu.plan import is_gpu
from cfgraph.runtime.memory.accounting import MemoryMeter
from cfgraph.runtime.simulator import Simulator
from cfgraph.runtime.trace.events import Observer
from cfgraph.runtime.virtual import VirtualSimulator

GPU_KINDS: Final = ("simulated", "real")


def resolve_gpu(gpu: str | GpuContext | None, costs: Any = None) -> GpuContext | str | None:
    """What gpus are to be: a card, `simulated`, or None where nobody asked.

    Raises UsageError for what is no kind of gpu, and for a real one in virtual time, Unsupported
    for one that cannot be had.
    """
    if gpu is None or isinstance(gpu, GpuContext):
        return gpu
    if gpu not in GPU_KINDS:
        raise UsageError(f"unknown kind of gpu {gpu!r}", hint=f"one of {', '.join(GPU_KINDS)}")
    if gpu == "real" and costs is not None:
        raise UsageError("virtual time does not come from a real gpu", hint="simulate it")
    return gpu_context() if gpu == "real" else gpu


def select_gpu(gpu: GpuContext | str | None, plans: Sequence[Plan]) -> GpuContext | None:
    """The card that the gpus of a run are on; None where NumPy simulates them, or there are none.

    Where nobody asked, a card is taken if there is one, and CuPy is installed.
    """
    if gpu == "simulated" or not any(is_gpu(plan.device) for plan in plans):
        return None
    if isinstance(gpu, GpuContext):
        return gpu
    try:
        return gpu_context() if has_gpu() else None
    except Unsupported:
        return None


def make_simulator(
    run: tuple[Graph, Sequence[Output], Any, Any],
    plans: Sequence[Plan],
    step: RunStep,
    trace: Observer | None,
    meter: MemoryMeter | None,
    *,
    costs: CostModel | None,
    gpu: GpuContext | str | None,
) -> Simulator:
    """The simulator of the plans of a run. Raises Unsupported where a card is wanted in vain."""
    graph, fetches = run[0], run[1]
    if costs is not None:
        return VirtualSimulator(graph, plans, step, fetches, costs, trace, meter)
    card = select_gpu(gpu, plans)
    if card is not None:
        return GpuSimulator(card, graph, plans, step, fetches, trace, meter)
    return Simulator(graph, plans, step, fetches, trace, meter)
