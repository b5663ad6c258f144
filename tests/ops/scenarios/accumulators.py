"""Scenarios of accumulators in which nothing has to wait."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfgraph.ir.dtypes import DType, float16, float32
from cfgraph.ir.shapes import Shape
from tests.ops.scenario import Runs, Sketch, versions

PAIR = Shape((2,))
ROWS = Shape((4, 2))


def dense(g: Sketch, prefix: str) -> Runs:
    def accumulator(dtype: DType, shape: Shape, reduction: str, name: str) -> Any:
        return g(
            f"{prefix}ConditionalAccumulator",
            dtype=dtype,
            shape=shape,
            reduction_type=reduction,
            shared_name=name,
        )

    def apply(handle: Any, step: Any, gradient: Any, dtype: DType = float32) -> Any:
        local_step = np.int64(step) if isinstance(step, int) else step
        inputs = (handle, local_step, gradient)
        return g(f"{prefix}AccumulatorApplyGradient", *inputs, dtype=dtype).node

    def take(handle: Any, count: int, dtype: DType = float32) -> Any:
        return g(f"{prefix}AccumulatorTakeGradient", handle, np.int32(count), dtype=dtype)

    mean = accumulator(float32, PAIR, "MEAN", "mean")
    total = accumulator(float32, Shape((None,)), "SUM", "sum")
    half = accumulator(float16, Shape((None,)), "MEAN", "half")
    size = g(f"{prefix}AccumulatorNumAccumulated", mean)
    pairs = [np.array(x, np.float32) for x in ([1, -2], [4, 8], [0.5, 3])]
    again = [[apply(mean, 1, pair)] for pair in pairs]
    set_step = g(f"{prefix}AccumulatorSetGlobalStep", mean, np.int64(5)).node
    halves = [[apply(half, 0, np.array(x, np.float16), float16)] for x in ([7, -7], [0, 1])]
    return [
        [size],
        [apply(mean, 0, pairs[0])],
        [size],
        [take(mean, 1)],
        [apply(mean, 0, pairs[1])],  # stale
        [size],
        *again,
        [size],
        [take(mean, 2)],
        [set_step],
        *again,
        [size],
        [apply(mean, 5, pairs[2])],
        [take(mean, 1)],
        [apply(mean, 9, np.zeros(3, np.float32))],
        [apply(mean, 0, np.zeros(3, np.float32))],
        [take(mean, 0)],
        [apply(mean, g.hidden(np.array([9], np.int64)), pairs[0])],
        [apply(total, 0, pairs[0])],
        [apply(total, 0, np.zeros(3, np.float32))],
        [apply(total, 0, pairs[1])],
        [take(total, 2)],
        *halves,
        [take(half, 1, float16)],
    ]


def sparse(g: Sketch) -> Runs:
    def accumulator(shape: Shape, reduction: str) -> Any:
        attrs = {"shape": shape, "reduction_type": reduction, "shared_name": reduction}
        return g("SparseConditionalAccumulator", dtype=float32, **attrs)

    def apply(handle: Any, indices: Any, values: Any, shape: Any = None, step: int = 0) -> Any:
        inputs = (np.array(indices, np.int64), np.array(values, np.float32))
        return g(
            "SparseAccumulatorApplyGradient",
            handle,
            np.int64(step),
            *inputs,
            np.array(shape or [], np.int64),
            dtype=float32,
            has_known_shape=shape is not None,
        ).node

    def take(handle: Any, count: int) -> list[Any]:
        node = g("SparseAccumulatorTakeGradient", handle, np.int32(count), dtype=float32).node
        return [node.output(port) for port in range(3)]

    mean, total = accumulator(ROWS, "MEAN"), accumulator(Shape((None, 2)), "SUM")
    slices = [
        ([0, 2], [[1, 2], [3, 4]]),
        ([1, 2, 3], [[1, 1], [-7, 2], [4, 0]]),
        ([2], [[0.5, 6]]),
    ]
    wrong = [
        ([4], [[1, 2]]),
        ([0], [[1, 2, 3]]),
        ([0, 1], [[1, 2]]),
        (0, [[1, 2]]),
        ([0], 1),
        ([0], [[1, 2]], [5, 2]),
        ([0], [[1, 2]], [4]),
    ]
    size = g("AccumulatorNumAccumulated", mean)
    rejected = [[apply(mean, *each)] for each in wrong]
    return [
        *rejected,
        *([apply(mean, *each)] for each in slices),
        *rejected,
        [size],
        take(mean, 3),
        [apply(mean, *slices[0])],  # stale
        [size],
        [apply(mean, *slices[0], shape=[4, 2], step=1)],
        take(mean, 1),
        *([apply(total, *each)] for each in slices[:2]),
        take(total, 1),
        take(total, 0),
    ]


SCENES = [*versions(dense, "", "Resource"), sparse]
