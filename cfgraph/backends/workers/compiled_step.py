"""Steps of generated code on one worker, and the messages that it sends and waits for."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.backends.workers.connections import PeerLost
from cfgraph.backends.workers.projection import Message, Projection
from cfgraph.backends.workers.remote_rendezvous import Postbox
from cfgraph.backends.workers.worker_program import worker_program
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Output
from cfgraph.ir.traversal import sends_by_recv
from cfgraph.limits import current_limits, timeout_error
from cfgraph.runtime.compiled.code_position import error_iteration, located
from cfgraph.runtime.compiled.compiled_run import CompiledRun
from cfgraph.runtime.compiled.engine import UNLIMITED, compile_part, generate_run
from cfgraph.runtime.compiled.node_writer import FAST
from cfgraph.runtime.engine.deadlock import BlockedRecv, NotSent
from cfgraph.runtime.engine.plan import Plan, RunSpec
from cfgraph.runtime.engine.step import RunStep
from cfgraph.runtime.program import NotCompiled

# seconds that a waiting step sleeps at most before it looks at its limits
MAX_SLEEP: Final = 1.0
# messages that wait until they are written together
_BATCH: Final = 32
# iterations of a loop between two looks at the limits, less one
_CHECKED: Final = 15
# levels of calls that a worker needs apart from generated code
_SPARE_CALLS: Final = 300


class Aborted(Exception):
    """A step that the driver ended."""


@dataclass(frozen=True, slots=True)
class CompiledPart:
    """The generated code of one worker, and what the driver compares and sends.

    `digest` is that of the program of all workers, `feeds` and `fetches` are those of this one, by
    index. `waits_in_turn` is as in `Projection`.
    """

    compiled: CompiledRun
    messages: Sequence[Message]
    digest: bytes
    feeds: Sequence[int]
    fetches: Mapping[int, Output]
    waits_in_turn: bool


def compile_worker(
    spec: RunSpec,
    plans: Sequence[Plan],
    worker_of: Mapping[str, int],
    worker: int,
    exchange: Exchange,
) -> CompiledPart:
    """Generate the code of a worker. Raises NotCompiled with a reason."""
    nodes = [node for plan in plans for node in plan.nodes]
    recvs = {
        send.name: recv
        for recv, send in sends_by_recv(nodes).items()
        if worker_of[send.device] != worker_of[recv.device]
    }
    generator = generate_run(spec, plans, FAST, recvs.keys())
    merged = {node.name: node for node in generator.plan.nodes}
    between = {merged[name]: recv for name, recv in recvs.items() if name in merged}
    projection = Projection(generator, worker_of, between)
    code = worker_program(projection, worker).code(may_be_dead=generator.may_be_dead is not None)
    if code.calls > sys.getrecursionlimit() - _SPARE_CALLS:
        raise NotCompiled("the stack of Python has no room for nested loops and conditionals")
    functions: dict[str, Callable[..., Any]] = {
        "send": exchange.send,
        "receive": exchange.receive,
        "flush": exchange.flush,
        "pause": exchange.check,
    }
    return CompiledPart(
        compile_part(generator.plan, code, functions),
        [message for message, _ in projection.messages],
        projection.digest,
        projection.feeds(worker),
        {
            index: output
            for index, output in generator.plan.fetches.items()
            if worker_of[output.node.device] == worker
        },
        projection.waits_in_turn,
    )


class Exchange:
    """The messages of the current step of generated code."""

    def __init__(self, postbox: Postbox) -> None:
        self._postbox, self._mesh = postbox, postbox.mesh
        self._queues: list[deque[Any]] = []
        self._sources: list[int] = []
        self._unwritten = 0
        self._deadline = math.inf
        self.aborted = -1  # steps up to this number are aborted
        self.is_waiting = False
        self.awaited: int | None = None  # the number of the message that the step waits for

    def start(self, run: int, sources: list[int]) -> None:
        """Begin a step, whose messages come from these workers, by number."""
        self._sources = sources
        self._queues = [deque() for _ in sources]
        self._deadline = current_limits().deadline
        self._unwritten, self.awaited, self.is_waiting = 0, None, False
        self._postbox.start(run, {}, self._queues, sources)

    def send(self, worker: int, number: int, value: Any) -> None:
        """Queue a message."""
        self._postbox.send(worker, number, value)
        self._unwritten += 1
        if self._unwritten >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Write queued messages, as far as the sockets accept them."""
        if self._unwritten:
            self._unwritten = 0
            self._mesh.flush()

    def receive(self, number: int) -> Any:
        """The next message of this number."""
        queue = self._queues[number]
        if not queue:
            self._wait(number, queue)
        return queue.popleft()

    def _wait(self, number: int, queue: deque[Any]) -> None:
        """Read until a message of this number is there."""
        self._unwritten = 0
        mesh, postbox = self._mesh, self._postbox
        mesh.flush()
        since = time.monotonic()
        self.awaited = number
        self.is_waiting = True
        while not queue:
            now = self.check()
            messages = mesh.poll(
                max(0.0, min(MAX_SLEEP, mesh.lost_after / 3, self._deadline - now))
            )
            if messages:  # before they count as received
                self.is_waiting = False
            for message in messages:
                postbox.deliver(message)
            if not messages:
                mesh.require_alive(since)
            self.is_waiting = not queue
        self.is_waiting = False
        self.awaited = None

    def check(self) -> float:
        """The time. Raises Aborted for a step that the driver has ended, RunTimeout."""
        if self.aborted >= self._postbox.run:
            raise Aborted
        now = time.monotonic()
        if now > self._deadline:
            raise timeout_error("the run exceeded its timeout")
        return now


class _Iterations:
    """The numbers of the iterations of a loop, which look at the limits of the step."""

    def __init__(self, exchange: Exchange, stop: int) -> None:
        self._exchange, self._numbers = exchange, range(stop)

    def __iter__(self) -> Iterator[int]:
        check = self._exchange.check
        for number in self._numbers:
            if not number & _CHECKED:
                check()
            yield number


class CompiledStep:
    """Steps of a prepared run as generated code."""

    def __init__(self, part: CompiledPart, step: RunStep, exchange: Exchange, worker: int) -> None:
        self.part, self.step = part, step
        self.run_start = time.perf_counter_ns()
        self.run_number = 0
        self._exchange, self._worker = exchange, worker
        self._sources = [
            message.source if message.target == worker else -1 for message in part.messages
        ]
        self._waited: list[BlockedRecv] = []

    @property
    def is_waiting(self) -> bool:
        """True if the step waits for a message, or has ended."""
        return self._exchange.is_waiting

    @is_waiting.setter
    def is_waiting(self, is_waiting: bool) -> None:
        self._exchange.is_waiting = is_waiting

    def run(self, feeds: Sequence[Any]) -> dict[int, Any]:
        """Run the generated code. Returns the fetches of this worker by index.

        Raises the error of a kernel with its node and iteration, PeerLost, RunTimeout, Aborted.
        """
        self._waited = []
        limit = self.step.max_iterations
        stop = len(UNLIMITED) if limit is None else min(limit + 1, len(UNLIMITED))
        exchange, compiled = self._exchange, self.part.compiled
        exchange.start(self.run_number, self._sources)
        try:
            function, _ = compiled.next_function()
            values = function(self.step, feeds, _Iterations(exchange, stop))
            exchange.flush()
        except (Aborted, PeerLost) as error:
            self._waited = self._blocked_at(error)
            raise
        except Exception as error:
            raise located(compiled, error) from error.__cause__
        finally:
            exchange.is_waiting = True  # for nothing, if the step has ended
        return {index: values[index] for index in self.part.fetches}

    def _blocked_at(self, error: Exception) -> list[BlockedRecv]:
        """The Recv that waited when the step ended."""
        if self._exchange.awaited is None:
            return []
        message = self.part.messages[self._exchange.awaited]
        iteration = error_iteration(self.part.compiled, error)
        device = short_device_name(message.key.recv_device or f"worker {self._worker}")
        return [BlockedRecv(message.recv, iteration.path, device, message.key, iteration.loops)]

    def blocked(self) -> list[BlockedRecv]:
        """The Recv that waited when the step ended."""
        return self._waited

    def not_sent(self, recvs: Sequence[BlockedRecv]) -> list[NotSent]:
        """The reasons why this worker did not send messages."""
        return [NotSent("its worker waits for another message", True) for _ in recvs]
