"""Queues of tuples of tensors: first in, first out, padded, by priority, and shuffled.

A kernel that has to wait, for an element or for room, raises `Blocked`, and runs again once another
node has changed the queue. What it has moved by then is noted at the queue.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.names import decode_key
from cfgraph.ir.shapes import SCALAR_SHAPE, Shape
from cfgraph.ops.families.split import as_outputs
from cfgraph.ops.opdef.blocking import Blocked
from cfgraph.ops.opdef.facts import HostPlacement, SideEffects
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.random_streams import stream_name
from cfgraph.ops.opdef.resources import Resource

Element = tuple[Any, ...]


class Queue(Resource):
    """Elements of one type, and the moves that wait; `version` counts changes."""

    __slots__ = ("capacity", "closed", "elements", "name", "pending", "shapes", "types", "version")
    namespace = "queues"
    shape = ()
    ndim = 0

    def __init__(self, name: str, types: Sequence[DType], shapes: Sequence[Shape], capacity: int):
        self.name, self.types, self.shapes = name, tuple(types), tuple(shapes)
        self.capacity = capacity
        self.elements: list[Any] = []
        self.closed = False
        self.version = 0
        # elements that a waiting node has enqueued, or dequeued, by execution
        self.pending: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {len(self.elements)} elements>"

    def check_element(self, element: Element, *, batched: bool = False) -> None:
        """Raise OpError for components of other types or shapes."""
        if len(element) != len(self.types):
            raise OpError(f"Wrong number of components in tuple. Expected {len(self.types)}")
        for index, (x, dtype) in enumerate(zip(element, self.types, strict=True)):
            if np.asarray(x).dtype != dtype.numpy:
                raise OpError(f"Type mismatch in tuple component {index}. Expected {dtype}")
            if self.shapes and not self.shapes[index].accepts(np.shape(x)[batched:]):
                expected = self.shapes[index]
                message = f"Shape mismatch in tuple component {index}. Expected {expected}"
                raise OpError(f"{message}, got {list(np.shape(x)[batched:])}")

    def put(self, element: Element) -> None:
        """Add an element."""
        self.elements.append(element)

    def take_next(self, step: Any) -> Element:
        """Remove the next element."""
        return self.elements.pop(0)  # type: ignore[no-any-return]

    def restore(self, elements: list[Element]) -> None:
        """Put elements back at the front."""
        self.elements[:0] = elements

    @property
    def available(self) -> int:
        """The number of elements that may be removed."""
        return len(self.elements)

    def enqueue(self, step: Any, count: int, rows: Callable[[int, int], list[Element]]) -> None:
        """Add elements, as far as there is room. Raises Blocked unless all are added.

        `rows` returns those between two positions.
        """
        key = execution(step)
        done = self.pending.get(key, 0)
        if self.closed:
            self.pending.pop(key, None)
            raise OpError(f"{type(self).__name__} {self.name!r} is closed.")
        room = count if self.capacity < 0 else max(0, self.capacity - len(self.elements))
        end = min(count, done + room)
        for element in rows(done, end):
            self.put(element)
        self.version += end > done
        if end < count:
            self.pending[key] = end
            raise Blocked(self, "for room", key)
        self.version += self.pending.pop(key, None) is not None

    def dequeue(self, step: Any, count: int, *, partial: bool = False) -> list[Element]:
        """Remove elements; with `partial`, fewer from a closed queue. Raises Blocked to wait."""
        key = (*execution(step), "dequeue")
        taken: list[Element] = self.pending.pop(key, [])
        while len(taken) < count and self.available:
            taken.append(self.take_next(step))
            self.version += 1
        if len(taken) == count or (partial and self.closed and taken):
            return taken
        if self.closed:
            self.restore(taken)
            raise OpError(
                f"{type(self).__name__} {self.name!r} is closed and has insufficient elements "
                f"(requested {count}, current size {len(self.elements)})"
            )
        self.pending[key] = taken
        raise Blocked(self, "for an element", key)

    def withdraw(self, key: Any) -> None:
        """Forget a node that waits no longer; put back the elements that it has removed."""
        moved = self.pending.pop(key, None)
        if isinstance(moved, list):
            self.restore(moved)
        self.version += moved is not None

    def close(self, *, cancel: bool) -> None:
        """Accept no more elements. Unless pending enqueues are cancelled, wait for them."""
        if not cancel and any(isinstance(moved, int) for moved in self.pending.values()):
            raise Blocked(self, "for pending enqueues")
        if not cancel and self.closed:
            raise OpError(f"{type(self).__name__} {self.name!r} is already closed.")
        self.closed = True
        self.version += 1

    def stack(self, elements: list[Element]) -> Element:
        """The components of several elements, one array each."""
        columns = zip(*elements, strict=True) if elements else [()] * len(self.types)
        pairs = zip(columns, self.types, self.shapes, strict=True)
        return tuple(self._stacked(list(rows), dtype, shape) for rows, dtype, shape in pairs)

    def _stacked(self, rows: list[Any], dtype: DType, shape: Shape) -> Any:
        if not rows:
            return np.empty((0, *(size or 0 for size in shape)), dtype.numpy)
        return np.stack([np.asarray(row) for row in rows])


def execution(step: Any) -> tuple[Any, ...]:
    """An identity of the execution of a node, which lasts while it waits."""
    node, iteration = getattr(step, "node", None), getattr(step, "iteration", None)
    return (node and node.name, iteration and iteration.path, getattr(step, "run", 0))


class PaddedQueue(Queue):
    """A queue whose elements may differ in size; several are padded with zeros."""

    __slots__ = ()

    def _stacked(self, rows: list[Any], dtype: DType, shape: Shape) -> Any:
        if not rows:
            return super()._stacked(rows, dtype, shape)
        sizes = [max(lengths) for lengths in zip(*(np.shape(row) for row in rows), strict=True)]
        fill = b"" if dtype.kind == "string" else 0
        padded = np.full((len(rows), *sizes), fill, dtype.numpy)
        for place, row in enumerate(rows):
            inside: tuple[Any, ...] = (place, *(slice(size) for size in np.shape(row)))
            padded[inside] = row
        return padded


class PrioritizedQueue(Queue):
    """A queue whose element of the lowest priority, its first component, is next."""

    __slots__ = ()

    def put(self, element: Element) -> None:
        """Add an element behind those of the same priority."""
        insort(self.elements, element, key=lambda item: int(item[0]))

    def restore(self, elements: list[Element]) -> None:
        """Put elements back at their positions."""
        for element in elements:
            self.put(element)


class ShuffledQueue(Queue):
    """A queue that returns random elements, and keeps some unless it is closed."""

    __slots__ = ("drawn", "min_after_dequeue", "seeds", "stream")

    def __init__(
        self, *args: Any, min_after_dequeue: int = 0, seeds: tuple[int, int] = (0, 0)
    ) -> None:
        super().__init__(*args)
        self.min_after_dequeue, self.seeds = min_after_dequeue, seeds
        # the name of its random numbers, and how many it has drawn
        self.stream, self.drawn = "", 0

    @property
    def available(self) -> int:
        """The number of elements that may be removed."""
        return len(self.elements) - (0 if self.closed else self.min_after_dequeue)

    def take_next(self, step: Any) -> Element:
        """Remove a random element."""
        generator = step.generator(*self.seeds, self.stream, self.drawn)
        self.drawn += 1
        elements = self.elements
        index = int(generator.integers(len(elements)))
        elements[index], elements[-1] = elements[-1], elements[index]
        return elements.pop()  # type: ignore[no-any-return]


# -- handles ----------------------------------------------------------------------------------

_SHARED = "capacity: int = -1, container: string = '', shared_name: string = ''"
_COMPONENTS = f"component_types: list(type) >= 1, shapes: list(shape) >= 0 = [], {_SHARED}"


class QueueHandle(Op, abstract=True):
    """An op that creates or looks up a queue."""

    signature = "-> handle: resource"
    attrs = _COMPONENTS
    effects = SideEffects(stateful=True)
    placement = HostPlacement(host_only=True)
    kind: ClassVar[type[Queue]] = Queue
    first_types: ClassVar[tuple[DType, ...]] = ()

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        container = decode_key(node.attr("container"))
        name = decode_key(node.attr("shared_name")) or node.name
        types = (*cls.first_types, *node.attr("component_types"))
        shapes = tuple(node.attr("shapes"))
        if shapes or cls.first_types:
            shapes = (*[SCALAR_SHAPE] * len(cls.first_types), *shapes)
        if shapes and len(shapes) != len(types):
            raise OpError(f"{len(shapes)} shapes for {len(types)} components")
        more = cls.options(node)
        expected = {"capacity": node.attr("capacity"), "shapes": shapes, **more}
        if expected.get("seeds") == (0, 0):
            del expected["seeds"]

        def make() -> Queue:
            return cls.kind(name, types, shapes, node.attr("capacity"), **more)

        def handle(step: Any) -> Queue:
            queue = step.resource(container, name, make, Queue.namespace)
            if queue.__class__ is not cls.kind or queue.types != types:
                raise OpError(f"Shared queue {name!r} is {queue!r}, which has another type")
            for attr, requested in expected.items():
                if (have := getattr(queue, attr)) != requested:
                    message = f"Shared queue {name!r} has {attr} {have} but requested {attr} was"
                    raise OpError(f"{message} {requested}")
            return queue

        return handle

    @classmethod
    def options(cls, node: Node) -> dict[str, Any]:
        """Further arguments of the queue. Default: none."""
        return {}

    shape = staticmethod(lambda context: [SCALAR_SHAPE])


class FIFOQueueV2(QueueHandle):
    """Handle of a queue, first in, first out."""


class PaddingFIFOQueueV2(QueueHandle):
    """Handle of a queue whose elements may differ in size."""

    kind = PaddedQueue


class PriorityQueueV2(QueueHandle):
    """Handle of a queue in the order of priorities, the first component."""

    attrs = f"component_types: list(type) >= 0 = [], shapes: list(shape) >= 0, {_SHARED}"
    kind = PrioritizedQueue
    first_types = (dtypes.int64,)


class RandomShuffleQueueV2(QueueHandle):
    """Handle of a queue that returns random elements."""

    attrs = f"{_COMPONENTS}, min_after_dequeue: int = 0, seed: int = 0, seed2: int = 0"
    effects = SideEffects(stateful=True, random=True)
    kind = ShuffledQueue

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        handle, shared_name = super().prepare(node, xp), decode_key(node.attr("shared_name"))

        def named_handle(step: Any) -> Queue:
            queue: ShuffledQueue = handle(step)
            if not queue.stream:
                queue.stream = f":{shared_name}" if shared_name else stream_name(step.node)
            return queue

        return named_handle

    @classmethod
    def options(cls, node: Node) -> dict[str, Any]:
        return {
            "min_after_dequeue": node.attr("min_after_dequeue"),
            "seeds": (node.attr("seed"), node.attr("seed2")),
        }


# -- access -----------------------------------------------------------------------------------


class _QueueAccess(Op, abstract=True):
    """An op that may wait for another node to change a queue."""

    attrs = "component_types: list(type) >= 1, timeout_ms: int = -1"
    effects = SideEffects(stateful=True, blocking=True)
    placement = HostPlacement(host_only=True)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        if node.attr("timeout_ms") != -1:
            raise OpError("Timeout not supported yet.")
        return super().prepare(node, xp)


class QueueEnqueueV2(_QueueAccess):
    """Add an element to a queue; wait while it is full."""

    signature = "handle: resource, components: Tcomponents"
    attrs = "Tcomponents: list(type) >= 1, timeout_ms: int = -1"

    @classmethod
    def run(cls, step: Any, node: Node, *inputs: Any) -> Any:
        queue, *components = inputs
        element = tuple(components)
        queue.check_element(element)
        queue.enqueue(step, 1, lambda start, end: [element][start:end])


class QueueEnqueueManyV2(QueueEnqueueV2):
    """Add the rows of tensors to a queue; wait while it is full."""

    @classmethod
    def run(cls, step: Any, node: Node, *inputs: Any) -> Any:
        queue, *components = inputs
        if len({np.shape(x)[:1] for x in components}) != 1 or not np.ndim(components[0]):
            raise OpError("All input tensors must have the same size in the 0th dimension.")
        queue.check_element(tuple(components), batched=True)

        def rows(start: int, end: int) -> list[Element]:
            return list(zip(*(x[start:end] for x in components), strict=True))

        queue.enqueue(step, len(components[0]), rows)


class QueueDequeueV2(_QueueAccess):
    """Remove an element from a queue; wait while it is empty."""

    signature = "handle: resource -> components: component_types"

    @classmethod
    def run(cls, step: Any, node: Node, *inputs: Any) -> Any:
        (queue,) = inputs
        _check_types(queue, node)
        return as_outputs(queue.dequeue(step, 1)[0])


def _check_types(queue: Queue, node: Node) -> None:
    if tuple(node.attr("component_types")) != queue.types:
        raise OpError(f"{queue!r} has components of the types {', '.join(map(str, queue.types))}")


class QueueDequeueManyV2(_QueueAccess):
    """Remove elements from a queue, and stack them; wait for as many."""

    signature = "handle: resource, n: int32 -> components: component_types"
    partial: ClassVar[bool] = False

    @classmethod
    def run(cls, step: Any, node: Node, *inputs: Any) -> Any:
        queue, size = inputs
        _check_types(queue, node)
        if np.size(size) != 1:
            raise OpError(f"n must be a scalar, got the shape {list(np.shape(size))}")
        count = int(np.ravel(size)[0])
        if count < 0:
            raise OpError(f"{cls.name} requested {count} < 0 elements")
        is_padded = isinstance(queue, PaddedQueue)
        if not queue.shapes or not (is_padded or all(s.is_full for s in queue.shapes)):
            message = f"{cls.name} requires the components of {queue!r} to have specified shapes"
            raise OpError(message)
        elements = queue.dequeue(step, count, partial=cls.partial) if count else []
        return as_outputs(queue.stack(elements))


class QueueDequeueUpToV2(QueueDequeueManyV2):
    """Remove elements from a queue, and stack them; fewer if the queue is closed."""

    partial = True


class QueueCloseV2(Op):
    """Close a queue: it accepts no more elements, and nothing waits for one."""

    signature = "handle: resource"
    attrs = "cancel_pending_enqueues: bool = false"
    effects = SideEffects(stateful=True, blocking=True)
    placement = HostPlacement(host_only=True)

    @classmethod
    def run(cls, step: Any, node: Node, *inputs: Any) -> Any:
        inputs[0].close(cancel=bool(node.attr("cancel_pending_enqueues")))


class _QueueQuery(Op, abstract=True):
    """An op that reads a number of a queue."""

    effects = SideEffects(stateful=True, reads_only=True)
    placement = HostPlacement(host_only=True)
    shape = staticmethod(lambda context: [SCALAR_SHAPE])


class QueueSizeV2(_QueueQuery):
    """The number of elements of a queue."""

    signature = "handle: resource -> size: int32"
    kernel = staticmethod(lambda xp, step, queue: np.int32(len(queue.elements)))


class QueueIsClosedV2(_QueueQuery):
    """True if a queue is closed."""

    signature = "handle: resource -> is_closed: bool"
    kernel = staticmethod(lambda xp, step, queue: np.bool_(queue.closed))
