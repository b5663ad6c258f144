"""Links that delay, and split what they carry, at random."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cfgraph.backends.workers.worker import Worker
from tests.backends.workers.threads import ThreadHandle, Threads, ThreadTransport

_DELAYED = 0.4  # of all calls
_LONGEST = 40  # bytes that pass at once


class UnevenSocket:
    """A connection that often moves nothing, and otherwise few bytes."""

    def __init__(self, connection: socket.socket, draw: random.Random) -> None:
        self.connection, self.draw = connection, draw

    def _length(self, most: int) -> int:
        """The number of bytes that pass in this call. Raises BlockingIOError for none."""
        if self.draw.random() < _DELAYED:
            raise BlockingIOError
        length = self.draw.choice((1, 3, _LONGEST, 1 << 20))
        return min(length, most)

    def sendmsg(self, parts: Sequence[memoryview]) -> int:
        return self.connection.send(b"".join(parts)[: self._length(1 << 20)])

    def recv(self, most: int) -> bytes:
        return self.connection.recv(self._length(most))

    def recv_into(self, target: memoryview) -> int:
        return self.connection.recv_into(target, self._length(len(target)))

    def close(self) -> None:
        self.connection.close()


@dataclass(frozen=True)
class UnevenThreads(Threads):
    """Workers as threads with uneven links; `draws` decide what passes when."""

    draws: tuple[random.Random, ...] = ()

    @classmethod
    def seeded(cls, workers: int, seed: str) -> UnevenThreads:
        """Workers whose links depend on a seed."""
        draws = tuple(random.Random(f"{seed} {worker}") for worker in range(workers))
        return cls(workers, draws=draws)

    def transport(self) -> ThreadTransport:
        return _UnevenTransport(self.lost_after, self.draws)


class _UnevenTransport(ThreadTransport):
    def __init__(self, lost_after: float, draws: tuple[random.Random, ...]) -> None:
        super().__init__(lost_after)
        self.draws = draws

    def start(self, devices: Sequence[Sequence[str]], secret: bytes) -> list[ThreadHandle]:
        handles = super().start(devices, secret)
        for handle, draw in zip(handles, self.draws, strict=True):
            _delay(handle.worker, draw)
        return handles


def _delay(worker: Worker, draw: random.Random) -> None:
    mesh, add = worker.mesh, worker.mesh.add

    def add_uneven(peer: int, connection: socket.socket, *identity: Any) -> None:
        add(peer, connection, *identity)
        mesh._peers[peer].socket = UnevenSocket(connection, draw)  # type: ignore[assignment]

    mesh.add = add_uneven  # type: ignore[method-assign]
