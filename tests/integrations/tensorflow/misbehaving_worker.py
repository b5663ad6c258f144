"""A stand-in for the process of TensorFlow, whose answers are planted faults."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time

import numpy as np

from cfgraph.integrations.tensorflow.mode_program import ModeProgram
from cfgraph.integrations.tensorflow.modes import Mode
from cfgraph.integrations.tensorflow.worker import failed
from cfgraph.processes.messages import ProcessMessage


def answer(mode: Mode, request: ProcessMessage) -> ProcessMessage:
    print("noise on standard output", flush=True)
    fault = request.header["fetches"][0].removesuffix(":0")
    FAULTS.get(fault, lambda: None)()
    if fault == "error":
        return failed("error", "planted at {{node a}} [1,2]", "InvalidArgumentError")
    if fault in MESSAGES:
        return failed("error", MESSAGES[fault], "InvalidArgumentError")
    if fault == "no_kernel" or (fault == "one_mode" and mode.name != "graph"):
        return failed("error", "planted", "UnimplementedError")
    return ProcessMessage(
        {"dead": [], "empty": []}, {name: np.float32(3) for name in request.header["fetches"]}
    )


def abort() -> None:
    sys.stderr.write("2026-01-02 03:04:05.678: F planted.cc:7] Check failed: planted\n")
    sys.stderr.flush()
    os.abort()


def hang() -> None:
    time.sleep(600)


def stop_listening() -> None:
    for descriptor in range(3, 64):
        try:
            socket.socket(fileno=os.dup(descriptor)).shutdown(socket.SHUT_RDWR)
        except OSError:
            continue
    time.sleep(600)


def print_garbage() -> None:
    for descriptor in range(3, 64):
        try:
            socket.socket(fileno=os.dup(descriptor)).sendall(b"this is not a message " * 10)
        except OSError:
            continue


def exhaust_memory() -> None:
    np.empty(1 << 32)


MESSAGES = {
    "no_registered_kernel": "No OpKernel was registered to support Op 'X' used by {{node x}}",
    "no_registered_op": "Op type not registered 'X' in binary running on host",
    "hostile": 'node """; raise SystemExit(9); """|`x`<b>\x1b',
}
FAULTS = {
    "abort": abort,
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exits": lambda: os._exit(7),
    "hang": hang,
    "stops_listening": stop_listening,
    "garbage": print_garbage,
    "memory": exhaust_memory,
    # the end of the host ends this process, too, before it can answer
    "host_killed": lambda: (os.kill(os.getppid(), signal.SIGKILL), signal.pause()),
}


def main(connection: int) -> None:
    ModeProgram(socket.socket(fileno=connection), "0.0", answer).serve()
