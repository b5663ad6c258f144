"""The engine of a session with `workers`, a `Processes` or a `Ray`."""

from __future__ import annotations

from collections.abc import Sequence

from cfgraph.backends.workers.driver import RemoteRun
from cfgraph.backends.workers.workers import Workers
from cfgraph.errors import UsageError
from cfgraph.extensions import COMPILER, extension_names
from cfgraph.runtime.engine.step import RunStep, State
from cfgraph.runtime.memory.accounting import MemoryMeter
from cfgraph.runtime.preparation.engines import Engine
from cfgraph.runtime.preparation.prepare import PlannedRun
from cfgraph.runtime.preparation.run_config import RunConfig
from cfgraph.runtime.trace.events import Observer


class WorkerEngine(Engine):
    """Runs the devices of partitioned graphs on workers, which hold the variables."""

    is_exclusive = True
    is_local = False

    def start_session(self, config: RunConfig, state: State | None) -> State:
        """The variables of the workers. Raises UsageError for an option that workers refuse."""
        super().start_session(config, state)
        compilers = extension_names(COMPILER)
        for name, value in (
            ("memory", config.memory),
            (f'engine="{config.engine}"' if config.engine in compilers else "jit", config.jit),
            ('schedule="random"', config.schedule == "random" or None),
        ):
            if value is not None:
                raise UsageError(f"{name} cannot be combined with workers", hint=f"omit {name}")
        self.workers = Workers(config.workers, state)
        return self.workers.state

    def driver(
        self, run: PlannedRun, step: RunStep, observer: Observer | None, meter: MemoryMeter | None
    ) -> RemoteRun:
        """The executor of a run on workers."""
        spec, plans = run.token_plans.get()
        devices: Sequence[str] = self.config.devices
        compiles = not run.fallback and observer is None
        return RemoteRun(
            self.workers,
            spec,
            plans,
            step,
            observer,
            devices,
            compiles=compiles,
            is_auto=self.config.is_auto,
        )

    def recover(self, variables: State | None) -> None:
        """Replace the workers, and set the variables."""
        self.workers.reset()
        self.workers.state.replace(variables)

    def close(self) -> None:
        """End the workers."""
        self.workers.close()

    @property
    def description(self) -> str:
        """The workers in the `repr` of a session."""
        return f"workers {self.config.workers}"
