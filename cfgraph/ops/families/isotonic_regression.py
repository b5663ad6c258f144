"""Isotonic regression: the closest sequences that never rise."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.facts import HostPlacement
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    constant_like,
    int32_constant,
)
from cfgraph.ops.opdef.op import FLOATS, INTEGERS, SameShape, one_of


def _pool_violators(row: Any) -> tuple[list[Any], list[int]]:
    """The means and the lengths of the segments of a row, whose means fall.

    Neighbors that rise are merged (Best and Chakravarti 1990), in the arithmetic of the row's type.
    """
    sums: list[Any] = []
    means: list[Any] = []
    counts: list[int] = []
    for value in row:
        check_deadline()
        total, mean, count = value, value, 1
        while means and mean > means[-1]:
            means.pop()
            total, count = sums.pop() + total, counts.pop() + count
            mean = total / row.dtype.type(count)
        sums.append(total)
        means.append(mean)
        counts.append(count)
    return means, counts


class IsotonicRegression(SameShape):
    """The closest sequences along the last axis that never rise, and numbers of their segments."""

    signature = "input: T -> output: output_dtype, segments: int32"
    attrs = (
        f"{one_of(FLOATS, INTEGERS)}, "
        "output_dtype: {float16, bfloat16, float32, float64} = float32"
    )
    placement = HostPlacement(host_only=True)

    @staticmethod
    def kernel(xp: ModuleType, output_dtype: DType, /, x: Any) -> Any:
        output, segments = x.astype(output_dtype.numpy), np.zeros(x.shape, np.int32)
        shape = (math.prod(x.shape[:-1]), x.shape[-1] if x.ndim else 1)
        rows, numbers = output.reshape(shape), segments.reshape(shape)
        for row, numbers_of_row in zip(rows, numbers, strict=True):
            means, counts = _pool_violators(row)
            row[:] = np.repeat(means, counts)
            numbers_of_row[:] = np.repeat(np.arange(len(counts)), counts)
        return output, segments

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output, _: Output | None) -> InputGradients:
        zero, one, flat_shape = (int32_constant(g, number) for number in (0, 1, [-1]))
        shape = g.shape(node.inputs[0])
        sizes = g.ConcatV2(int32_constant(g, [1]), shape, zero)  # a scalar is a row of one
        length = g.GatherV2(sizes, g.Size(shape, out_type=dtypes.int32), zero)
        flat, numbers = g.Reshape(dy, flat_shape), g.Reshape(node.output(1), flat_shape)
        total = g.Size(flat, out_type=dtypes.int32)
        rows = g.FloorDiv(g.Range(zero, total, one), g.Maximum(length, one))
        ids = g.AddV2(numbers, g.Mul(rows, length))
        sums = g.UnsortedSegmentSum(flat, ids, total)
        lengths = g.UnsortedSegmentSum(g.OnesLike(flat), ids, total)
        means = g.RealDiv(sums, g.Maximum(lengths, constant_like(g, 1, dy)))
        return [g.Reshape(g.GatherV2(means, ids, zero), shape)]
