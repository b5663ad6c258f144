"""The driver of a session on several workers: it distributes steps and gathers their results.

    prepared run ─▶ load on every worker ─▶ step ─▶ values, or the error that came first

When one worker fails, the step is aborted on all others, which keep their variables. A step has
effects, so that it is not repeated; one of generated code that has none is repeated by the token
executor, which explains errors and dead fetches.
"""

from __future__ import annotations

import math
import random
import time
import weakref
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

from cfgraph.analysis.resource_handles import is_variable, variable_key
from cfgraph.backends.workers.requests import LoadRequest, LoadResult, StepRequest, StepResult
from cfgraph.backends.workers.workers import (
    VariableKey,
    WorkerDied,
    Workers,
    listed,
    require_sendable,
)
from cfgraph.errors import CfgraphError, ExecutionError, RunTimeout, WorkerLost
from cfgraph.ir.devices import short_device_name, short_device_names
from cfgraph.ir.files import dumps
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.units import format_count
from cfgraph.limits import current_limits
from cfgraph.passes.faulty_nodes import encodable_graph
from cfgraph.runtime.compiled.engine import MAX_REPEATED, exceeds_iterations
from cfgraph.runtime.engine.deadlock import BlockedRecv, NotSent, deadlock_error
from cfgraph.runtime.engine.executor import MISSING
from cfgraph.runtime.engine.plan import Plan, RunSpec
from cfgraph.runtime.engine.quiescent_state import QuiescentState
from cfgraph.runtime.engine.step import RunStep
from cfgraph.runtime.run_executor import ExecutorReport
from cfgraph.runtime.trace.events import Observer

LOST_VARIABLES_CODE: Final = "CFG721"
# seconds for a message and its answer, from which iterations that overlap outweigh slower code
_SLOW_ROUND_TRIP: Final = 2e-3
# seconds between two looks at the workers of a step that takes long
_STATUS_INTERVAL: Final = 0.25
# seconds for the other workers to end an aborted step
_ABORT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The devices of a graph that each worker ran."""

    member: ClassVar[str] = "workers"
    explains: ClassVar[bool] = True

    graph: Graph
    worker_of: Mapping[str, int]

    @property
    def devices(self) -> list[list[str]]:
        """The devices of each worker, in order."""
        devices: list[list[str]] = [[] for _ in {*self.worker_of.values()}]
        for device in sorted({node.device for node in self.graph}):
            devices[self.worker_of[device]].append(device)
        return devices

    def to_json(self) -> Annotated[list[list[str]], "The devices of each worker."]:
        """The short names of the devices of each worker."""
        return [[*map(short_device_name, names)] for names in self.devices]

    def notes(self) -> list[str]:
        """The number of workers that ran, and the devices of each."""
        devices = self.devices
        used = [short_device_names(names) for names in devices if names]
        has_idle = len(used) < len(devices)
        some = f"{len(used)} of " if has_idle else ""
        idle = ["no node is on the other devices"] * has_idle
        return [
            f"on {some}{format_count(len(devices), 'worker')}",
            f"one function each: {'; '.join([*used, *idle])}",
        ]


class RemoteRun:
    """A prepared run on workers: the engine of a session with `workers`."""

    elapsed: float | None = None
    allow_dead = False
    fallback = ""
    is_interpreted = False
    is_generated = False

    def __init__(
        self,
        workers: Workers,
        spec: RunSpec,
        plans: Sequence[Plan],
        step: RunStep,
        observer: Observer | None,
        devices: Sequence[str],
        *,
        compiles: bool,
        is_auto: bool,
    ) -> None:
        self.graph: Graph = spec.graph
        self.fetches: tuple[Output, ...] = spec.fetches
        self.step, self.run_start = step, time.perf_counter_ns()
        self.results: list[Any] = []
        self._workers, self._observer = workers, observer
        used = {plan.device for plan in plans}
        variables = [node for node in spec.graph if node.device in used and is_variable(node)]
        self._require_variables(map(variable_key, variables))
        workers.start(devices or sorted(used))
        self._used = sorted({workers.worker_of[device] for device in used})
        require_sendable([node for plan in plans for node in plan.nodes], workers.worker_of)
        self._number = next(workers.loads)
        # only noted, since garbage collection may run anywhere; the next load carries it
        weakref.finalize(self, workers.released_loads.append, self._number).atexit = False
        loaded = self._load(spec, compiles=compiles)
        results = [loaded[worker] for worker in self._used]
        self._reason = self._token_reason(results, is_auto=is_auto) if compiles else ""
        self._is_compiled = compiles and not self._reason
        self._is_repeatable = all(result.is_repeatable for result in results)
        self._needs_tokens = any(result.needs_tokens_for_dead for result in results)
        self._feeds: dict[int, set[int]] = {worker: set() for worker in self._used}
        for plan in plans:
            self._feeds[workers.worker_of[plan.device]].update(plan.feeds)
        for worker, result in zip(self._used, results, strict=True):
            self._feeds[worker].update(result.feeds)
        self._variables = {variable_key(node): workers.worker_of[node.device] for node in variables}

    @property
    def stopped(self) -> bool:
        """False: the run does not end early."""
        return False

    def reports(self) -> list[ExecutorReport]:
        """The devices of each worker."""
        return [WorkerReport(self.graph, self._workers.worker_of)]

    def _load(self, spec: RunSpec, *, compiles: bool) -> list[LoadResult]:
        """Plan the run on all workers. Raises the error of a worker."""
        workers, remaining = self._workers, current_limits().deadline - time.monotonic()
        graph, faulty = encodable_graph(spec.graph)
        request = LoadRequest(
            self._number,
            dumps(graph),
            faulty,
            [tensor.name for tensor in spec.fetches],
            [node.name for node in spec.targets],
            [tensor.name for tensor in spec.feeds],
            workers.worker_of,
            self.step.io,
            compiles,
            None if remaining == math.inf else max(0.0, remaining),
            _emptied(workers.released_loads),
        )
        loaded: list[LoadResult] = workers.call_all("load", request)
        for result in loaded:
            if result.error is not None:
                raise result.error
        return loaded

    def _token_reason(self, results: Sequence[LoadResult], *, is_auto: bool) -> str:
        """The reason why token executors run the run although it is compiled, or empty."""
        reason = next((result.reason for result in results if result.reason), "")
        if not reason and len({result.digest for result in results}) > 1:
            reason = "the workers generate different code"
        round_trip = self._workers.round_trip
        is_slow = round_trip >= _SLOW_ROUND_TRIP
        if is_auto and is_slow and any(result.waits_in_turn for result in results):
            delay = round_trip * 1e3
            reason = f"iterations overlap, since a message and its answer take {delay:.0f} ms"
        return reason

    def clear(self) -> None:
        """Drop the values of the run."""
        self.results.clear()

    def quiescent_state(self) -> QuiescentState:
        """The state of the run; the workers have it, and explain their own results."""
        raise ExecutionError("the run has no state in this process")

    def fetched_to_host(self, index: int, value: Any) -> Any:
        """The value of a fetch, which is in host memory."""
        return value

    def run(self, feeds: Sequence[Any], pick: random.Random | None) -> None:
        """Run a step on all workers.

        Raises the error of the worker that failed first, WorkerLost, RunTimeout, and ExecutionError
        for a Recv that waits for a message which no worker sends.
        """
        self._require_variables(self._variables)
        self._workers.require_alive()
        self._send_variables()
        self.run_start = time.perf_counter_ns()
        self.fallback = self._reason
        if self._is_compiled and self._needs_tokens and not self.allow_dead:
            self.fallback = "a fetch of a run with effects may be dead"
        elif self._is_compiled:
            try:
                self._step(feeds, compiled=True)
            except CfgraphError as error:
                if not self._may_repeat(error):
                    raise
            else:
                if self.allow_dead or all(value is not None for value in self.results):
                    return
        # the token executor explains an error, and a dead fetch; the run has no other effect
        self._step(feeds, compiled=False)

    def _may_repeat(self, error: CfgraphError) -> bool:
        """True if a run of generated code is repeated by the token executor, for its error."""
        if not self._is_repeatable or isinstance(error, WorkerLost | RunTimeout):
            return False
        limit = current_limits().max_iterations
        return not exceeds_iterations(error) or limit is None or limit <= MAX_REPEATED

    def _step(self, feeds: Sequence[Any], *, compiled: bool) -> None:
        """Run a step on all workers."""
        number = next(self._workers.runs)
        limits = current_limits()
        seconds = limits.deadline - time.monotonic()
        futures: dict[Future[Any], int] = {}
        try:
            for worker in self._used:
                request = StepRequest(
                    self._number,
                    number,
                    self.step.run,
                    self.step.seed,
                    {index: feeds[index] for index in self._feeds[worker]},
                    None if seconds == math.inf else max(0.0, seconds),
                    limits.max_iterations,
                    self.allow_dead,
                    self._observer is not None,
                    compiled,
                )
                futures[self._workers.handles[worker].call("step", request)] = worker
            results = self._gather(number, futures)
        except WorkerLost:
            raise  # the others have ended
        except BaseException:
            self._abort(number, futures)
            raise
        self.results[:] = [MISSING] * len(self.fetches)
        for worker, result in results.items():
            for index, value in result.values.items():
                self.results[index] = value
            self._observe(worker, result)

    def _require_variables(self, keys: Iterable[VariableKey]) -> None:
        """Raise ExecutionError if the run needs a variable that was lost with its worker."""
        lost = sorted(key for key in keys if key in self._workers.lost_variables)
        if lost:
            names = listed([name for _, name in lost])
            message = f"the run needs variables that were lost with their worker: {names}"
            hint = "restore them: session.recover(cfgraph.restore(...)), or run their initializers"
            raise ExecutionError(message, hint=hint, code=LOST_VARIABLES_CODE)

    def _send_variables(self) -> None:
        """Send variables that were restored in this process to their workers."""
        by_worker: dict[int, list[VariableKey]] = {}
        for key, worker in self._variables.items():
            by_worker.setdefault(worker, []).append(key)
        for worker, keys in by_worker.items():
            if unsent := self._workers.state.unsent(keys):
                self._workers.call(worker, "restore", unsent)
        self._workers.owners.update(self._variables)

    def _gather(self, number: int, futures: dict[Future[Any], int]) -> dict[int, StepResult]:
        """The results of all workers."""
        pending, results = set(futures), dict[int, StepResult]()
        quiet: tuple[int, int] | None = None
        monitor = self._workers.monitor()
        while pending:
            done, pending = wait(pending, _STATUS_INTERVAL, FIRST_COMPLETED)
            failed: list[int] = []
            for future in done:
                worker = futures[future]
                try:
                    result = results[worker] = future.result()
                except WorkerDied:
                    failed.append(worker)
                    continue
                if result.error is not None:
                    raise self._located(worker, result.error)
                if result.lost is not None:
                    failed.append(worker)
            awaited = [futures[future] for future in pending]
            silent = monitor.silent_worker(awaited)
            if failed or silent is not None:
                raise self._lost(number, results, futures, silent)
            if not done and pending:
                quiet = self._require_progress(number, awaited, quiet)
        return results

    def _located(self, worker: int, error: CfgraphError) -> CfgraphError:
        """The error of a kernel, with the worker that ran it."""
        error.device = error.device or f"worker {worker}"
        return error

    def _lost(
        self,
        number: int,
        results: dict[int, StepResult],
        futures: dict[Future[Any], int],
        silent: int | None,
    ) -> CfgraphError:
        """The error of a step that lost a worker, or of the kernel that failed before.

        `silent` is a worker that answers no pings.
        """
        reports = [result.lost for result in results.values() if result.lost is not None]
        if silent is not None:
            reports.append((silent, self._workers.silence))
        self._abort(number, futures, {worker for worker, _ in reports})
        dead = []
        for future, worker in futures.items():
            if not future.done():
                continue
            try:
                result = results[worker] = future.result()
            except WorkerDied:
                dead.append(worker)
                continue
            # a worker that fails closes no link, so that its error is the cause of others
            if result.error is not None and not result.aborted:
                return self._located(worker, result.error)
        waited = [recv for result in results.values() for recv in result.waited]
        if dead:
            return self._workers.lost(dead[0], "was killed", waited, during=" during a step")
        lost, reason = reports[0]
        return self._workers.lost(lost, reason, waited, during=" during a step")

    def _abort(
        self, number: int, futures: dict[Future[Any], int], silent: Collection[int] = ()
    ) -> None:
        """End the step on all workers that may be in it; do not wait for silent ones."""
        ended = {worker for future, worker in futures.items() if future.done()}
        # a call that a signal has interrupted may have reached its worker
        for worker in set(self._used) - ended:
            self._workers.handles[worker].call("abort", number)
        unfinished = [future for future in futures if not future.done()]
        wait([each for each in unfinished if futures[each] not in silent], _ABORT_SECONDS)
        if silent:
            # the process of a silent worker may end just now
            wait([each for each in unfinished if futures[each] in silent], _STATUS_INTERVAL)

    def _require_progress(
        self, number: int, workers: Sequence[int], quiet: tuple[int, int] | None
    ) -> tuple[int, int] | None:
        """Raise ExecutionError if all workers wait and no message is on its way, twice in a row.

        Returns the numbers of messages if they wait.
        """
        calls = [self._workers.handles[used].call("status", number) for used in self._used]
        wait(calls, _STATUS_INTERVAL)
        if not all(call.done() for call in calls) or any(call.exception() for call in calls):
            return None
        states = [call.result() for call in calls]
        sent, received = sum(state[1] for state in states), sum(state[2] for state in states)
        if not all(state[0] for state in states) or sent != received:
            return None
        if quiet == (sent, received):
            raise self._deadlock(workers)
        return sent, received

    def _deadlock(self, workers: Sequence[int]) -> ExecutionError:
        """The error of a step in which Recvs wait for messages that no worker sends."""
        blocked = [recv for worker in workers for recv in self._workers.call(worker, "blocked")]
        missing: list[tuple[BlockedRecv, NotSent]] = []
        for recv in blocked:
            sender = self._workers.worker_of.get(recv.key.send_device, workers[0])
            (reason,) = self._workers.call(sender, "not_sent", [recv])
            missing.append((recv, reason))
        return deadlock_error(missing)

    def _observe(self, worker: int, result: StepResult) -> None:
        """Pass the events of a worker to the observer, with times of the driver's clock."""
        if self._observer is None:
            return
        shift = self._workers.run_start(worker, result.run_start) - self.run_start
        for event in result.events:
            times = event.start_ns + shift, event.end_ns + shift
            self._observer.event(event._replace(start_ns=times[0], end_ns=times[1]))


def _emptied(numbers: deque[int]) -> list[int]:
    """The numbers of a queue, which other threads may append to."""
    return [numbers.popleft() for _ in range(len(numbers))]
