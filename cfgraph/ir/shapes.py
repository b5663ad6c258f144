"""Static shapes (unknown rank, or one size per dimension, None if unknown) and abstract tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np


class ShapeError(ValueError):
    """Shapes, or values that determine them, that do not fit an op; the message is the reason."""


class Shape:
    """A static shape. `Shape(None)` has unknown rank, `Shape((2, None))` an unknown second size.

    `names` are dimension names from a file; they have no meaning and are preserved.
    """

    __slots__ = ("dims", "names")
    dims: tuple[int | None, ...] | None
    names: tuple[str, ...]

    def __init__(self, dims: Iterable[int | None] | None = None, names: Iterable[str] = ()) -> None:
        self.dims = None if dims is None else tuple(dims)
        self.names = tuple(names)

    @property
    def rank(self) -> int | None:
        """The number of dimensions, None if unknown."""
        return None if self.dims is None else len(self.dims)

    @property
    def is_full(self) -> bool:
        """True if rank and all sizes are known."""
        return self.dims is not None and None not in self.dims

    @property
    def elements(self) -> int | None:
        """The number of elements, None if unknown."""
        if self.dims is None:
            return None
        count = 1
        for dim in self.dims:
            if dim is None:
                return None
            count *= dim
        return count

    def accepts(self, actual: Iterable[int]) -> bool:
        """True if an array of this concrete shape fits."""
        if self.dims is None:
            return True
        sizes = tuple(actual)
        if sizes == self.dims:
            return True
        return len(sizes) == len(self.dims) and all(
            want is None or want == have for want, have in zip(self.dims, sizes, strict=True)
        )

    def merge(self, other: Shape) -> Shape:
        """The most specific shape compatible with both. Raises ShapeError if they contradict each
        other.
        """
        if self.dims is None or other.dims is None:
            return other if self.dims is None else self
        if len(self.dims) != len(other.dims):
            message = f"shapes {self} and {other} differ in rank"
            raise ShapeError(message)
        return Shape(
            _merge_dim(a, b, self, other) for a, b in zip(self.dims, other.dims, strict=True)
        )

    def generalize(self, other: Shape) -> Shape:
        """The most specific shape that covers both: sizes that differ become unknown."""
        if self.dims is None or other.dims is None or len(self.dims) != len(other.dims):
            return UNKNOWN_SHAPE
        if self.dims == other.dims:
            return Shape(self.dims) if self.names else self
        return Shape(a if a == b else None for a, b in zip(self.dims, other.dims, strict=True))

    def broadcast(self, other: Shape) -> Shape:
        """The shape of an elementwise result. Raises ShapeError if they do not broadcast."""
        if self.dims is None or other.dims is None:
            return UNKNOWN_SHAPE
        if self.dims == other.dims:
            return Shape(self.dims) if self.names else self
        rank = max(len(self.dims), len(other.dims))
        own = (1,) * (rank - len(self.dims)) + self.dims
        extended = (1,) * (rank - len(other.dims)) + other.dims
        return Shape(_broadcast_dim(a, b, self, other) for a, b in zip(own, extended, strict=True))

    def __add__(self, other: Shape) -> Shape:
        if self.dims is None or other.dims is None:
            return UNKNOWN_SHAPE
        return Shape(self.dims + other.dims)

    def __getitem__(self, index: slice) -> Shape:
        return UNKNOWN_SHAPE if self.dims is None else Shape(self.dims[index])

    def __iter__(self) -> Iterator[int | None]:
        if self.dims is None:
            message = "a shape of unknown rank has no dimensions to iterate"
            raise ShapeError(message)
        return iter(self.dims)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shape) and self.dims == other.dims and self.names == other.names

    def __hash__(self) -> int:
        return hash((self.dims, self.names))

    def __repr__(self) -> str:
        if self.dims is None:
            return "?"
        return "[" + ",".join("?" if dim is None else str(dim) for dim in self.dims) + "]"


def _merge_dim(a: int | None, b: int | None, first: Shape, second: Shape) -> int | None:
    if a is None or b is None or a == b:
        return b if a is None else a
    message = f"shapes {first} and {second} contradict each other"
    raise ShapeError(message)


def _broadcast_dim(a: int | None, b: int | None, first: Shape, second: Shape) -> int | None:
    if a == 1:
        return b
    if b == 1:
        return a
    if a is None or b is None:
        return b if a is None else a
    if a != b:
        message = f"shapes {first} and {second} do not broadcast"
        raise ShapeError(message)
    return a


UNKNOWN_SHAPE: Final = Shape(None)
SCALAR_SHAPE: Final = Shape(())


def vector_shape(size: int | None = None) -> Shape:
    """A shape of rank 1."""
    return Shape((size,))


@dataclass(frozen=True, slots=True, weakref_slot=True)
class AbstractTensor:
    """A tensor without a value.

    A view refers to the owner of its bytes as `base`, as NumPy arrays do.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    base: AbstractTensor | None = field(default=None, compare=False, repr=False)

    @property
    def nbytes(self) -> int:
        """The bytes that the tensor would have."""
        return int(self.dtype.itemsize * prod(self.shape))

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)
