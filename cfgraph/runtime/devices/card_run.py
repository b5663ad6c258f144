"""A run whose gpus are on a card: what each one does is queued there in its turn."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from cfgraph.errors import CfgraphError
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Graph, Output
from cfgraph.runtime.devices.card import Card
from cfgraph.runtime.devices.card_mover import CardMover
from cfgraph.runtime.devices.card_trace import CardTimes, CardTrace
from cfgraph.runtime.devices.containers import carried
from cfgraph.runtime.devices.failures import grave
from cfgraph.runtime.devices.lane import Lane
from cfgraph.runtime.devices.on_card import OnCard
from cfgraph.runtime.executor import Executor
from cfgraph.runtime.frame_state import Fire, Iteration, Send
from cfgraph.runtime.link import Wrap
from cfgraph.runtime.memory.meter import DeviceMemory, Meter
from cfgraph.runtime.memory.out_of_memory import exhausted
from cfgraph.runtime.memory.times import Times
from cfgraph.runtime.plan import Plan
from cfgraph.runtime.rendezvous import Rendezvous
from cfgraph.runtime.simulator import Simulator
from cfgraph.runtime.step import RunStep
from cfgraph.runtime.trace import Observer

# tokens that a CPU fires in its turn
_FEW: Final = 16


class CardExecutor(Executor):
    """Fires the tokens of one gpu: its kernels are queued on its own stream."""

    def __init__(
        self,
        lane: Lane,
        plan: Plan,
        step: RunStep,
        rendezvous: Rendezvous,
        results: list[Any],
        wrap: Wrap | None = None,
    ) -> None:
        self.lane = lane
        self.memory: DeviceMemory | None = None
        super().__init__(plan, step, rendezvous, results, wrap)

    def bound(self) -> None:
        """Hold the gpu to the limit of its memory, intermediate values too."""
        memory, lane = self.memory, self.lane
        if memory is None:
            return

        def relieve() -> bool:
            # memory may be wanted for a copy, in whose stream nothing waits for kernels
            with lane.current():
                return memory.swapper.relieve()

        lane.pool.bound(memory.limit, relieve)

    def begin(self, feeds: Sequence[Any]) -> None:
        """Make ready what a run starts with."""
        with self.lane.current():
            super().begin(feeds)

    def in_order(self, batch: int) -> None:
        """Fire a batch of tokens."""
        with self.lane.current():
            super().in_order(batch)

    def fire(self, fire: Fire, it: Iteration) -> None:
        """Fire one token."""
        with self.lane.current():
            super().fire(fire, it)

    def _located(self, error: Exception, fire: Fire, it: Iteration) -> Exception:
        """An error with the node, the frame and the device that it came from."""
        if not isinstance(error, CfgraphError):
            error = self.told(error)
        return super()._located(error, fire, it)

    def told(self, error: Exception, node: object = None) -> Exception:
        """What a lack of memory or a card that has failed is called; other errors as they are."""
        instead = grave(error)
        if not isinstance(instead, MemoryError):
            return instead or error
        said = str(instead).partition("\n")[0] or "the card has none left"
        return exhausted(self.device, said, self.memory, node)


class HostExecutor(Executor):
    """Fires the tokens of a CPU of such a run: few at once, for it may wait for messages."""

    def in_order(self, batch: int) -> None:
        """Fire a batch of tokens."""
        super().in_order(min(batch, _FEW))


class CardSimulator(Simulator):
    """The executors of a run whose gpus are on a card."""

    def __init__(
        self,
        card: Card,
        graph: Graph,
        plans: Sequence[Plan],
        step: RunStep,
        fetches: Sequence[Output],
        observer: Observer | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.on_card: OnCard = OnCard(plans, card)
        self._trace: CardTrace | None = None
        super().__init__(graph, plans, step, fetches, observer, meter)
        # gpus first: they queue what they can before a CPU waits for any of it
        self.executors.sort(key=lambda executor: not isinstance(executor, CardExecutor))
        for executor in self.executors:
            if isinstance(executor, CardExecutor):
                self._set_up(executor)

    def _set_up(self, executor: CardExecutor) -> None:
        """Let a gpu take its feeds to the card, and swap there what is counted."""
        lane, feeds = executor.lane, executor.linked.feeds
        for place, item in executor.plan.feeds.items():
            if not self.on_card.is_host(executor.plan, item):
                feeds[place] = _feeding(executor, item.node.name, feeds[place])
        if self.meter is not None:
            memory = executor.memory = self.meter.memory(executor.device)
            memory.real = True
            memory.swapper.mover = CardMover(lane, memory)

    def make_executor(self, plan: Plan, wrap: Wrap | None) -> Executor:
        """What runs the part of a device."""
        lane = self.on_card.lanes.get(plan.device)
        if lane is None:
            return HostExecutor(plan, self.step, self.rendezvous, self.results, wrap)
        return CardExecutor(lane, plan, self.step, self.rendezvous, self.results, wrap)

    def make_wrap(self, plan: Plan) -> Wrap | None:
        """What is put around the closures of a device."""
        if self._observer is None:
            return None
        if self._trace is None:
            self._trace = CardTrace(self._observer, self.began)
        return self._trace.wrap(short_device_name(plan.device), self.on_card.lanes.get(plan.device))

    def make_times(self) -> Times:
        """What dates the copies between devices and their hosts."""
        return super().make_times() if self._trace is None else CardTimes(self._trace)

    def run(self, feeds: Sequence[Any], deadline: float | None, pick: random.Random | None) -> None:
        """Run until nothing is ready; deferred observers hear of it then."""
        if self._trace is not None:
            self.step.observer = self._trace
            self._trace.begin()
        for executor in self.executors:
            if isinstance(executor, CardExecutor):
                executor.bound()
        try:
            super().run(feeds, deadline, pick)
        finally:
            for lane in self.on_card.lanes.values():
                lane.pool.bound(None)
            if self._trace is not None:
                self._trace.close()

    def settle_state(self) -> None:
        """Variables stay where the last run had them; kernels bring them to where they compute."""
        self.step.state.home = self.on_card.card.to_host
        self.on_card.begin()

    def at_home(self, place: int, value: Any) -> Any:
        """What fetch `place` got, in the host's memory."""
        for executor in self.executors:
            if place in executor.plan.fetches and isinstance(executor, CardExecutor):
                with executor.lane.current():
                    try:
                        return carried(value, executor.lane.to_host)
                    except (MemoryError, RuntimeError) as error:
                        raise executor.told(error, self.fetches[place].node) from error
        return value


def _feeding(executor: CardExecutor, node: str, send: Send) -> Send:
    lane = executor.lane

    def feed(it: Iteration, value: Any) -> int:
        try:
            there = lane.to_device(value)
        except (MemoryError, RuntimeError) as error:
            raise executor.told(error, node) from error
        lane.name_copy(node)
        return send(it, there)

    return feed
