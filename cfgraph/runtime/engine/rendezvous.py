"""Rendezvous of Send and Recv: a message waits for its Recv, or the Recv for its message.

Each pair has one channel. Its messages are distinguished by the tag of the sending token, the path
of frames and iterations, which is equal on both devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cfgraph.ir.traversal import RendezvousKey
from cfgraph.runtime.engine.propagate import Fire, FrameState, Iteration

Tag = tuple[Any, int]


class PendingRecv(NamedTuple):
    """A Recv that fired before its message arrived: its closure, iteration, and queue."""

    receive: Fire
    iteration: Iteration
    ready: list[tuple[Fire, Iteration]]


class Channel:
    """The messages of one pair of Send and Recv: a value, or None for a dead token."""

    __slots__ = ("key", "messages", "waiting")

    def __init__(self, key: RendezvousKey) -> None:
        self.key = key
        self.messages: dict[Tag, Any] = {}
        self.waiting: dict[Tag, PendingRecv] = {}

    def put(self, iteration: Iteration, value: Any) -> None:
        """Store the message of a Send; a Recv that waits for it becomes ready."""
        self.arrive(iteration_tag(iteration), value)

    def arrive(self, tag: Tag, value: Any) -> PendingRecv | None:
        """Store an arrived message; return the Recv that waited for it and is ready now."""
        self.messages[tag] = value
        waiting = self.waiting.pop(tag, None) if self.waiting else None
        if waiting is not None:
            waiting.ready.append((waiting.receive, waiting.iteration))
        return waiting

    def expect(
        self, iteration: Iteration, receive: Fire, ready: list[tuple[Fire, Iteration]]
    ) -> bool:
        """True if the message has arrived; otherwise the Recv becomes ready when it does."""
        tag = iteration_tag(iteration)
        if tag in self.messages:
            return True
        self.waiting[tag] = PendingRecv(receive, iteration, ready)
        return False

    def receive(self, iteration: Iteration) -> Any:
        """Remove and return the message."""
        return self.messages.pop(iteration_tag(iteration))

    def clear(self) -> None:
        """Drop the messages and the waiting Recvs of an earlier run."""
        self.messages.clear()
        self.waiting.clear()


class Rendezvous(dict[RendezvousKey, Channel]):
    """The channels of a run, by key; the Send and the Recv of a key share its channel."""

    def __missing__(self, key: RendezvousKey) -> Channel:
        channel = self[key] = self.make_channel(key)
        return channel

    def make_channel(self, key: RendezvousKey) -> Channel:
        """The channel of a key that is looked up for the first time."""
        return Channel(key)

    def waiting(self) -> Iterator[tuple[RendezvousKey, PendingRecv]]:
        """All waiting Recvs, in the order of the channels and of their arrival there."""
        for key, channel in self.items():
            for waiting in channel.waiting.values():
                yield key, waiting


def iteration_tag(iteration: Iteration) -> Tag:
    """Identifier of an iteration that is the same on every device: frame path and index."""
    frame = iteration.frame
    return frame.tag or _frame_tag(frame), iteration.index


def _frame_tag(frame: FrameState) -> Any:
    """The names and iterations of the enclosing frames, made once per frame."""
    parent = frame.parent
    frame.tag = ("",) if parent is None else (*iteration_tag(parent), frame.plan.name)
    return frame.tag
