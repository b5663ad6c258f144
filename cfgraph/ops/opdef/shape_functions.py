"""The context of a shape function, and arithmetic on static shapes and axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, ShapeError

if TYPE_CHECKING:
    from cfgraph.ir.graph import Node


# the greatest rank that TensorFlow allows
LARGEST_RANK: Final = 254


class InferenceContext:
    """Interface of a shape function to its node.

    `inputs[i]` is the static shape of input i; `value(i)` is its static value as an array (a Const,
    or computed from constants), or None.
    """

    __slots__ = ("_values", "inputs", "node", "output_count")

    def __init__(
        self, node: Node, inputs: tuple[Shape, ...], values: Callable[[int], Any | None]
    ) -> None:
        self.node = node
        self.inputs = inputs
        self._values = values
        count = node.output_count
        self.output_count = 0 if count is None else count

    def attr(self, key: str) -> Any:
        """The value of an attribute, or its default."""
        return self.node.attr(key)

    def value(self, slot: int) -> Any | None:
        """The static value of an input, or None."""
        return self._values(slot)

    def shape_value(self, slot: int) -> Shape:
        """The static value of an input that is a shape; -1 is an unknown size."""
        value = self.value(slot)
        if value is None:
            vector = self.inputs[slot]
            count = vector.dims[0] if vector.dims is not None and len(vector.dims) == 1 else None
            known = count is not None and count <= LARGEST_RANK
            return Shape([None] * (count or 0)) if known else UNKNOWN_SHAPE
        if value.ndim != 1:
            return UNKNOWN_SHAPE
        return Shape(None if size < 0 else int(size) for size in value)


def static_axis(axis: int, rank: int) -> int:
    """A static axis, counted from the front. Raises ShapeError if out of range."""
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} is out of the range [{-rank}, {rank})")
    return axis % rank


def static_int(context: InferenceContext, slot: int) -> int | None:
    """The static value of a scalar input. Raises ShapeError for any other rank."""
    require_rank(context.inputs[slot], 0)
    value = context.value(slot)
    return None if value is None else int(value.reshape(-1)[0])


def static_ints(context: InferenceContext, slot: int) -> list[int] | None:
    """The static values of an integer input, flattened."""
    value = context.value(slot)
    return None if value is None else [int(item) for item in value.reshape(-1).tolist()]


def shape_of_rank(rank: int | None) -> Shape:
    """A shape of this rank and unknown sizes. Raises ShapeError above `LARGEST_RANK`."""
    if rank is not None and rank > LARGEST_RANK:
        raise ShapeError(f"a tensor cannot have {rank} dimensions")
    return UNKNOWN_SHAPE if rank is None else Shape([None] * rank)


def require_rank(shape: Shape, rank: int) -> Shape:
    """Refine a shape to this rank. Raises ShapeError if its rank differs."""
    if shape.rank not in (None, rank):
        raise ShapeError(f"shape {shape} must have rank {rank}")
    return shape.merge(shape_of_rank(rank))


def require_rank_at_least(shape: Shape, rank: int) -> Shape:
    """The shape unchanged. Raises ShapeError if its rank is known and smaller."""
    if shape.rank is not None and shape.rank < rank:
        raise ShapeError(f"shape {shape} must be at least of rank {rank}")
    return shape


def with_dim(shape: Shape, axis: int, size: int | None) -> Shape:
    """Replace the size of one dimension."""
    if shape.dims is None:
        return UNKNOWN_SHAPE
    dims = list(shape.dims)
    dims[axis] = size
    return Shape(dims)


def dims_product(dims: Sequence[int | None]) -> int | None:
    """The product of sizes, or None if it depends on an unknown size."""
    result = 1
    for dim in dims:
        if dim == 0:
            return 0
    for dim in dims:
        if dim is None:
            return None
        result *= dim
    return result
