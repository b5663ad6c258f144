"""Scenarios of queues and staging in which nothing has to wait."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfgraph.ir.dtypes import float32, int32, int64, string
from cfgraph.ir.shapes import Shape
from tests.ops.scenario import Runs, Scenario, Sketch

SCALAR = Shape(())
BOTH = (float32, int32)


def put(g: Sketch, queue: Any, *components: Any) -> Any:
    return g("QueueEnqueueV2", queue, *components).node


def queue_of(g: Sketch, kind: str = "FIFOQueueV2", **more: Any) -> Any:
    attrs = {"component_types": BOTH, "shapes": (SCALAR, Shape((2,))), "shared_name": "q"}
    return g(kind, **attrs | more)


def pair(number: int) -> tuple[Any, Any]:
    return np.float32(number), np.array([number, -number], np.int32)


def closing(g: Sketch) -> Runs:
    queue = queue_of(g)
    rows = [np.array([4, 5, 6], np.float32), np.arange(6, dtype=np.int32).reshape(3, 2)]
    many = g("QueueEnqueueManyV2", queue, *rows).node
    size, closed = g("QueueSizeV2", queue), g("QueueIsClosedV2", queue)
    close = g("QueueCloseV2", queue).node
    get = g("QueueDequeueV2", queue, component_types=BOTH)
    up_to = g("QueueDequeueUpToV2", queue, np.int32(3), component_types=BOTH)
    two = g("QueueDequeueManyV2", queue, np.int32(2), component_types=BOTH)
    none = g("QueueDequeueManyV2", queue, np.int32(0), component_types=BOTH)
    wrong = put(g, queue, np.float32(1), np.zeros(3, np.int32))
    return [
        [put(g, queue, *pair(1))],
        [many],
        [size],
        [get],
        [two],
        [none],
        [many],
        [wrong],
        [closed],
        [close],
        [closed, size],
        [many],
        [close],
        [two],
        [up_to],
        [up_to],
        [two],
        [get],
        [g("QueueCloseV2", queue, cancel_pending_enqueues=True).node],
    ]


def padded(g: Sketch) -> Runs:
    shapes = (Shape((None,)), Shape((None, 2)))
    queue = queue_of(g, "PaddingFIFOQueueV2", shapes=shapes)
    two = g("QueueDequeueManyV2", queue, np.int32(2), component_types=BOTH)
    return [
        [put(g, queue, np.ones(3, np.float32), np.ones((1, 2), np.int32))],
        [put(g, queue, np.ones(1, np.float32), np.ones((2, 2), np.int32))],
        [put(g, queue, np.ones((1, 1), np.float32), np.ones((2, 2), np.int32))],
        [two],
    ]


def padded_scalars(g: Sketch) -> Runs:
    queue = g("PaddingFIFOQueueV2", component_types=(float32,), shapes=(SCALAR,))
    many = g("QueueEnqueueManyV2", queue, [1.0, 2, 3]).node
    two = g("QueueDequeueManyV2", queue, np.int32(2), component_types=(float32,))
    up_to = g("QueueDequeueUpToV2", queue, np.int32(1), component_types=(float32,))
    return [[many], [two], [up_to]]


def shared(g: Sketch) -> Runs:
    attrs = {"capacity": 5, "seed": 3, "min_after_dequeue": 1}
    same = [queue_of(g, "RandomShuffleQueueV2", **attrs) for _ in range(2)]
    differing = [{"capacity": 6}, {"min_after_dequeue": 2}, {"seed": 4}, {"shapes": ()}]
    others = [queue_of(g, "RandomShuffleQueueV2", **attrs | other) for other in differing]
    without_seed = queue_of(g, "RandomShuffleQueueV2", **attrs | {"seed": 0})
    sizes = [g("QueueSizeV2", queue) for queue in (*same, without_seed, *others)]
    return [[size] for size in sizes]


def by_priority(g: Sketch) -> Runs:
    queue = g("PriorityQueueV2", component_types=(float32,), shapes=(SCALAR,), shared_name="q")
    types = (int64, float32)
    get = g("QueueDequeueV2", queue, component_types=types)
    three = g("QueueDequeueManyV2", queue, np.int32(3), component_types=types)
    return [
        *([put(g, queue, np.int64(n), np.float32(n / 2))] for n in (5, -1, 3, 9)),
        [get],
        [three],
    ]


def shuffled(g: Sketch) -> Runs:
    queue = queue_of(g, "RandomShuffleQueueV2", min_after_dequeue=1, seed=3)
    close = g("QueueCloseV2", queue).node
    get = g("QueueDequeueV2", queue, component_types=BOTH)
    size = g("QueueSizeV2", queue)
    same = [put(g, queue, *pair(7)) for _ in range(2)]
    return [[same[0]], [same[1]], [size], [get], [size], [close], [get], [get]]


def staged(g: Sketch) -> Runs:
    attrs = {"dtypes": BOTH, "shared_name": "s"}
    stage = [g("Stage", *pair(n), shared_name="s").node for n in (1, 2)]
    size = g("StageSize", **attrs)
    return [
        [size],
        [stage[0]],
        [stage[1]],
        [g("StagePeek", np.int32(1), **attrs)],
        [g("Unstage", **attrs)],
        [size],
        [g("StageClear", **attrs).node],
        [size],
    ]


def staged_within_a_limit(g: Sketch) -> Runs:
    """A queue of the same name is another resource, and strings take memory, too."""
    attrs = {"dtypes": (float32, string), "memory_limit": 70, "shared_name": "q"}
    text = np.array([b"a", b"bcd"], object)
    small, large = (g("Stage", np.zeros(n, np.float32), text, **attrs).node for n in (3, 5))
    size, elements = g("StageSize", **attrs), g("QueueSizeV2", queue_of(g))
    return [[large], [small], [size, elements], [g("Unstage", **attrs)], [small], [size]]


SCENES: list[Scenario] = [
    closing,
    padded,
    padded_scalars,
    shared,
    by_priority,
    shuffled,
    staged,
    staged_within_a_limit,
]
