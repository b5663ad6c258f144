"""Links between workers: authenticated TCP connections that never block, and their messages.

A message is a head and a payload, after their sizes:

    size of the head (4 bytes) | size of the payload (8 bytes) | head | payload

Between workers of one host, the payload of a large message is in shared memory, and its size is
marked; its name stands before the head.

Reading never stops while a worker waits to write, so two workers that send large arrays to each
other make progress. A payload is received into the array that becomes the value. A worker that is
silent for too long is lost: every worker sends a ping in each third of that time, from a thread of
its own, since a kernel may take longer.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final

import numpy as np

from cfgraph.backends.workers.handshake import Address, Handshake, ProvenPeer
from cfgraph.backends.workers.shared_memory import (
    MIN_SHARED_BYTES,
    NAME_BYTES,
    SharedArrays,
    host_identity,
    shares_memory,
)
from cfgraph.errors import CfgraphError
from cfgraph.limits import out_of_memory_error, reserve
from cfgraph.processes.codec import DecodeError

Message = tuple[int, bytes, Any]
_SIZES: Final = struct.Struct("<IQ")
_PING: Final = _SIZES.pack(0, 0)
# marks the size of a payload that is in shared memory
_SHARED: Final = 1 << 63
_MAX_HEAD: Final = 64 << 20
_READ_BYTES: Final = 1 << 16
_SOCKET_BYTES: Final = 4 << 20
# of connections that wait until a worker accepts them, most of which may be those of strangers
_BACKLOG: Final = 1024
_MAX_PARTS: Final = 256  # of one call of sendmsg


class PeerLost(Exception):
    """A connection to another worker that ended, or is silent."""

    def __init__(self, peer: int, reason: str) -> None:
        super().__init__(f"worker {peer} {reason}")
        self.peer, self.reason = peer, reason

    def __reduce__(self) -> tuple[type[PeerLost], tuple[int, str]]:
        return PeerLost, (self.peer, self.reason)


class _Peer:
    """One connection: bytes that wait to be written, and a message that arrives in parts.

    The payload of a message that is too large is the error, so that the connection remains usable.
    """

    def __init__(
        self, index: int, connection: socket.socket, shared: SharedArrays | None = None
    ) -> None:
        self.index, self.socket, self.shared = index, connection, shared
        self.output: deque[bytes | memoryview] = deque()
        self.last_read = self.last_sent = time.monotonic()
        self.buffer = memoryview(bytearray(_READ_BYTES))
        self.data = bytearray()
        self.head = b""
        self.payload: Any = None  # of a message whose head has arrived
        self.filled = 0
        self.waits_to_write = False
        self.skipped = 0  # bytes of a payload that is too large, which have not arrived

    def send_parts(self) -> None:
        """Write as much as the socket accepts."""
        output = self.output
        while output:
            parts = list(islice(output, _MAX_PARTS))
            try:
                written = self.socket.sendmsg(parts)
            except BlockingIOError:
                return
            except OSError as error:
                raise PeerLost(self.index, f"closed its connection ({error.strerror})") from None
            self.last_sent = time.monotonic()
            while output and written >= len(output[0]):
                written -= len(output.popleft())
            if written:
                output[0] = memoryview(output[0])[written:]

    def receive(self, messages: list[Message]) -> None:
        """Read what has arrived, and append the complete messages."""
        while True:
            is_drained = False
            try:
                if self.skipped:
                    count = self.socket.recv_into(self.buffer, min(self.skipped, _READ_BYTES))
                    self.skipped -= count
                elif self.payload is not None:
                    count = self.socket.recv_into(self.payload[self.filled :])
                    self.filled += count
                else:
                    count = self.socket.recv_into(self.buffer)
                    self.data += self.buffer[:count]
                    is_drained = 0 < count < _READ_BYTES
            except BlockingIOError:
                return
            except OSError as error:
                raise PeerLost(self.index, f"closed its connection ({error.strerror})") from None
            if not count:
                raise PeerLost(self.index, "closed its connection")
            self.last_read = time.monotonic()
            self._collect(messages)
            if is_drained and self.payload is None:
                return

    def _collect(self, messages: list[Message]) -> None:
        """Move complete messages out of the bytes that have arrived."""
        if self.payload is not None:
            if self.filled < len(self.payload):
                return
            messages.append((self.index, self.head, self.payload))
            self.payload = None
        position, data = 0, self.data
        end = len(data)
        while end - position >= _SIZES.size:
            head_size, size = _SIZES.unpack_from(data, position)
            if head_size > _MAX_HEAD:
                raise DecodeError(f"a message with a head of {head_size} bytes")
            start = position + _SIZES.size
            if end - start < head_size:
                break
            if not head_size and not size:
                position = start
                continue
            head = bytes(data[start : start + head_size])
            start += head_size
            if size & _SHARED:
                position = start
                messages.append((self.index, *self._shared_message(head, size ^ _SHARED)))
                continue
            if not size:
                position = start
                messages.append((self.index, head, b""))
                continue
            arrived = min(size, end - start)
            try:
                reserve(size, "a received value")
                payload = np.empty(size, np.uint8)
            except (CfgraphError, MemoryError) as error:
                messages.append((self.index, head, _unreceived(error)))
                position, self.skipped = start + arrived, size - arrived
                if self.skipped:
                    break
                continue
            payload[:arrived] = np.frombuffer(data, np.uint8, arrived, start)
            position = start + arrived
            if arrived < size:
                self.head, self.payload, self.filled = head, payload, arrived
                break
            messages.append((self.index, head, payload))
        del data[:position]

    def _shared_message(self, head: bytes, size: int) -> tuple[bytes, Any]:
        """A message whose payload is in shared memory."""
        if self.shared is None or len(head) < NAME_BYTES:
            raise DecodeError("a message in shared memory from another host")
        payload = self.shared.read(head[:NAME_BYTES], size)
        try:
            reserve(size, "a received value")
        except CfgraphError as error:
            payload = _unreceived(error)
        return head[NAME_BYTES:], payload


def _unreceived(error: Exception) -> CfgraphError:
    """The error of a payload that is not received."""
    return error if isinstance(error, CfgraphError) else out_of_memory_error()


class Mesh:
    """The connections of one worker to all others.

    One thread polls at a time. `lost_after` is the number of seconds after which a silent worker
    counts as lost.
    """

    def __init__(self, index: int, secret: bytes, host: str, lost_after: float) -> None:
        self.index, self.lost_after = index, lost_after
        self._secret = secret
        self._host_identity = host_identity()
        self._handshake = Handshake(index, secret, self._host_identity)
        self._peers: dict[int, _Peer] = {}
        self._connections: dict[int, socket.socket] = {}
        self._lock = threading.Lock()  # of the output of all peers
        self._resumed = 0.0  # when this process last ran again, after it was stopped in a wait
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        for end in (self._wake_reader, self._wake_writer):
            end.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, None)
        self._listener = socket.create_server((host, 0), backlog=_BACKLOG)
        self._closed = threading.Event()

    @property
    def port(self) -> int:
        """The port on which other workers reach this one."""
        return int(self._listener.getsockname()[1])

    @property
    def round_trip(self) -> float:
        """The longest time to a worker before this one and back, in seconds."""
        return self._handshake.round_trip

    def connect(self, addresses: Sequence[Address]) -> None:
        """Connect to all other workers: to those before this one, and accept those after it.

        Raises PeerLost for a worker that cannot be reached, or does not know the secret.
        """
        for peer in range(self.index):
            try:
                self._add_proven(self._handshake.connect(peer, addresses[peer]))
            except (OSError, EOFError) as error:
                raise PeerLost(peer, f"cannot be reached ({error})") from None
        missing = set(range(self.index + 1, len(addresses)))
        with suppress(OSError, ValueError):  # the mesh was closed
            for proven in self._handshake.accept(self._listener, missing, self._closed):
                missing.discard(proven.worker)
                self._add_proven(proven)
        if missing:
            raise PeerLost(min(missing), "did not connect")
        self._listener.close()
        threading.Thread(target=self._ping, name="cfgraph-ping", daemon=True).start()

    def _add_proven(self, proven: ProvenPeer) -> None:
        self.add(proven.worker, proven.connection, proven.host)

    def add(self, peer: int, connection: socket.socket, identity: bytes = b"") -> None:
        """Use a connection to another worker, on the host of this identity."""
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                connection.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BYTES)
        is_near = shares_memory(self._host_identity, identity)
        shared = SharedArrays(self._secret) if is_near else None
        self._peers[peer] = _Peer(peer, connection, shared)
        self._connections[peer] = connection
        self._selector.register(connection, selectors.EVENT_READ, self._peers[peer])

    def send(self, peer: int, head: bytes, payload: Sequence[bytes | memoryview] = ()) -> None:
        """Queue a message; `flush` writes it."""
        output, shared = self._peers[peer].output, self._peers[peer].shared
        if not payload:  # one part, which needs no lock
            output.append(_SIZES.pack(len(head), 0) + head)
            return
        size = sum(map(len, payload))
        if shared is not None and size >= MIN_SHARED_BYTES:
            name = shared.write(payload)
            if name is not None:
                head, size, payload = name + head, size | _SHARED, ()
        with self._lock:
            output.append(_SIZES.pack(len(head), size) + head)
            output.extend(payload)

    def flush(self) -> bool:
        """Write what the sockets accept; returns true if nothing is left."""
        done = True
        with self._lock:
            for peer in self._peers.values():
                if peer.output:
                    peer.send_parts()
                    done = done and not peer.output
        return done

    def poll(self, timeout: float) -> list[Message]:
        """Write, and wait for messages, `wake`, or the timeout; returns (peer, head, payload).

        Raises PeerLost for a connection that ended, DecodeError for bytes that no worker sends.
        """
        messages: list[Message] = []
        self._select_writers()
        start = time.monotonic()
        ready = self._selector.select(timeout)
        now = time.monotonic()
        if now - start > timeout + self.lost_after / 3:
            self._resumed = now
        for key, events in ready:
            peer = key.data
            if peer is None:
                self._drain_wake()
                continue
            if events & selectors.EVENT_WRITE:
                with self._lock:
                    peer.send_parts()
            if events & selectors.EVENT_READ:
                peer.receive(messages)
        return messages

    def _select_writers(self) -> None:
        for peer in self._peers.values():
            waits = bool(peer.output)
            if peer.waits_to_write != waits:
                peer.waits_to_write = waits
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if waits else 0)
                self._selector.modify(self._connections[peer.index], events, peer)

    def _drain_wake(self) -> None:
        try:
            while self._wake_reader.recv(64):
                pass
        except BlockingIOError:
            pass

    def wake(self) -> None:
        """End a `poll` in another thread."""
        with suppress(OSError):  # full, so that the poll ends as well; or closed
            self._wake_writer.send(b"x")

    def require_alive(self, since: float) -> None:
        """Raise PeerLost for a worker that was silent for too long in a wait that began then."""
        now = time.monotonic()
        for peer in self._peers.values():
            silent = now - max(peer.last_read, since, self._resumed)
            if silent > self.lost_after:
                raise PeerLost(peer.index, f"has sent nothing for {silent:.0f} s")

    def _ping(self) -> None:
        """Send a ping to every worker that was not written to recently."""
        interval = self.lost_after / 3
        while not self._closed.wait(interval):
            with self._lock:
                for peer in self._peers.values():
                    if not peer.output and time.monotonic() - peer.last_sent > interval / 2:
                        peer.output.append(_PING)
                        try:
                            peer.send_parts()
                        except PeerLost:
                            peer.output.clear()  # the next poll reports it

    def close(self) -> None:
        """Close all connections."""
        self._closed.set()
        with self._lock:
            for peer in self._peers.values():
                peer.socket.close()
                peer.output.clear()
        self._selector.close()
        for end in (self._wake_reader, self._wake_writer, self._listener):
            end.close()
