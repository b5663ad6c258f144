"""Growth of every command with graphs that are valid and large, and graphs that are deep.

Calls of functions are counted, which are the same in each run.
"""

from __future__ import annotations

import cProfile
import gc
import time
from pathlib import Path

import numpy as np
import pytest

import cfgraph
from benchmarks import growth
from benchmarks.families import FAMILIES
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import float32, int32
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.string_patterns import replace_matches
from tests.sampled import in_sweep, sampled

_SIZE = 12
_FACTOR = 4
_LARGEST_EXPONENT = 1.3
_SUCCESS = {0, 1}
_LARGE = {
    "nested_conditionals": 5_000,
    "nested_loops": 1_000,
    "functions": 30_000,
    "independent_functions": 30_000,
    "unused_functions": 30_000,
}
# several times what the slowest of them takes
_MAX_SECONDS = 240
_FAMILIES = list(FAMILIES)
_COMMANDS = list(growth.COMMANDS)
# the first case of each family is in the sample, and each command is the first of some
_CASES = [
    pytest.param(command, family, id=f"{command}-{family}")
    for index, family in enumerate(_FAMILIES)
    for shift in range(len(_COMMANDS))
    for command in [_COMMANDS[(index + shift) % len(_COMMANDS)]]
]


def _calls(command: str, path: Path) -> int:
    profile = cProfile.Profile()
    profile.enable()
    status = growth.run(command, path)
    profile.disable()
    assert status in _SUCCESS
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize(("command", "family"), sampled(_CASES, 3 * len(_COMMANDS)))
def test_calls_grow_with_the_size(command: str, family: str, tmp_path: Path) -> None:
    small, large = (growth.write(family, size, tmp_path) for size in (_SIZE, _FACTOR * _SIZE))
    # modules are imported, and caches filled
    growth.run(command, small)
    exponent = 2.3 if (command, family) in growth.QUADRATIC else _LARGEST_EXPONENT
    assert _calls(command, large) <= _FACTOR**exponent * _calls(command, small)


@pytest.mark.slow
def test_loops_in_a_row_are_optimized_in_linear_time(tmp_path: Path) -> None:
    # work per pair of loops shows in graphs that are larger than those above
    small, large = (growth.write("loops", size, tmp_path) for size in (40, 160))
    growth.run("optimize", small)
    assert _calls("optimize", large) <= _FACTOR**1.1 * _calls("optimize", small)


@pytest.mark.parametrize(
    ("command", "exponent"),
    [
        ("check", 1.1),
        ("grad", 1.1),
        *in_sweep(
            [
                pytest.param("regions", 1.1, marks=pytest.mark.slow),
                pytest.param("cluster", 1.3, marks=pytest.mark.slow),
            ]
        ),
    ],
)
def test_loops_of_many_variables_are_linear(command: str, exponent: float, tmp_path: Path) -> None:
    # work per pair of variables shows in graphs that are larger than those above
    small, large = (growth.write("loop_variables", size, tmp_path) for size in (40, 160))
    growth.run(command, small)
    assert _calls(command, large) <= _FACTOR**exponent * _calls(command, small)


@pytest.mark.parametrize("op", ["_SwitchN", "DynamicPartition"])
def test_nodes_of_many_outputs_are_linear(op: str) -> None:
    # before, 10 seconds and more: all pairs of outputs, or outputs times elements
    started, count = time.process_time(), 32_768
    graph = cfgraph.Graph()
    x, index = (graph.add("Placeholder", dtype=d).output() for d in (float32, int32))
    key = "num_outs" if op == "_SwitchN" else "num_partitions"
    node = graph.create("s", op, [x, index], (), {"T": float32, key: count})
    graph.add("Identity", node.output(3), name="y")
    assert not cfgraph.check(graph).count("error")
    shape = () if op == "_SwitchN" else (count,)
    feeds = {x.name: np.full(shape, 2, np.float32), index.name: np.full(shape, 3, np.int32)}
    [y] = cfgraph.Session(graph).run(["y"], feeds)
    assert np.array_equal(y, feeds[x.name])
    assert time.process_time() - started < 5


@pytest.mark.parametrize("op", ["_SwitchN", "DynamicPartition", "Unpack", "Split"])
def test_gradients_of_nodes_with_many_outputs_add_few_nodes(op: str) -> None:
    calls = []
    for count in (2_048, 8_192):
        graph = cfgraph.Graph()
        x = graph.add("Placeholder", name="x", dtype=float32, shape=Shape([count])).output()
        index = graph.add("Placeholder", dtype=int32).output()
        axis = graph.add("Const", dtype=int32, value=TensorValue(np.int32(0))).output()
        key = {"_SwitchN": "num_outs", "Unpack": "num", "Split": "num_split"}
        inputs = {"Unpack": [x], "Split": [axis, x]}.get(op, [x, index])
        attrs = {"T": float32, key.get(op, "num_partitions"): count}
        node = graph.create("s", op, inputs, (), attrs)
        graph.add("Identity", node.output(3), name="y")
        before = len(graph)
        profile = cProfile.Profile()
        profile.enable()
        cfgraph.gradients(graph, "y", "x")
        profile.disable()
        assert len(graph) < before + 20
        calls.append(sum(entry.callcount for entry in profile.getstats()))
    assert calls[1] < 4.5 * calls[0]


# a file of 30,000 functions takes long to write: the commands of a family share it
@pytest.fixture(scope="module")
def large_graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    family: str = request.param
    return growth.write(family, _LARGE[family], tmp_path_factory.mktemp(family))


@pytest.mark.slow
@pytest.mark.parametrize("large_graph", _LARGE, indirect=True)
@pytest.mark.parametrize("command", _COMMANDS)
def test_large_graphs_pass(large_graph: Path, command: str) -> None:
    started = time.process_time()
    assert growth.run(command, large_graph) in _SUCCESS
    assert time.process_time() - started < _MAX_SECONDS
    gc.collect()  # the next tests of this process find its memory free


def test_alternatives_of_a_pattern_are_not_combined() -> None:
    pattern, text = b"(a|a)" * 26 + b"b", b"a" * 40
    start = time.process_time()
    assert replace_matches(pattern, b"x", text, replace_all=True) == text
    assert time.process_time() - start < 1
