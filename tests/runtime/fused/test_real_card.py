"""Generated kernels and XLA on a real card, beside NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from benchmarks.running import GRAPHS, works
from cfgraph.runtime.devices.card import Card
from cfgraph.runtime.fused.cuda import module_of
from cfgraph.runtime.fused.group import Group
from cfgraph.runtime.fused.kernel_text import source_of
from tests.runtime.fused.engines import need
from tests.runtime.fused.host import Batch
from tests.runtime.fused.nodes import sweep

pytestmark = pytest.mark.gpu
LSTM = {work.file: work for work in works(tiny=True) if "lstm" in work.file}


class CardBatch(Batch):
    """The card, with all kernels of a test in one module."""

    # CUDA's functions have errors of up to 9 units for lgamma and its like, 2 for most
    roughness = 4

    def __init__(self, folder: Path, card: Card) -> None:
        super().__init__(folder)
        self.card, self.array = card, card.array

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self.card.xp.empty(shape, dtype)

    def to_device(self, value: np.ndarray) -> Any:
        return self.card.to_device(value)

    def to_host(self, value: Any) -> np.ndarray:
        return np.asarray(self.card.to_host(value))

    def compiled(self, kernels: list[str]) -> Any:
        return _Module(module_of(self.card.xp, source_of(*kernels)))


class _Module:
    def __init__(self, module: Any) -> None:
        self._module = module

    def launch(self, name: str, blocks: int, threads: int, given: Sequence[Any]) -> None:
        self._module.get_function(name)((blocks,), (threads,), tuple(given))


def test_every_elementwise_op_computes_on_a_card_what_numpy_does(
    tmp_path: Path, real_card: Card
) -> None:
    assert sweep(CardBatch(tmp_path, real_card), 1) > 100


@pytest.mark.parametrize("engine", ["numpy", "xla"])
@pytest.mark.parametrize("file", LSTM)
def test_an_lstm_on_a_card_gives_what_the_host_gives(
    file: str, engine: str, real_card: Card
) -> None:
    need(engine, real_card)
    work, graph = LSTM[file], cfgraph.load(GRAPHS / file)
    want = cfgraph.Session(graph).run(work.fetches, work.feeds)
    session = cfgraph.Session(graph, devices="gpu:0", jit=engine, gpu=real_card)
    for _ in range(3):
        got = session.run(work.fetches, work.feeds)
        for one, other in zip(got, want, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-3, atol=1e-4)
    # the launches that the host would run are planned, and never called
    called = [one for one in session.launches.clusters.values() if one.calls]
    calls = [call for one in called for call in one.line.calls]
    groups = [call.kernel for call in calls if isinstance(call.kernel, Group)]
    assert groups
    assert not any(group.refused for group in groups), [group.refused for group in groups]
    assert not any(one.refused for one in called), [one.refused for one in called]
    told = [item.refused for one in called for item in one.compilations if item.refused]
    assert not told
