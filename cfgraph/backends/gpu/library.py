"""The array library of a GPU: its arrays, and copies between the GPU and the host."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cfgraph.ir.dtypes import bfloat16

# dtypes that CuPy supports everywhere; compared as dtypes, since other libraries reuse the letters
_GPU_DTYPES: Final = frozenset(map(np.dtype, "?bhilqBHILQefdFD"))
# CuPy's signature of a bfloat16 sum; missing if NumPy is too old or ml_dtypes is not installed
_BFLOAT16_ADD: Final = "EE->E"


class GpuLibrary:
    """A GPU's array library: `xp` is the namespace that kernels are bound with, `array` the class.

    `library` is CuPy, or a module with its interface.
    """

    def __init__(self, library: Any) -> None:
        self.xp = library
        self.array: type[Any] = library.ndarray
        self._dtypes = _GPU_DTYPES
        if _BFLOAT16_ADD in library.add.types:
            self._dtypes |= {bfloat16.numpy}

    @property
    def name(self) -> str:
        """The name of the GPU."""
        value = self.xp.cuda.runtime.getDeviceProperties(0)["name"]
        return value.decode() if isinstance(value, bytes) else str(value)

    def supports(self, dtype: np.dtype[Any]) -> bool:
        """True for element types that the GPU computes with; values of others stay on the host."""
        return dtype in self._dtypes

    def to_device(self, value: Any) -> Any:
        """Copy a NumPy value to the GPU, in the order of the current stream.

        Values that are already on the GPU or that it does not support are returned unchanged.
        """
        if not isinstance(value, np.ndarray | np.generic) or not self.supports(value.dtype):
            return value
        if value.ndim:
            return self.xp.asarray(value)
        # CuPy fills a scalar by a kernel, which turns -0.0 into 0.0
        return self.xp.asarray(value.reshape(1)).reshape(())

    def to_host(self, value: Any) -> Any:
        """The value as a NumPy array, or a scalar of rank 0; waits for all queued work."""
        if type(value) is not self.array:
            return value
        self.xp.cuda.Device().synchronize()
        value = value.get()
        return value if value.ndim else value[()]
