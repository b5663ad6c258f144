"""A kernel that fails on the GPU and runs on the host has its effects once, wherever it failed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.backends.gpu.context import GpuContext
from cfgraph.errors import CfgraphError
from cfgraph.ir.graph import Graph, Output
from cfgraph.ops.families.variables import Variable
from cfgraph.runtime.engine.step import State
from tests.backends.gpu.stand_in import Faults, library
from tests.ops import harness
from tests.ops.scenario import Run, Scenario, Sketch, scenarios
from tests.sampled import in_sweep

WRITTEN = """
x = Placeholder() {dtype=float32, shape=[?]} @"/gpu:0"
size = Const() {dtype=int32, value=int32[]:2}
zero = Const() {dtype=int32, value=int32[]:0}
one = Const() {dtype=int32, value=int32[]:1}
array = TensorArrayV3(size) {dtype=float32} @"/gpu:0"
first = TensorArrayWriteV3(array, zero, x, array:1) @"/gpu:0"
y = Neg(x) @"/gpu:0"
second = TensorArrayWriteV3(array, one, y, first) @"/gpu:0"
whole = TensorArrayConcatV3(array, second) {dtype=float32} @"/gpu:0"
"""


def outcomes(graph: Graph, runs: list[Run], **options: Any) -> Iterator[Any]:
    """The values of each run or the kind of its error, and at the end those of all variables."""
    state = State()
    options |= {"devices": "cpu:0,gpu:0", "soft_placement": True}
    with cfgraph.Session(graph, state=state, **options) as session:
        for run in runs:
            tensors = [item.name for item in run if isinstance(item, Output)]
            targets = [item.name for item in run if not isinstance(item, Output)]
            try:
                yield session.run(tensors, {}, targets, timeout=20)
            except CfgraphError as error:
                yield type(error)
    yield [
        np.asarray(getattr(x.value, "get", lambda x=x: x.value)())
        for x in state.objects()
        if isinstance(x, Variable)
    ]


def assert_equal(have: Any, expected: Any) -> None:
    if isinstance(expected, type):
        assert have is expected
        return
    for mine, wanted in zip(have, expected, strict=True):
        harness.assert_same(harness.case("Identity", [0]), mine, wanted)


def on_gpu(scene: Scenario) -> tuple[Graph, list[Run]]:
    sketch = Sketch()
    runs = list(scene(sketch))
    for node in sketch.graph:
        node.device = "/gpu:0"
    return sketch.graph, runs


# scenarios in which the host does not repeat what the card does, and why
NOT_REPEATED = {
    "variables-gather": "an index out of range wraps on a card, and is an error on the host",
}
SCENES = [
    pytest.param(scene, id=name) for name, scene in scenarios().items() if name not in NOT_REPEATED
]


@pytest.mark.slow
@pytest.mark.parametrize("scene", in_sweep(SCENES))
def test_an_effect_happens_once_wherever_its_kernel_fails(scene: Scenario) -> None:
    expected = list(outcomes(*on_gpu(scene), gpu="simulated"))
    for place in itertools.count():
        with Faults.at(place):
            have = list(outcomes(*on_gpu(scene), gpu=GpuContext(library)))
            is_done = place >= Faults.count
        for mine, wanted in zip(have, expected, strict=True):
            assert_equal(mine, wanted)
        if is_done:
            return


def test_a_generator_with_its_state_on_a_card_is_advanced_by_the_host() -> None:
    scene = scenarios()["generators-reading_skips"]
    expected = list(outcomes(*on_gpu(scene), gpu="simulated"))
    have = list(outcomes(*on_gpu(scene), gpu=GpuContext(library)))
    for mine, wanted in zip(have, expected, strict=True):
        assert_equal(mine, wanted)


def test_a_concatenation_that_the_host_repeats_reads_its_elements_once() -> None:
    graph = cfgraph.loads(WRITTEN.encode(), "graph")
    for place in range(4):
        session = cfgraph.Session(graph, devices="cpu:0,gpu:0", gpu=GpuContext(library))
        with Faults.at(place):
            whole, lengths = session.run(["whole:0", "whole:1"], {"x": [1.0, 2.0]})
        assert (whole.tolist(), lengths.tolist()) == ([1, 2, -1, -2], [2, 2])
