"""Transfer of arrays to compiled functions and back, without a copy where memory is shared.

On the host jax takes NumPy arrays directly. GPU arrays are passed by the DLPack protocol, in which
each side waits for the stream of the other, not for the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, Protocol

import numpy as np

# alignment that XLA requires of GPU arrays; views may start anywhere
XLA_ALIGNMENT: Final = 128


class ArrayTransfer(Protocol):
    """Transfer of values to compiled functions and back."""

    def to_jax(self, value: Any) -> Any:
        """Convert a value for jax."""

    def from_jax(self, value: Any, scalar: bool) -> Any:
        """Convert an array from jax; `scalar` marks rank 0."""

    def host_value(self, value: Any) -> Any:
        """The NumPy value of a constant argument."""

    def device_scope(self) -> AbstractContextManager[Any]:
        """Context in which compiled functions run."""


class HostTransfer:
    """Transfer between NumPy and jax on the CPU."""

    def to_jax(self, value: Any) -> Any:
        """The value itself."""
        return value

    def from_jax(self, value: Any, scalar: bool) -> Any:
        """The NumPy array, or a scalar of rank 0."""
        return np.asarray(value)[()] if scalar else np.asarray(value)

    def host_value(self, value: Any) -> Any:
        """The value itself."""
        return value

    def device_scope(self) -> AbstractContextManager[Any]:
        """An empty context."""
        return nullcontext()


class DlpackTransfer:
    """Transfer between an array library and jax on a device that both use.

    `array` is the library's class of arrays, `from_dlpack` makes one, and `to_host` converts one to
    NumPy. Other values are copied to jax's `device`.
    """

    def __init__(
        self,
        jax: Any,
        device: Any,
        array: type[Any],
        from_dlpack: Callable[[Any], Any],
        to_host: Callable[[Any], Any],
    ) -> None:
        self._jax, self._device = jax, device
        self._array, self._from_dlpack = array, from_dlpack
        self._to_host = to_host

    def to_jax(self, value: Any) -> Any:
        """A jax array over the same memory."""
        if type(value) is self._array and value.size:
            return self._jax.dlpack.from_dlpack(_aligned(value))
        value = self._to_host(value) if type(value) is self._array else value
        return self._jax.device_put(value, self._device)

    def from_jax(self, value: Any, scalar: bool) -> Any:
        """An array of the library over the same memory."""
        if self._device not in value.devices() or not value.size:
            return np.asarray(value)[()] if scalar else np.asarray(value)
        return self._from_dlpack(value)

    def host_value(self, value: Any) -> Any:
        """The value in host memory."""
        return self._to_host(value)

    @contextmanager
    def device_scope(self) -> Iterator[None]:
        """Context on the device, since an imported array does not select jax's device.

        Products of float32 use full precision: by default jax rounds their factors to 10 bits.
        """
        jax = self._jax
        with jax.default_device(self._device), jax.default_matmul_precision("highest"):
            yield


def _aligned(value: Any) -> Any:
    """The array, contiguous and aligned for XLA."""
    fits = value.flags.c_contiguous and not value.data.ptr % XLA_ALIGNMENT
    return value if fits else value.copy()
