"""Streams of one GPU device: one for kernels, two for copies, and a memory pool.

Only `DeviceCopy.wait` waits for the GPU. One stream reads what another wrote once the event after
it has passed; memory returns to the pool of its stream once the other streams have passed their
last use of it.

Values are counted elsewhere. Only the pool knows the workspace of kernels, the buffers of pending
copies, and fragmentation: it enforces a limit with some headroom for them.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from cfgraph.backends.gpu.library import GpuLibrary
from cfgraph.ops.opdef.op import OpError

# names of the runtime, the driver, and the libraries above them
_OUT_OF_MEMORY_CODES: Final = (
    "cudaErrorMemoryAllocation",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "_ALLOC_FAILED",
)
# fatal for the process: ECC, illegal addresses and instructions, asserts, timeouts
_LOST_DEVICE_CODES: Final = {214, 700, 702, 710, 714, 715, 716, 717, 718, 719}


def is_out_of_memory(error: Exception) -> bool:
    """True if the GPU has no memory left, or the host has none that a GPU can copy from."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(
        name in str(error) for name in _OUT_OF_MEMORY_CODES
    )


def fatal_error(error: Exception) -> Exception | None:
    """The fatal error to raise, or None if falling back to the host is safe."""
    reason = str(error).partition("\n")[0]
    if is_out_of_memory(error):
        return error if isinstance(error, MemoryError) else MemoryError(reason)
    if getattr(error, "status", 0) in _LOST_DEVICE_CODES:
        return OpError(f"the GPU has failed: {reason}", hint="an earlier kernel may be the cause")
    return None


# headroom above a limit for intermediate values: a fraction of the limit, and a minimum in bytes
_HEADROOM_DIVISOR: Final = 8
_MIN_HEADROOM: Final = 64 << 20


def cannot_free() -> bool:
    """Report that no memory can be freed: the `relieve` of a pool without another source."""
    return False


class GpuMemoryPool:
    """Pool of GPU memory; `release_all` frees what all devices of the GPU cache.

    `blocks` is the library's pool.
    """

    def __init__(self, cuda: Any, release_all: Callable[[], None]) -> None:
        self.blocks = cuda.MemoryPool()
        self._release_all = release_all
        self._relieve: Callable[[], bool] = cannot_free
        self._limit: int | None = None
        # bytes lent to other devices, less bytes borrowed from them
        self._lent = 0

    def malloc(self, size: int) -> Any:
        """Allocate memory. Raises MemoryError if none is left and none can be freed."""
        try:
            return self.blocks.malloc(size)
        except MemoryError:
            self._release_all()
        while True:
            try:
                return self.blocks.malloc(size)
            except MemoryError:
                if not self._relieve():
                    raise
                self.free()

    def free(self) -> None:
        """Return unused blocks to the GPU."""
        self.blocks.free_all_blocks()

    def set_limit(self, limit: int | None, relieve: Callable[[], bool] = cannot_free) -> None:
        """Set the limit of the pool; `relieve` frees memory, and returns false if it cannot."""
        changes = limit is not None or self._limit is not None
        self._limit, self._relieve = limit, relieve
        if changes:
            self._apply_limit()

    def lend(self, size: int) -> None:
        """Charge another device for bytes from now on; a negative size ends the loan."""
        self._lent += size
        if self._limit is not None:
            self._apply_limit()

    def _apply_limit(self) -> None:
        if self._limit is None:
            self.blocks.set_limit()
            return
        room = self._limit + max(self._limit // _HEADROOM_DIVISOR, _MIN_HEADROOM)
        # the library takes 0 for no limit
        self.blocks.set_limit(max(room + self._lent, 1))


class DeviceCopy:
    """An asynchronous copy to the host: `array` holds the value once `done` has passed."""

    __slots__ = ("array", "done")

    def __init__(self, array: np.ndarray, done: Any) -> None:
        self.array, self.done = array, done

    def wait(self) -> Any:
        """The value; a NumPy scalar for rank 0."""
        self.done.synchronize()
        return self.array if self.array.ndim else self.array[()]


class TimedCopy(NamedTuple):
    """A copy between the GPU and the host, and the events before and after it."""

    out: bool
    bytes: int
    start: Any
    end: Any
    node: str = ""
    text: str = ""


class GpuMessage:
    """A message from a GPU device: the array, the event after it, and its copy for a host."""

    __slots__ = ("copy", "made", "value")

    def __init__(self, value: Any, made: Any, copy: DeviceCopy | None) -> None:
        self.value, self.made, self.copy = value, made, copy

    @property
    def nbytes(self) -> int:
        """The size of the array."""
        return int(self.value.nbytes)


def receive_on_host(message: Any) -> Any:
    """The value of a message for a host."""
    if not isinstance(message, GpuMessage):
        return message
    assert message.copy is not None
    return message.copy.wait()


# copies up to this size use the compute stream, which saves an event
SMALL_COPY: Final = 1 << 16


class _LentArray:
    """An array that another stream made; its memory is returned after its last use by `streams`.

    If it belongs to another device, `owner`, the first of them is charged for it until then.
    """

    def __init__(self, array: Any, streams: Sequence[GpuStream], owner: GpuStream | None) -> None:
        self.array, self.streams, self.owner = array, streams, owner
        self._charge(array.nbytes)

    def _charge(self, size: int) -> None:
        if self.owner is not None:
            self.owner.pool.lend(size)
            self.streams[0].pool.lend(-size)

    def __del__(self) -> None:
        self._charge(-self.array.nbytes)
        for stream in self.streams:
            stream.retain(self.array)


_RetainedArrays: TypeAlias = "deque[tuple[Any, Any]]"


class GpuStream:
    """The streams of one device. Methods require it to be `current` unless stated otherwise."""

    def __init__(self, library: GpuLibrary, device: str, release_all: Callable[[], None]) -> None:
        self.library = library
        self.device = device
        self._cuda = library.xp.cuda
        self.compute, self.to_host_stream, self.to_device_stream = (
            self._cuda.Stream(non_blocking=True) for _ in range(3)
        )
        self._free_caches = release_all
        self.pool = GpuMemoryPool(self._cuda, release_all)
        # copies that were started ahead of their use, by the identity of the array
        self._early: dict[int, tuple[Any, DeviceCopy]] = {}
        # buffers in use by pending copies of each stream
        self._retained: tuple[_RetainedArrays, _RetainedArrays, _RetainedArrays] = (
            deque(),
            deque(),
            deque(),
        )
        # recent copies, if a trace needs their times
        self.timed: list[TimedCopy] | None = None

    def current(self) -> AbstractContextManager[Any]:
        """Context in which kernels use this device's stream and memory."""
        stack = ExitStack()
        stack.enter_context(self._cuda.using_allocator(self.pool.malloc))
        stack.enter_context(self.compute)
        return stack

    def release_all(self) -> None:
        """Wait for pending work, and free unused memory."""
        for stream in (self.compute, self.to_host_stream, self.to_device_stream):
            stream.synchronize()
        self.release_finished()
        self.pool.free()

    def follow(self, streams: Sequence[GpuStream]) -> None:
        """Order this stream behind everything queued on the others; need not be `current`."""
        for other in streams:
            if other is not self:
                self.compute.wait_event(self._record(other.compute))

    def between(self, start: Any, end: Any) -> int:
        """The nanoseconds between two events that have passed."""
        return int(self._cuda.get_elapsed_time(start, end) * 1e6)

    def to_device(self, value: Any) -> Any:
        """Copy a NumPy value to the GPU; other values are returned unchanged."""
        size = getattr(value, "nbytes", 0)
        if (
            size <= SMALL_COPY
            or not isinstance(value, np.ndarray)
            or not self.library.supports(value.dtype)
        ):
            return self.library.to_device(value)
        self.release_finished()
        pinned = self._pinned(value.shape, value.dtype)
        np.copyto(pinned, value)
        return self._upload(pinned)

    def copy_back(self, copy: DeviceCopy) -> Any:
        """Copy an array that was copied to the host back to the GPU."""
        self.release_finished()
        self.to_device_stream.wait_event(copy.done)
        return self._upload(copy.array)

    def _upload(self, pinned: np.ndarray) -> Any:
        """Copy pinned memory to the GPU; only its readers wait."""
        with self.to_device_stream:
            array = self.library.xp.empty(pinned.shape, pinned.dtype)
        start = self._start_event(self.to_device_stream)
        array.set(pinned, stream=self.to_device_stream)
        done = self._end_event(self.to_device_stream, start, pinned.nbytes, out=False)
        self.compute.wait_event(done)
        self._retain(self.to_device_stream, done, pinned)
        return self.lend(array)

    def to_host(self, value: Any) -> Any:
        """The value as a NumPy array; waits for its copy."""
        if type(value) is not self.library.array:
            return value
        early = self._early.pop(id(value), None)
        return (early[1] if early else self.copy(value)).wait()

    def start_copy(self, value: Any) -> None:
        """Start the copy of a value that the host will need."""
        if type(value) is self.library.array:
            key = id(value)
            ref = weakref.ref(value, lambda ref: self._early.pop(key, None))
            self._early[key] = ref, self.copy(value)

    def copy(self, value: Any) -> DeviceCopy:
        """Start to copy an array to pinned memory."""
        if not value.size:
            return DeviceCopy(np.empty(value.shape, value.dtype), self._record(self.compute))
        self.release_finished()
        stream, pinned = self.compute, self._pinned(value.shape, value.dtype)
        value = self._in_order(value)
        if value.nbytes > SMALL_COPY:
            stream = self.to_host_stream
            stream.wait_event(self._record(self.compute))
        start = self._start_event(stream)
        value.get(stream=stream, out=pinned, blocking=False)
        done = self._end_event(stream, start, pinned.nbytes, out=True)
        # keep pinned memory alive until written, even if nothing waits for the copy
        self._retain(stream, done, (value, pinned))
        return DeviceCopy(pinned, done)

    def post(self, value: Any, *, to_host: bool) -> Any:
        """Make a message of an array, on its way to the host or to another device."""
        if type(value) is not self.library.array:
            return value
        value = self._in_order(value)
        copy = self.copy(value) if to_host else None
        return GpuMessage(value, self._record(self.compute), copy)

    def collect(self, message: Any, sender: GpuStream | None, *, to_host: bool) -> Any:
        """The value of a message from another device or a host, in the requested memory."""
        if not isinstance(message, GpuMessage):
            if type(message) is not self.library.array or sender is None:
                return self.to_host(message) if to_host else self.to_device(message)
            with sender.current():
                message = sender.post(message, to_host=to_host)
        if to_host:
            return receive_on_host(message)
        if sender is None or sender is self:
            return message.value
        self.compute.wait_event(message.made)
        return self.lend(message.value, owner=sender)

    def lend(
        self, array: Any, readers: Sequence[GpuStream] = (), *, owner: GpuStream | None = None
    ) -> Any:
        """An array over the same memory, which is returned to its pool after the last reader.

        `readers` are the streams that may read it, by default this one; `owner` is another device
        in whose memory it is. Arrays that are not contiguous are returned unchanged.
        """
        cuda = self._cuda
        if not array.size or not array.flags.c_contiguous:
            return array
        loan, data = _LentArray(array, readers or (self,), owner), array.data
        memory = cuda.UnownedMemory(data.ptr, array.nbytes, loan, data.device_id)
        pointer = cuda.MemoryPointer(memory, 0)
        return self.library.array(array.shape, array.dtype, memptr=pointer)

    def _in_order(self, value: Any) -> Any:
        """The array, made contiguous."""
        if value.flags.c_contiguous:
            return value
        return self.library.xp.ascontiguousarray(value)

    def _record(self, stream: Any) -> Any:
        """Record an event after everything that a stream has queued."""
        return stream.record(self._cuda.Event(disable_timing=True))

    def _start_event(self, stream: Any) -> Any:
        """The event before a copy, if its time is needed."""
        return None if self.timed is None else stream.record()

    def _end_event(self, stream: Any, start: Any, size: int, *, out: bool) -> Any:
        """The event after a copy."""
        if start is None or self.timed is None:
            return self._record(stream)
        end = stream.record()
        self.timed.append(TimedCopy(out, size, start, end))
        return end

    def name_copy(self, node: str, text: str = "") -> None:
        """Name the last copy; an unnamed copy belongs to the token that started it."""
        if self.timed:
            self.timed[-1] = self.timed[-1]._replace(node=node, text=text)

    def _pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Page-locked host memory, which the GPU can access directly."""
        size = prod(shape) * dtype.itemsize
        try:
            memory = self._cuda.alloc_pinned_memory(max(size, 1))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            memory = self._pinned_again(size)
        return np.ndarray(shape, dtype, buffer=memory)

    def _pinned_again(self, size: int) -> Any:
        """Page-locked memory after the caches are freed."""
        self._free_caches()
        try:
            return self._cuda.alloc_pinned_memory(size)
        except RuntimeError as error:
            message = f"no page-locked host memory for copies: {error}"
            raise MemoryError(message) from None

    def retain(self, buffers: Any) -> None:
        """Keep buffers alive until the queued kernels have run; need not be `current`.

        Buffers of finished work are released first: a device that only receives has no other
        occasion.
        """
        self.release_finished()
        self._retain(self.compute, self._record(self.compute), buffers)

    def _retain(self, stream: Any, done: Any, buffers: Any) -> None:
        """Keep the buffers of a copy alive until an event has passed."""
        index = 0 if stream is self.compute else 1 if stream is self.to_host_stream else 2
        self._retained[index].append((done, buffers))

    def release_finished(self) -> None:
        """Release the buffers of finished copies."""
        for retained in self._retained:
            while retained and retained[0][0].done:
                retained.popleft()
