"""Run step: the view of a run that kernels of stateful ops have, and the state that outlives it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cfgraph.extensions import MODULES, extension
from cfgraph.ir.graph import Node
from cfgraph.ir.printable import clean_layout
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.opdef.blocking import Blocked
from cfgraph.ops.opdef.op import OpError
from cfgraph.ops.opdef.random_streams import GRAPH, StreamScope, iterations_of, stream_name
from cfgraph.ops.opdef.resources import TABLES, VARIABLES, Resource
from cfgraph.runtime.engine.random_numbers import RandomStreams, stream_counter
from cfgraph.runtime.io_policy import NO_IO, IoPolicy
from cfgraph.runtime.trace.events import Observer, TraceEvent

if TYPE_CHECKING:
    from cfgraph.ops.families.lookup_tables import LookupTable


class IterationPosition(Protocol):
    """The frame and iteration of an execution, which are part of the key of random numbers."""

    @property
    def index(self) -> int:
        """The number of the iteration in its frame."""

    @property
    def indices(self) -> tuple[int, ...]:
        """The numbers of the iterations of the enclosing loops, outermost first."""

    @property
    def path(self) -> str:
        """The path of loops and iterations."""


class State:
    """Resources of a session. Any later session accepts them, also for a graph that has grown.

    A stateful kernel runs with `lock`, so that concurrent runs interleave between nodes only.
    """

    def __init__(self) -> None:
        self.lock = RLock()
        # by container, name, and namespace
        self._objects: dict[tuple[str, str, str], Any] = {}
        # copies a value to host memory, if values may be elsewhere
        self.to_host: Callable[[Any], Any] | None = None

    def __repr__(self) -> str:
        count = len(self._objects)
        return f"<{type(self).__name__} of {count} resource{'s' * (count != 1)}>"

    def __getstate__(self) -> dict[str, Any]:
        """The state without its lock, for copy and pickle."""
        return {key: value for key, value in vars(self).items() if key != "lock"}

    def __setstate__(self, fields: dict[str, Any]) -> None:
        vars(self).update(fields, lock=RLock())

    def get_or_make(
        self, container: str, name: str, make: Callable[[], Any], namespace: str = VARIABLES
    ) -> Any:
        """The object of this container and name, made on first use."""
        key = (container, name, namespace)
        value = self._objects.get(key)
        if value is None:
            with self.lock:
                value = self._objects.get(key)
                if value is None:
                    value = self._objects[key] = make()
        return value

    def copy(self) -> State:
        """A state with copies of the variables and tables; other resources are not copied."""
        copied = State()
        for key, value in list(self._objects.items()):
            copy = value.copy() if isinstance(value, Resource) else None
            if copy is not None:
                copied._objects[key] = copy
        return copied

    def forget(self, container: str, name: str, namespace: str = VARIABLES) -> None:
        """Drop an object, if it exists."""
        self._objects.pop((container, name, namespace), None)

    def move_to_host(self) -> None:
        """Move the values of all variables to host memory."""
        to_host, self.to_host = self.to_host, None
        if to_host is None:
            return
        for _, value in self.variables():
            value.value = to_host(value.value)

    def variables(self) -> Iterator[tuple[tuple[str, str], Variable]]:
        """The variables, each with its container and name."""
        for (container, name, _), value in list(self._objects.items()):
            if isinstance(value, Variable):
                yield (container, name), value

    def initialized_variables(self) -> frozenset[tuple[str, str]]:
        """The containers and names of the variables that have values."""
        return frozenset(key for key, variable in self.variables() if variable.initialized)

    def objects(self) -> Iterator[Any]:
        """The objects, in the order in which they were made."""
        return iter(list(self._objects.values()))

    def filled_tables(self) -> frozenset[tuple[str, str]]:
        """The containers and names of the tables that have been filled."""
        return frozenset(key for key, _ in self.tables())

    def tables(self) -> Iterator[tuple[tuple[str, str], LookupTable]]:
        """The tables that have been filled, each with its container and name."""
        for (container, name, namespace), item in list(self._objects.items()):
            if namespace == TABLES and item.initialized:
                yield (container, name), item

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """The container and the name of each object."""
        return iter([(container, name) for container, name, _ in self._objects])

    def __len__(self) -> int:
        return len(self._objects)


@dataclass(frozen=True, slots=True)
class ParkedToken:
    """A node that waits for a change of a resource; `wake` makes it ready again."""

    node: Node
    iteration: IterationPosition
    blocked: Blocked
    wake: Callable[[], None]


@dataclass(frozen=True, slots=True)
class InlinedNode:
    """A node of a function, as far as kernels and traces read it."""

    name: str
    op: str
    attrs: Mapping[str, Any]


class RunStep:
    """The `Step` of one run at a time; `node` and `iteration` identify the running stateful kernel.

    `run` is the number of the run in its session.
    """

    __slots__ = (
        "_attempts",
        "_streams",
        "_temporaries",
        "io",
        "iteration",
        "max_iterations",
        "node",
        "observer",
        "parked",
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
        self.node: Node | InlinedNode | None = None
        self.iteration: IterationPosition | None = None
        self.observer: Observer | None = None
        self.run_start = 0
        self.parked: list[ParkedToken] = []
        # resources and keys of blocked kernels; a key may block again
        self._attempts: dict[tuple[int, Any], Blocked] = {}
        self._streams: RandomStreams | None = None
        # by iteration, device, and name
        self._temporaries: dict[tuple[str, str, str], Resource] = {}

    def start_run(
        self, run: int, run_start: int, max_iterations: int | None, observer: Observer | None
    ) -> None:
        """Set the number, start time, limit, and observer of the next run."""
        self.run, self.run_start = run, run_start
        self.max_iterations, self.observer = max_iterations, observer
        self._temporaries.clear()
        if self._streams is not None:
            self._streams.clear()

    def park(self, token: ParkedToken) -> None:
        """Let a token wait for a change of the resource that blocks it."""
        self.parked.append(token)
        self._attempts[id(token.blocked.resource), token.blocked.key] = token.blocked

    def withdraw_parked(self) -> None:
        """Undo what nodes have begun that waited and did not end, at the end of a run."""
        self.parked.clear()
        while self._attempts:
            _, blocked = self._attempts.popitem()
            blocked.resource.withdraw(blocked.key)

    def wake_parked(self) -> bool:
        """Make the tokens ready whose resources have changed; return false if there are none."""
        waiting, self.parked = self.parked, []
        for token in waiting:
            if token.blocked.resource.version == token.blocked.version:
                self.parked.append(token)
            else:
                token.wake()
        return len(self.parked) < len(waiting)

    def resource(
        self, container: str, name: str, make: Callable[[], Any], namespace: str = VARIABLES
    ) -> Any:
        """The session's object of this container and name, made on first use."""
        return self.state.get_or_make(container, name, make, namespace)

    def forget(self, container: str, name: str, namespace: str = VARIABLES) -> None:
        """Drop an object from the session's state."""
        self.state.forget(container, name, namespace)

    def add_temporary(self, device: str, name: str, resource: Resource) -> bool:
        """Store a resource of this iteration; false if the device has another of its name."""
        key = self._iteration_path(), device, name
        return self._temporaries.setdefault(key, resource) is resource

    def remove_temporary(self, device: str, name: str, resource: Resource) -> bool:
        """Remove a resource of this iteration; false if it is not there under the name."""
        key = self._iteration_path(), device, name
        if self._temporaries.get(key) is not resource:
            return False
        del self._temporaries[key]
        return True

    def _iteration_path(self) -> str:
        return "" if self.iteration is None else self.iteration.path

    def run_inside(self, node: Node, scope: StreamScope) -> None:
        """Let the running node be one of a function, as it would be once that is inlined."""
        self.node = InlinedNode(node.name, node.op, {**node.attrs, **scope.annotations(node)})

    def generator(
        self, seed: int, seed2: int, stream: str | None = None, position: int = 0
    ) -> np.random.Generator:
        """The random numbers of this execution of the running node, or of a stream by its name.

        They are valid until the next call.
        """
        streams = self._streams = self._streams or RandomStreams()
        seeds = (self.seed, seed, seed2, self.run)
        if stream is not None:
            return streams.generator(seeds, stream, (position,))
        node, iteration = self.node, self.iteration
        assert node is not None
        loops = () if iteration is None else iteration.indices
        return streams.generator(seeds, stream_name(node), iterations_of(node, loops))

    def stream_words(self, draws: Sequence[tuple[int, int, str]]) -> Any:
        """The keys of streams in the running call, by the seeds and names of their nodes there.

        They are followed by the words of the counter, without that which counts draws, and 0.
        """
        streams, node, iteration = self._streams or RandomStreams(), self.node, self.iteration
        self._streams = streams
        assert node is not None
        scope = GRAPH.inside(node)
        loops = iterations_of(node, () if iteration is None else iteration.indices)
        keys = [
            streams.key((self.seed, seed, seed2, self.run), scope.path + stream)
            for seed, seed2, stream in draws
        ]
        _, first, second, third = stream_counter(loops)
        return np.array([*keys, [third, second], [first, 0]], np.uint64)

    def note(self, device: str, text: str, seconds: float) -> None:
        """Record a note in the trace: what the running node did in the last `seconds`."""
        if self.observer is None or self.node is None or self.iteration is None:
            return
        end, node, iteration = time.perf_counter_ns() - self.run_start, self.node, self.iteration
        start = max(end - round(seconds * 1e9), 0)
        event = TraceEvent(
            device, node.name, node.op, iteration.path, iteration.index, False, start, end
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

    def run_module(self, call: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The results of a `ModuleCall`, which runs in a process of its own."""
        results: tuple[Any, ...] = extension(MODULES, "run")(call, inputs)
        return results

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
