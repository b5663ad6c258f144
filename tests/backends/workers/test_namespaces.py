"""Workers on hosts that are network namespaces."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.errors import WorkerLost
from tests.backends.workers.handles import worker_handles
from tests.backends.workers.namespaces import Namespace, OnNamespaces, connected_namespaces
from tests.conformance import recorded
from tests.conformance.agree.ways import Way
from tests.conformance.recorded_ways import difference
from tests.runtime.partitioned_graphs import counting, nesting

pytestmark = pytest.mark.slow
_LOST_AFTER = 2.0


@pytest.fixture
def hosts() -> Iterator[list[Namespace]]:
    with connected_namespaces(2) as namespaces:
        yield namespaces


def session(text: str, hosts: list[Namespace], **options: Any) -> cfgraph.Session:
    graph = cfgraph.loads(text.encode(), "graph")
    return cfgraph.Session(graph, workers=OnNamespaces(tuple(hosts), _LOST_AFTER), **options)


@pytest.mark.parametrize("engine", ["compiled", "tokens"])
def test_a_loop_runs_over_two_hosts(hosts: list[Namespace], engine: str) -> None:
    with session(counting(), hosts, engine=engine) as run:
        assert run.run(["out:0"], {"n": 500}) == [500]
        pids = ["self", *(handle.pid for handle in worker_handles(run))]
        assert len({Path(f"/proc/{pid}/ns/net").readlink() for pid in pids}) == 3


@pytest.mark.parametrize("engine", ["compiled", "tokens"])
def test_a_host_that_is_cut_off_is_lost(hosts: list[Namespace], engine: str) -> None:
    with session(counting(), hosts, engine=engine) as run:
        run.run(["out:0"], {"n": 3})
        cut_off: list[float] = []

        def cut_now() -> None:
            cut_off.append(time.monotonic())
            hosts[1].cut_off()

        threading.Timer(0.5, cut_now).start()
        with pytest.raises(WorkerLost) as caught:
            run.run(["out:0"], {"n": 1 << 30})
        assert cut_off
        assert time.monotonic() - cut_off[0] < _LOST_AFTER + 20
    assert caught.value.code == "CFG720"
    assert "has sent nothing for" in caught.value.message


@pytest.mark.parametrize("engine", ["compiled", "tokens"])
def test_a_delay_changes_no_value(hosts: list[Namespace], engine: str) -> None:
    for host in hosts:
        host.delay(5)
    with session(counting(), hosts, engine=engine) as run:
        start = time.monotonic()
        assert run.run(["out:0"], {"n": 20}) == [20]
        assert time.monotonic() - start > 20 * 2 * 0.005
    with session(nesting(), hosts, engine=engine) as run:
        assert run.run(["out:0"], {"n_outer": 3, "n_inner": 4}) == [12]
    case = next(c for c in recorded.cases() if c["id"].endswith("WhileGrad_ParallelInner/0"))
    workers = OnNamespaces(tuple(hosts), _LOST_AFTER)
    options: dict[str, Any] = {"devices": "cpu:0-3", "workers": workers}
    assert not difference(case, Way(("partition=cpu:0-3",), engine), **options)
