"""The engine of a session with `costs`: the token executor on a virtual clock."""

from __future__ import annotations

from collections.abc import Sequence

from cfgraph.backends.simulation.abstract_run import use_abstract_values
from cfgraph.backends.simulation.virtual_time import VirtualClockDriver
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph
from cfgraph.runtime.engine.plan import Plan
from cfgraph.runtime.engine.step import RunStep, State
from cfgraph.runtime.memory.accounting import MemoryMeter
from cfgraph.runtime.preparation.engines import Engine
from cfgraph.runtime.preparation.prepare import PlannedRun
from cfgraph.runtime.preparation.run_config import RunConfig
from cfgraph.runtime.run_executor import RunExecutor
from cfgraph.runtime.trace.events import Observer


class VirtualClockEngine(Engine):
    """Predicts the times of a run by a cost model."""

    token_reason = "the clock is virtual"
    times_events = True
    simulates = True
    description = "virtual clock"

    def start_session(self, config: RunConfig, state: State | None) -> State:
        """Raises UsageError for a schedule other than fifo."""
        if config.schedule != "fifo":
            message = "the virtual clock supports only the fifo schedule"
            raise UsageError(message, hint='schedule="fifo"')
        return super().start_session(config, state)

    def driver(
        self, run: PlannedRun, step: RunStep, observer: Observer | None, meter: MemoryMeter | None
    ) -> VirtualClockDriver:
        """A driver with a clock of its own."""
        spec, plans = run.token_plans.get()
        assert self.config.costs is not None
        return VirtualClockDriver(
            spec.graph, plans, step, spec.fetches, self.config.costs, observer, meter
        )

    def omit_values(self, graph: Graph, plans: Sequence[Plan]) -> None:
        """Use abstract values; with counted memory each is an object of its own."""
        use_abstract_values(graph, plans, distinct=self.config.memory is not None)

    def start_run(self, executor: RunExecutor, until_iteration: int | None) -> None:
        """Set the iteration at which a run ends early."""
        assert isinstance(executor, VirtualClockDriver)
        executor.until = until_iteration
