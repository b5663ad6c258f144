"""Streams, events, and memory of the stand-in GPU; a copy happens when it is awaited."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

RUBBISH = 0x5A


def rubbish(shape: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """Uninitialized memory."""
    made = np.empty(shape, dtype)
    if made.ndim and made.size and dtype.kind != "b":
        made.view(np.uint8).fill(RUBBISH)
    return made


class Stream:
    """Copies in their order; `now` is the current stream."""

    now: Stream

    def __init__(self, non_blocking: bool = False) -> None:
        self.waiting = deque[Callable[[], None]]()
        self.queued = self.done = 0
        self.outer: list[Stream] = []

    def queue(self, copy: Callable[[], None]) -> None:
        self.waiting.append(copy)
        self.queued += 1

    def run_to(self, place: int) -> None:
        while self.done < place:
            self.done += 1
            self.waiting.popleft()()

    def synchronize(self) -> None:
        self.run_to(self.queued)

    def record(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.stream, event.place, event.at = self, self.queued, time.perf_counter()
        return event

    def wait_event(self, event: Event) -> None:
        event.synchronize()

    def __enter__(self) -> Stream:
        self.outer.append(Stream.now)
        Stream.now = self
        return self

    def __exit__(self, *args: object) -> None:
        Stream.now = self.outer.pop()


Stream.now = Stream()


class Event:
    """A position in a stream."""

    def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
        self.stream: Stream | None = None
        self.place = 0
        self.at = 0.0

    def synchronize(self) -> None:
        assert self.stream is not None
        self.stream.run_to(self.place)

    @property
    def done(self) -> bool:
        """Always true: copies happen when they are awaited."""
        self.synchronize()
        return True


class MemoryPool:
    """Memory of one device, without a limit of its own."""

    def malloc(self, size: int) -> Any:
        raise NotImplementedError

    def free_all_blocks(self) -> None:
        """Free nothing."""

    def set_limit(self, size: int | None = None) -> None:
        self.limit = size


class Pointer(int):
    """A position in GPU memory, with its contents."""

    array: np.ndarray

    def __new__(cls, place: int, array: np.ndarray) -> Pointer:
        made = super().__new__(cls, place)
        made.array = array
        return made


class UnownedMemory:
    """Memory that belongs to `owner`."""

    def __init__(self, ptr: Pointer, size: int, owner: Any, device_id: int = -1) -> None:
        self.ptr, self.array, self.owner = ptr, ptr.array, owner


class MemoryPointer:
    """A position in memory."""

    def __init__(self, memory: UnownedMemory, offset: int) -> None:
        self.memory, self.array = memory, memory.array


class Device:
    """The GPU, whose streams can all be awaited."""

    compute_capability = "90"

    def synchronize(self) -> None:
        Stream.now.synchronize()


@contextmanager
def using_allocator(allocator: Any) -> Iterator[None]:
    """Set the allocator."""
    yield


def alloc_pinned_memory(size: int) -> Any:
    """Page-locked host memory."""
    return np.full(size, RUBBISH, np.uint8)


def get_elapsed_time(start: Event, end: Event) -> float:
    """The milliseconds between two events."""
    return (end.at - start.at) * 1e3


nvrtc = SimpleNamespace(getVersion=lambda: (13, 0))
runtime = SimpleNamespace(
    getDeviceProperties=lambda number: {"name": b"Stand-in"}, getDeviceCount=lambda: 1
)
