"""Handshake of two workers: each proves that it knows the secret of the session.

    the worker that accepts                   the worker that connects
    number used once, host              →
                                        ←     index, number used once, host, proof
    proof                               →
    a byte and back, a few times        ↔     the least time is that of a round trip

Any process that reaches the port of a worker can connect to it. Accepted connections are proven
side by side, and each has one deadline for its whole proof, so that strangers delay no worker.
"""

from __future__ import annotations

import errno
import hmac
import math
import secrets
import selectors
import socket
import struct
import threading
import time
from collections.abc import Collection, Generator, Iterator
from contextlib import ExitStack, suppress
from typing import Final, NamedTuple

from cfgraph.backends.workers.shared_memory import HOST_BYTES

Address = tuple[str, int]
HANDSHAKE_SECONDS: Final = 30.0
# a connection to the port of a worker has this long for its whole proof
_PROOF_SECONDS: Final = 5.0
# of connections without proof; one more closes the oldest
_MAX_CANDIDATES: Final = 256
_POLL_SECONDS: Final = 0.1
# until a descriptor may be free
_RETRY_SECONDS: Final = 0.02
_INDEX: Final = struct.Struct("<I")
_NONCE_BYTES: Final = 32
_GREETING_BYTES: Final = _NONCE_BYTES + HOST_BYTES
_PROOF_BYTES: Final = 32
_ECHOES: Final = 5


class ProvenPeer(NamedTuple):
    """A connected worker that knows the secret, and the identity of its host."""

    worker: int
    connection: socket.socket
    host: bytes


class Handshake:
    """The proofs of one worker. `round_trip` is the longest time to another worker and back."""

    def __init__(self, index: int, secret: bytes, host: bytes) -> None:
        self._index, self._secret, self._host = index, secret, host
        self.round_trip = 0.0

    def _proof(self, role: bytes, index: int, exchanged: bytes) -> bytes:
        return hmac.digest(self._secret, role + _INDEX.pack(index) + exchanged, "sha256")

    def _greeting(self) -> bytes:
        """A number used once, and the identity of the host."""
        return secrets.token_bytes(_NONCE_BYTES) + self._host

    def connect(self, peer: int, address: Address) -> ProvenPeer:
        """Connect to a worker that accepts connections.

        Raises OSError or EOFError if it cannot be reached or does not know the secret.
        """
        connection = socket.create_connection(address, HANDSHAKE_SECONDS)
        try:
            return ProvenPeer(peer, connection, self._prove(connection))
        except BaseException:
            connection.close()
            raise

    def _prove(self, connection: socket.socket) -> bytes:
        """Prove to the other end that both know the secret; returns the identity of its host."""
        deadline = time.monotonic() + HANDSHAKE_SECONDS
        theirs, ours = _receive(connection, _GREETING_BYTES, deadline), self._greeting()
        proof = self._proof(b"connects", self._index, theirs + ours)
        connection.sendall(_INDEX.pack(self._index) + ours + proof)
        answer = _receive(connection, _PROOF_BYTES, deadline)
        if not hmac.compare_digest(answer, self._proof(b"accepts", self._index, theirs + ours)):
            raise EOFError("it does not know the secret of the session")
        self.round_trip = max(self.round_trip, _least_round_trip(connection, deadline))
        return theirs[_NONCE_BYTES:]

    def accept(
        self, listener: socket.socket, expected: Collection[int], closed: threading.Event
    ) -> Iterator[ProvenPeer]:
        """Accept workers until none is expected, the event is set, or HANDSHAKE_SECONDS are over.

        The caller removes each worker that it receives from those that are expected.
        """
        deadline = time.monotonic() + HANDSHAKE_SECONDS
        listener.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            try:
                while expected and not closed.is_set() and time.monotonic() < deadline:
                    for key, _ in selector.select(_POLL_SECONDS):
                        if key.data is None:
                            self._add_candidate(selector, listener, expected)
                        elif (proven := _read(selector, key.data)) is not None:
                            yield proven
                    _close_strangers(selector, time.monotonic())
            finally:
                _close_strangers(selector, math.inf)

    def _add_candidate(
        self, selector: selectors.BaseSelector, listener: socket.socket, expected: Collection[int]
    ) -> None:
        """Accept a connection, and begin to check its proof."""
        with suppress(OSError), ExitStack() as stack:  # it has ended already
            connection = stack.enter_context(_accepted(selector, listener))
            candidate = _Candidate(connection, self._check(connection, expected))
            selector.register(connection, selectors.EVENT_READ, candidate)
            stack.pop_all()

    def _check(self, connection: socket.socket, expected: Collection[int]) -> _Check:
        """Check the proof of the other end, and prove that this one knows the secret."""
        ours = self._greeting()
        connection.sendall(ours)
        answer = yield _INDEX.size + _GREETING_BYTES + _PROOF_BYTES
        (index,) = _INDEX.unpack_from(answer)
        theirs = answer[_INDEX.size : -_PROOF_BYTES]
        proof = self._proof(b"connects", index, ours + theirs)
        if not hmac.compare_digest(answer[-_PROOF_BYTES:], proof) or index not in expected:
            raise EOFError("a stranger")
        connection.sendall(self._proof(b"accepts", index, ours + theirs))
        for _ in range(_ECHOES):
            connection.sendall((yield 1))
        return ProvenPeer(index, connection, theirs[_NONCE_BYTES:])


# yields the number of bytes that it needs next
_Check = Generator[int, bytes, ProvenPeer]


class _Candidate:
    """An accepted connection without proof, and what has arrived of the bytes that it needs."""

    def __init__(self, connection: socket.socket, check: _Check) -> None:
        connection.setblocking(False)
        self.connection, self._check = connection, check
        self.deadline = time.monotonic() + _PROOF_SECONDS
        self._data, self._needed = b"", next(check)

    def read(self) -> ProvenPeer | None:
        """Read what has arrived. Raises OSError or EOFError if no worker sends that."""
        part = self.connection.recv(self._needed - len(self._data))
        if not part:
            raise EOFError("the connection ended")
        self._data += part
        if len(self._data) < self._needed:
            return None
        try:
            self._data, self._needed = b"", self._check.send(self._data)
        except StopIteration as end:
            proven: ProvenPeer = end.value
            return proven
        return None


def _accepted(selector: selectors.BaseSelector, listener: socket.socket) -> socket.socket:
    """Accept a connection; without a free descriptor, the oldest candidate has to go."""
    try:
        return listener.accept()[0]
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            _close_strangers(selector, time.monotonic(), len(_candidates(selector)) - 1)
            time.sleep(_RETRY_SECONDS)
        raise


def _read(selector: selectors.BaseSelector, candidate: _Candidate) -> ProvenPeer | None:
    """Read from a candidate, which is none any more if it is proven or a stranger."""
    try:
        proven = candidate.read()
    except (OSError, EOFError):
        _close(selector, candidate)
        return None
    if proven is not None:
        selector.unregister(candidate.connection)
    return proven


def _close(selector: selectors.BaseSelector, candidate: _Candidate) -> None:
    selector.unregister(candidate.connection)
    candidate.connection.close()


def _candidates(selector: selectors.BaseSelector) -> list[_Candidate]:
    return [key.data for key in selector.get_map().values() if key.data is not None]


def _close_strangers(
    selector: selectors.BaseSelector, now: float, most: int = _MAX_CANDIDATES
) -> None:
    """Close the candidates that are late, and the oldest of too many."""
    candidates = _candidates(selector)
    excess = len(candidates) - most
    for number, candidate in enumerate(candidates):
        if number < excess or candidate.deadline < now:
            _close(selector, candidate)


def _least_round_trip(connection: socket.socket, deadline: float) -> float:
    """The least time in which a byte comes back from the worker that accepted the connection."""
    times = []
    for _ in range(_ECHOES):
        start = time.perf_counter()
        connection.sendall(b"\0")
        _receive(connection, 1, deadline)
        times.append(time.perf_counter() - start)
    return min(times)


def _receive(connection: socket.socket, count: int, deadline: float) -> bytes:
    """Read a number of bytes before a deadline. Raises OSError or EOFError."""
    data = b""
    while len(data) < count:
        connection.settimeout(max(deadline - time.monotonic(), 1e-3))
        part = connection.recv(count - len(data))
        if not part:
            raise EOFError("the connection ended")
        data += part
    return data
