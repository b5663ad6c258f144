"""Transfer of arrays to functions that XLA compiled, and of their results back.

On the host jax copies an array that is not aligned in another thread, and the compiled function
then runs there as well: for a function with many small arguments this takes longer than its work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, Protocol

import numpy as np

from cfgraph.ir.attrs import HOST_ALIGNMENT, address, aligned_copy, aligned_empty

# alignment that XLA requires of GPU arrays; views may start anywhere
XLA_ALIGNMENT: Final = 128
# bytes up to which a copy takes less time than to look whether it is needed
_SMALL: Final = 1 << 13
# bytes of the largest argument that is copied or retained here
LARGEST: Final = 1 << 20


class ArrayTransfer(Protocol):
    """Transfer of values to compiled functions and back."""

    def to_jax(self, value: Any) -> Any:
        """Convert an argument for a compiled function, without a copy if possible."""

    def from_jax(self, value: Any, scalar: bool) -> Any:
        """Convert a result of a compiled function; if `scalar`, its rank is 0."""

    def host_value(self, value: Any) -> Any:
        """The NumPy value of a constant argument."""

    def device_scope(self) -> AbstractContextManager[Any]:
        """Context in which compiled functions run."""


class ArrayFunction(Protocol):
    """A compiled function of arrays."""

    def __call__(self, *arguments: Any) -> Sequence[Any]:
        """Compute the results."""

    def place(self, array: Any) -> Any:
        """The argument of an aligned array, whose memory it is: it may be used in each call."""


class HostTransfer:
    """Transfer between NumPy and jax on the CPU."""

    def to_jax(self, value: Any) -> Any:
        """The value itself: jax on the CPU takes and returns NumPy arrays."""
        return value

    def from_jax(self, value: Any, scalar: bool) -> Any:
        """The NumPy array, or a scalar of rank 0."""
        return np.asarray(value)[()] if scalar else np.asarray(value)

    def host_value(self, value: Any) -> Any:
        """The value itself: jax on the CPU takes and returns NumPy arrays."""
        return value

    def device_scope(self) -> AbstractContextManager[Any]:
        """An empty context: the CPU is the default device."""
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


class BoundArguments:
    """Arguments of a function, made by `bind`; at some positions, once for the same array.

    These are values of variables, which nothing writes to. Runs of several threads share them.
    """

    def __init__(self, bind: Callable[[Any], Any]) -> None:
        self._bind = bind
        self._bound: dict[int, tuple[Any, Any]] = {}

    def retain(self, positions: Iterable[int]) -> None:
        """Retain the last arguments at these positions."""
        self._bound = dict.fromkeys(positions, (None, None))

    def __contains__(self, position: int) -> bool:
        return position in self._bound

    def argument(self, position: int, array: Any) -> Any:
        """The argument for an array."""
        last, argument = self._bound.get(position, (None, None))
        if last is not array:
            argument = self._bind(array)
            if position in self._bound:
                self._bound[position] = array, argument
        return argument


class AlignedArguments:
    """Reusable aligned arrays for the arguments of one compiled function.

    Runs of several threads at once have their own arrays. `place` makes the argument of an array.
    Those at positions of `bound` are not copied for each call.
    """

    def __init__(self, arguments: Sequence[Any], place: Callable[[Any], Any]) -> None:
        self._place = place
        self.bound = BoundArguments(
            lambda value: place(value if is_aligned(value) else aligned_copy(value))
        )
        self._types = [
            (value.shape, value.dtype) if value.nbytes <= LARGEST else None for value in arguments
        ]
        self._spare: list[list[Any]] = []

    def acquire(self, arguments: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The arguments for a call, and the arrays to release after it."""
        try:
            arrays = self._spare.pop()
        except IndexError:
            arrays = [None] * len(self._types)
        passed = []
        for index, value in enumerate(arguments):
            if index in self.bound:
                passed.append(self.bound.argument(index, value))
                continue
            known = self._types[index]
            if known is None or (value.nbytes > _SMALL and is_aligned(value)):
                passed.append(value)
                continue
            if arrays[index] is None:
                array = aligned_empty(*known)
                arrays[index] = array, self._place(array)
            array, placed = arrays[index]
            np.copyto(array, value)
            passed.append(placed)
        return passed, arrays

    def stop_if_shared(self, results: Sequence[Any]) -> None:
        """Copy no arguments from now on if a result of a call is one of the arrays of that call."""
        arrays = [pair[0] for known in self._spare for pair in known if pair is not None]
        if shares_memory(results, arrays):
            self._types = [None] * len(self._types)
            self._spare.clear()

    def release(self, arrays: list[Any]) -> None:
        """Make the arrays of a finished call available to others."""
        self._spare.append(arrays)


def shares_memory(results: Sequence[Any], arrays: Sequence[Any]) -> bool:
    """True if a result starts at the address of an array."""
    addresses = {address(array) for array in arrays if array.size}
    return any(address(value) in addresses for value in results if value.size)


def is_aligned(value: Any) -> bool:
    """True for a contiguous array that XLA on the host reads without a copy."""
    return address(value) % HOST_ALIGNMENT == 0 and bool(value.flags.c_contiguous)
