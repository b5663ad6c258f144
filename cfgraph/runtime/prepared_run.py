"""Prepared runs: the plans of a fetch-set, which runs share, and the simulators linked from them.

A simulator has the state of one run: queues, values in flight, results, and the step that kernels
see. A run takes one that no other run uses, so one session may run in several threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final

from cfgraph.ir.gc_pause import paused_gc
from cfgraph.runtime.engine.plan import Plan, RunSpec
from cfgraph.runtime.simulator import Simulator
from cfgraph.runtime.trace.events import Observer

# simulators that stay linked per fetch-set while no run uses them
MAX_IDLE_SIMULATORS: Final = 8

SimulatorMaker = Callable[[RunSpec, Sequence[Plan], Observer | None], Simulator]


@dataclass(slots=True, eq=False)
class PreparedRun:
    """A fetch-set that is ready to run.

    `guard` is held during a run. If it is a lock, runs wait for each other, and linking changes the
    plans: a second simulator needs its own plans.
    """

    spec: RunSpec
    plans: Sequence[Plan]
    make: SimulatorMaker
    guard: AbstractContextManager[object]
    idle: list[Simulator] = field(default_factory=list)

    @property
    def is_shared(self) -> bool:
        """True if several simulators may be linked from the plans."""
        return isinstance(self.guard, nullcontext)

    def acquire(self, observer: Observer | None) -> Simulator:
        """A simulator for one run; an observed run has a new one."""
        if observer is None or not self.is_shared:
            try:
                return self.idle.pop()
            except IndexError:
                pass
        with paused_gc():
            return self.make(self.spec, self.plans, observer)

    def release(self, simulator: Simulator) -> None:
        """Make a simulator available to later runs. Only one keeps the values of its last run."""
        if self.idle:
            simulator.clear()
        self.idle.append(simulator)
        # after the append, so that the bound holds for concurrent calls
        del self.idle[MAX_IDLE_SIMULATORS:]
