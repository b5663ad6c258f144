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
from typing import Any, Final

import numpy as np

from cfgraph.backends.workers.compiled_step import (
    MAX_SLEEP,
    Aborted,
    CompiledStep,
    Exchange,
    compile_worker,
)
from cfgraph.backends.workers.connections import Mesh, PeerLost
from cfgraph.backends.workers.handshake import Address
from cfgraph.backends.workers.remote_rendezvous import Postbox, RemoteRendezvous, channel_numbers
from cfgraph.backends.workers.requests import LoadRequest, LoadResult, StepRequest, StepResult
from cfgraph.errors import CfgraphError, ExecutionError
from cfgraph.ir.files import loads
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.shapes import AbstractTensor
from cfgraph.ir.traversal import sends_by_key
from cfgraph.limits import current_limits, limited, out_of_memory_error
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.opdef.resources import Resource
from cfgraph.passes.faulty_nodes import restore_faulty_nodes
from cfgraph.processes.codec import DecodeError
from cfgraph.runtime.cluster_runner import ClusterRunner
from cfgraph.runtime.engine.deadlock import (
    BlockedRecv,
    NotSent,
    blocked_recvs,
    explain_dead_fetch,
    explain_missing_fetch,
    why_not_sent,
)
from cfgraph.runtime.engine.executor import MISSING
from cfgraph.runtime.engine.joint_products import join_products
from cfgraph.runtime.engine.plan import Plan, RunSpec, make_plans
from cfgraph.runtime.engine.references import fetched_value
from cfgraph.runtime.engine.rendezvous import Rendezvous
from cfgraph.runtime.engine.step import RunStep, State
from cfgraph.runtime.program import NotCompiled
from cfgraph.runtime.token_driver import TokenDriver
from cfgraph.runtime.trace.events import Observer, TraceEvent

# tokens that each device fires between two looks at the links
_BATCH: Final = 64
# larger arrays do not travel with a trace
_MAX_TRACED_BYTES: Final = 1 << 12


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


class WorkerDriver(TokenDriver):
    """A driver of some devices of a run, whose messages to the others use the mesh."""

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
            busy = self._fire_in_turn(_BATCH) or self.step.wake_parked()
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
                sleep = max(0.0, min(MAX_SLEEP, mesh.lost_after / 3, deadline - now))
            else:
                waiting_since = math.inf
            messages = mesh.poll(sleep)
            if messages:  # before they count as received
                self.is_waiting = False
            for message in messages:
                postbox.deliver(message)
            if not messages and not busy:
                mesh.require_alive(waiting_since)

    def blocked(self) -> list[BlockedRecv]:
        """The Recvs that wait for a message."""
        return blocked_recvs(self.quiescent_state(), self.rendezvous)

    def not_sent(self, recvs: Sequence[BlockedRecv]) -> list[NotSent]:
        """The reasons why this worker did not send the messages that these Recvs wait for."""
        state = self.quiescent_state()
        # of the parts of other workers only keys are known
        devices = {recv.key.send_device for recv in recvs}
        return [why_not_sent(state, self.keys, recv, devices) for recv in recvs]


def _readable(
    values: Mapping[int, Any], fetches: Mapping[int, Output] | Sequence[Output]
) -> dict[int, Any]:
    """Fetched values, with those of variables instead of their handles."""
    return {
        index: fetched_value(fetches[index], value) if isinstance(value, Resource) else value
        for index, value in values.items()
    }


class Worker:
    """The state of a worker: its variables, its links, and the prepared runs."""

    def __init__(self, index: int, secret: bytes, host: str, lost_after: float) -> None:
        self.mesh = Mesh(index, secret, host, lost_after)
        self._host = host
        self.postbox = Postbox(self.mesh)
        self.state = State()
        self._loaded: dict[int, tuple[LoadRequest, RunSpec, list[Plan]]] = {}
        self._drivers: dict[int, WorkerDriver] = {}
        self._current: WorkerDriver | CompiledStep | None = None
        self._exchange = Exchange(self.postbox)
        self._compiled: dict[int, CompiledStep] = {}
        self._broken: PeerLost | DecodeError | None = None
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

    def connect(self, addresses: Sequence[Address]) -> float:
        """Connect to all other workers; returns the longest round trip to one before this."""
        self.mesh.connect(addresses)
        threading.Thread(target=self._drain, name="cfgraph-drain", daemon=True).start()
        return self.mesh.round_trip

    def clock(self) -> int:
        """The clock of traces, in nanoseconds."""
        return time.perf_counter_ns()

    def ping(self) -> None:
        """Show that the worker runs."""

    def load(self, request: LoadRequest) -> LoadResult:
        """Plan and compile a run, and forget those that the session has dropped."""
        for number in request.released:
            for prepared in (self._loaded, self._drivers, self._compiled):
                prepared.pop(number, None)
        try:
            with limited(timeout=request.seconds):
                return self._load(request)
        except CfgraphError as error:
            return LoadResult(error)
        except NotCompiled as error:
            return LoadResult(reason=error.text)

    def _load(self, request: LoadRequest) -> LoadResult:
        graph, worker_of, index = loads(request.graph, "pb"), request.worker_of, self.mesh.index
        restore_faulty_nodes(graph, request.faulty)
        spec = RunSpec(
            graph,
            tuple(graph.tensor(name) for name in request.fetches),
            tuple(graph[name] for name in request.targets),
            tuple(graph.tensor(name) for name in request.feeds),
        )
        plans = make_plans(spec, None, ClusterRunner())
        join_products(plans)
        mine = [plan for plan in plans if worker_of[plan.device] == index]
        self._loaded[request.number] = request, spec, mine
        if not request.compiles:
            return LoadResult()
        part = compile_worker(spec, plans, worker_of, index, self._exchange)
        step = RunStep(self.state, 0, request.io)
        self._compiled[request.number] = CompiledStep(part, step, self._exchange, index)
        compiled = part.compiled
        return LoadResult(
            None,
            "",
            part.digest,
            part.feeds,
            compiled.is_repeatable,
            compiled.needs_tokens_for_dead,
            part.waits_in_turn,
        )

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
        current: WorkerDriver | CompiledStep
        if request.compiled:
            current = self._compiled[request.prepared]
            current.step.seed, current.run_start = request.seed, time.perf_counter_ns()
        else:
            current = self._driver(request.prepared, request.seed, observer)
        current.is_waiting = False  # still true from its last step
        current.run_number, self._current = request.run, current
        result = StepResult({}, run_start=current.run_start)
        count = len(self._loaded[request.prepared][1].feeds)
        feeds = [request.feeds.get(index) for index in range(count)]
        try:
            if self._broken is not None:
                raise self._broken
            with (
                limited(timeout=request.seconds, max_iterations=request.max_iterations) as limits,
                np.errstate(all="ignore"),
            ):
                current.step.start_run(
                    request.session_run, current.run_start, limits.max_iterations, observer
                )
                if isinstance(current, CompiledStep):
                    result.values = _readable(current.run(feeds), current.part.fetches)
                else:
                    current.run(feeds, None)
                    result.values = self._fetched(current, allow_dead=request.allow_dead)
        except CfgraphError as error:
            result.error = error
        except PeerLost as error:
            result.lost = error.peer, error.reason
            result.waited = current.blocked()
        except DecodeError as error:
            result.error = ExecutionError(f"refused a message of another worker: {error}")
        except Aborted:
            result.aborted = True
            result.waited = current.blocked()
        except MemoryError:
            result.error = out_of_memory_error()
        finally:
            # the state remains: another worker may wait for a message that was not sent
            result.events = observer.events if observer is not None else ()
            if observer is not None:
                del self._drivers[request.prepared]
        return result

    def _driver(self, prepared: int, seed: int, observer: Observer | None) -> WorkerDriver:
        """The driver of a prepared run, linked once; a traced step has its own."""
        driver = self._drivers.get(prepared)
        if driver is None or observer is not None:
            request, spec, plans = self._loaded[prepared]
            step = RunStep(self.state, seed, request.io)
            driver = self._drivers[prepared] = WorkerDriver(
                self, spec.graph, plans, step, spec.fetches, request.worker_of, observer
            )
        return driver

    def _fetched(self, driver: WorkerDriver, *, allow_dead: bool) -> dict[int, Any]:
        """The values of the fetches on this worker. Raises ExecutionError for a dead one."""
        values = {}
        for executor in driver.executors:
            for index, tensor in executor.plan.fetches.items():
                value = driver.results[index]
                if value is MISSING:
                    raise explain_missing_fetch(driver.quiescent_state(), tensor)
                if value is None and not allow_dead:
                    raise explain_dead_fetch(driver.quiescent_state(), tensor)
                values[index] = value
        return _readable(values, driver.fetches)

    def _drain(self) -> None:
        """Write and read between steps, since another worker may still be in its step."""
        while not self._closed:
            self._idle.wait()
            with self._io:
                if not self._idle.is_set() or self._closed:
                    continue
                try:
                    for message in self.mesh.poll(MAX_SLEEP):
                        self.postbox.deliver(message)
                except (PeerLost, DecodeError) as error:
                    self._broken = error  # of all later steps
                    return
                except (OSError, ValueError):  # the mesh was closed
                    return

    @property
    def aborted(self) -> int:
        """The number of the last step that is aborted."""
        return self._exchange.aborted

    def abort(self, run: int) -> None:
        """End the step of this number, and those before it."""
        self._exchange.aborted = max(self._exchange.aborted, run)
        self.mesh.wake()

    def status(self, run: int) -> tuple[bool, int, int]:
        """True if the step waits, and the numbers of messages that it sent and received."""
        driver = self._current
        is_current = driver is not None and driver.run_number == run
        waits = driver is not None and is_current and driver.is_waiting
        return waits, self.postbox.sent, self.postbox.received

    def blocked(self) -> list[BlockedRecv]:
        """The Recvs of the current step that wait for a message."""
        return [] if self._current is None else self._current.blocked()

    def not_sent(self, recvs: Sequence[BlockedRecv]) -> list[NotSent]:
        """The reasons why this worker did not send the messages that these Recvs wait for."""
        if self._current is None:
            return [NotSent("its worker has ended the step", True) for _ in recvs]
        return self._current.not_sent(recvs)

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
