"""Abstract tensors: dtype and shape without a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np


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
