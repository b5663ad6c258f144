"""Rendezvous across workers: each message of a step goes to the worker of its Recv.

Channels are numbered by the sorted keys of all Sends of the run, equal on all workers. The path of
frames of a message is sent once per step and worker, and has a number then:

    FRAME  run, number, number of the path of the parent, iteration of the parent, name
    VALUE  run, channel, number of the path, iteration; then the value, as `codec` writes it
    NEXT   run, number of the message in generated code; then the value

The values of one message of generated code arrive in the order in which the code waits for them.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from cfgraph.backends.workers.connections import Mesh, Message
from cfgraph.errors import CfgraphError
from cfgraph.ir.traversal import RendezvousKey
from cfgraph.processes.codec import DecodeError, decode, encode
from cfgraph.runtime.engine.propagate import Iteration
from cfgraph.runtime.engine.rendezvous import Channel, Rendezvous, Tag, iteration_tag

_FRAME, _VALUE, _NEXT = 1, 2, 3
_FRAME_HEAD: Final = struct.Struct("<BIIIQ")
_VALUE_HEAD: Final = struct.Struct("<BIIIQ")
_NEXT_HEAD: Final = struct.Struct("<BII")
_RUN: Final = struct.Struct("<I")
_ROOT: Final = ("",)
_MAX_LATER_BYTES: Final = 1 << 30


def channel_numbers(keys: Iterable[RendezvousKey]) -> dict[RendezvousKey, int]:
    """The number of each channel of a run."""
    return {key: number for number, key in enumerate(sorted(set(keys)))}


class OutgoingChannel(Channel):
    """The end of a channel at its Send; the Recv is on another worker."""

    __slots__ = ("_number", "_peer", "_postbox")

    def __init__(self, key: RendezvousKey, number: int, peer: int, postbox: Postbox) -> None:
        super().__init__(key)
        self._number, self._peer, self._postbox = number, peer, postbox

    def put(self, iteration: Iteration, value: Any) -> None:
        """Send the message to the worker of its Recv."""
        self._postbox.post(self._peer, self._number, iteration_tag(iteration), value)


class RemoteRendezvous(Rendezvous):
    """The channels of one worker. `worker_of` has the worker of each device."""

    def __init__(
        self,
        numbers: Mapping[RendezvousKey, int],
        worker_of: Mapping[str, int],
        worker: int,
        postbox: Postbox,
    ) -> None:
        super().__init__()
        self._numbers, self._worker_of = numbers, worker_of
        self._worker, self._postbox = worker, postbox

    def make_channel(self, key: RendezvousKey) -> Channel:
        """The channel of a key that is looked up for the first time."""
        peer = self._worker_of.get(key.recv_device, self._worker)
        number = self._numbers.get(key)
        if number is None:  # no Send has this key: its Recv waits for ever
            return Channel(key)
        if peer != self._worker:
            return OutgoingChannel(key, number, peer, self._postbox)
        channel = Channel(key)
        self._postbox.incoming[number] = channel
        return channel


class Postbox:
    """The messages of one worker: encoded to others, delivered to the channels of a step.

    A message of a step that has not begun on this worker waits; one of an ended step is dropped.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.incoming: dict[int, Channel] = {}
        self.sent = self.received = 0
        self.run = 0
        self._numbers: dict[int, dict[Any, int]] = {}  # by peer: the numbers of paths
        self._paths: dict[int, dict[int, Any]] = {}  # by peer: the paths of numbers
        self._later: list[Message] = []
        self._later_bytes = 0
        self._queues: Sequence[deque[Any]] = ()
        self._sources: Sequence[int] = ()
        self._has_ended = True

    def start(
        self,
        run: int,
        incoming: dict[int, Channel],
        queues: Sequence[deque[Any]] = (),
        sources: Sequence[int] = (),
    ) -> None:
        """Deliver the messages of a step to this rendezvous from now on.

        A step of generated code has a queue for each message, and the worker that it comes from.
        """
        self.run, self.incoming = run, incoming
        self._queues, self._sources = queues, sources
        self._has_ended = False
        self.sent = self.received = 0
        self._numbers.clear()
        self._paths.clear()
        waiting, self._later, self._later_bytes = self._later, [], 0
        for message in waiting:
            self.deliver(message)

    def end(self) -> None:
        """End a step: its messages are dropped from now on."""
        self.incoming = {}
        self._queues = ()
        self._has_ended = True

    def post(self, peer: int, channel: int, tag: Tag, value: Any) -> None:
        """Queue a message to another worker."""
        path, index = tag
        head, payload = encode(value)
        number = self._path_number(peer, path)
        start = _VALUE_HEAD.pack(_VALUE, self.run, channel, number, index)
        self.mesh.send(peer, start + head, payload)
        self.sent += 1

    def send(self, peer: int, number: int, value: Any) -> None:
        """Queue a message of generated code to another worker."""
        head, payload = encode(value)
        self.mesh.send(peer, _NEXT_HEAD.pack(_NEXT, self.run, number) + head, payload)
        self.sent += 1

    def _path_number(self, peer: int, path: Any) -> int:
        """The number of a path of frames, which the other worker learns on first use."""
        numbers = self._numbers.get(peer)
        if numbers is None:
            numbers = self._numbers[peer] = {_ROOT: 0}
        number = numbers.get(path)
        if number is None:
            parent, index, name = path
            above = self._path_number(peer, parent)
            number = numbers[path] = len(numbers)
            start = _FRAME_HEAD.pack(_FRAME, self.run, number, above, index)
            self.mesh.send(peer, start + name.encode("utf-8", "surrogateescape"))
        return number

    def deliver(self, message: Message) -> None:
        """Deliver a message to its channel.

        Raises DecodeError for what no worker sends, and the error of a value that is too large.
        """
        peer, head, payload = message
        try:
            (run,) = _RUN.unpack_from(head, 1)
            if run != self.run:
                if run > self.run:
                    self._keep(message)
            elif isinstance(payload, CfgraphError):
                if not self._has_ended:
                    raise payload
            else:
                self._deliver(peer, head, payload)
        except (struct.error, IndexError) as error:
            raise DecodeError(f"malformed message: {error}") from None

    def _keep(self, message: Message) -> None:
        """Keep a message of a step that has not begun here."""
        self._later_bytes += len(message[1])
        if not isinstance(message[2], CfgraphError):
            self._later_bytes += len(message[2])
        if self._later_bytes > _MAX_LATER_BYTES:
            raise DecodeError("too many messages for a step that has not begun")
        self._later.append(message)

    def _deliver(self, peer: int, head: bytes, payload: Any) -> None:
        if head[0] == _NEXT:
            _, _, number = _NEXT_HEAD.unpack_from(head)
            value = decode(head[_NEXT_HEAD.size :], payload)
            if self._queues:  # otherwise the step has ended here
                if self._sources[number] != peer:
                    raise DecodeError(f"malformed message: {number} is not of worker {peer}")
                self._queues[number].append(value)
            self.received += 1
            return
        paths = self._paths.get(peer)
        if paths is None:
            paths = self._paths[peer] = {0: _ROOT}
        if head[0] == _VALUE:
            _, _, number, path, index = _VALUE_HEAD.unpack_from(head)
            value = decode(head[_VALUE_HEAD.size :], payload)
            if path not in paths:
                raise DecodeError(f"malformed message: unknown path {path}")
            self.received += 1
            channel = self.incoming.get(number)
            if channel is not None:  # otherwise the step has ended here, or no Recv reads it
                channel.arrive((paths[path], index), value)
        elif head[0] == _FRAME:
            _, _, number, above, index = _FRAME_HEAD.unpack_from(head)
            if above not in paths or number in paths:
                raise DecodeError(f"malformed message: path {number} below {above}")
            name = head[_FRAME_HEAD.size :].decode("utf-8", "surrogateescape")
            paths[number] = (paths[above], index, name)
        else:
            raise DecodeError(f"malformed message of kind {head[0]}")
