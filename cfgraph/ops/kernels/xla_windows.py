"""Windows that XLA gathers from an operand, or scatters to it, at computed indices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from cfgraph.ir.serde.dimension_numbers import dimension_numbers
from cfgraph.ops.opdef.op import OpError


class WindowNumbers(NamedTuple):
    """Dimensions of an operand, of windows in it, and of the indices at which they start.

    The array of all windows has the dimensions of the indices, except `vector`, and `offsets`,
    which are those of the operand that are not `removed`. An index vector is for the `mapped`
    dimensions; a dimension in `batching` starts at the index in `index_batching`.
    """

    offsets: tuple[int, ...]
    removed: tuple[int, ...]
    mapped: tuple[int, ...]
    vector: int
    batching: tuple[int, ...]
    index_batching: tuple[int, ...]

    @classmethod
    def from_gather(cls, data: bytes) -> WindowNumbers:
        """The numbers of a gather."""
        return cls._from(
            dimension_numbers("gather", data),
            ("offset_dims", "collapsed_slice_dims", "start_index_map"),
            ("operand_batching_dims", "start_indices_batching_dims"),
        )

    @classmethod
    def from_scatter(cls, data: bytes) -> WindowNumbers:
        """The numbers of a scatter."""
        return cls._from(
            dimension_numbers("scatter", data),
            ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims"),
            ("input_batching_dims", "scatter_indices_batching_dims"),
        )

    @classmethod
    def _from(
        cls, numbers: dict[str, Any], names: Sequence[str], batching: Sequence[str]
    ) -> WindowNumbers:
        offsets, removed, mapped = (numbers[name] for name in names)
        operand, indices = (numbers[name] for name in batching)
        vector = numbers["index_vector_dim"]
        return cls(offsets, (*removed, *operand), mapped, vector, operand, indices)

    def starts(self, xp: ModuleType, dims: Sequence[int], indices: Any) -> list[Any]:
        """The first index of each window in each dimension of the operand."""
        vectors = indices
        if self.vector < indices.ndim:
            vectors = xp.moveaxis(indices, self.vector, -1)
        elif self.vector == indices.ndim:
            vectors = indices[..., None]
        shape = vectors.shape[:-1]
        if vectors.shape[-1] != len(self.mapped):
            raise OpError(
                f"index vectors of size {vectors.shape[-1]} are for {len(self.mapped)} dimensions"
            )
        firsts = [xp.zeros(shape, np.int64) for _ in dims]
        for number, axis in enumerate(self.mapped):
            firsts[axis] = vectors[..., number].astype(np.int64)
        for axis, dimension in zip(self.batching, self.index_batching, strict=True):
            place = dimension - (dimension > self.vector)
            line = xp.arange(shape[place]).reshape((-1, *(1,) * (len(shape) - place - 1)))
            firsts[axis] = xp.broadcast_to(line, shape)
        return firsts

    def positions(
        self, xp: ModuleType, dims: Sequence[int], firsts: Sequence[Any], window: Sequence[int]
    ) -> Any:
        """The positions of the elements of all windows in the flat operand."""
        kept = [axis for axis in range(len(dims)) if axis not in self.removed]
        total: Any = 0
        for axis, first in enumerate(firsts):
            place = first.reshape((*first.shape, *(1,) * len(kept)))
            if axis in kept:
                line = [-1 if other == axis else 1 for other in kept]
                place = place + xp.arange(window[axis]).reshape(line)
            total = total + place * prod(dims[axis + 1 :])
        return xp.asarray(total)

    def place_windows(self, xp: ModuleType, values: Any) -> Any:
        """The array of windows; in `values`, their dimensions are the last ones."""
        first = values.ndim - len(self.offsets)
        return xp.moveaxis(values, range(first, values.ndim), self.offsets)

    def scatter_positions(
        self, xp: ModuleType, dims: Sequence[int], indices: Any, updates: Any
    ) -> tuple[Any, Any]:
        """The positions of updates in the flat operand, and the updates in their order.

        Those of a window that is not inside of the operand are beyond its end.
        """
        updates = xp.moveaxis(updates, self.offsets, range(-len(self.offsets), 0))
        sizes = iter(updates.shape[updates.ndim - len(self.offsets) :])
        window = [1 if axis in self.removed else next(sizes) for axis in range(len(dims))]
        firsts = self.starts(xp, dims, indices)
        is_inside: Any = True
        for first, size, dim in zip(firsts, window, dims, strict=True):
            is_inside = is_inside & (first >= 0) & (first <= dim - size)
        places = self.positions(xp, dims, firsts, window)
        if dims:
            is_inside = is_inside.reshape((*is_inside.shape, *(1,) * len(self.offsets)))
            places = xp.where(is_inside, places, prod(dims))
        return xp.broadcast_to(places, updates.shape), updates
