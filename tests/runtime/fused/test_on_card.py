"""Clusters on a card: groups are launched there; the stand-in of CuPy runs them on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from benchmarks.running import GRAPHS, works
from cfgraph.runtime.devices.card import Card
from cfgraph.runtime.fused.group import Group
from cfgraph.runtime.fused.prelude import PRELUDE
from tests.runtime.card.stand_in import Array, library
from tests.runtime.fused.host import COMPILER, WHY_NOT, Kernels

needs_compiler = pytest.mark.skipif(COMPILER is None, reason=WHY_NOT)
LSTM = {work.file: work for work in works(tiny=True) if "lstm" in work.file}


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Card:
    """A card whose generated kernels are compiled for the host."""

    class RawModule:
        def __init__(self, code: str, options: tuple[str, ...], backend: str) -> None:
            self.kernels = Kernels(tmp_path, [code.removeprefix(PRELUDE)])

        def get_function(self, name: str) -> Any:
            def launch(blocks: tuple[int], threads: tuple[int], given: tuple[Any, ...]) -> None:
                plain = [_address(item) for item in given]
                self.kernels.launch(name, *blocks, *threads, plain)

            return launch

    monkeypatch.setattr(library, "RawModule", RawModule, raising=False)
    return Card(library)


def _address(value: Any) -> Any:
    return np.uint64(value._a.ctypes.data) if isinstance(value, Array) else value


def groups(session: cfgraph.Session) -> list[Group]:
    return [
        call.kernel
        for cluster in session.launches.clusters.values()
        for call in cluster.line.calls
        if isinstance(call.kernel, Group)
    ]


@needs_compiler
@pytest.mark.parametrize("file", LSTM)
def test_an_lstm_launches_its_groups_and_gives_what_the_host_gives(
    file: str, stand_in: Card
) -> None:
    work, graph = LSTM[file], cfgraph.load(GRAPHS / file)
    want = cfgraph.Session(graph).run(work.fetches, work.feeds)
    session = cfgraph.Session(graph, devices="gpu:0", jit="numpy", gpu=stand_in)
    got = session.run(work.fetches, work.feeds)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    launched = [group.launches for group in groups(session)]
    assert launched
    # every iteration is one launch of a group
    assert all(count == work.iterations for count in launched if count), launched
    assert sum(map(bool, launched)) >= 1
