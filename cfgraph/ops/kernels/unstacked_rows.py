"""Products of the rows of an unstacked tensor with one matrix, computed for many rows at once.

The blocks of rows are aligned, so that their products do not depend on the order of reads.
"""

from __future__ import annotations

from typing import Any, Final
from weakref import ref

import numpy as np

from cfgraph.ops.kernels.packed_products import multiply_in_loop

# rows of a block, and numbers in its product
_BLOCK_ROWS: Final = 384
_BLOCK_NUMBERS: Final = 1 << 22
# numbers in the products of all blocks with one matrix, since elements are read in any order
_MAX_NUMBERS: Final = 1 << 24
# rows of one element
_MAX_ROWS: Final = 64
# matrices that multiply one tensor at a time
_MAX_MATRICES: Final = 8
_MATRIX: Final = 2


class RowBlock:
    """The product of consecutive elements; `unread` of their products were not read yet."""

    __slots__ = ("product", "unread")

    def __init__(self, elements: Any, right: Any) -> None:
        count, rows, inner = elements.shape
        product = multiply_in_loop(elements.reshape(-1, inner), right, repeats=True)
        self.product = product.reshape(count, rows, right.shape[1])
        self.unread = count


class UnstackedRows:
    """A tensor [n, m, k] that an array was unstacked from, and the products of its elements.

    The elements of the array are views of the tensor, which lives as long as they do.
    """

    __slots__ = ("_products", "_tensor", "count")

    def __init__(self, tensor: Any) -> None:
        self.count = len(tensor)
        self._tensor = ref(tensor)
        # by a matrix and the layout of its part: the matrix, and the blocks by number
        self._products: dict[tuple[Any, ...], tuple[Any, dict[int, RowBlock]]] = {}

    def product(self, index: int, matrix: Any, right: Any) -> Any:
        """Product of element `index`, [m, k], and `right`, [k, n], the first rows of `matrix`.

        `matrix` may be transposed in `right`.
        """
        tensor: Any = self._tensor()
        rows, columns = tensor.shape[1], right.shape[1]
        size = max(1, min(_BLOCK_ROWS, _BLOCK_NUMBERS // columns) // rows)
        number, position = divmod(index, size)
        key = id(matrix), right.shape, right.strides  # strides differ if it is transposed
        known = self._products.get(key)
        if known is None:
            if len(self._products) == _MAX_MATRICES:  # each may be new
                self._products.clear()
            known = self._products[key] = matrix, {}
        blocks = known[1]
        block = blocks.get(number)
        if block is None:
            _drop_blocks(blocks, _MAX_NUMBERS // (size * rows * columns))
            elements = tensor[number * size : (number + 1) * size]
            block = blocks[number] = RowBlock(elements, right)
        block.unread -= 1
        return block.product[position]


def _drop_blocks(blocks: dict[int, RowBlock], most: int) -> None:
    """Drop the blocks that were read, and the first ones until fewer than `most` remain."""
    for number in [number for number, block in blocks.items() if block.unread <= 0]:
        del blocks[number]
    while blocks and len(blocks) >= most:
        del blocks[next(iter(blocks))]


def unstacked_rows(tensor: Any, indices: list[int]) -> UnstackedRows | None:
    """The rows of a tensor, if all are the elements of an array in their order."""
    is_batch = tensor.__class__ is np.ndarray and tensor.ndim == _MATRIX + 1
    if not is_batch or tensor.base is not None or not tensor.flags.c_contiguous:
        return None
    is_float = tensor.dtype in (np.float32, np.float64)
    few_rows = 0 < tensor.shape[1] <= _MAX_ROWS
    if not is_float or not few_rows or indices != list(range(len(tensor))):
        return None
    return UnstackedRows(tensor)
