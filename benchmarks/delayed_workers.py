"""Workers whose links delay what they carry, as between hosts that are far apart."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.backends.workers.connections import Address
from cfgraph.backends.workers.workers import Transport, WorkerHandle, WorkerOptions

_READ_BYTES: Final = 1 << 16
Chunks = queue.SimpleQueue[tuple[float, bytes]]


class DelayingProxy:
    """A port that passes all bytes on to an address, and back, some seconds after they arrived."""

    def __init__(self, target: Address, seconds: float) -> None:
        self._target, self._seconds = target, seconds
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: Address = ("127.0.0.1", int(self._listener.getsockname()[1]))
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                ends = self._listener.accept()[0], socket.create_connection(self._target)
                self._connections += ends
                for source, sink in (ends, ends[::-1]):
                    sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    chunks: Chunks = queue.SimpleQueue()
                    threading.Thread(target=self._read, args=(source, chunks), daemon=True).start()
                    threading.Thread(target=_write, args=(chunks, sink), daemon=True).start()

    def _read(self, source: socket.socket, chunks: Chunks) -> None:
        data = b"first"
        while data:
            try:
                data = source.recv(_READ_BYTES)
            except OSError:
                data = b""
            chunks.put((time.monotonic() + self._seconds, data))

    def close(self) -> None:
        """End all connections."""
        for each in (self._listener, *self._connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def _write(chunks: Chunks, sink: socket.socket) -> None:
    """Write each chunk when it is due, until an empty one."""
    while True:
        due, data = chunks.get()
        time.sleep(max(0.0, due - time.monotonic()))
        with suppress(OSError):
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            sink.sendall(data)


@dataclass(frozen=True, slots=True)
class DelayedWorkers:
    """Workers of a session, with a delay of each message between them."""

    options: WorkerOptions
    seconds: float

    @property
    def workers(self) -> int | None:
        """The number of workers, None for one per task."""
        return self.options.workers

    @property
    def lost_after(self) -> float:
        """Seconds of silence after which a worker is lost."""
        return self.options.lost_after

    def transport(self) -> DelayingTransport:
        """The transport that starts them."""
        return DelayingTransport(self.options.transport(), self.seconds)


class DelayingTransport:
    """Transport that lets workers reach each other through proxies."""

    def __init__(self, transport: Transport, seconds: float) -> None:
        self._transport, self._seconds = transport, seconds
        self._proxies: list[DelayingProxy] = []

    def start(self, devices: Sequence[Sequence[str]], secret: bytes) -> list[WorkerHandle]:
        """Start the workers."""
        handles = self._transport.start(devices, secret)
        return [_DelayedHandle(handle, self) for handle in handles]

    def delayed(self, addresses: Sequence[Address]) -> list[Address]:
        """The addresses at which workers reach each other."""
        if not self._proxies:
            self._proxies = [DelayingProxy(each, self._seconds) for each in addresses]
        return [proxy.address for proxy in self._proxies]

    def close(self) -> None:
        """End the workers and the proxies."""
        self._transport.close()
        for proxy in self._proxies:
            proxy.close()
        self._proxies.clear()


class _DelayedHandle:
    def __init__(self, handle: WorkerHandle, transport: DelayingTransport) -> None:
        self._handle, self._transport = handle, transport
        self.host, self.pid = handle.host, handle.pid

    def call(self, method: str, *args: Any) -> Future[Any]:
        """Call a method of the worker."""
        if method == "connect":
            args = (self._transport.delayed(args[0]),)
        return self._handle.call(method, *args)

    def kill(self) -> None:
        """End the process."""
        self._handle.kill()
