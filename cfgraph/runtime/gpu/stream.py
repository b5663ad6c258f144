"""Streams of one GPU device: one for kernels, two for copies, and a memory pool.

Only `DeviceCopy.wait` waits for the GPU. One stream reads what another wrote once the event after
it has passed; memory returns to the pool of its stream once the other streams have passed their
last use of it.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from cfgraph.runtime.gpu.memory_pool import GpuMemoryPool, is_out_of_memory

if TYPE_CHECKING:
    from cfgraph.runtime.gpu.context import GpuContext


class DeviceCopy:
    """A copy to the host that is under way: `array` holds the value when `done` has passed."""

    __slots__ = ("array", "done")

    def __init__(self, array: np.ndarray, done: Any) -> None:
        self.array, self.done = array, done

    def wait(self) -> Any:
        """The value, a NumPy scalar of rank 0."""
        self.done.synchronize()
        return self.array if self.array.ndim else self.array[()]


class TimedCopy(NamedTuple):
    """A copy between the card and the host, and the events that it is between."""

    out: bool
    bytes: int
    start: Any
    end: Any
    node: str = ""
    text: str = ""


class GpuMessage:
    """A message from a gpu: the array, the event behind it, and its copy where a host reads it."""

    __slots__ = ("copy", "made", "value")

    def __init__(self, value: Any, made: Any, copy: DeviceCopy | None) -> None:
        self.value, self.made, self.copy = value, made, copy

    @property
    def nbytes(self) -> int:
        """The bytes of the array."""
        return int(self.value.nbytes)


def receive_on_host(message: Any) -> Any:
    """What a host gets of a message from a gpu."""
    if not isinstance(message, GpuMessage):
        return message
    assert message.copy is not None
    return message.copy.wait()


# bytes up to which a copy goes through the stream that computes: no event costs less
SMALL_COPY: Final = 1 << 16


class _LentArray:
    """An array that another stream made: its memory goes back when those of `lanes` are past it.

    Where it is that of another gpu, `owner`, the first of them is charged for it until then.
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
    """The streams of one gpu. Its methods are called while it is `current`, unless they say so."""

    def __init__(self, context: GpuContext, device: str) -> None:
        self.context = context
        self.device = device
        self._cuda = context.xp.cuda
        self.compute, self.to_host_stream, self.to_device_stream = (
            self._cuda.Stream(non_blocking=True) for _ in range(3)
        )
        self.pool = GpuMemoryPool(self._cuda, context.release_all)
        # copies that were begun before anybody waits for them, by the identity of the array
        self._early: dict[int, tuple[Any, DeviceCopy]] = {}
        # what copies of each stream read or write, until they are done
        self._retained: tuple[_RetainedArrays, _RetainedArrays, _RetainedArrays] = (
            deque(),
            deque(),
            deque(),
        )
        # the copies of late, where somebody wants their times
        self.timed: list[TimedCopy] | None = None

    def current(self) -> AbstractContextManager[Any]:
        """Where kernels of this gpu are called: its stream and its memory."""
        stack = ExitStack()
        stack.enter_context(self._cuda.using_allocator(self.pool.malloc))
        stack.enter_context(self.compute)
        return stack

    def release_all(self) -> None:
        """Wait for what is under way, and give all memory back that nobody uses."""
        for stream in (self.compute, self.to_host_stream, self.to_device_stream):
            stream.synchronize()
        self.release_finished()
        self.pool.free()

    def follow(self, streams: Sequence[GpuStream]) -> None:
        """Do nothing before the others have done what they have to do so far; not `current`."""
        for other in streams:
            if other is not self:
                self.compute.wait_event(self._record(other.compute))

    def between(self, start: Any, end: Any) -> int:
        """The nanoseconds from one event to another, both over."""
        return int(self._cuda.get_elapsed_time(start, end) * 1e6)

    def to_device(self, value: Any) -> Any:
        """A NumPy value as an array of the card; what is there, or cannot be, as it is."""
        size = getattr(value, "nbytes", 0)
        if (
            size <= SMALL_COPY
            or not isinstance(value, np.ndarray)
            or not self.context.supports(value.dtype)
        ):
            return self.context.to_device(value)
        self.release_finished()
        pinned = self._pinned(value.shape, value.dtype)
        np.copyto(pinned, value)
        return self._upload(pinned)

    def copy_back(self, copy: DeviceCopy) -> Any:
        """The array that was copied to the host, on the card again."""
        self.release_finished()
        self.to_device_stream.wait_event(copy.done)
        return self._upload(copy.array)

    def _upload(self, pinned: np.ndarray) -> Any:
        """Copy pinned memory to the card; nobody waits but what reads it there."""
        with self.to_device_stream:
            array = self.context.xp.empty(pinned.shape, pinned.dtype)
        start = self._start_event(self.to_device_stream)
        array.set(pinned, stream=self.to_device_stream)
        done = self._end_event(self.to_device_stream, start, pinned.nbytes, out=False)
        self.compute.wait_event(done)
        self._retain(self.to_device_stream, done, pinned)
        return self.lend(array)

    def to_host(self, value: Any) -> Any:
        """A value as NumPy has it; waits for its copy."""
        if type(value) is not self.context.array:
            return value
        early = self._early.pop(id(value), None)
        return (early[1] if early else self.copy(value)).wait()

    def start_copy(self, value: Any) -> None:
        """Begin the copy of a value that the host is going to ask for."""
        if type(value) is self.context.array:
            key = id(value)
            ref = weakref.ref(value, lambda ref: self._early.pop(key, None))
            self._early[key] = ref, self.copy(value)

    def copy(self, value: Any) -> DeviceCopy:
        """Copy an array to pinned memory; nobody waits."""
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
        # if nobody waits, memory that is still written to must not be given to another copy
        self._retain(stream, done, (value, pinned))
        return DeviceCopy(pinned, done)

    def post(self, value: Any, *, to_host: bool) -> Any:
        """A message with an array, on its way to the host or to another gpu of the card."""
        if type(value) is not self.context.array:
            return value
        value = self._in_order(value)
        copy = self.copy(value) if to_host else None
        return GpuMessage(value, self._record(self.compute), copy)

    def collect(self, message: Any, sender: GpuStream | None, *, to_host: bool) -> Any:
        """The value of a message, from another gpu or a host, where it is wanted."""
        if not isinstance(message, GpuMessage):
            if type(message) is not self.context.array or sender is None:
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
        """An array over the same memory, which goes back behind its last reader here.

        `readers` are all the gpus that may read it, this one unless they are given; `owner` is
        another one that has it in its memory. Elements are one behind the other; others are handed
        back as they are.
        """
        cuda = self._cuda
        if not array.size or not array.flags.c_contiguous:
            return array
        loan, data = _LentArray(array, readers or (self,), owner), array.data
        memory = cuda.UnownedMemory(data.ptr, array.nbytes, loan, data.device_id)
        pointer = cuda.MemoryPointer(memory, 0)
        return self.context.array(array.shape, array.dtype, memptr=pointer)

    def _in_order(self, value: Any) -> Any:
        """The array, its elements one behind the other."""
        if value.flags.c_contiguous:
            return value
        return self.context.xp.ascontiguousarray(value)

    def _event(self) -> Any:
        return self._cuda.Event(disable_timing=True)

    def _record(self, stream: Any) -> Any:
        """The event behind all that a stream has to do so far."""
        return stream.record(self._event())

    def _start_event(self, stream: Any) -> Any:
        """The event before a copy, where its time is wanted."""
        return None if self.timed is None else stream.record()

    def _end_event(self, stream: Any, start: Any, size: int, *, out: bool) -> Any:
        """The event behind a copy."""
        if start is None or self.timed is None:
            return self._record(stream)
        end = stream.record()
        self.timed.append(TimedCopy(out, size, start, end))
        return end

    def name_copy(self, node: str, text: str = "") -> None:
        """Say what the last copy was of; one that nobody names is of the token that began it."""
        if self.timed:
            self.timed[-1] = self.timed[-1]._replace(node=node, text=text)

    def _pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Host memory that the card can copy from and to by itself."""
        size = prod(shape) * dtype.itemsize
        try:
            memory = self._cuda.alloc_pinned_memory(max(size, 1))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            memory = self._pinned_again(size)
        return np.ndarray(shape, dtype, buffer=memory)

    def _pinned_again(self, size: int) -> Any:
        """Memory of the host when what was held of it for copies is given up."""
        self.context.release_all()
        try:
            return self._cuda.alloc_pinned_memory(size)
        except RuntimeError as error:
            message = f"no memory of the host that the card can copy from or to: {error}"
            raise MemoryError(message) from None

    def retain(self, buffers: Any) -> None:
        """Keep something until the kernels that are queued have run; not `current`.

        What was kept before goes first: a gpu that only receives and computes asks nowhere else.
        """
        self.release_finished()
        self._retain(self.compute, self._record(self.compute), buffers)

    def _retain(self, stream: Any, done: Any, buffers: Any) -> None:
        """Keep what a copy of a stream uses until an event has passed."""
        index = 0 if stream is self.compute else 1 if stream is self.to_host_stream else 2
        self._retained[index].append((done, buffers))

    def release_finished(self) -> None:
        """Let go of what finished copies have used."""
        for retained in self._retained:
            while retained and retained[0][0].done:
                retained.popleft()
