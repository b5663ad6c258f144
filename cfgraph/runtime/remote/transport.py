"""Transports: how the driver of a session starts workers and calls their methods."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol


class WorkerHandle(Protocol):
    """A started worker. A call to a dead one fails with WorkerDied."""

    host: str
    pid: int

    def call(self, method: str, *args: Any) -> Future[Any]:
        """Call a method of the worker; `step` runs beside all others."""

    def kill(self) -> None:
        """End the process of the worker."""


class Transport(Protocol):
    """A way to start workers."""

    def start(self, devices: Sequence[Sequence[str]], secret: bytes) -> Sequence[WorkerHandle]:
        """Start one worker for each list of devices."""

    def close(self) -> None:
        """End all workers."""


class WorkerDied(Exception):
    """A worker whose process has ended."""
