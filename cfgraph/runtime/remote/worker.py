"""A worker: the executors of its devices, and the steps that they run.

The driver of the session calls its methods, through Ray or another transport; messages of a step go
to other workers through the `Mesh`. A step ends on a worker when nothing is ready and no Recv
waits: every Recv that will ever fire waits then, so no other worker has to agree.
"""

from __future__ import annotations

import math
import os
import random
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cfgraph.errors import CfgraphError, ExecutionError
from cfgraph.ir.files import loads
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.shapes import AbstractTensor
from cfgraph.ir.traversal import sends_by_key
from cfgraph.limits import current_limits, limited, out_of_memory_error
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.opdef.op import Resource
from cfgraph.runtime.cluster_runner import ClusterRunner
from cfgraph.runtime.deadlock import (
    BlockedRecv,
    NotSent,
    blocked_recvs,
    explain_dead_fetch,
    explain_missing_fetch,
    why_not_sent,
)
from cfgraph.runtime.engine.executor import MISSING
from cfgraph.runtime.engine.plan import Plan, RunSpec, make_plans
from cfgraph.runtime.engine.references import fetched_value
from cfgraph.runtime.engine.rendezvous import Rendezvous
from cfgraph.runtime.engine.step import RunStep, State
from cfgraph.runtime.io_policy import IoPolicy
from cfgraph.runtime.remote.codec import DecodeError
from cfgraph.runtime.remote.connections import Address, Mesh, PeerLost
from cfgraph.runtime.remote.remote_rendezvous import Postbox, RemoteRendezvous, channel_numbers
from cfgraph.runtime.simulator import Simulator
from cfgraph.runtime.trace.events import Observer, TraceEvent

# tokens that each device fires between two looks at the links
_BATCH: Final = 64
# seconds that a waiting step sleeps at most before it looks at its limits
_MAX_SLEEP: Final = 1.0
# larger arrays do not travel with a trace
_MAX_TRACED_BYTES: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """A prepared run: the partitioned graph, names, and the worker of each device."""

    number: int
    graph: bytes
    fetches: Sequence[str]
    targets: Sequence[str]
    feeds: Sequence[str]
    worker_of: Mapping[str, int]
    io: IoPolicy


@dataclass(frozen=True, slots=True)
class StepRequest:
    """One step of a prepared run. `feeds` has the values by index."""

    prepared: int
    run: int
    seed: int
    feeds: Mapping[int, Any]
    seconds: float | None
    max_iterations: int | None
    allow_dead: bool
    traced: bool


@dataclass(slots=True)
class StepResult:
    """The result of a step on one worker.

    `values` are the fetched values by index. A failed step has an `error`, or the worker that was
    `lost` and the reason, or was `aborted` by the driver; `waited` are the Recvs that waited then.
    """

    values: dict[int, Any]
    error: CfgraphError | None = None
    lost: tuple[int, str] | None = None
    aborted: bool = False
    waited: Sequence[BlockedRecv] = ()
    events: Sequence[TraceEvent] = ()
    run_start: int = 0


class Aborted(Exception):
    """A step that the driver ended."""


class _RemoteEvents:
    """Observer that keeps the events of a step, without large values."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []

    def event(self, event: TraceEvent) -> None:
        """Keep an event, to be sent to the driver at the end of the step."""
        self.events.append(event._replace(outputs=tuple(map(_portable, event.outputs))))


def _portable(value: Any) -> Any:
    """A traced value; shape and dtype alone of one that is large or cannot leave the process."""
    if value is None or isinstance(value, np.generic | bytes | AbstractTensor):
        return value
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        small = value.nbytes <= _MAX_TRACED_BYTES
        return value if small else AbstractTensor(value.dtype, value.shape)
    return AbstractTensor(np.dtype(object), getattr(value, "shape", ()))


class RemoteSimulator(Simulator):
    """A simulator of some devices of a run, whose messages to the others use the mesh."""

    def __init__(
        self,
        worker: Worker,
        graph: Graph,
        plans: Sequence[Plan],
        step: RunStep,
        fetches: Sequence[Output],
        worker_of: Mapping[str, int],
        observer: Observer | None,
    ) -> None:
        self._worker, self._worker_of = worker, worker_of
        self.keys = tuple(sends_by_key(graph))
        self.run_number = 0
        self.is_waiting = False
        super().__init__(graph, plans, step, fetches, observer)
        self.incoming = dict(worker.postbox.incoming)
        self._receivers = list(self.rendezvous.values())

    def make_rendezvous(self) -> Rendezvous:
        """A rendezvous with channels to other workers."""
        self._worker.postbox.incoming = {}
        numbers = channel_numbers(self.keys)
        worker = self._worker
        return RemoteRendezvous(numbers, self._worker_of, worker.mesh.index, worker.postbox)

    def fire_until_idle(self, pick: random.Random | None) -> bool:
        """Fire tokens until nothing is ready and no Recv waits."""
        postbox, mesh, worker = self._worker.postbox, self._worker.mesh, self._worker
        postbox.start(self.run_number, self.incoming)
        deadline = current_limits().deadline
        waiting_since = math.inf
        while True:
            busy = self._fire_in_turn(_BATCH)
            mesh.flush()
            if worker.aborted >= self.run_number:
                raise Aborted
            if deadline != math.inf and time.monotonic() > deadline:
                raise self.timeout()
            sleep = 0.0
            self.is_waiting = not busy
            if not busy:
                if not any(channel.waiting for channel in self._receivers):
                    return True
                now = time.monotonic()
                waiting_since = min(waiting_since, now)
                sleep = max(0.0, min(_MAX_SLEEP, mesh.lost_after / 3, deadline - now))
            else:
                waiting_since = math.inf
            messages = mesh.poll(sleep)
            if messages:  # before they count as received
                self.is_waiting = False
            for message in messages:
                postbox.deliver(message)
            if not messages and not busy:
                mesh.require_alive(waiting_since)


class Worker:
    """The state of a worker: its variables, its links, and the prepared runs."""

    def __init__(self, index: int, secret: bytes, host: str, lost_after: float) -> None:
        self.mesh = Mesh(index, secret, host, lost_after)
        self._host = host
        self.postbox = Postbox(self.mesh)
        self.state = State()
        self.aborted = -1  # steps up to this number are aborted
        self._loaded: dict[int, tuple[LoadRequest, RunSpec, list[Plan]]] = {}
        self._simulators: dict[int, RemoteSimulator] = {}
        self._current: RemoteSimulator | None = None
        self._broken: PeerLost | DecodeError | CfgraphError | MemoryError | None = None
        self._stepping = threading.Lock()
        self._io = threading.Lock()  # of reading from the mesh
        self._idle = threading.Event()
        self._idle.set()
        self._closed = False

    def address(self) -> Address:
        """The address that other workers connect to."""
        return self._host, self.mesh.port

    def description(self) -> tuple[str, int]:
        """The name of the host, and the number of the process."""
        return socket.gethostname(), os.getpid()

    def connect(self, addresses: Sequence[Address]) -> None:
        """Connect to all other workers."""
        self.mesh.connect(addresses)
        threading.Thread(target=self._drain, name="cfgraph-drain", daemon=True).start()

    def clock(self) -> int:
        """The clock of traces, in nanoseconds."""
        return time.perf_counter_ns()

    def load(self, request: LoadRequest) -> CfgraphError | None:
        """Plan a run. Returns the error of a graph that cannot run."""
        try:
            graph = loads(request.graph, "pb")
            spec = RunSpec(
                graph,
                tuple(graph.tensor(name) for name in request.fetches),
                tuple(graph[name] for name in request.targets),
                tuple(graph.tensor(name) for name in request.feeds),
            )
            plans = make_plans(spec, None, ClusterRunner())
        except CfgraphError as error:
            return error
        mine = [plan for plan in plans if request.worker_of[plan.device] == self.mesh.index]
        self._loaded[request.number] = request, spec, mine
        return None

    def step(self, request: StepRequest) -> StepResult:
        """Run one step on the devices of this worker."""
        with self._stepping:
            self._idle.clear()
            self.mesh.wake()
            try:
                with self._io:
                    return self._step(request)
            finally:
                self.postbox.end()
                self._idle.set()

    def _step(self, request: StepRequest) -> StepResult:
        observer = _RemoteEvents() if request.traced else None
        simulator = self._simulator(request.prepared, request.seed, observer)
        simulator.is_waiting = False  # still true from its last step
        simulator.run_number, self._current = request.run, simulator
        result = StepResult({}, run_start=simulator.run_start)
        count = len(self._loaded[request.prepared][1].feeds)
        feeds = [request.feeds.get(index) for index in range(count)]
        try:
            if self._broken is not None:
                raise self._broken
            with (
                limited(timeout=request.seconds, max_iterations=request.max_iterations) as limits,
                np.errstate(all="ignore"),
            ):
                simulator.step.start_run(
                    request.run, simulator.run_start, limits.max_iterations, observer
                )
                simulator.run(feeds, None)
                result.values = self._fetched(simulator, allow_dead=request.allow_dead)
        except CfgraphError as error:
            result.error = error
        except PeerLost as error:
            result.lost = error.peer, error.reason
            result.waited = blocked_recvs(simulator.quiescent_state(), simulator.rendezvous)
        except DecodeError as error:
            result.error = ExecutionError(f"refused a message of another worker: {error}")
        except Aborted:
            result.aborted = True
            result.waited = blocked_recvs(simulator.quiescent_state(), simulator.rendezvous)
        except MemoryError:
            result.error = out_of_memory_error()
        finally:
            # the state remains: another worker may wait for a message that was not sent
            result.events = observer.events if observer is not None else ()
            if observer is not None:
                del self._simulators[request.prepared]
        return result

    def _simulator(self, prepared: int, seed: int, observer: Observer | None) -> RemoteSimulator:
        """The simulator of a prepared run, linked once; a traced step has its own."""
        simulator = self._simulators.get(prepared)
        if simulator is None or observer is not None:
            request, spec, plans = self._loaded[prepared]
            step = RunStep(self.state, seed, request.io)
            simulator = self._simulators[prepared] = RemoteSimulator(
                self, spec.graph, plans, step, spec.fetches, request.worker_of, observer
            )
        return simulator

    def _fetched(self, simulator: RemoteSimulator, *, allow_dead: bool) -> dict[int, Any]:
        """The values of the fetches on this worker. Raises ExecutionError for a dead one."""
        values = {}
        for executor in simulator.executors:
            for index, tensor in executor.plan.fetches.items():
                value = simulator.results[index]
                if value is MISSING:
                    raise explain_missing_fetch(simulator.quiescent_state(), tensor)
                if value is None and not allow_dead:
                    raise explain_dead_fetch(simulator.quiescent_state(), tensor)
                if isinstance(value, Resource):
                    value = fetched_value(tensor, value)
                values[index] = value
        return values

    def _drain(self) -> None:
        """Write and read between steps, since another worker may still be in its step."""
        while not self._closed:
            self._idle.wait()
            with self._io:
                if not self._idle.is_set() or self._closed:
                    continue
                try:
                    for message in self.mesh.poll(_MAX_SLEEP):
                        self.postbox.deliver(message)
                except (PeerLost, DecodeError, CfgraphError, MemoryError) as error:
                    self._broken = error  # of the next step
                    return
                except (OSError, ValueError):  # the mesh was closed
                    return

    def abort(self, run: int) -> None:
        """End the step of this number, and those before it."""
        self.aborted = max(self.aborted, run)
        self.mesh.wake()

    def status(self, run: int) -> tuple[bool, int, int]:
        """True if the step waits, and the numbers of messages that it sent and received."""
        simulator = self._current
        is_current = simulator is not None and simulator.run_number == run
        waits = simulator is not None and is_current and simulator.is_waiting
        return waits, self.postbox.sent, self.postbox.received

    def blocked(self) -> list[BlockedRecv]:
        """The Recvs of the current step that wait for a message."""
        simulator = self._current
        if simulator is None:
            return []
        return blocked_recvs(simulator.quiescent_state(), simulator.rendezvous)

    def not_sent(self, recvs: Sequence[BlockedRecv]) -> list[NotSent]:
        """The reasons why this worker did not send the messages that these Recvs wait for."""
        simulator = self._current
        if simulator is None:
            return [NotSent("its worker has ended the step", True) for _ in recvs]
        state = simulator.quiescent_state()
        return [why_not_sent(state, simulator.keys, recv) for recv in recvs]

    def variables(self) -> list[Variable]:
        """The variables of this worker that have a value."""
        return [variable for _, variable in self.state.variables() if variable.initialized]

    def restore(self, variables: Sequence[tuple[tuple[str, str], Variable]]) -> None:
        """Set variables, by container and name."""
        for (container, name), variable in variables:
            self.state.forget(container, name)
            self.state.get_or_make(container, name, variable.copy)

    def close(self) -> None:
        """Close the links."""
        self._closed = True
        self._idle.set()
        self.mesh.wake()
        self.mesh.close()
