"""Run step: the view of a run that kernels of stateful ops have."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.printable import clean_layout
from cfgraph.ops.opdef.op import OpError
from cfgraph.runtime.io_policy import NO_IO, IoPolicy
from cfgraph.runtime.state import State
from cfgraph.runtime.trace.events import Observer, TraceEvent


class IterationPosition(Protocol):
    """An iteration of a frame, by which kernels identify an execution of their node."""

    @property
    def index(self) -> int:
        """The number of the iteration in its frame."""

    @property
    def path(self) -> str:
        """The path of loops and iterations."""


class RunStep:
    """The `Step` of one run at a time; `node` and `iteration` identify the running stateful kernel.

    `run` is the number of the run in its session.
    """

    __slots__ = (
        "io",
        "iteration",
        "max_iterations",
        "node",
        "observer",
        "run",
        "run_start",
        "seed",
        "state",
    )

    def __init__(self, state: State, seed: int, io: IoPolicy = NO_IO) -> None:
        self.state = state
        self.seed = seed
        self.io = io
        self.run = 0
        self.max_iterations: int | None = None
        self.node: Node | None = None
        self.iteration: IterationPosition | None = None
        self.observer: Observer | None = None
        self.run_start = 0

    def start_run(
        self, run: int, run_start: int, max_iterations: int | None, observer: Observer | None
    ) -> None:
        """Set the number, start time, limit, and observer of the next run."""
        self.run, self.run_start = run, run_start
        self.max_iterations, self.observer = max_iterations, observer

    def resource(self, container: str, name: str, make: Callable[[], Any]) -> Any:
        """The session's object of this container and name, made on first use."""
        return self.state.get_or_make(container, name, make)

    def forget(self, container: str, name: str) -> None:
        """Drop an object from the session's state."""
        self.state.forget(container, name)

    def generator(self, seed: int, seed2: int) -> np.random.Generator:
        """A random generator for this execution of the running node, independent of the schedule.

        It is keyed by all seeds, the node, its frame path and iteration, and the number of the run.
        """
        assert self.node is not None
        assert self.iteration is not None
        key = (self.seed, seed, seed2, self.node.name, self.iteration.path, self.run)
        digest = hashlib.blake2b(repr(key).encode(), digest_size=16).digest()
        return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))

    def note(self, device: str, text: str) -> None:
        """Record a note on the running node in the trace."""
        if self.observer is None or self.node is None or self.iteration is None:
            return
        now, node, iteration = time.perf_counter_ns() - self.run_start, self.node, self.iteration
        event = TraceEvent(
            device, node.name, node.op, iteration.path, iteration.index, False, now, now
        )
        self.observer.event(event._replace(kind="note", text=text))

    def print(self, text: str, stream: str = "stderr") -> None:
        """Print the output of a graph on stderr, since stdout is for results.

        Control characters are escaped: a terminal would interpret them.
        """
        sys.stderr.write(clean_layout(text))
        sys.stderr.flush()

    def require_readable(self, path: str) -> None:
        """Raise Unsupported if the policy does not let the graph read this file."""
        self.io.require_readable(path)

    def append_to_file(self, path: str, data: bytes) -> None:
        """Append to a file. Raises Unsupported without permission, OpError if that fails."""
        self.io.require_writable(path)
        try:
            with open(path, "ab") as file:
                file.write(data)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            message = f"cannot write {path!r}: {reason}"
            raise OpError(message) from None
