"""What stands for a tensor where its value is left out."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Outline:
    """A tensor of which only type and shape are known."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The bytes that the tensor would have."""
        return int(self.dtype.itemsize * prod(self.shape))

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)
