"""Workers as threads of the test, with real links between them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from cfgraph.backends.workers.worker import Worker
from cfgraph.backends.workers.workers import WorkerDied
from cfgraph.runtime.engine import plan


@dataclass(frozen=True)
class Threads:
    """Workers of a session as threads."""

    workers: int | None = 2
    lost_after: float = 10.0

    def transport(self) -> ThreadTransport:
        return ThreadTransport(self.lost_after)


class ThreadTransport:
    def __init__(self, lost_after: float) -> None:
        self.lost_after = lost_after
        self.handles: list[ThreadHandle] = []

    def start(self, devices: Sequence[Sequence[str]], secret: bytes) -> list[ThreadHandle]:
        self.handles = [
            ThreadHandle(Worker(index, secret, "127.0.0.1", self.lost_after))
            for index in range(len(devices))
        ]
        return self.handles

    def close(self) -> None:
        for handle in self.handles:
            handle.close()


class ThreadHandle:
    host, pid = "localhost", 0

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.steps, self.calls = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self.is_dead = False

    def call(self, method: str, *args: Any) -> Future[Any]:
        if self.is_dead:
            failed: Future[Any] = Future()
            failed.set_exception(WorkerDied())
            return failed
        if method == "ping":
            answered: Future[Any] = Future()
            answered.set_result(None)
            return answered
        pool = self.steps if method == "step" else self.calls
        return pool.submit(getattr(self.worker, method), *args)

    def kill(self) -> None:
        self.is_dead = True
        self.worker.close()

    def close(self) -> None:
        self.worker.close()
        self.steps.shutdown(wait=False)
        self.calls.shutdown(wait=False)


def slow_down(monkeypatch: pytest.MonkeyPatch, name: str, seconds: float) -> None:
    """Let the kernel of a node wait."""
    bound = plan.numpy_kernel

    def slow_kernel(node: Any, op: Any) -> Any:
        kernel = bound(node, op)

        def compute(*inputs: Any) -> Any:
            time.sleep(seconds)
            return kernel(*inputs)

        return compute if node.name == name else kernel

    monkeypatch.setattr(plan, "numpy_kernel", slow_kernel)
