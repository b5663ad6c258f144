"""Where devices meet: a Send leaves its message here, a Recv takes it or waits for it.

A pair has one channel. Within it messages are told apart by the tag of the token that sends: the
path of frames and iterations. Devices never talk about frames; the paths are equal on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from cfgraph.analysis.transfers import RendezvousKey
from cfgraph.runtime.frame_state import Fire, Frame, Iteration

Tag = tuple[Any, int]


class _Nothing:
    def __repr__(self) -> str:
        return "<no message yet>"


NOTHING: Final = _Nothing()


class Waiting(NamedTuple):
    """A Recv that fired before its message came: what to do then, where, on whose queue."""

    take: Fire
    iteration: Iteration
    ready: list[tuple[Fire, Iteration]]


class Channel:
    """The messages of one pair of Send and Recv: a value, or None for a dead token."""

    __slots__ = ("key", "messages", "waiting")

    def __init__(self, key: RendezvousKey) -> None:
        self.key = key
        self.messages: dict[Tag, Any] = {}
        self.waiting: dict[Tag, Waiting] = {}

    def put(self, it: Iteration, value: Any) -> None:
        """Leave the message of a Send; a Recv that waits for it becomes ready."""
        self.arrive(tag_of(it), value)

    def arrive(self, tag: Tag, value: Any) -> Waiting | None:
        """Have a message there; who waited for it, and is ready now."""
        self.messages[tag] = value
        waiting = self.waiting.pop(tag, None) if self.waiting else None
        if waiting is not None:
            waiting.ready.append((waiting.take, waiting.iteration))
        return waiting

    def expect(self, it: Iteration, take: Fire, ready: list[tuple[Fire, Iteration]]) -> bool:
        """True if the message is there; otherwise the Recv becomes ready when it comes."""
        tag = tag_of(it)
        if tag in self.messages:
            return True
        self.waiting[tag] = Waiting(take, it, ready)
        return False

    def take(self, it: Iteration) -> Any:
        """The message, which is gone from here then."""
        return self.messages.pop(tag_of(it))


class Rendezvous:
    """The channels of a run, by key."""

    def __init__(self, make: Callable[[RendezvousKey], Channel] = Channel) -> None:
        self._make = make
        self._channels: dict[RendezvousKey, Channel] = {}

    def channel(self, key: RendezvousKey) -> Channel:
        """The channel of a pair; both ends get the same one."""
        found = self._channels.get(key)
        if found is None:
            found = self._channels[key] = self._make(key)
        return found

    def __iter__(self) -> Iterator[Channel]:
        return iter(self._channels.values())

    def clear(self) -> None:
        """Forget what an earlier run left."""
        for channel in self._channels.values():
            channel.messages.clear()
            channel.waiting.clear()

    def waiting(self) -> Iterator[tuple[RendezvousKey, Waiting]]:
        """Every Recv that waits, in the order of the channels and of the arrival there."""
        for key, channel in self._channels.items():
            for waiting in channel.waiting.values():
                yield key, waiting


def tag_of(it: Iteration) -> Tag:
    """What identifies an iteration on all devices."""
    frame = it.frame
    return frame.tag or _tag(frame), it.index


def _tag(frame: Frame) -> Any:
    """The names and iterations of the frames around, made once for an instance of a frame."""
    parent = frame.parent
    frame.tag = ("",) if parent is None else (*tag_of(parent), frame.plan.name)
    return frame.tag
