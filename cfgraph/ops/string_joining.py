"""Strings joined: place by place, along dimensions, by segments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape
from cfgraph.ops.dims import any_of_rank
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError
from cfgraph.ops.text_arrays import text_array


class StringJoin(Op):
    """Strings of the same place, joined; scalars go with every place."""

    signature = "inputs: N*string -> output: string"
    attrs = "N: int >= 0, separator: string = ''"
    traceable = False

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        separator = node.attr("separator")

        def join(*inputs: Any) -> Any:
            shape = next((v.shape for v in inputs if v.ndim), ())
            for other in inputs:
                if other.ndim and other.shape != shape:
                    message = f"Input shapes do not match: {list(shape)} vs. {list(other.shape)}"
                    raise OpError(message)
            count = math.prod(shape)
            columns = [v.ravel().tolist() if v.ndim else [v.item()] * count for v in inputs]
            rows = zip(*columns, strict=True) if columns else [()] * count
            return text_array(map(separator.join, rows), shape)

        return join

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        if any(shape.rank is None for shape in context.inputs):
            return [UNKNOWN_SHAPE]
        result = SCALAR_SHAPE
        for shape in context.inputs:
            if shape.rank:
                result = shape if result.rank == 0 else result.merge(shape)
        return [result]


class ReduceJoin(Op):
    """Strings joined along some dimensions, the first named one innermost."""

    signature = "inputs: string, reduction_indices: int32 -> output: string"
    attrs = "keep_dims: bool = false, separator: string = ''"
    traceable = False
    host_inputs = (1,)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        keep, separator = node.attr("keep_dims"), node.attr("separator")

        def join(texts: Any, indices: Any) -> Any:
            axes = joined_axes(indices.ravel().tolist(), texts.ndim)
            if not axes:
                return texts
            rest = [d for d in range(texts.ndim) if d not in axes]
            shape = [1 if d in axes else n for d, n in enumerate(texts.shape) if keep or d in rest]
            count = math.prod(texts.shape[d] for d in axes)
            rows = texts.transpose(rest + axes[::-1]).reshape((math.prod(shape), count))
            return text_array((separator.join(row) for row in rows.tolist()), shape)

        return join

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        texts, indices, keep = context.inputs[0], context.value(1), context.attr("keep_dims")
        if texts.dims is None:
            return [UNKNOWN_SHAPE]
        if indices is None:
            return [any_of_rank(texts.rank) if keep else UNKNOWN_SHAPE]
        axes = joined_axes(indices.ravel().tolist(), len(texts.dims))
        dims = [1 if d in axes else n for d, n in enumerate(texts.dims) if keep or d not in axes]
        return [Shape(dims)]


def joined_axes(indices: list[int], rank: int) -> list[int]:
    """The dimensions, counted from the front. Raises OpError where they are no dimensions."""
    axes: list[int] = []
    for index in indices:
        if not -rank <= index < rank:
            message = f"Invalid reduction dimension {index} for input with {rank} dimension(s)"
            raise OpError(message)
        if index % rank in axes:
            message = f"Duplicate reduction dimension {index}"
            raise OpError(message)
        axes.append(index % rank)
    return axes


class UnsortedSegmentJoin(Op):
    """The strings of each segment, joined."""

    signature = (
        "inputs: string, segment_ids: Tindices, num_segments: Tnumsegments -> output: string"
    )
    attrs = "separator: string = '', Tindices: {int32, int64}, Tnumsegments: {int32, int64} = int32"
    traceable = False
    host_inputs = (2,)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        separator = node.attr("separator")

        def join(texts: Any, segments: Any, count: Any) -> Any:
            if texts.shape[: segments.ndim] != segments.shape or not segments.ndim:
                message = (
                    "segment_ids must be a prefix of the shape of inputs: "
                    f"{list(segments.shape)} vs. {list(texts.shape)}"
                )
                raise OpError(message)
            inner = texts.shape[segments.ndim :]
            width = math.prod(inner)
            rows: list[list[list[bytes]]] = [[[] for _ in range(width)] for _ in range(int(count))]
            values = texts.reshape((segments.size, width)).tolist()
            for segment, row in zip(segments.ravel().tolist(), values, strict=True):
                if not 0 <= segment < count:
                    message = f"segment id {segment} is out of the range [0, {count})"
                    raise OpError(message)
                for place, text in enumerate(row):
                    rows[segment][place].append(text)
            joined = [separator.join(cell) for row in rows for cell in row]
            return text_array(joined, (int(count), *inner))

        return join

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        texts, segments, count = context.inputs[0], context.inputs[1], context.value(2)
        if texts.rank is None or segments.rank is None:
            return [UNKNOWN_SHAPE]
        return [Shape((None if count is None else int(count),)) + texts[segments.rank :]]
