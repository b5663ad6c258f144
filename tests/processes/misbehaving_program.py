"""A program of a child process whose answers are planted faults, or what it may do."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from cfgraph.ops.opdef.op import OpError
from cfgraph.processes.child_program import serve
from cfgraph.processes.messages import ProcessMessage


def fail() -> None:
    message = "planted"
    raise OpError(message, hint="a hint")


def abort() -> None:
    sys.stderr.write("Check failed: planted\n")
    sys.stderr.flush()
    os.abort()


def hold_the_lock() -> None:
    sum(iter(int, 1))  # never ends, in one call that runs no other thread


def take_memory() -> None:
    values = [np.ones(1 << 26, np.uint8) for _ in range(8)]
    time.sleep(60)
    values.clear()


def work_in_a_thread() -> None:
    end = time.monotonic() + 6
    thread = threading.Thread(target=lambda: all(iter(lambda: time.monotonic() < end, False)))
    thread.start()
    thread.join()


FAULTS: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "fail": fail,
    "abort": abort,
    "exit": lambda: os._exit(7),
    "segfault": lambda: signal.raise_signal(signal.SIGSEGV),
    "sleep": lambda: time.sleep(60),
    "hold the lock": hold_the_lock,
    "stop": lambda: signal.raise_signal(signal.SIGSTOP),
    "memory": take_memory,
    "work in a thread": work_in_a_thread,
}


def attempts(folder: str) -> dict[str, Callable[[], Any]]:
    """What a confined process tries."""
    file = os.path.join(folder, "file")
    return {
        "write a file": lambda: open(file, "w"),
        "append to a file": lambda: open(file, "a"),
        "make a folder": lambda: os.mkdir(os.path.join(folder, "new")),
        "remove a file": lambda: os.unlink(file),
        "shorten a file": lambda: os.truncate(file, 0),
        "change a mode": lambda: os.chmod(file, 0o777),
        "open a socket": socket.socket,
        "send a packet": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        "start a program": lambda: subprocess.run(["true"], check=True),
        "fork": os.fork,
        "signal its parent": lambda: os.kill(os.getppid(), 0),
        "read a file": lambda: open(file).read(),
        "start a thread": lambda: threading.Thread(target=time.time).start(),
    }


def misbehave(request: ProcessMessage, _: list[int]) -> ProcessMessage:
    FAULTS[request.header["fault"]]()
    return ProcessMessage({"done": True}, request.arrays)


def attempt(request: ProcessMessage, _: list[int]) -> ProcessMessage:
    done = []
    for name, action in attempts(request.header["folder"]).items():
        with suppress(OSError):
            action()
            done.append(name)
    return ProcessMessage({"done": done})


def main(connection: int) -> None:
    channel = socket.socket(fileno=connection)

    def send_garbage(request: ProcessMessage, _: list[int]) -> ProcessMessage:
        channel.sendall(b"this is not a message, at any length " * 10)
        time.sleep(60)
        return request

    def claim(request: ProcessMessage, _: list[int]) -> ProcessMessage:
        channel.sendall(struct.pack("<4sQQ", b"cfg1", 2, request.header["bytes"]))
        time.sleep(60)
        return request

    handlers = {"fault": misbehave, "attempt": attempt, "garbage": send_garbage, "claim": claim}
    serve(channel, handlers)
