"""Classes drawn with the probabilities that logits say."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.ops import philox
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError
from cfgraph.ops.sampling import Sampler
from cfgraph.ops.stateless_random import seeded


class Multinomial(Sampler):
    """Classes drawn with the probabilities that rows of logits say."""

    signature = "logits: T, num_samples: int32 -> output: output_dtype"
    attrs = (
        "seed: int = 0, seed2: int = 0, "
        "T: {float32, float64, int32, uint8, int16, int8, int64, bfloat16, uint16, "
        "float16, uint32, uint64}, output_dtype: {int32, int64} = int64"
    )
    host_inputs = (1,)
    constant_inputs = (1,)

    @staticmethod
    def draw(generator: Any, node: Node, logits: Any, count: Any) -> Any:
        check_logits(logits, count)
        points = generator.random((len(logits), int(count)))
        return classes(logits, points, node.attr("output_dtype").numpy)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [sampled_shape(context)]


class StatelessMultinomial(Op):
    """Classes drawn with the probabilities that rows of logits say, from a seed."""

    signature = "logits: T, num_samples: int32, seed: Tseed -> output: output_dtype"
    attrs = (
        "T: {float32, float64, int32, uint8, int16, int8, int64, bfloat16, uint16, float16, "
        "uint32, uint64}, Tseed: {int32, int64} = int64, output_dtype: {int32, int64} = int64"
    )
    traceable = False
    random = True
    host_inputs = (1, 2)
    constant_inputs = (1,)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("output_dtype").numpy

        def sample(logits: Any, count: Any, seed: Any) -> Any:
            check_logits(logits, count)
            stream = seeded(seed)
            points = philox.unit_double(stream.sequence(2 * len(logits) * int(count)))
            return classes(logits, points.reshape(len(logits), int(count)), dtype)

        return sample

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [sampled_shape(context)]


def sampled_shape(context: InferenceContext) -> Shape:
    """Rows of logits by samples."""
    logits, count = context.inputs[0], context.value(1)
    rows = logits[:1] if logits.rank == 2 else UNKNOWN_SHAPE
    rows = Shape((None,)) if rows.rank is None else rows
    return rows + vector_shape(None if count is None or count < 0 else int(count))


def check_logits(logits: Any, count: Any) -> None:
    """Refuse what is no matrix of logits, or no number of samples."""
    if logits.ndim != 2:
        message = f"logits should be a matrix, got shape {list(logits.shape)}"
        raise OpError(message)
    if count.ndim:
        message = f"num_samples should be a scalar, got shape {list(count.shape)}"
        raise OpError(message)
    if count < 0:
        message = f"num_samples should be nonnegative, got {count}"
        raise OpError(message)
    if logits.shape[1] == 0:
        message = f"num_classes should be positive, got {logits.shape[1]}"
        raise OpError(message)


def classes(logits: Any, points: Any, dtype: Any) -> Any:
    """The class at each point in [0, 1) of the cumulated probabilities of its row."""
    wide = logits.astype(np.float64)
    finite = np.isfinite(wide)
    top = np.max(np.where(finite, wide, -np.inf), axis=1, keepdims=True)
    weights = np.where(finite, np.exp(wide - np.where(np.isfinite(top), top, 0)), 0)
    totals = np.cumsum(weights, axis=1)
    found = [
        np.searchsorted(row, point * row[-1], side="right")
        for row, point in zip(totals, points, strict=True)
    ]
    return np.array(found, dtype).reshape(points.shape)
