"""The context of a shape function, and arithmetic on static shapes and axes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from cfgraph.ir import registry
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.opdef.op import OpError

if TYPE_CHECKING:
    from cfgraph.ir.graph import Node


# the dimensions that a tensor may have
LARGEST_RANK: Final = 254


class InferenceContext:
    """One node as its shape function sees it.

    `inputs[i]` is the static shape of input i; `value(i)` its value as an array where it is known
    before the run (a Const, or computed from constants), else None.
    """

    __slots__ = ("_values", "inputs", "node", "output_count")

    def __init__(
        self, node: Node, inputs: tuple[Shape, ...], values: Callable[[int], Any | None]
    ) -> None:
        self.node = node
        self.inputs = inputs
        self._values = values
        count = registry.output_count(node)
        self.output_count = 0 if count is None else count

    def attr(self, key: str) -> Any:
        """An attribute's value or default."""
        return self.node.attr(key)

    def value(self, slot: int) -> Any | None:
        """The constant value of an input, or None."""
        return self._values(slot)

    def shape_value(self, slot: int) -> Shape:
        """The shape that a shape-valued input says: -1 is an unknown size, UNKNOWN not constant."""
        value = self.value(slot)
        if value is None:
            of = self.inputs[slot]
            count = of.dims[0] if of.dims is not None and len(of.dims) == 1 else None
            known = count is not None and count <= LARGEST_RANK
            return Shape([None] * (count or 0)) if known else UNKNOWN_SHAPE
        if value.ndim != 1:
            return UNKNOWN_SHAPE
        return Shape(None if size < 0 else int(size) for size in value)


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
    require_rank(context.inputs[slot], 0)
    value = context.value(slot)
    return None if value is None else int(value.reshape(-1)[0])


def static_ints(context: InferenceContext, slot: int) -> list[int] | None:
    """The values of an integer input where they are known, flat."""
    value = context.value(slot)
    return None if value is None else [int(item) for item in value.reshape(-1).tolist()]


def shape_of_rank(rank: int | None) -> Shape:
    """A shape of this rank, no size known. Raises ValueError for more than a tensor may have."""
    if rank is not None and rank > LARGEST_RANK:
        message = f"a tensor cannot have {rank} dimensions"
        raise ValueError(message)
    return UNKNOWN_SHAPE if rank is None else Shape([None] * rank)


def require_rank(shape: Shape, rank: int) -> Shape:
    """The shape, known to have this rank. Raises ValueError where it has another."""
    return shape.merge(shape_of_rank(rank))


def require_rank_at_least(shape: Shape, rank: int) -> Shape:
    """The shape itself. Raises ValueError where its rank is known and smaller."""
    if shape.rank is not None and shape.rank < rank:
        message = f"shape {shape} must be at least of rank {rank}"
        raise ValueError(message)
    return shape


def with_dim(shape: Shape, axis: int, size: int | None) -> Shape:
    """The shape with another size in one place."""
    if shape.dims is None:
        return UNKNOWN_SHAPE
    dims = list(shape.dims)
    dims[axis] = size
    return Shape(dims)


def dims_product(dims: Sequence[int | None]) -> int | None:
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
