"""Requests to a child process: it answers them until its connection ends."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable, Mapping

from cfgraph.errors import CfgraphError
from cfgraph.limits import limited, out_of_memory_error
from cfgraph.processes.messages import (
    ConnectionEnded,
    ProcessMessage,
    receive,
    receive_descriptors,
    send,
)

Handler = Callable[[ProcessMessage, list[int]], ProcessMessage]
# address space that threads and libraries only reserve, as for the command itself
_RESERVED_BYTES = 1 << 30


def serve(connection: socket.socket, handlers: Mapping[str, Handler]) -> None:
    """Answer each kind of request, until the connection is closed."""
    used = _data_bytes()
    try:
        send(connection, ProcessMessage({"ready": True}))
        while True:
            request = receive(connection)
            descriptors = receive_descriptors(connection, request.header.get("descriptors", 0))
            _limit_allocations(used + request.header["max_bytes"] + _RESERVED_BYTES)
            with limited(max_memory=request.header["max_bytes"]):
                reply = _answer(handlers[request.header["kind"]], request, descriptors)
            send(connection, reply)
    except ConnectionEnded:
        os._exit(0)  # threads of libraries may still run


def _answer(handler: Handler, request: ProcessMessage, descriptors: list[int]) -> ProcessMessage:
    """The answer of a handler, or the error that it raised."""
    try:
        return handler(request, descriptors)
    except MemoryError:
        error: CfgraphError = out_of_memory_error()
    except CfgraphError as failure:
        error = failure
    fields = {"kind": type(error).__name__, "message": error.message}
    return ProcessMessage({"error": {**fields, "hint": error.hint, "code": error.code}})


def _data_bytes() -> int:
    """The bytes that the process may write to; 0 if unknown."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[5]) * resource.getpagesize()
    except OSError:
        return 0


def _limit_allocations(size: int) -> None:
    """Let allocations fail beyond this size."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (size, hard))
