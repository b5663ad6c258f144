"""Transfer of arrays to compiled functions and back, without a copy where memory is shared.

On the host jax takes NumPy arrays directly. GPU arrays are passed by the DLPack protocol, in which
each side waits for the stream of the other, not for the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, Protocol

import numpy as np

# where XLA wants arrays of a card to begin; views may begin anywhere
XLA_ALIGNMENT: Final = 128


class ArrayTransfer(Protocol):
    """The way of values to compiled functions and back."""

    def to_jax(self, value: Any) -> Any:
        """A value as jax takes it."""

    def from_jax(self, value: Any, scalar: bool) -> Any:
        """An array of jax's as the runtime has it; `scalar` is one of rank 0."""

    def host_value(self, value: Any) -> Any:
        """A value that is compiled in, as NumPy has it."""

    def device_scope(self) -> AbstractContextManager[Any]:
        """Where what was compiled runs."""


class HostTransfer:
    """Between NumPy and jax on the CPU."""

    def to_jax(self, value: Any) -> Any:
        """The value itself."""
        return value

    def from_jax(self, value: Any, scalar: bool) -> Any:
        """The array as NumPy's; a scalar of rank 0."""
        return np.asarray(value)[()] if scalar else np.asarray(value)

    def host_value(self, value: Any) -> Any:
        """The value itself."""
        return value

    def device_scope(self) -> AbstractContextManager[Any]:
        """Where it is."""
        return nullcontext()


class DlpackTransfer:
    """Between an array library and jax on the device that both use.

    `array` is the library's class of arrays, `from_dlpack` makes one; `to_host` has it as NumPy's.
    What is no array of the library is copied to jax's `device`.
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
        """The array of jax's over the same memory."""
        if type(value) is self._array and value.size:
            return self._jax.dlpack.from_dlpack(_aligned(value))
        value = self._to_host(value) if type(value) is self._array else value
        return self._jax.device_put(value, self._device)

    def from_jax(self, value: Any, scalar: bool) -> Any:
        """The library's array over the same memory."""
        if self._device not in value.devices() or not value.size:
            return np.asarray(value)[()] if scalar else np.asarray(value)
        return self._from_dlpack(value)

    def host_value(self, value: Any) -> Any:
        """The value in the host's memory."""
        return self._to_host(value)

    @contextmanager
    def device_scope(self) -> Iterator[None]:
        """On the device: an array that was handed over does not decide where jax computes.

        Products of float32 are float32: by default jax rounds their factors to 10 bits.
        """
        jax = self._jax
        with jax.default_device(self._device), jax.default_matmul_precision("highest"):
            yield


def _aligned(value: Any) -> Any:
    """The array, its elements one behind the other, and its first where XLA looks for one."""
    fits = value.flags.c_contiguous and not value.data.ptr % XLA_ALIGNMENT
    return value if fits else value.copy()
