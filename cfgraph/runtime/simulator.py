"""One run on all its devices: each in turn fires what it has ready, until nobody has anything."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any, Final

from cfgraph.analysis.transfers import sends_by_key
from cfgraph.errors import RunTimeout
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Graph, Output
from cfgraph.runtime.at_rest import AtRest
from cfgraph.runtime.devices.on_card import OnCard
from cfgraph.runtime.devices.simulated import has_own_memory
from cfgraph.runtime.executor import MISSING, Executor
from cfgraph.runtime.link import Wrap
from cfgraph.runtime.memory.counting import Counting
from cfgraph.runtime.memory.holders import holders
from cfgraph.runtime.memory.meter import DeviceMemory, Meter
from cfgraph.runtime.memory.out_of_memory import Holder
from cfgraph.runtime.memory.times import AtOnce, Times
from cfgraph.runtime.plan import Plan
from cfgraph.runtime.rendezvous import Rendezvous
from cfgraph.runtime.step import RunStep
from cfgraph.runtime.stuck import stuck
from cfgraph.runtime.trace import Observer
from cfgraph.runtime.tracing import traced

# tokens of a turn, between two looks at the clock; fewer where there is a deadline
BATCH: Final = 512
TIMED_BATCH: Final = 16


class Simulator:
    """The executors of a run, their rendezvous, and what its fetches got.

    `elapsed` is the time of a run by a virtual clock, `on_card` its gpus that are on a card; None
    where there is none.
    """

    elapsed: float | None = None
    on_card: OnCard | None = None

    def __init__(
        self,
        graph: Graph,
        plans: Sequence[Plan],
        step: RunStep,
        fetches: Sequence[Output],
        observer: Observer | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.graph = graph
        self.meter, self.step = meter, step
        self.counting = [Counting(plan, meter) for plan in plans] if meter else []
        self.fetches = tuple(fetches)
        self.results: list[Any] = []
        self._observer, self.began = observer, time.perf_counter_ns()
        self.rendezvous = self.make_rendezvous()
        self.executors = [
            self.make_executor(plan, wrap)
            for plan, wrap in zip(plans, self._wraps(plans), strict=True)
        ]
        for executor, counting in zip(self.executors, self.counting, strict=False):
            feeds = executor.linked.feeds
            for place, item in executor.plan.feeds.items():
                feeds[place] = counting.feed(feeds[place], item)

    def _wraps(self, plans: Sequence[Plan]) -> list[Wrap | None]:
        """What is put around the closures of each device, the counting of memory outermost."""
        inner = [self.make_wrap(plan) for plan in plans]
        if not self.counting:
            return inner
        return [one.wrap(wrap) for one, wrap in zip(self.counting, inner, strict=True)]

    def make_rendezvous(self) -> Rendezvous:
        """Where the devices meet."""
        return Rendezvous()

    @property
    def gpus(self) -> tuple[str, ...]:
        """Those among the devices, in order."""
        found = (one.device for one in self.executors if has_own_memory(one.plan.device))
        return tuple(sorted(found))

    def make_executor(self, plan: Plan, wrap: Wrap | None) -> Executor:
        """What runs the part of a device."""
        return Executor(plan, self.step, self.rendezvous, self.results, wrap)

    def make_wrap(self, plan: Plan) -> Wrap | None:
        """What is put around the closures of a device."""
        if self._observer is None:
            return None
        return traced(self._observer, short_device_name(plan.device), self.began)

    def make_times(self) -> Times:
        """What dates the copies between devices and their hosts."""
        return AtOnce(self._observer, self.began)

    def holders(self, memory: DeviceMemory) -> list[Holder]:
        """Who holds the memory of a device."""
        assert self.meter is not None
        return holders(self.meter, memory, self.executors, self.step.state)

    def forget(self) -> None:
        """Let go of what the run left: values in flight, and what was fetched."""
        self.results.clear()
        self.rendezvous.clear()
        for executor in self.executors:
            executor.end()

    def run(self, feeds: Sequence[Any], deadline: float | None, pick: random.Random | None) -> None:
        """Run until nothing is ready.

        Raises ExecutionError where a kernel fails or a Recv waits for what never comes, RunTimeout.
        """
        self.settle_state()
        self.results[:] = [MISSING] * len(self.fetches)
        self.rendezvous.clear()
        if self.meter is not None:
            self.meter.begin(self.make_times(), self.holders)
        for executor in self.executors:
            executor.begin(feeds)
        if self.go_on(deadline, pick) and any(self.rendezvous.waiting()):
            raise stuck(self.at_rest(), self.rendezvous, sends_by_key(self.graph))
        for counting in self.counting:
            counting.fetched(self.results)

    def settle_state(self) -> None:
        """Have variables where the run looks for them."""
        self.step.state.come_home()

    def at_home(self, place: int, value: Any) -> Any:
        """What fetch `place` got, in the host's memory."""
        return value

    def go_on(self, deadline: float | None, pick: random.Random | None) -> bool:
        """Fire tokens until nothing is ready; false if it stopped before."""
        batch = BATCH if deadline is None else TIMED_BATCH
        busy = True
        while busy:
            busy = self._in_turn(batch) if pick is None else self._at_random(batch, pick)
            if deadline is not None and time.monotonic() > deadline:
                raise self.timeout()
        return True

    def at_rest(self) -> AtRest:
        """The run as those who explain it see it."""
        return AtRest(self.executors, self.rendezvous)

    def _in_turn(self, batch: int) -> bool:
        """Let each device fire a batch of tokens; false if none had any."""
        busy = False
        for executor in self.executors:
            if executor.ready:
                executor.in_order(batch)
                busy = True
        return busy

    def _at_random(self, batch: int, pick: random.Random) -> bool:
        """Fire a batch of tokens in random order, whichever device they are on."""
        for _ in range(batch):
            total = sum(len(executor.ready) for executor in self.executors)
            if not total:
                return False
            place = pick.randrange(total)
            for executor in self.executors:
                if place < len(executor.ready):
                    executor.pick(place)
                    break
                place -= len(executor.ready)
        return True

    def timeout(self) -> RunTimeout:
        """The error of a run that took too long."""
        busy = next((executor for executor in self.executors if executor.ready), None)
        where = busy.busiest() if busy else None
        return RunTimeout(
            "the run took longer than it was allowed to",
            frame=where.path if where else None,
            device=busy.device if busy else None,
            hint="a larger --timeout lets it go on",
            code="CFG706",
        )
