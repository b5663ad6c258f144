"""Links between workers: large arrays in both directions, secrets, silence, and hostile bytes."""

from __future__ import annotations

import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from cfgraph.backends.workers import connections
from cfgraph.backends.workers.connections import Mesh, PeerLost
from cfgraph.backends.workers.handshake import Handshake
from cfgraph.backends.workers.shared_memory import HOST_BYTES, SharedArrays, host_identity
from cfgraph.processes.codec import DecodeError

# of this process: others run tests at the same time
SECRET = os.urandom(8)


@contextmanager
def connected(secrets: tuple[bytes, bytes] = (SECRET, SECRET)) -> Iterator[tuple[Mesh, Mesh]]:
    meshes = [Mesh(index, secrets[index], "127.0.0.1", 10) for index in range(2)]
    addresses = [("127.0.0.1", mesh.port) for mesh in meshes]

    def accept() -> None:
        # the listener is closed while it waits if the other worker is refused
        with suppress(PeerLost, OSError):
            meshes[0].connect(addresses)

    first = threading.Thread(target=accept, daemon=True)
    first.start()
    try:
        meshes[1].connect(addresses)
        first.join()
        yield meshes[0], meshes[1]
    finally:
        for mesh in meshes:
            mesh.close()


@contextmanager
def raw_peer(lost_after: float = 0.2) -> Iterator[tuple[Mesh, socket.socket]]:
    """A mesh, and the other end of its connection."""
    ours, theirs = socket.socketpair()
    mesh = Mesh(0, SECRET, "127.0.0.1", lost_after)
    mesh.add(1, ours)
    with closing(theirs):
        yield mesh, theirs
    mesh.close()


def received(mesh: Mesh, count: int) -> list[Any]:
    messages: list[Any] = []
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and (len(messages) < count or not mesh.flush()):
        messages += mesh.poll(0.1)
    return messages


@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "socket"])
def test_two_large_arrays_cross(monkeypatch: pytest.MonkeyPatch, is_shared: bool) -> None:
    if is_shared and host_identity() == bytes(HOST_BYTES):
        pytest.skip("this machine has no shared memory")
    written: list[bytes | None] = []
    write = SharedArrays.write

    def write_recorded(self: SharedArrays, parts: Any) -> bytes | None:
        written.append(write(self, parts) if is_shared else None)  # None: the memory is full
        return written[-1]

    monkeypatch.setattr(SharedArrays, "write", write_recorded)
    data = np.arange(1 << 23, dtype=np.int64)  # 64 MiB
    with connected() as (a, b):
        a.send(1, b"from a", [data.view(np.uint8).data])
        b.send(0, b"from b", [data.view(np.uint8).data])
        answers: dict[int, Any] = {}
        threads = [
            threading.Thread(target=lambda m=mesh: answers.update({m.index: received(m, 1)}))
            for mesh in (a, b)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for index, head in ((0, b"from b"), (1, b"from a")):
        ((_, have, payload),) = answers[index]
        assert have == head
        assert np.array_equal(payload.view(np.int64), data)
    assert [name is not None for name in written] == [is_shared] * 2
    assert not leftovers()


def leftovers() -> list[Path]:
    return list(Path("/dev/shm").glob(f"{SharedArrays(SECRET)._prefix}*"))


def test_what_a_killed_worker_left_in_shared_memory_is_removed() -> None:
    shared = SharedArrays(SECRET)
    if shared.write([b"x" * 10]) is None:
        pytest.skip("this machine has no shared memory")
    assert len(leftovers()) == 1
    shared.clear()
    assert not leftovers()


def test_a_name_that_no_worker_wrote_is_refused() -> None:
    with pytest.raises(DecodeError, match="a shared array is missing"):
        SharedArrays(SECRET).read(bytes(16), 10)


def test_an_empty_shared_array_is_refused() -> None:
    shared = SharedArrays(SECRET)
    name = shared.write([])
    if name is None:
        pytest.skip("this machine has no shared memory")
    with pytest.raises(DecodeError, match="another size"):
        shared.read(name, 0)
    shared.clear()


def test_shared_memory_of_another_host_is_refused() -> None:
    with raw_peer() as (mesh, peer):
        peer.sendall(struct.pack("<IQ", 20, 1 << 63 | 10) + bytes(20))
        with pytest.raises(DecodeError, match="from another host"):
            received(mesh, 1)


def test_what_a_full_socket_does_not_accept_is_sent_later() -> None:
    payloads = [bytes([number]) * 100_000 for number in range(200)]
    stream, received = b"".join(payloads), bytearray()
    with raw_peer() as (mesh, peer):
        for payload in payloads:
            mesh.send(1, b"", [payload])
        assert not mesh.flush()

        def read() -> None:
            for payload in payloads:
                assert peer.recv(12, socket.MSG_WAITALL) == struct.pack("<IQ", 0, len(payload))
                received.extend(peer.recv(len(payload), socket.MSG_WAITALL))

        reader = threading.Thread(target=read)
        reader.start()
        while not mesh.flush():
            mesh.poll(0.1)
        reader.join(20)
    assert received == stream


def test_messages_arrive_in_order_however_they_are_split() -> None:
    with raw_peer() as (mesh, peer):
        stream = b"".join(
            struct.pack("<IQ", len(head), size) + head + bytes(size)
            for head, size in ((b"one", 0), (b"two", 700_000), (b"", 0), (b"three", 5))
        )
        sizes = [1, 5, 11, 40, 300_000, 3]

        def write() -> None:
            position = 0
            while position < len(stream):
                size = sizes[position % len(sizes)]
                peer.sendall(stream[position : position + size])
                position += size

        writer = threading.Thread(target=write)
        writer.start()
        messages = received(mesh, 3)
        writer.join()
    assert [(head, len(payload)) for _, head, payload in messages] == [
        (b"one", 0),
        (b"two", 700_000),
        (b"three", 5),
    ]


def test_a_worker_with_another_secret_is_refused() -> None:
    with pytest.raises(PeerLost, match="worker 0 cannot be reached"), connected((SECRET, b"other")):
        pass


@pytest.mark.parametrize(
    ("count", "sent", "interval"),
    [(1, bytes(100), 60), (40, b"", 60), (1, b"\1", 0.05), (300, b"\1", 0.05)],
    ids=["wrong_proof", "silent", "drips", "many_drip"],
)
def test_strangers_delay_no_worker(count: int, sent: bytes, interval: float) -> None:
    meshes = [Mesh(index, SECRET, "127.0.0.1", 10) for index in range(2)]
    addresses = [("127.0.0.1", mesh.port) for mesh in meshes]
    done = threading.Event()
    with ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.create_connection(addresses[0])) for _ in range(count)
        ]

        def send_slowly() -> None:
            while not done.is_set():
                for stranger in strangers:
                    with suppress(OSError):  # it was found out
                        stranger.sendall(sent)
                done.wait(interval)

        threads = [threading.Thread(target=send_slowly)]
        threads.append(threading.Thread(target=meshes[0].connect, args=(addresses,), daemon=True))
        for thread in threads:
            thread.start()
        start = time.monotonic()
        meshes[1].connect(addresses)
        assert time.monotonic() - start < 8  # a silent one is given 10
        done.set()
        for thread in threads:
            thread.join()
        meshes[1].send(0, b"hello")
        meshes[1].flush()
        assert [head for _, head, _ in received(meshes[0], 1)] == [b"hello"]
    for mesh in meshes:
        mesh.close()


def test_strangers_that_use_up_the_descriptors_give_way_and_cost_no_time() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    closed, limits = threading.Event(), resource.getrlimit(resource.RLIMIT_NOFILE)
    handshake = Handshake(0, SECRET, b"0" * HOST_BYTES)
    with listener, ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.create_connection(listener.getsockname(), 5))
            for _ in range(3)
        ]
        # all lower ones are in use: free are one for the selector, and one for a connection
        free = os.dup(0), os.dup(0)
        for descriptor in free:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[1] + 1, limits[1]))
        try:
            threading.Timer(1, closed.set).start()
            start = time.process_time()
            assert list(handshake.accept(listener, {1}, closed)) == []
            assert time.process_time() - start < 0.5
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert all(stranger.recv(1) for stranger in strangers)


def test_an_impossible_size_is_refused() -> None:
    with raw_peer() as (mesh, peer):
        peer.sendall(b"\xff" * 12)
        with pytest.raises(DecodeError, match="head of 4294967295 bytes"):
            received(mesh, 1)


def test_the_end_of_a_connection_is_a_lost_worker() -> None:
    with raw_peer() as (mesh, peer):
        peer.close()
        with pytest.raises(PeerLost, match="worker 1 closed its connection"):
            received(mesh, 1)


def test_silence_is_a_lost_worker() -> None:
    with raw_peer() as (mesh, _):
        start = time.monotonic()
        mesh.require_alive(start)
        time.sleep(0.25)
        with pytest.raises(PeerLost, match="worker 1 has sent nothing"):
            mesh.require_alive(start)


def test_a_worker_that_was_stopped_itself_waits_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def stopped(seconds: float) -> list[Any]:
        clock[0] += 60
        return []

    with raw_peer() as (mesh, _), monkeypatch.context() as patch:
        patch.setattr(connections, "time", Mock(monotonic=lambda: clock[0]))
        mesh._peers[1].last_read = 0.0
        with monkeypatch.context() as stop:
            stop.setattr(mesh._selector, "select", stopped)
            mesh.poll(0.05)
        mesh.require_alive(0.0)
        clock[0] += 0.25
        with pytest.raises(PeerLost, match="worker 1 has sent nothing"):
            mesh.require_alive(0.0)


def test_a_worker_is_lost_though_each_wait_is_a_little_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]

    def late(seconds: float) -> list[Any]:
        clock[0] += seconds + 0.25
        return []

    with raw_peer(lost_after=1.0) as (mesh, _), monkeypatch.context() as patch:
        patch.setattr(connections, "time", Mock(monotonic=lambda: clock[0]))
        mesh._peers[1].last_read = 0.0
        with monkeypatch.context() as wait:
            wait.setattr(mesh._selector, "select", late)
            for _ in range(4):
                mesh.poll(0.05)
        with pytest.raises(PeerLost, match="worker 1 has sent nothing"):
            mesh.require_alive(0.0)


def test_a_wake_ends_a_poll() -> None:
    with raw_peer() as (mesh, _):
        threading.Timer(0.05, mesh.wake).start()
        start = time.monotonic()
        assert mesh.poll(10) == []
        assert time.monotonic() - start < 5
