"""Arithmetic on static shapes and on axes that the shape functions of several families share."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.inference import LARGEST_RANK, InferenceContext
from cfgraph.ops.op import OpError


def static_axis(axis: int, rank: int) -> int:
    """An axis counted from the front. Raises ValueError where it is out of range."""
    if not -rank <= axis < rank:
        message = f"axis {axis} is out of the range [{-rank}, {rank})"
        raise ValueError(message)
    return axis % rank


def runtime_axis(axis: Any, rank: int, what: str = "axis") -> int:
    """An axis that came as a tensor, counted from the front; OpError where it is out of range."""
    place = operator.index(axis)
    if place < 0:
        place += rank
    if not 0 <= place < rank:
        message = f"{what} {operator.index(axis)} is out of the range [{-rank}, {rank})"
        raise OpError(message)
    return place


def static_int(context: InferenceContext, slot: int) -> int | None:
    """The value of a scalar input where it is known. Raises ValueError where it is no scalar."""
    want_rank(context.inputs[slot], 0)
    value = context.value(slot)
    return None if value is None else int(value.reshape(-1)[0])


def static_ints(context: InferenceContext, slot: int) -> list[int] | None:
    """The values of an integer input where they are known, flat."""
    value = context.value(slot)
    return None if value is None else [int(item) for item in value.reshape(-1).tolist()]


def any_of_rank(rank: int | None) -> Shape:
    """A shape of this rank, no size known. Raises ValueError for more than a tensor may have."""
    if rank is not None and rank > LARGEST_RANK:
        message = f"a tensor cannot have {rank} dimensions"
        raise ValueError(message)
    return UNKNOWN_SHAPE if rank is None else Shape([None] * rank)


def want_rank(shape: Shape, rank: int) -> Shape:
    """The shape, known to have this rank. Raises ValueError where it has another."""
    return shape.merge(any_of_rank(rank))


def want_rank_at_least(shape: Shape, rank: int) -> Shape:
    """The shape itself. Raises ValueError where its rank is known and smaller."""
    if shape.rank is not None and shape.rank < rank:
        message = f"shape {shape} must be at least of rank {rank}"
        raise ValueError(message)
    return shape


def replaced(shape: Shape, axis: int, size: int | None) -> Shape:
    """The shape with another size in one place."""
    if shape.dims is None:
        return UNKNOWN_SHAPE
    dims = list(shape.dims)
    dims[axis] = size
    return Shape(dims)


def product(dims: Sequence[int | None]) -> int | None:
    """The product of sizes, None where it depends on an unknown one."""
    result = 1
    for dim in dims:
        if dim == 0:
            return 0
    for dim in dims:
        if dim is None:
            return None
        result *= dim
    return result
