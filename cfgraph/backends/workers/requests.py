"""Requests of the driver to workers, and their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cfgraph.errors import CfgraphError
from cfgraph.runtime.engine.deadlock import BlockedRecv
from cfgraph.runtime.io_policy import IoPolicy
from cfgraph.runtime.trace.events import TraceEvent


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """A prepared run: the partitioned graph, names, and the worker of each device.

    The nodes `faulty` raise faults; their op has no name that can be encoded. `released` are the
    numbers of earlier runs that the session has dropped.
    """

    number: int
    graph: bytes
    faulty: Sequence[str]
    fetches: Sequence[str]
    targets: Sequence[str]
    feeds: Sequence[str]
    worker_of: Mapping[str, int]
    io: IoPolicy
    compiles: bool
    seconds: float | None
    released: Sequence[int]


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The answer to a `LoadRequest`.

    `error` is that of a graph that cannot run, `reason` says why it was not compiled; otherwise
    `digest` is that of the program of all workers, and `feeds` are those that the worker reads.
    `waits_in_turn`: the token executor overlaps iterations of a loop that generated code does not.
    """

    error: CfgraphError | None = None
    reason: str = ""
    digest: bytes = b""
    feeds: Sequence[int] = ()
    is_repeatable: bool = False
    needs_tokens_for_dead: bool = False
    waits_in_turn: bool = False


@dataclass(frozen=True, slots=True)
class StepRequest:
    """One step of a prepared run. `feeds` has the values by index.

    Messages have the number `run`, random numbers depend on the number of the run in its session.
    """

    prepared: int
    run: int
    session_run: int
    seed: int
    feeds: Mapping[int, Any]
    seconds: float | None
    max_iterations: int | None
    allow_dead: bool
    traced: bool
    compiled: bool


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
