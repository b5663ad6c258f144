"""The workers of a session: their transport, their devices, and the variables that they hold.

A worker runs the devices of one task, `/job:worker/task:3/...`. Devices without a task, such as
`cpu:0`, are divided among the workers in equal shares, in order.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from itertools import count
from typing import Any, Final, NoReturn, Protocol

from cfgraph.backends.workers.connections import PeerLost
from cfgraph.backends.workers.shared_memory import SharedArrays
from cfgraph.errors import ExecutionError, Unsupported, UsageError, WorkerLost
from cfgraph.ir.devices import LOCAL_TASK, DeviceName, short_device_name
from cfgraph.ir.graph import Node
from cfgraph.ir.traversal import sends_by_key
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.opdef.resources import VARIABLES
from cfgraph.processes.codec import UNSENDABLE_CODE
from cfgraph.runtime.engine.deadlock import BlockedRecv
from cfgraph.runtime.engine.step import State


class WorkerHandle(Protocol):
    """A started worker. A call to a dead one fails with WorkerDied."""

    host: str
    pid: int

    def call(self, method: str, *args: Any) -> Future[Any]:
        """Call a method of the worker; `step` and `ping` run in parallel to others."""

    def kill(self) -> None:
        """End the process of the worker."""


class Transport(Protocol):
    """A way to start workers."""

    def start(self, devices: Sequence[Sequence[str]], secret: bytes) -> Sequence[WorkerHandle]:
        """Start one worker for each list of devices."""

    def close(self) -> None:
        """End all workers."""


class WorkerDied(Exception):
    """A worker whose process has ended."""


def assign_workers(devices: Sequence[str], workers: int | None) -> dict[str, int]:
    """Return the worker of each device.

    `workers` is their number, None for one per task. Raises UsageError if there are fewer devices
    than workers, or the number differs from that of the tasks.
    """
    tasks = {device: task for device in devices if (task := _task(device)) is not None}
    if len(tasks) == len(devices):
        numbers = {task: number for number, task in enumerate(sorted(set(tasks.values())))}
        if workers not in (None, len(numbers)):
            message = f"the devices belong to {len(numbers)} tasks, but there are {workers} workers"
            raise UsageError(message, hint="omit the number of workers: each task is one")
        return {device: numbers[task] for device, task in tasks.items()}
    count = workers or 1
    if count > len(devices):
        message = f"{count} workers need {count} devices, the graph has {len(devices)}"
        raise UsageError(message, hint=f"name more devices, such as cpu:0-{count - 1}")
    share = len(devices) / count
    return {device: int(index / share) for index, device in enumerate(devices)}


def _task(device: str) -> tuple[str, int] | None:
    """The job and task of a device; None for the devices of this process."""
    name = DeviceName.parse(device)
    if name is None or name[:3] == LOCAL_TASK[:3]:
        return None
    return name.job or "", int(name.task or 0)


def require_sendable(nodes: Iterable[Node], worker_of: Mapping[str, int]) -> None:
    """Raise Unsupported for a message between workers that refers to memory of its process."""
    for key, send in sends_by_key(nodes).items():
        dtype = send.inputs[0].dtype if send.inputs else None
        ends = worker_of.get(key.send_device), worker_of.get(key.recv_device)
        if dtype is not None and dtype.is_handle and None not in ends and ends[0] != ends[1]:
            pair = " to ".join(map(short_device_name, (key.send_device, key.recv_device)))
            message = f"{send.inputs[0].name} is a {dtype}, which cannot leave its worker: {pair}"
            hint = "place the nodes that use it on devices of one worker"
            raise Unsupported(message, node=send, hint=hint, code=UNSENDABLE_CODE)


def devices_of(worker_of: Mapping[str, int], worker: int) -> list[str]:
    """The devices of a worker, in order."""
    return [device for device, index in worker_of.items() if index == worker]


LOST_CODE: Final = "CFG720"
# seconds for a call, such as planning a run, of a worker that answers pings meanwhile
_CALL_SECONDS: Final = 600.0
# seconds for the news of a dead worker, the cause of what others report
_DEATH_SECONDS: Final = 0.2
# of the clock of a worker, of which the quickest counts
_CLOCK_SAMPLES: Final = 5
# seconds between two pings, unless a worker is lost sooner
_PING_SECONDS: Final = 1.0
# seconds for an answer that arrived while this process was stopped itself
_GRACE_SECONDS: Final = 0.2
_MAX_NAMED: Final = 5
VariableKey = tuple[str, str]


class WorkerOptions(Protocol):
    """Number of workers of a session, and how they start: as `Processes` or on `Ray`."""

    @property
    def workers(self) -> int | None:
        """The number of workers, None for one per task of the devices."""

    @property
    def lost_after(self) -> float:
        """Seconds of silence after which a worker is lost."""

    def transport(self) -> Transport:
        """The transport that starts them."""


class PingMonitor:
    """The pings of one wait for workers, which find those that no longer answer.

    A process may be stopped, or its host cut off, while no worker waits for its messages: while it
    loads a run, or in the last part of a step. A worker is silent if it has not answered a ping for
    `lost_after` seconds. The first pings follow after an `interval`, so that short waits need none.
    """

    def __init__(self, ping: Callable[[int], Future[Any]], lost_after: float) -> None:
        self._ping, self._lost_after = ping, lost_after
        self.interval = min(_PING_SECONDS, lost_after / 3)
        self._due = time.monotonic() + self.interval
        self._pings: dict[int, tuple[float, Future[Any]]] = {}

    def silent_worker(self, awaited: Collection[int]) -> int | None:
        """Send the pings that are due; returns a silent worker of those that are awaited."""
        now = time.monotonic()
        for worker, (since, ping) in list(self._pings.items()):
            if ping.done() or worker not in awaited:
                del self._pings[worker]
            elif now - since > self._lost_after:
                wait([ping], _GRACE_SECONDS)
                if not ping.done():
                    return worker
        if now >= self._due:
            self._due = now + self.interval
            for worker in awaited:
                if worker not in self._pings:
                    self._pings[worker] = now, self._ping(worker)
        return None


class Workers:
    """The workers of a session, started with its first run."""

    def __init__(self, options: WorkerOptions, variables: State | None = None) -> None:
        self.options = options
        self.state = RemoteState(self, variables)
        self._transport: Transport | None = None
        self._shared: SharedArrays | None = None
        self.handles: Sequence[WorkerHandle] = ()
        self.worker_of: dict[str, int] = {}
        self.lost_variables: set[VariableKey] = set()
        self.owners: dict[VariableKey, int] = {}
        self.runs = count(1)
        self.loads = count(1)
        self.released_loads: deque[int] = deque()  # of prepared runs that the session has dropped
        self.round_trip = 0.0  # the longest between two workers, in seconds
        self._clocks: list[int] = []
        self._lost: int | None = None  # the worker that an earlier run has lost

    def start(self, devices: Sequence[str]) -> None:
        """Start and connect the workers, unless they run. Raises UsageError for new devices."""
        self.require_alive()
        if self.handles:
            unknown = [device for device in devices if device not in self.worker_of]
            if unknown:
                message = f"no worker runs {short_device_name(unknown[0])}"
                raise UsageError(message, hint="name all devices when the session is created")
            return
        self.worker_of = assign_workers(devices, self.options.workers)
        numbers = range(max(self.worker_of.values()) + 1)
        self._transport = self.options.transport()
        owned = [devices_of(self.worker_of, worker) for worker in numbers]
        try:
            secret = secrets.token_bytes(32)
            self._shared = SharedArrays(secret)
            self.handles = self._transport.start(owned, secret)
            addresses = self.call_all("address")
            self.round_trip = max(self.call_all("connect", addresses))
            self._clocks = [self._clock_offset(worker) for worker in numbers]
        except BaseException:
            self.close()
            raise

    def monitor(self) -> PingMonitor:
        """The monitor of a wait for workers that begins now."""
        return PingMonitor(
            lambda worker: self.handles[worker].call("ping"), self.options.lost_after
        )

    def call_all(self, method: str, *args: Any) -> list[Any]:
        """Call a method of every worker, at the same time. Raises WorkerLost."""
        calls = [handle.call(method, *args) for handle in self.handles]
        return self._results({future: worker for worker, future in enumerate(calls)})

    def call(self, worker: int, method: str, *args: Any) -> Any:
        """Call a method of a worker. Raises WorkerLost."""
        (result,) = self._results({self.handles[worker].call(method, *args): worker})
        return result

    def _results(self, calls: Mapping[Future[Any], int]) -> list[Any]:
        """The results of calls of workers. Raises WorkerLost if one has died or is silent."""
        monitor, end = self.monitor(), time.monotonic() + _CALL_SECONDS
        pending: Collection[Future[Any]] = calls
        failed: list[Future[Any]] = []
        while pending and not failed:
            done, pending = wait(calls, monitor.interval, FIRST_EXCEPTION)
            failed = [future for future in done if future.exception()]
            if pending and not failed:
                silent = monitor.silent_worker([calls[future] for future in pending])
                if silent is not None:
                    raise self.lost(silent, self.silence)
                if time.monotonic() > end:
                    (late, *_) = (calls[future] for future in pending)
                    raise self.lost(late, f"has not answered for {_CALL_SECONDS:.0f} s")
        if failed:
            done, _ = wait(calls, _DEATH_SECONDS)
            died = [future for future in done if isinstance(future.exception(), WorkerDied)]
            self._raise_lost(calls, (died or failed)[0])
        return [future.result() for future in calls]

    def _raise_lost(self, calls: Mapping[Future[Any], int], failed: Future[Any]) -> NoReturn:
        """Raise the error of a failed call."""
        try:
            failed.result()
        except WorkerDied:
            raise self.lost(calls[failed], "was killed") from None
        except PeerLost as error:
            raise self.lost(error.peer, error.reason) from None
        raise AssertionError("the call has not failed")

    @property
    def silence(self) -> str:
        """The reason why a worker that answers no pings is lost."""
        return f"has sent nothing for {self.options.lost_after:g} s"

    def variables(self) -> list[Sequence[Variable]]:
        """The variables of each worker; once one was lost, those of the workers that answer."""
        if self._lost is None:
            return self.call_all("variables")
        futures = [handle.call("variables") for handle in self.handles]
        wait(futures, self.options.lost_after)
        return [each.result() for each in futures if each.done() and not each.exception()]

    def _clock_offset(self, worker: int) -> int:
        """Offset of the clock of a worker to that of the driver, in nanoseconds."""
        samples = list[tuple[int, int]]()
        for _ in range(_CLOCK_SAMPLES):
            start = time.perf_counter_ns()
            theirs = self.call(worker, "clock")
            end = time.perf_counter_ns()
            samples.append((end - start, theirs - (start + end) // 2))
        return min(samples)[1]

    def run_start(self, worker: int, theirs: int) -> int:
        """A time of a worker on the clock of the driver."""
        return theirs - self._clocks[worker]

    def lost(
        self, worker: int, reason: str, waited: Sequence[BlockedRecv] = (), *, during: str = ""
    ) -> WorkerLost:
        """The error of a lost worker. The session has none of its variables from now on."""
        handle = self.handles[worker]
        handle.kill()  # it may only be silent, and would go on later
        self._lost = worker
        names = devices_of(self.worker_of, worker)
        devices = tuple(map(short_device_name, names))
        variables = sorted(key for key, owner in self.owners.items() if owner == worker)
        self.lost_variables.update(variables)
        recvs = [recv for recv in waited if recv.key.send_device in names] or list(waited)
        lines = [
            f"worker {worker} ({handle.host}, pid {handle.pid}) {reason}{during};"
            f" it ran {', '.join(devices)}"
        ]
        if len(recvs) > 1:
            lines.append(f"{len(recvs)} Recvs wait: {listed([recv.node for recv in recvs])}")
        if variables:
            kept = sorted(key for key in self.owners if key not in self.lost_variables)
            rest = f"; kept: {listed([name for _, name in kept])}" if kept else ""
            lines.append(f"lost variables: {listed([name for _, name in variables])}{rest}")
        first = recvs[0] if recvs else None
        error = WorkerLost(
            "\n  ".join(lines),
            node=first.node if first else None,
            frame=first.frame if first else None,
            device=first.device if first else None,
            hint="resume from a checkpoint: --variables DIR --retries 1, or Session.recover",
            code=LOST_CODE,
        )
        error.worker, error.host, error.devices = worker, handle.host, devices
        error.waiting = tuple(recv.node for recv in recvs)
        error.variables = tuple(name for _, name in variables)
        return error

    def require_alive(self) -> None:
        """Raise ExecutionError if a worker was lost, since a step needs all of them."""
        if self._lost is not None:
            message = f"worker {self._lost} was lost in an earlier run"
            hint = "Session.recover starts new workers, with variables of a checkpoint"
            raise ExecutionError(message, hint=hint, code=LOST_CODE)

    def reset(self) -> None:
        """End the workers and forget what was lost; the next run starts them again."""
        self.close()
        self._lost = None
        self.lost_variables.clear()

    def close(self) -> None:
        """End the workers."""
        if self._transport is not None:
            self._transport.close()
        if self._shared is not None:
            self._shared.clear()
        self._transport, self.handles, self._shared = None, (), None
        self.owners.clear()


def listed(names: Sequence[str]) -> str:
    """A text with the first names of a list, and the number of those omitted."""
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more


class RemoteState(State):
    """The variables of a session on workers: read from the workers that own them.

    Variables that are set before the first run go to their owners then. A worker that is first
    found lost while they are read raises WorkerLost; afterwards they are those of the others.
    """

    def __init__(self, workers: Workers, initial: State | None) -> None:
        super().__init__()
        self._workers = workers
        self.replace(initial)

    def replace(self, variables: State | None) -> None:
        """Set all variables, before the workers start."""
        copied = State() if variables is None else variables.copy()
        self._objects = {(*key, VARIABLES): variable for key, variable in copied.variables()}

    def __getstate__(self) -> dict[str, Any]:
        objects = {(*key, VARIABLES): variable for key, variable in self.variables()}
        return {"_objects": objects, "to_host": None, "_workers": None}

    def copy(self) -> State:
        """A state with copies of the variables; other resources stay on their workers."""
        copied = State()
        for (container, name), variable in self.variables():
            copied.get_or_make(container, name, variable.copy)
        return copied

    def unsent(self, keys: Sequence[VariableKey]) -> list[tuple[VariableKey, Variable]]:
        """The variables of these keys that no worker has yet; their values leave this process."""
        full_keys = ((*key, VARIABLES) for key in keys)
        return [(key[:2], self._objects.pop(key)) for key in full_keys if key in self._objects]

    def variables(self) -> Iterator[tuple[VariableKey, Variable]]:
        """The variables, each with its container and name."""
        found = dict(super().variables())
        if self._workers is not None:
            for variables in self._workers.variables():
                found.update(((one.container, one.name), one) for one in variables)
        return iter(found.items())
