"""Recorded sessions run on actors of Ray.

All of them share two actors, in which each session has a worker of its own: a process for each
session takes longer than its runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

import cfgraph
from cfgraph.backends.workers import on_ray
from cfgraph.backends.workers.on_ray import Ray, RayTransport, WorkerActor
from cfgraph.backends.workers.worker import Worker
from tests.conformance import recorded
from tests.conformance.agree.ways import Way
from tests.conformance.recorded_ways import difference
from tests.runtime.partitioned_graphs import counting

_WORKERS = 2
_SESSIONS = 50


class SharedActor(WorkerActor):
    """An actor that replaces its worker."""

    def __init__(self, index: int, secret: bytes, lost_after: float, folder: str | None) -> None:
        super().__init__(index, secret, lost_after, folder)
        self.index, self.lost_after = index, lost_after

    def call(self, method: str, *args: Any) -> Any:
        if method != "replace_worker":
            return super().call(method, *args)
        (secret,) = args
        self._worker.close()
        self._worker = Worker(self.index, secret, "127.0.0.1", self.lost_after)
        return None


class _SharedTransport(RayTransport):
    """The transport of all sessions, which starts actors for the first alone."""

    def start(self, devices: Sequence[Sequence[str]], secret: bytes) -> list[Any]:
        if not self._handles:
            return super().start(devices, secret)
        for handle in self._handles:
            handle.call("replace_worker", secret).result(60)
        return list(self._handles)

    def close(self) -> None:
        """Leave the actors to the next session."""

    def end(self) -> None:
        super().close()


@dataclass(frozen=True)
class SharedActors:
    transport_of_all: _SharedTransport
    workers: int = _WORKERS
    lost_after: float = 30.0

    def transport(self) -> _SharedTransport:
        return self.transport_of_all


@pytest.fixture
def actors(monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedActors]:
    pytest.importorskip("ray", reason="needs the extra `ray`")
    monkeypatch.setattr(on_ray, "WorkerActor", SharedActor)
    transport = _SharedTransport(Ray("local", _WORKERS, lost_after=30.0))
    shared = SharedActors(transport)
    graph = cfgraph.loads(counting().encode(), "graph")
    with cfgraph.Session(graph, workers=shared) as session:  # Ray starts, outside of any timeout
        assert session.run(["out:0"], {"n": 3}) == [3]
    yield shared
    transport.end()


@pytest.mark.slow
def test_recorded_sessions_agree_on_ray(actors: SharedActors) -> None:
    sessions = recorded.parameters("session")
    chosen = sessions[:: len(sessions) // _SESSIONS][:_SESSIONS]
    cases: list[Any] = [case.values[0] for case in chosen]
    assert len(cases) == _SESSIONS
    failures = {}
    for case in cases:
        way = Way.parse("partition=cpu:0-3 auto")
        failure = difference(case, way, devices="cpu:0-3", workers=actors)
        if failure:
            failures[case["id"]] = failure
    assert not failures
